"""Checking, cleaning and rebuilding what earlier runs have left: `check`, `gc`, `recover`."""
