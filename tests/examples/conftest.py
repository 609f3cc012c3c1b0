"""Fixtures of real commands, as end-to-end tests have them."""

from tests.end_to_end.conftest import commands, shared_folder

__all__ = ["commands", "shared_folder"]
