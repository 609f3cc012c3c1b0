"""All verbs; `run` is the one that a bare file name means."""

from __future__ import annotations

from collections.abc import Sequence

import click
import typer
from rich.console import Console

from orchestrator.cli.evaluate import evaluate
from orchestrator.cli.run import run
from orchestrator.cli.ui import ui
from orchestrator.driver import Exit
from trainables.errors import Refusal

app = typer.Typer(
    name="sweep",
    help="Hyperparameter sweeps for long-sequence models. `sweep FILE` is short for `sweep run FILE`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command()(run)
app.command()(evaluate)
app.command()(ui)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; a refusal is one line on standard error."""
    command = typer.main.get_command(app)
    assert isinstance(command, click.Group)
    try:
        result = command.main(_with_verb(arguments, command), prog_name="sweep", standalone_mode=False)
    except Refusal as refusal:
        Console(stderr=True, soft_wrap=True, highlight=False).print(str(refusal), style="red", markup=False)
        return Exit.BAD_INPUT
    except click.ClickException as error:
        error.show()
        return Exit.BAD_INPUT
    except click.Abort:
        return Exit.RESUMABLE
    return int(result or 0)


def _with_verb(arguments: Sequence[str], command: click.Group) -> list[str]:
    """Put `run` in front of a command line that starts with a file instead of a verb."""
    first = next(iter(arguments), None)
    if first is None or first in command.commands or first in ("--help", "--install-completion", "--show-completion"):
        return list(arguments)
    return ["run", *arguments]
