"""Command line: the table of verbs, and the function that runs one. A bare file name means `run`."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from orchestrator.accounts import files_closed
from orchestrator.cli.options import OF_THIS_MACHINE
from orchestrator.cli.typer_private import check_values_lightly
from orchestrator.client.protocol import URL
from orchestrator.errors import BadInput, Exit, Refusal
from orchestrator.output import print_error, print_refusal
from orchestrator.process_secrets import redacted

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Run": {
        "init": "orchestrator.cli.file_verbs:init",
        "run": "orchestrator.cli.sweep_verbs:run",
        "resume": "orchestrator.cli.sweep_verbs:resume",
        "retry-failed": "orchestrator.cli.sweep_verbs:retry_failed",
        "stop": "orchestrator.cli.sweep_verbs:stop",
        "try": "orchestrator.cli.sweep_verbs:try_setting",
        "follow": "orchestrator.cli.sweep_verbs:follow",
        "validate": "orchestrator.cli.validate_verb:validate",
        "import": "orchestrator.cli.import_verb:import_search",
        "experiment": "orchestrator.cli.experiments:experiment",
    },
    "Service": {
        "serve": "orchestrator.cli.serve:serve",
        "submit": "orchestrator.cli.sweep_verbs:submit",
        "mcp": "orchestrator.cli.mcp_verb:mcp",
        "user": "orchestrator.cli.sharing_verbs:user_app",
        "notify": "orchestrator.cli.sharing_verbs:notify",
    },
    "Look": {
        "list": "orchestrator.cli.look:list_sweeps",
        "status": "orchestrator.cli.look:status",
        "show": "orchestrator.cli.look:show",
        "logs": "orchestrator.cli.look:logs",
        "note": "orchestrator.cli.shelf_verbs:note",
        "archive": "orchestrator.cli.shelf_verbs:archive",
        "delete": "orchestrator.cli.shelf_verbs:delete",
        "sql": "orchestrator.cli.sql_verb:sql",
    },
    "Share": {
        "queue": "orchestrator.cli.look:queue",
        "move": "orchestrator.cli.sharing_verbs:move",
        "quota": "orchestrator.cli.sharing_verbs:quota",
        "cost": "orchestrator.cli.sharing_verbs:cost",
    },
    "Results": {
        "report": "orchestrator.cli.result_verbs:report",
        "compare": "orchestrator.cli.result_verbs:compare",
        "replay": "orchestrator.cli.replay_verb:replay",
        "evaluate": "orchestrator.cli.file_verbs:evaluate",
        "export": "orchestrator.cli.file_verbs:export",
        "export-study": "orchestrator.cli.file_verbs:export_study",
        "export-tensorboard": "orchestrator.cli.file_verbs:export_tensorboard",
        "ui": "orchestrator.cli.serve:ui",
    },
    "Data sets, machines, upkeep": {
        "data": "orchestrator.cli.data_verbs:data_app",
        "cluster": "orchestrator.cli.machine_verbs:cluster_app",
        "check": "orchestrator.cli.machine_verbs:check",
        "gc": "orchestrator.cli.machine_verbs:gc",
        "mlflow": "orchestrator.cli.machine_verbs:mlflow_app",
        "recover": "orchestrator.cli.machine_verbs:recover",
    },
}
"""Every verb, by its heading in `--help`, and where it is defined."""

VERBS: Mapping[str, str] = {verb: place for group in GROUPS.values() for verb, place in group.items()}
"""Module and function of each verb. A command line imports only its own verb: `status` must not wait for
plotly."""

DRIVING = frozenset({"run", "resume", "retry-failed", "experiment"})
"""Verbs whose process may drive a sweep."""

IS_CLIENT = find_spec("orchestrator.api") is None
"""Whether only the client is installed: the verbs that use a remote service, and their imports."""

_COMPLETE = "_SWEEP_COMPLETE"
"""Environment variable with which a shell asks for completions, as Typer names it."""

_OWN_OPTIONS = ("--help", "--version", "--install-completion", "--show-completion")

_VALUES: Mapping[str, str] = {"str": "TEXT", "list[str]": "TEXT", "int": "NUMBER", "float": "NUMBER"}
"""Placeholders of option values in `--help`, by the name of the type in Typer."""


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; print each mistake as a line on standard error."""
    words = _with_verb(arguments)
    try:
        _check_verb(arguments)
        app = _application(words)
        with files_closed():
            result = app(args=words, prog_name="sweep", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a refusal is still printed
    except (Refusal, OSError) as error:
        return print_refusal(error)
    except typer.TyperException as error:
        message = error.format_message()
        if getattr(error, "option_name", None) == "--server":
            message = f"`{words[0]}` works only on this machine: it has no option --server."
        print_error(message)
        return Exit.BAD_INPUT
    except typer.Abort:
        return Exit.RESUMABLE
    return int(result or 0)


def drives_sweeps(arguments: Sequence[str]) -> bool:
    """Return True if the process of a command line may drive a sweep."""
    return not DRIVING.isdisjoint(_with_verb(arguments)[:1])


def outlives_its_output(arguments: Sequence[str]) -> bool:
    """Return True if the process of a command line continues after its output pipe is closed."""
    return drives_sweeps(arguments) or serves_sweeps(arguments)


def serves_sweeps(arguments: Sequence[str]) -> bool:
    """Return True if the process of a command line is a service."""
    return _with_verb(arguments)[:1] == ["serve"]


def code_of_interruption(arguments: Sequence[str]) -> Exit:
    """Return the exit code of a command line that a signal ends before its driver or service has begun."""
    if serves_sweeps(arguments) and "--stop-drivers" not in arguments:
        return Exit.COMPLETE
    return Exit.RESUMABLE


def _application(words: Sequence[str]) -> typer.Typer:
    """Return the application that runs a command line, with no more verbs than it needs."""
    verb = _completed_verb() if _COMPLETE in os.environ else next(iter(words), None)
    if verb is not None and verb in VERBS:
        return build([verb])
    app = build(())
    for verb in () if "--version" in words else filter(_is_installed, VERBS):
        app.command(verb, help=_purpose(verb), rich_help_panel=_heading(verb))(lambda: None)
    return app


def _completed_verb() -> str | None:
    """Return the verb whose arguments a shell completes, or None if it completes the verb itself."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    words = line.split()
    has_arguments = len(words) > 2 or (len(words) == 2 and line[-1].isspace())
    return words[1] if has_arguments and words[1] in VERBS and _is_installed(words[1]) else None


def build(verbs: Iterable[str]) -> typer.Typer:
    """Return the application with these verbs."""
    check_values_lightly()
    app = typer.Typer(
        name="sweep",
        help="Hyperparameter sweeps for long-sequence models. `sweep FILE` is short for `sweep run FILE`.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )
    # Without a callback, Typer would drop a single verb from the command line.
    app.callback(cls=_Verbs)(_own_options)
    for verb in verbs:
        module, name = VERBS[verb].split(":")
        defined = getattr(import_module(module), name)
        heading = _heading(verb)
        if isinstance(defined, typer.Typer):
            for command in defined.registered_commands:
                command.cls = _Verb
            app.add_typer(defined, name=verb, cls=_Verbs, rich_help_panel=heading)
        else:
            app.command(verb, cls=_Verb, rich_help_panel=heading)(defined)
    return app


def _heading(verb: str) -> str:
    return next(heading for heading, group in GROUPS.items() if verb in group)


def _is_installed(verb: str) -> bool:
    """Return True if the module of a verb is installed; the client has only some of them."""
    return find_spec(VERBS[verb].partition(":")[0]) is not None


def _purpose(verb: str) -> str:
    """Return the help of a verb from the text of its module, which `--help` does not import."""
    module, name = VERBS[verb].split(":")
    for node in _tree(module).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node) or ""
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            assert isinstance(node.value, ast.Call), "it is a group of verbs"
            given = {each.arg: each.value for each in node.value.keywords}
            return str(ast.literal_eval(given["help"]))
    raise LookupError(VERBS[verb])


@cache
def _tree(module: str) -> ast.Module:
    found = find_spec(module)
    assert found is not None, module
    assert found.origin is not None, module
    return ast.parse(Path(found.origin).read_text(encoding="utf-8"))


class _Verb(TyperCommand):
    """A verb whose `--help` names values by words, and which checks that its options reach the service."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb after checking which ledger it acts on."""
        _check_service(ctx, self)
        return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with placeholders in words."""
        return _in_words(super().get_params(ctx))


class _Verbs(TyperGroup):
    """A group of verbs."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with placeholders in words."""
        return _in_words(super().get_params(ctx))


def _check_service(ctx: Any, verb: TyperCommand) -> None:
    """Check that a command line that names a remote service does not act on the ledger of this machine.

    A verb with the parameter `server` works on both. One with only `root` works on a ledger of this machine.

    Raises:
        BadInput: The verb or one of its options has no effect on a remote service, or no service is named
            where only the client is installed.
    """
    sources = {name: ctx.get_parameter_source(name).name for name in ctx.params}
    given = [each for each in verb.params if sources.get(str(each.name)) == "COMMANDLINE"]
    is_here = any(each.name in {"root", "here"} for each in given)
    url = os.environ.get(URL)
    if "server" not in ctx.params:
        if url and "root" in ctx.params and not is_here:
            must = f"must be unset for `{ctx.info_name}`, which works only on the machine of the service"
            raise BadInput(URL, must, redacted(url), f"Run it there, unset {URL}, or give `--root`.")
        return
    if sources["server"] == "ENVIRONMENT" and is_here:
        ctx.params["server"] = None
    if ctx.params["server"] is None:
        if IS_CLIENT:
            must = "must name a remote service, because only the client is installed here"
            raise BadInput("--server", must, "", f"Give its URL, or set {URL}.")
        return
    where = "--server" if sources["server"] == "COMMANDLINE" else URL
    for each in given:
        if getattr(each, "rich_help_panel", None) in OF_THIS_MACHINE:
            must = "has no effect on a remote service"
            got, remedy = redacted(str(ctx.params["server"])), "Leave it out."
            raise BadInput(each.opts[0], must, f"{where} {got}", remedy)


def _in_words(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        vars(parameter)["display_type_rich"] = partial(_value_of, parameter)
    return parameters


def _value_of(parameter: Any, ctx: Any) -> str:
    """Return the placeholder of a parameter's value in `--help`; '' for flags and arguments."""
    if getattr(parameter, "is_flag", False) or isinstance(parameter, TyperArgument):
        return ""
    shown = str(parameter.display_type(ctx)).strip("<>")
    return str(parameter.metavar or _VALUES.get(shown.removesuffix(" range")) or shown.upper())


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        typer.echo(f"sweep {version('rotrnn-sweeps-client' if IS_CLIENT else 'rotrnn-sweeps')}")
        raise typer.Exit


def _own_options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    pass


def _check_verb(arguments: Sequence[str]) -> None:
    """Check that a command line does not begin with a misspelt verb, which would be read as a file.

    Raises:
        BadInput: Its first word is neither a verb nor a file, and resembles a verb; or the client lacks it.
    """
    first = next(iter(arguments), "-")
    if first in VERBS and not _is_installed(first):
        remedy = "Run it on the machine of the service, or install rotrnn-sweeps here."
        raise BadInput(f"`{first}`", "is not part of the client", "", remedy)
    if first in VERBS or first.startswith("-") or Path(first).exists():
        return
    if near := get_close_matches(first, VERBS.keys(), n=1):
        got = "neither a verb nor a file that exists"
        raise BadInput(
            first[:80], "is neither a verb nor an existing file", got, f"Did you mean `{near[0]}`?"
        )


def _with_verb(arguments: Sequence[str]) -> list[str]:
    """Insert `run` before the arguments of a command line that begins with a file."""
    first = next(iter(arguments), None)
    if first is None or first in VERBS or first in _OWN_OPTIONS:
        return list(arguments)
    return ["run", *arguments]
