"""Draft of a search-space file from the options of a Python script: `argparse`, click or Hydra.

The script is parsed, not run. Distributions are guessed from types and defaults and are meant to be edited.
"""

from __future__ import annotations

import ast
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config.document import flow
from orchestrator.config.imports.script_findings import FoundMetrics, HydraConfig, hydra_config, metrics_in
from orchestrator.config.space import DistributionError, chosen
from orchestrator.errors import BadInput
from orchestrator.placeholders import NAME
from trainables.sources import parsed
from trainables.trial import variable_of

CLOCKS = frozenset(
    {"epochs", "num_epochs", "n_epochs", "max_epochs", "steps", "num_steps", "max_steps", "iterations"}
)
"""Names of options for the length of the training."""

GIVEN = frozenset({"seed", "step", "folder", "resume"})
"""Names of placeholders that every trial has beside its hyperparameters."""

_REPORTING = ("sweep_client", "SWEEP_REPORTS")
"""Texts, one of which is in every script that reports."""

STEPS = 100
"""Steps of a trial whose length is not known."""

LONGEST_TRIAL = 10**9
"""Largest number of steps of a trial."""

MOST_SEARCHED = 100
"""Maximum number of searched hyperparameters in a file."""

_LONGEST_WORD = 1_000
_LARGEST = 10**15
_RATIO = 10
_LARGE = 16
_NO_DEFAULT = object()
_PLAIN = re.compile(r"--?[A-Za-z][\w.-]*|python|[A-Za-z][\w-]*\.py")


@dataclass(frozen=True)
class ScriptOption:
    """An option of a script.

    Attributes:
        flag: Flag before its value, such as `--lr`; '' for a positional argument.
        name: Name under which the script reads it.
        kind: Name of its type: `str` by default, '' if it takes no value or its type is not a plain name.
        default: Its default, or None if it has none or if the default is not a literal.
        choices: Values that it accepts; empty if it accepts any; None if they are not literals.
        required: Whether the script does not run without it.
        takes_value: Whether a value follows its flag.
        prefix: Text before the value in the same word, as `lr=` of Hydra.
    """

    flag: str
    name: str
    kind: str
    default: Any
    choices: tuple[Any, ...] | None
    required: bool
    takes_value: bool
    prefix: str = ""

    @property
    def words(self) -> list[str]:
        """Return the words of a command that set the option."""
        return [self.flag] if self.flag else []

    @property
    def last_name(self) -> str:
        """Return the name without those of the groups of Hydra around it."""
        return self.name.rpartition(".")[2] if self.prefix else self.name

    def distribution(self) -> str | None:
        """Return a distribution around a numeric default as YAML, or None.

        Raises:
            _NotSearchedError: It cannot be searched for a reason that its author may not expect.
        """
        if self.last_name in CLOCKS | GIVEN or not self.kind:
            return None
        if self.kind == "bool":
            raise _NotSearchedError("type=bool reads every word as true, even False")
        if not re.fullmatch(NAME, self.name):
            raise _NotSearchedError("its name is not made of letters, digits, _ and dots")
        if self.choices is None:
            raise _NotSearchedError("its choices are not written out")
        if self.choices:
            return f"{{choice: [{', '.join(map(_quoted, self._accepted()))}]}}"
        if isinstance(self.default, bool) or not isinstance(self.default, int | float):
            return None
        if self.kind == "float":
            return _around_real(self.default)
        if self.kind == "int" and isinstance(self.default, int) and 0 < self.default <= _LARGEST:
            return _around_whole(self.default)
        return None

    def _accepted(self) -> list[Any]:
        """Return the choices that a command line and a search can express."""
        if self.kind not in _TYPES:
            raise _NotSearchedError(f"what {self.kind} makes of a word is not known")
        given = dict.fromkeys(choice for choice in self.choices or () if _is_of(self.kind, choice))
        accepted = list(given)
        if len(accepted) < 2:
            raise _NotSearchedError("fewer than two of its choices can be given as words of a command")
        try:
            chosen(accepted)
        except DistributionError as error:
            raise _NotSearchedError(error.must) from None
        if not self.flag.startswith("--") and any(str(choice).startswith("-") for choice in accepted):
            raise _NotSearchedError("one of its choices would be read as an option")
        return accepted


class _NotSearchedError(Exception):
    """An option that cannot be searched, with the reason."""


_TYPES: Mapping[str, Any] = {"str": (str,), "int": (int,), "float": (int, float)}


