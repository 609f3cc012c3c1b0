"""Drafts of search-space files for code that exists."""

from __future__ import annotations

from pathlib import Path

from orchestrator.config import argparse_draft
from orchestrator.errors import BadInput
from trainables.sources import text_of


def draft_from_argparse(script: Path) -> str:
    """Return a search-space file for a Python script that declares its options with `argparse`.

    The script is read, not run.

    Args:
        script: the file.

    Raises:
        BadInput: the file cannot be read, or has no option that can be searched.
    """
    try:
        source = text_of(script)
    except (OSError, SyntaxError, ValueError) as error:
        raise BadInput(
            str(script), "must be a Python script", str(error), "Name the script itself."
        ) from None
    return argparse_draft.draft(source, script.name)
