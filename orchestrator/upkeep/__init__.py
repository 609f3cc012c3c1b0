"""Checking, cleaning and rebuilding what earlier runs left behind: `check`, `gc`, `recover`."""
