"""Drafts a search-space file from the options that a Python script declares with `argparse`.

The script is read, not run. What is searched is a guess from types and defaults, for a person to correct.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.config.document import flow
from orchestrator.errors import BadInput
from trainables.parsing import parsed

CLOCKS = frozenset(
    {"epochs", "num_epochs", "n_epochs", "max_epochs", "steps", "num_steps", "max_steps", "iterations"}
)
"""Names of options that say how long a script trains."""

GIVEN = frozenset({"seed", "step", "folder", "resume"})
"""Names that stand for what a trial has beside its hyperparameters."""

_STEPS = 100
_RATIO = 10
_LARGE = 16
_NO_DEFAULT = object()
_PLAIN = re.compile(r"--?[A-Za-z][\w.-]*|python|[A-Za-z][\w-]*\.py")


@dataclass(frozen=True)
class Option:
    """An option of a script.

    Attributes:
        flag: what precedes its value on the command line, such as `--lr`; '' for a positional argument.
        name: under which the script reads it.
        kind: name of its type: `str` if it has none, '' if it takes no value or its type is no plain name.
        default: its default, or None if it has none that is written out.
        choices: the values that it accepts, or none if they are not listed.
        required: whether the script does not run without it.
    """

    flag: str
    name: str
    kind: str
    default: Any
    choices: tuple[Any, ...]
    required: bool

    @property
    def words(self) -> list[str]:
        """Return its flag as words of a command."""
        return [self.flag] if self.flag else []

    def distribution(self) -> str | None:
        """Return the distribution around its default as YAML, or None if nothing can be searched."""
        if self.name in CLOCKS | GIVEN or not self.kind:
            return None
        if self.choices:
            return f"{{choice: [{', '.join(json.dumps(choice) for choice in self.choices)}]}}"
        if isinstance(self.default, bool) or not isinstance(self.default, int | float):
            return None
        if self.kind == "float":
            return _around_real(float(self.default))
        if self.kind == "int" and isinstance(self.default, int) and self.default > 0:
            return _around_whole(self.default)
        return None


def _around_real(value: float) -> str | None:
    if value < 0 or not math.isfinite(value):
        return None
    if value == 0 or 0.5 <= value < 1:  # a share, for example of dropped units, or a momentum
        return "{uniform: [0, 1]}"
    return f"{{log_uniform: {flow([value / _RATIO, value * _RATIO])}}}"


def _around_whole(value: int) -> str:
    if value >= _LARGE:
        return f"{{log_int: {flow([value // 4, value * 4])}}}"
    return f"{{int: {flow([max(1, value // 2), value * 2])}}}"


def options_of(source: str, script: str) -> list[Option]:
    """Return the options that a script declares, in its order.

    Args:
        source: text of the script.
        script: its name, for errors.

    Raises:
        BadInput: the text is not Python, or the script has commands with options of their own.
    """
    try:
        calls = [node for node in ast.walk(parsed(source, script)) if isinstance(node, ast.Call)]
    except (SyntaxError, ValueError) as error:
        raise BadInput(script, "must be a Python script", str(error), "Name the script itself.") from None
    calls.sort(key=lambda call: (call.lineno, call.col_offset))
    if any(_method(call) == "add_subparsers" for call in calls):
        must = "must have one set of options"
        raise BadInput(script, must, "add_subparsers", "Write the command as in docs/trainables.md.")
    options = [_option(call) for call in calls if _method(call) == "add_argument"]
    return [option for option in options if option is not None]


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _option(call: ast.Call) -> Option | None:
    """Return the option of a call of `add_argument`; None if its name is not written out."""
    names = [name for name in map(_literal, call.args) if isinstance(name, str)]
    if not names:
        return None
    given = {word.arg: word.value for word in call.keywords if word.arg}
    flags = [name for name in names if name.startswith("-")]
    flag = next((name for name in flags if name.startswith("--")), flags[0] if flags else "")
    default, choices = _literal(given.get("default")), _literal(given.get("choices"))
    has_default = default is not _NO_DEFAULT and default is not None
    dest = _literal(given.get("dest"))
    optional = _literal(given.get("nargs")) in ("?", "*")
    return Option(
        flag=flag,
        name=dest if isinstance(dest, str) else (flag or names[0]).lstrip("-").replace("-", "_"),
        kind=_kind(given),
        default=default if has_default else None,
        choices=tuple(choices) if isinstance(choices, list | tuple) else (),
        required=_literal(given.get("required")) is True or (not flag and not optional and not has_default),
    )


def _kind(given: Mapping[str, ast.expr]) -> str:
    if _literal(given.get("action"), "store") != "store" or "nargs" in given:
        return ""
    kind = given.get("type")
    return "str" if kind is None else kind.id if isinstance(kind, ast.Name) else ""


def _literal(node: ast.expr | None, missing: Any = _NO_DEFAULT) -> Any:
    """Return the value of an expression that is written out, `missing` without one."""
    if node is None:
        return missing
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return _NO_DEFAULT


def draft(source: str, script: str) -> str:
    """Return a search-space file for a script, with comments on what is to be completed.

    Args:
        source: text of the script.
        script: its file name, beside which the file is to stand.

    Raises:
        BadInput: no option of the script can be searched.
    """
    options = options_of(source, script)
    searched = {option.name: found for option in options if (found := option.distribution()) is not None}
    if not searched:
        must = "must have an option with a number as its default, or with choices"
        got = ", ".join(option.flag or option.name for option in options[:8]) or "no options"
        raise BadInput(script, must, got, "Write the file as in docs/trainables.md.")
    clock = next((option for option in options if option.name in CLOCKS), None)
    steps = clock.default if clock is not None and isinstance(clock.default, int) else _STEPS
    return "\n".join(
        [
            f"# A draft from the options of {script}: keep it beside the script and correct what is guessed.",
            *_left_out(options, searched),
            "trainable:",
            f"  command: [{', '.join(map(_word, _command(options, searched, script, steps)))}]",
            "search:",
            *(f"  {name}: {distribution}" for name, distribution in searched.items()),
            f"training: {{steps: {flow(steps)}, interval: 1}}  # of the script; between two reports",
            "objective: {minimize: val/loss}  # a metric that the script reports: docs/trainables.md",
            "budget: {trials: 16}",
            "",
        ]
    )


def _command(options: Sequence[Option], searched: Mapping[str, str], script: str, steps: int) -> list[str]:
    words = ["python", script]
    for option in options:
        if option.name in searched or (option.name == "seed" and option.kind):
            words += [*option.words, f"{{{option.name}}}"]
        elif option.name in CLOCKS and option.kind:
            words += [*option.words, str(steps)]
        elif option.required:
            words += [*option.words, f"<{option.name}>"]
    return words


def _word(word: str) -> str:
    """Return a word of a command as YAML reads it back: in quotes unless it can only be a word."""
    return word if _PLAIN.fullmatch(word) else json.dumps(word)


def _left_out(options: Sequence[Option], searched: Mapping[str, str]) -> list[str]:
    """Return comments on the options that are not searched."""
    required = [option.name for option in options if option.required and option.name not in searched]
    known = {*searched, *required, *CLOCKS, "seed"}
    rest = [option.flag or option.name for option in options if option.name not in known]
    return [
        *(f"# Replace <{name}>: the script does not run without it." for name in required),
        *([f"# Left at their defaults: {', '.join(rest)}."] if rest else []),
    ]
