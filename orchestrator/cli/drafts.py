"""The verb `import`: a draft of a search-space file from code that exists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.api.templates import draft_from_argparse
from orchestrator.cli.display import print_line


def import_options(
    argparse: Annotated[
        Path, typer.Option("--argparse", metavar="SCRIPT", help="A Python script with options by argparse.")
    ],
) -> None:
    """Print a draft of a search-space file that runs a script with values for its options.

    The script is read, not run. Ranges are guessed from types and defaults: correct them before the sweep.

    Example:

        sweep import --argparse train.py
    """
    print_line(draft_from_argparse(argparse).rstrip("\n"))
