"""All verbs; `run` is the one that a bare file name means."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.console import Console

from orchestrator.cli.control import check, stop, validate
from orchestrator.cli.evaluate import evaluate
from orchestrator.cli.look import list_sweeps, logs, show, status
from orchestrator.cli.run import resume, retry_failed, run
from orchestrator.cli.ui import ui
from orchestrator.exits import Exit
from trainables.errors import Refusal

_OWN_OPTIONS = ("--help", "--install-completion", "--show-completion")

app = typer.Typer(
    name="sweep",
    help="Hyperparameter sweeps for long-sequence models. `sweep FILE` is short for `sweep run FILE`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("run")(run)
app.command("resume")(resume)
app.command("retry-failed")(retry_failed)
app.command("stop")(stop)
app.command("status")(status)
app.command("list")(list_sweeps)
app.command("show")(show)
app.command("logs")(logs)
app.command("evaluate")(evaluate)
app.command("validate")(validate)
app.command("check")(check)
app.command("ui")(ui)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; a refusal is one line on standard error."""
    try:
        result = app(args=_with_verb(arguments), prog_name="sweep", standalone_mode=False)
    except Refusal as refusal:
        return _refuse(str(refusal))
    except typer.TyperException as error:
        return _refuse(error.format_message())
    except typer.Abort:
        return Exit.RESUMABLE
    return int(result or 0)


def _with_verb(arguments: Sequence[str]) -> list[str]:
    """Put `run` in front of a command line that starts with a file instead of a verb."""
    first = next(iter(arguments), None)
    if first is None or first in _verbs() or first in _OWN_OPTIONS:
        return list(arguments)
    return ["run", *arguments]


def _verbs() -> set[str]:
    commands = {str(command.name) for command in app.registered_commands}
    return commands | {str(group.name) for group in app.registered_groups}


def _refuse(line: str) -> int:
    Console(stderr=True, soft_wrap=True, highlight=False).print(line, style="red", markup=False)
    return Exit.BAD_INPUT