def _is_of(kind: str, choice: Any) -> bool:
    """Return True if `argparse` can make a choice of a word, and a file can hold it."""
    if isinstance(choice, bool) or not isinstance(choice, _TYPES[kind]):
        return False
    if isinstance(choice, str):
        return choice.isprintable() and len(choice) <= _LONGEST_WORD
    return abs(choice) <= _LARGEST if isinstance(choice, int) else math.isfinite(float(choice))


def _quoted(value: Any) -> str:
    """Return a word in quotes, or a number, as YAML reads it back."""
    return json.dumps(value, ensure_ascii=False)


def _around_real(value: float) -> str | None:
    if not 0 <= value <= sys.float_info.max / _RATIO or 0 < value < sys.float_info.min * _RATIO:
        return None
    if value == 0 or 0.5 <= value < 1:  # a share, for example of dropped units, or a momentum
        return "{uniform: [0, 1]}"
    return f"{{log_uniform: {flow([float(value) / _RATIO, float(value) * _RATIO])}}}"


def _around_whole(value: int) -> str:
    if value >= _LARGE:
        return f"{{log_int: {flow([value // 4, value * 4])}}}"
    return f"{{int: {flow([max(1, value // 2), value * 2])}}}"


def options_of(source: str, script: str) -> list[ScriptOption]:
    """Return the options that a script declares, in its order.

    Args:
        source: Text of the script.
        script: Its name, for errors.

    Raises:
        BadInput: The text is not Python, or the script has commands with options of their own.
    """
    try:
        calls = [node for node in ast.walk(parsed(source, script)) if isinstance(node, ast.Call)]
    except (SyntaxError, ValueError) as error:
        raise BadInput(script, "must be a Python script", str(error), "Name the script itself.") from None
    calls.sort(key=lambda call: (call.lineno, call.col_offset))
    if any(_method(call) == "command" for call in calls) and re.search(r"^\s*import click", source, re.M):
        return _click_options(calls, script)
    if any(_method(call) == "add_subparsers" for call in calls):
        must = "has subparsers, which a draft cannot describe"
        raise BadInput(script, must, "", "Write the command as in docs/trainables.md.")
    options = [_option(call) for call in calls if _method(call) == "add_argument"]
    return [option for option in options if option is not None]


def _click_options(calls: Sequence[ast.Call], script: str) -> list[ScriptOption]:
    """Return the options that click's decorators declare."""
    if sum(_method(call) == "command" for call in calls) > 1:
        must, remedy = "has several commands, which a draft cannot describe", "Write the command yourself."
        raise BadInput(script, must, "", remedy)
    options = [_click_option(call) for call in calls if _method(call) in ("option", "argument")]
    return [option for option in options if option is not None]


def _click_option(call: ast.Call) -> ScriptOption | None:
    """Return the option of a call of `click.option` or `click.argument`; None if its name is not known."""
    names = [name for name in map(_literal, call.args) if isinstance(name, str) and name.isprintable()]
    if not names:
        return None
    given = {word.arg: word.value for word in call.keywords if word.arg}
    flags = [name.partition("/")[0] for name in names if name.startswith("-")]
    flag = max(flags, key=len, default="")
    named = next((name for name in names if not name.startswith("-")), flag.lstrip("-"))
    default, kind = _literal(given.get("default")), given.get("type")
    choices = _literal(kind.args[0]) if isinstance(kind, ast.Call) and kind.args else ()
    is_switch = _literal(given.get("is_flag")) is True or any("/" in name for name in names)
    several = _literal(given.get("multiple")) is True or "nargs" in given
    is_plain = isinstance(kind, ast.Name) or isinstance(default, bool | int | float | str)
    own = kind.id if isinstance(kind, ast.Name) else type(default).__name__ if is_plain else "str"
    is_choice = isinstance(kind, ast.Call) and _method(kind) == "Choice" and isinstance(choices, list | tuple)
    takes_value = not (is_switch or own == "bool")
    has_default = default is not _NO_DEFAULT and default is not None
    return ScriptOption(
        flag=flag,
        name=named.replace("-", "_"),
        kind="" if several or not takes_value else "str" if is_choice else own,
        default=default if has_default else None,
        choices=tuple(choices) if is_choice else (),
        required=_literal(given.get("required")) is True or (not flag and not has_default),
        takes_value=takes_value,
    )


