"""Fetching published data sets: download, verify, unpack, move into place."""
