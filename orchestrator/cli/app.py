"""All verbs; `run` is the one that a bare file name means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module

import typer
from rich.console import Console

from orchestrator.errors import NoCluster
from orchestrator.exits import Exit
from trainables.errors import Refusal

VERBS = {
    "run": "orchestrator.cli.run:run",
    "resume": "orchestrator.cli.run:resume",
    "retry-failed": "orchestrator.cli.run:retry_failed",
    "stop": "orchestrator.cli.control:stop",
    "follow": "orchestrator.cli.follow:follow",
    "status": "orchestrator.cli.look:status",
    "list": "orchestrator.cli.look:list_sweeps",
    "show": "orchestrator.cli.look:show",
    "logs": "orchestrator.cli.look:logs",
    "evaluate": "orchestrator.cli.evaluate:evaluate",
    "report": "orchestrator.cli.reports:report",
    "compare": "orchestrator.cli.reports:compare",
    "export": "orchestrator.cli.export:export",
    "export-study": "orchestrator.cli.export:export_study",
    "export-tensorboard": "orchestrator.cli.export:export_tensorboard",
    "validate": "orchestrator.cli.control:validate",
    "check": "orchestrator.cli.control:check",
    "data": "orchestrator.cli.data:data_app",
    "gc": "orchestrator.cli.gc:gc",
    "recover": "orchestrator.cli.control:recover_ledger",
    "cluster": "orchestrator.cli.cluster:cluster_app",
    "ui": "orchestrator.cli.ui:ui",
}
"""Where each verb stands. A command line imports its own verb only: `status` must not wait for plotly."""

_OWN_OPTIONS = ("--help", "--install-completion", "--show-completion")


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; a refusal is one line on standard error."""
    words = _with_verb(arguments)
    app = build([words[0]] if words and words[0] in VERBS else VERBS)
    try:
        result = app(args=words, prog_name="sweep", standalone_mode=False)
    except NoCluster as lack:
        _refuse(str(lack))
        return Exit.RESUMABLE
    except Refusal as refusal:
        return _refuse(str(refusal))
    except typer.TyperException as error:
        return _refuse(error.format_message())
    except typer.Abort:
        return Exit.RESUMABLE
    return int(result or 0)


def build(verbs: Iterable[str]) -> typer.Typer:
    """Return the application with these verbs."""
    app = typer.Typer(
        name="sweep",
        help="Hyperparameter sweeps for long-sequence models. `sweep FILE` is short for `sweep run FILE`.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )
    app.callback()(lambda: None)  # a verb stays a word of the command line, even where it is the only one
    for verb in verbs:
        module, name = VERBS[verb].split(":")
        found = getattr(import_module(module), name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=verb)
        else:
            app.command(verb)(found)
    return app


def _with_verb(arguments: Sequence[str]) -> list[str]:
    """Put `run` in front of a command line that starts with a file instead of a verb."""
    first = next(iter(arguments), None)
    if first is None or first in VERBS or first in _OWN_OPTIONS:
        return list(arguments)
    return ["run", *arguments]


def _refuse(line: str) -> int:
    Console(stderr=True, soft_wrap=True, highlight=False).print(line, style="red", markup=False)
    return Exit.BAD_INPUT
