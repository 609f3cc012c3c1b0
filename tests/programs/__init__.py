"""Programs that tests run in processes of their own, or write into the folder of a sweep."""

from __future__ import annotations

from pathlib import Path


def program(name: str) -> str:
    """Return the text of a program in this folder."""
    return Path(__file__).with_name(f"{name}.py").read_text()