def _hydra_options(config: HydraConfig) -> list[ScriptOption]:
    """Return the values of Hydra's configuration, each of which `name=value` overrides."""
    kinds = {int: "int", float: "float", str: "str"}
    return [
        ScriptOption("", name, kinds.get(type(value), ""), value, (), value == "???", True, f"{name}=")
        for name, value in config.values.items()
    ]


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _option(call: ast.Call) -> ScriptOption | None:
    """Return the option that an `add_argument` call declares; None if its name is not a literal."""
    names = [name for name in map(_literal, call.args) if isinstance(name, str) and name.isprintable()]
    if not names:
        return None
    given = {word.arg: word.value for word in call.keywords if word.arg}
    flags = [name for name in names if name.startswith("-")]
    flag = next((name for name in flags if name.startswith("--")), flags[0] if flags else "")
    default, choices = _literal(given.get("default")), _literal(given.get("choices"))
    are_known = isinstance(choices, list | tuple) and len(choices) > 0
    has_default = default is not _NO_DEFAULT and default is not None
    dest = _literal(given.get("dest"))
    optional = _literal(given.get("nargs")) in ("?", "*")
    return ScriptOption(
        flag=flag,
        name=dest if isinstance(dest, str) else (flag or names[0]).lstrip("-").replace("-", "_"),
        kind=_kind(given),
        default=default if has_default else None,
        choices=() if "choices" not in given else tuple(choices) if are_known else None,
        required=_literal(given.get("required")) is True or (not flag and not optional and not has_default),
        takes_value=_action(given) not in _WITHOUT_VALUE,
    )


_WITHOUT_VALUE = frozenset(
    {"store_true", "store_false", "store_const", "append_const", "count", "BooleanOptionalAction"}
)
"""Actions of options without a value."""


def _action(given: Mapping[str, ast.expr]) -> str:
    action = given.get("action")
    named = isinstance(action, ast.Name | ast.Attribute)
    return ast.unparse(action).rpartition(".")[2] if named and action else str(_literal(action, "store"))


def _kind(given: Mapping[str, ast.expr]) -> str:
    if _literal(given.get("action"), "store") != "store" or "nargs" in given:
        return ""
    kind = given.get("type")
    return "str" if kind is None else kind.id if isinstance(kind, ast.Name) else ""


def _literal(node: ast.expr | None, missing: Any = _NO_DEFAULT) -> Any:
    """Return the value of a literal expression, or `missing`."""
    if node is None:
        return missing
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return _NO_DEFAULT


def draft(source: str, script: str, folder: Path | None = None) -> str:
    """Return a search-space file for a script, with comments on what is to be completed.

    Args:
        source: Text of the script.
        script: Name of the script, beside which the file will be.
        folder: Folder of the script, where the configuration of Hydra is; None to read options only, without
            Hydra and the metrics that the script reports or prints.

    Raises:
        BadInput: No option of the script can be searched.
    """
    options = options_of(source, script)
    tree = parsed(source, script)
    config = None if folder is None else hydra_config(tree, folder)
    if config is not None:
        options = _hydra_options(config)
    metrics = None if folder is None else metrics_in(tree)
    searched, reasons = _searched(options)
    if not searched:
        must = "must have an option with a number as its default, or with choices"
        named = [f"{_shown(option.flag or option.name)}{_because(option, reasons)}" for option in options[:8]]
        remedy = "Write the file as in docs/trainables.md."
        raise BadInput(_shown(script), must, ", ".join(named) or "no options", remedy)
    clock = next((option for option in options if option.last_name in CLOCKS), None)
    given = clock.default if clock is not None else None
    steps = given if type(given) is int and 0 < given <= LONGEST_TRIAL else STEPS
    return "\n".join(
        [
            f"# A draft from the options of {_shown(script)}:"
            " keep it beside the script and correct what is guessed.",
            *_left_out(options, searched, reasons),
            *_guessed(metrics, _shown(script), reports=any(name in source for name in _REPORTING)),
            *([] if config is None else _of_hydra(config)),
            "trainable:",
            f"  command: [{', '.join(map(_word, _command(options, searched, script)))}]",
            *([] if metrics is None or not metrics.source else [f"  metrics: {json.dumps(metrics.source)}"]),
            "search:",
            *(f"  {name}: {distribution}" for name, distribution in searched.items()),
            f"training: {{steps: {flow(steps)}, interval: 1}}  # of the script; between two reports",
            "objective: {minimize: val/loss}  # a metric that the script reports: docs/trainables.md"
            if metrics is None
            else f"objective: {{{metrics.direction}: {metrics.objective}}}",
            "budget: {trials: 16}",
            "",
        ]
    )


