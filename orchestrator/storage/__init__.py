"""Paths on this machine, and the checkpoint store that every node can reach."""
