"""Pathfinder: do the two discs lie on one dashed line?"""