def _guessed(metrics: FoundMetrics | None, script: str, *, reports: bool) -> list[str]:
    """Return comments on where the metrics come from."""
    if metrics is None:
        return [] if reports else _silent(script)
    how = "prints" if metrics.source else "reports"
    how = "logs with MLflow" if "source" in metrics.source else how
    return [
        f"# Guessed: {metrics.direction} {metrics.objective}, which line {metrics.line} of {script} {how}."
    ]


def _of_hydra(config: HydraConfig) -> list[str]:
    rest = " The groups of its `defaults` were not read." if config.groups else ""
    return [f"# Values of {config.file.name}, which Hydra reads.{rest}"]


def _silent(script: str) -> list[str]:
    return [
        f"# {script} reports nothing yet, and every trial must. Either write into it `import sweep_client`,",
        "# `trial = sweep_client.trial()`, and after each epoch (counted from 1)",
        '# `if not trial.report(epoch, {"val/loss": loss}): break`;',
        "# or say with `metrics` beside `command` where it prints or writes them, as in docs/trainables.md,",
        "# which also says how a trial resumes from a checkpoint.",
    ]


def _searched(options: Sequence[ScriptOption]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the distributions of options by name, and the reasons against options that look similar."""
    searched: dict[str, str] = {}
    reasons: dict[str, str] = {}
    variables: set[str] = set()
    for option in options:
        if option.name in searched:
            continue
        try:
            found = option.distribution()
            if found is not None and (variable := variable_of(option.name)) in variables:
                raise _NotSearchedError(f"another one has the variable {variable}")
            if found is not None and len(searched) == MOST_SEARCHED:
                raise _NotSearchedError(f"a file searches at most {MOST_SEARCHED}")
        except _NotSearchedError as reason:
            reasons[option.name] = str(reason)
            continue
        if found is not None:
            searched[option.name] = found
            variables.add(variable_of(option.name))
    return searched, reasons


def _command(options: Sequence[ScriptOption], searched: Mapping[str, str], script: str) -> list[str]:
    words, named = ["python", _literally(script)], set()
    if any(option.prefix for option in options):
        words.append("hydra.run.dir={folder}")
    for option in options:
        flags = [_literally(word) for word in option.words]
        if option.name in named:
            continue
        named.add(option.name)
        if option.name in searched:
            # Written as one word, a value that begins with a dash is not read as an option.
            dashed = any(str(choice).startswith("-") for choice in option.choices or ())
            value = f"{_literally(option.prefix)}{{{option.name}}}"
            words += [f"{flags[0]}={{{option.name}}}"] if dashed else [*flags, value]
        elif option.last_name == "seed" and option.kind and option.choices == ():
            words += [*flags, f"{_literally(option.prefix)}{{seed}}"]
        elif option.last_name in CLOCKS and option.kind and option.choices == ():
            words += [*flags, f"{_literally(option.prefix)}{{steps}}"]
        elif option.required:
            named_value = f"{_literally(option.prefix)}<{_literally(option.name)}>"
            words += [*flags, *([named_value] if option.takes_value else [])]
    return words


def _literally(word: str) -> str:
    """Return a word of a command with its braces escaped."""
    return word.replace("{", "{{").replace("}", "}}")


def _shown(text: str) -> str:
    """Return a text as one line of a comment."""
    return text if text.isprintable() else ascii(text)[1:-1]


def _because(option: ScriptOption, reasons: Mapping[str, str]) -> str:
    return f" ({reasons[option.name]})" if option.name in reasons else ""


def _word(word: str) -> str:
    """Quote a word of a command for YAML where needed."""
    return word if _PLAIN.fullmatch(word) else _quoted(word)


def _left_out(
    options: Sequence[ScriptOption], searched: Mapping[str, str], reasons: Mapping[str, str]
) -> list[str]:
    """Return comments on the options that are not searched."""
    required = [option.name for option in options if option.required and option.name not in searched]
    unknown = [option.name for option in options if option.name in required and option.takes_value]
    known = {*searched, *required, *CLOCKS, "seed", *reasons}
    rest = [
        _shown(option.flag or option.name)
        for option in options
        if option.name not in known and option.last_name not in known
    ]
    why = {_shown(option.flag or option.name): _because(option, reasons) for option in options}
    return [
        *(f"# Replace <{_shown(name)}>: the script does not run without it." for name in unknown),
        *(f"# Not searched: {flag}{reason}." for flag, reason in why.items() if reason),
        *([f"# Left at their defaults: {', '.join(rest)}."] if rest else []),
    ]
