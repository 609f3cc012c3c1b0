"""A sweep file of Weights & Biases as a search-space file.

Source: https://docs.wandb.ai/models/sweeps/sweep-config-keys, for the keys and the distributions.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.config.document import LocatedValue, Violation
from orchestrator.config.imports.argparse_draft import GIVEN
from orchestrator.config.imports.search_draft import TRIALS, DraftBuilder, SearchDraft, escaped, yaml_of
from orchestrator.config.sections import BudgetSection, validated
from orchestrator.placeholders import ARGUMENTS

_SAMPLERS = {"bayes": "tpe", "random": "random", "grid": "grid"}
_OF_WANDB = frozenset({"project", "entity", "name", "description", "program", "parameters", "command"})
_TRANSLATED = frozenset({"method", "metric", "run_cap", "early_terminate"})
_DEFAULT_COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")
_MACRO = re.compile(r"\$\{([a-z_]+)(?::([A-Za-z_][A-Za-z0-9_]*))?\}")
_ALL = f"{{{ARGUMENTS}}}"
_REPORT = "Write the parameter by hand, as in docs/search-space.md."
_FROM_SHELL = {"args_json_file": '"$SWEEP_PARAMS"', "args_json": '"$(cat "$SWEEP_PARAMS")"'}
"""Shell texts for the macros of the JSON file with all parameters, whose path is in a variable."""


def is_wandb_sweep(root: LocatedValue) -> bool:
    """Return True if a YAML file has the keys of a sweep of W&B."""
    return isinstance(root.value, dict) and "parameters" in root.entries and "trainable" not in root.entries


def wandb_draft(root: LocatedValue, origin: str) -> SearchDraft:
    """Return the search-space file of a sweep file.

    Args:
        root: Tree of the YAML file.
        origin: Name of the file.

    Raises:
        BadInput: The file has nothing that can be searched.
    """
    sweep = _WandbSweep(root, origin)
    return sweep.draft()


@dataclass(frozen=True)
class _WandbParameter:
    """A parameter of a sweep.

    Attributes:
        key: Its key at W&B.
        name: Name of its hyperparameter, or '' for a value that only the command has.
        value: Its value if it is the same in every run.
        is_fixed: Whether its value is the same in every run.
        is_flag: Whether its values are booleans.
    """

    key: str
    name: str
    value: Any
    is_fixed: bool
    is_flag: bool

    @property
    def placeholder(self) -> str:
        """Return the text of its value in a command."""
        return f"{{{self.name}}}" if self.name else escaped(str(self.value))


class _WandbSweep:
    """The translation of one file."""

    def __init__(self, root: LocatedValue, origin: str) -> None:
        self._root, self._origin = root, origin
        self._builder = DraftBuilder(f"the W&B sweep {origin}")
        self._parameters: list[_WandbParameter] = []

    def draft(self) -> SearchDraft:
        plain: dict[str, Any] = self._root.plain()  # type: ignore[assignment]
        self._add_parameters(self._root.entries["parameters"], "parameters", "")
        for key in sorted(plain.keys() - _OF_WANDB - _TRANSLATED):
            self._leave_out((key,), "has no counterpart", "Leave it out.")
        for key in ("project", "entity"):
            if key in plain:
                self._leave_out((key,), "is a place at W&B", "Leave it out.")
        sampler = self._sampler(plain.get("method"))
        trials = self._trials(plain.get("run_cap"), sampler)
        steps, scheduler = self._schedule(plain.get("early_terminate"))
        return self._builder.draft(
            {
                "trainable": self._trainable(plain),
                "training": {"steps": steps, "interval": 1},
                "objective": self._objective(plain.get("metric")),
                "sampler": sampler,
                "scheduler": scheduler,
                "budget": self._budget(trials, plain.get("metric")),
            }
        )

    def _where(self, path: Sequence[str]) -> str:
        node = self._root.at(tuple(path))
        return f"{node.where or self._origin}: {'.'.join(path)}"

    def _leave_out(self, path: Sequence[str], why: str, instead: str) -> None:
        node = self._root.at(tuple(path))
        self._builder.leave_out(self._where(path), yaml_of(node.plain()), why, instead)

    def _add_parameters(self, node: LocatedValue, *path: str) -> None:
        *keys, prefix = path
        if not isinstance(node.value, dict):
            self._leave_out(keys, "must be a mapping of parameters", "Write `name: {values: [1, 2]}`.")
            return
        for key, entry in node.entries.items():
            name, inner = f"{prefix}{key}", (*keys, key)
            if isinstance(entry.value, dict) and "parameters" in entry.entries:
                self._leave_out(
                    inner,
                    "is one dictionary at W&B, and here each of its parts is a hyperparameter",
                    f"Read its parts from `trial.params['{name}.<name>']`.",
                )
                self._add_parameters(entry.entries["parameters"], *inner, "parameters", f"{name}.")
            else:
                self._add_parameter(name, entry, inner)

    def _add_parameter(self, key: str, node: LocatedValue, path: Sequence[str]) -> None:
        given = node.plain()
        where = self._where(path)
        if not isinstance(given, dict):
            self._leave_out(path, "must be a mapping", f"Write `{key}: {{value: ...}}`.")
            return
        kind = _kind_of(given)
        if kind == "constant":
            if "value" not in given:
                self._leave_out(path, "has no value", _REPORT)
            else:
                self._fix(where, key, given["value"])
            return
        read = _DISTRIBUTIONS.get(kind)
        if read is None:
            self._leave_out(path, f"has a distribution `{kind}`, which has no counterpart", _REPORT)
            return
        try:
            entry, notes = read(given)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            self._leave_out(path, f"cannot be read: {reason}", _REPORT)
            return
        for why, instead in notes:
            self._leave_out(path, why, instead)
        name = self._builder.add(where, key, entry, yaml_of(given))
        if name is not None:
            choices = entry.get("choice", ())
            is_flag = bool(choices) and all(isinstance(choice, bool) for choice in choices)
            self._parameters.append(_WandbParameter(key, name, None, is_fixed=False, is_flag=is_flag))

    def _fix(self, where: str, key: str, value: Any) -> None:
        name: str | None = ""
        if key not in GIVEN:
            name = self._builder.fix(where, key, value)
        if name is not None:
            is_flag = isinstance(value, bool)
            self._parameters.append(_WandbParameter(key, name, value, is_fixed=True, is_flag=is_flag))

    def _sampler(self, method: Any) -> str:
        sampler = _SAMPLERS.get(str(method), "")
        if not sampler:
            self._builder.leave_out(
                self._where(("method",)),
                method,
                "must be bayes, random or grid",
                "Choose a `sampler`: tpe here.",
            )
            return "tpe"
        if sampler == "grid" and self._builder.combinations() is None:
            self._leave_out(
                ("method",),
                "never ends where a parameter is a range, so the sampler is random here",
                "Write a `choice` or a `step` for each parameter, and `sampler: grid`.",
            )
            return "random"
        return sampler

    def _trials(self, cap: Any, sampler: str) -> int:
        if type(cap) is int and cap > 0:
            return cap
        if sampler == "grid" and (count := self._builder.combinations()):
            return count
        self._builder.guesses.append(
            f"budget.trials: without `run_cap`, W&B tries settings until it is stopped; {TRIALS} here."
        )
        return TRIALS

    def _budget(self, trials: int, metric: Any) -> dict[str, Any]:
        """Return the budget, with the target of the metric if the format has one."""
        budget = {"trials": trials}
        if not isinstance(metric, dict) or "target" not in metric:
            return budget
        with_target = {**budget, "target": metric["target"]}
        try:
            validated(BudgetSection, with_target, ("budget",))
        except Violation as violation:
            self._leave_out(("metric", "target"), f"`target` {violation.must}", "Stop the sweep by hand.")
            return budget
        return with_target

    def _schedule(self, stopping: Any) -> tuple[int, Any]:
        """Return the steps of a trial and the scheduler.

        W&B compares the runs that reach one of its brackets, and a run continues if it is in the best 1 /
        eta: with `min_iter`, brackets are at min_iter, min_iter * eta, ...; with `max_iter` and `s`, at
        max_iter / eta, ..., max_iter / eta^s. Those are the rungs of ASHA.
        """
        if stopping is None:
            return self._builder.steps(), "none"
        given = stopping if isinstance(stopping, dict) else {"type": stopping}
        numbers = {
            key: value
            for key, value in given.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        }
        eta = numbers.get("eta", 3)
        known = {"type", "min_iter", "max_iter", "s", "eta"}
        if (
            given.get("type") != "hyperband"
            or not 1 < eta <= 100
            or not numbers.keys() & {"min_iter", "max_iter"}
        ):
            self._leave_out(
                ("early_terminate",),
                "must be hyperband with min_iter or max_iter, and eta above 1",
                "Choose a `scheduler`: none here.",
            )
            return self._builder.steps(), "none"
        for key in sorted(given.keys() - known):
            self._leave_out(("early_terminate", key), "has no counterpart", "Leave it out.")
        if "max_iter" in numbers:
            steps = max(1, int(numbers["max_iter"]))
            if "min_iter" in numbers:
                return steps, _asha(eta, numbers["min_iter"] / steps)
            return steps, _asha(eta, eta ** -numbers.get("s", 1.0))
        steps = self._builder.steps()
        return steps, _asha(eta, numbers["min_iter"] / steps)

    def _objective(self, metric: Any) -> dict[str, str]:
        given = metric if isinstance(metric, dict) else {}
        name, goal = given.get("name"), given.get("goal", "minimize")
        if not isinstance(name, str) or not name:
            self._builder.guesses.append("objective: the file names no metric; val/loss.")
            name = "val/loss"
        if goal not in ("minimize", "maximize"):
            self._leave_out(("metric", "goal"), "must be minimize or maximize", "Correct `objective`.")
            goal = "minimize"
        return {goal: name}

    def _trainable(self, plain: Mapping[str, Any]) -> dict[str, Any]:
        command, program = plain.get("command"), plain.get("program")
        words = shlex.split(command) if isinstance(command, str) else command
        if words is None and program is None:
            self._builder.guesses.append(
                "trainable: the file names no program; the function `train(trial)` of train.py."
            )
            return {"function": "train.py:train"}
        given = list(words) if isinstance(words, list) else list(_DEFAULT_COMMAND)
        texts = [str(word) for word in given]
        found = list(self._words(texts, "train.py" if program is None else str(program)))
        if not any("\0" in word for word in found):
            return {"command": found}
        if any(parameter.is_fixed and not parameter.name for parameter in self._parameters):
            self._leave_out(
                ("command",),
                "has a JSON text of all parameters, from which the fixed seed is missing",
                "Set it in the script.",
            )
        return {"command": [" ".join(map(_for_shell, found))], "shell": True}

    def _words(self, texts: Sequence[str], program: str) -> Iterator[str]:
        for number, text in enumerate(texts):
            match = _MACRO.fullmatch(text)
            macro = match[1] if match else ""
            following = texts[number + 1] if number + 1 < len(texts) else ""
            if macro == "env":
                # `env NAME=value python ...` sets a variable.
                if "=" in following and not following.startswith("-"):
                    yield "env"
            elif macro in _ARGUMENTS:
                yield from _ARGUMENTS[macro](self._parameters)
            else:
                yield self._filled(text, program)

    def _filled(self, text: str, program: str) -> str:
        """Return an item of the command with its macros replaced, and its own braces escaped."""
        pieces, position = [], 0
        for match in _MACRO.finditer(text):
            pieces.append(escaped(text[position : match.start()]))
            position = match.end()
            macro, variable = match[1], match[2]
            if macro == "interpreter":
                pieces.append("python")
            elif macro in _FROM_SHELL:
                pieces.append(f"\0{macro}\0")
            elif macro == "program":
                pieces.append(escaped(program))
            elif macro == "envvar" and variable:
                self._builder.leave_out(
                    self._where(("command",)),
                    match[0],
                    "is the value of a variable of the environment, which a command has only in a shell",
                    f"Replace <{variable}>, or write one text with ${variable} and `shell: true`.",
                )
                pieces.append(f"<{variable}>")
            else:
                self._builder.leave_out(
                    self._where(("command",)), match[0], "is not translated inside a word", "Replace it."
                )
                pieces.append(escaped(match[0]))
        return "".join((*pieces, escaped(text[position:])))


def _with_hyphens(parameters: Sequence[_WandbParameter]) -> Iterator[str]:
    if all(each.key == each.name for each in parameters):
        yield _ALL
    else:
        yield from (f"--{escaped(each.key)}={each.placeholder}" for each in parameters)


def _without_hyphens(parameters: Sequence[_WandbParameter]) -> Iterator[str]:
    return (f"{escaped(each.key)}={each.placeholder}" for each in parameters)


def _with_flags(parameters: Sequence[_WandbParameter]) -> Iterator[str]:
    for each in parameters:
        if not each.is_flag:
            yield f"--{escaped(each.key)}={each.placeholder}"
        elif not each.is_fixed:
            yield f"{{?{each.name}: --{escaped(each.key)}}}"
        elif each.value:
            yield f"--{escaped(each.key)}"


def _for_shell(word: str) -> str:
    """Return a word quoted for a shell, with the texts of a shell that stand between zero bytes."""
    if word == _ALL:
        return word
    literal, *others = word.split("\0")
    quoted = [shlex.quote(literal)] if literal else []
    for macro, text in zip(others[::2], others[1::2], strict=True):
        quoted += [_FROM_SHELL[macro], *([shlex.quote(text)] if text else [])]
    return "".join(quoted)


_ARGUMENTS: Mapping[str, Callable[[Sequence[_WandbParameter]], Iterator[str]]] = {
    "args": _with_hyphens,
    "args_no_hyphens": _without_hyphens,
    "args_no_boolean_flags": _with_flags,
}
"""Words of the macros that stand for all parameters."""


def _asha(eta: float, grace: float) -> dict[str, Any]:
    return {"asha": {"reduction": eta, "grace": min(max(float(f"{grace:.4g}"), 1e-6), 1.0)}}


Notes = list[tuple[str, str]]
Entry = tuple[dict[str, Any], Notes]


def _kind_of(given: Mapping[str, Any]) -> str:
    """Return the distribution of a parameter, which W&B infers where a file does not name it."""
    if "distribution" in given:
        return str(given["distribution"])
    if "values" in given:
        return "categorical"
    if "value" in given:
        return "constant"
    if {"min", "max"} <= given.keys():
        whole = type(given["min"]) is int and type(given["max"]) is int
        return "int_uniform" if whole else "uniform"
    return "normal" if {"mu", "sigma"} & given.keys() else "unknown"


def _choice(given: Mapping[str, Any]) -> Entry:
    notes: Notes = []
    values = given["values"]
    if not isinstance(values, list):
        raise TypeError("`values` must be a list")
    unique = [value for number, value in enumerate(values) if not _is_in(value, values[:number])]
    if len(unique) < len(values):
        notes.append(("lists a value twice, which makes it more probable", "Each value is listed once here."))
    if "probabilities" in given:
        notes.append(
            ("has probabilities, but here all values are equally probable", "Leave rare values out.")
        )
    return {"choice": unique}, notes


def _is_in(value: Any, values: Sequence[Any]) -> bool:
    return any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in values)


def _ends(given: Mapping[str, Any]) -> tuple[Any, Any]:
    for key in ("min", "max"):
        if isinstance(given[key], bool) or not isinstance(given[key], int | float):
            raise TypeError(f"`{key}` must be a number")
    return given["min"], given["max"]


def _range(kind: str) -> Callable[[Mapping[str, Any]], Entry]:
    return lambda given: ({kind: list(_ends(given))}, [])


def _logarithms(given: Mapping[str, Any]) -> Entry:
    low, high = _ends(given)
    return {"log_uniform": [math.exp(low), math.exp(high)]}, []


def _inverse_logarithms(given: Mapping[str, Any]) -> Entry:
    low, high = _ends(given)
    return {"log_uniform": [math.exp(-high), math.exp(-low)]}, []


def _quantum(given: Mapping[str, Any]) -> float:
    q = given.get("q", 1)
    if isinstance(q, bool) or not isinstance(q, int | float) or not 0 < q < math.inf:
        raise TypeError("`q` must be a positive number")
    return q


def _rounded(low: float, high: float, q: float) -> tuple[Any, Any, Any]:
    """Return the ends of a range and its step, rounded to multiples of the step; whole numbers stay whole."""
    first, last = round(low / q), round(high / q)
    if q == int(q):
        return first * int(q), last * int(q), int(q)
    return first * q, last * q, q


def _quantized(given: Mapping[str, Any]) -> Entry:
    low, high, step = _rounded(*_ends(given), _quantum(given))
    if not isinstance(step, int):
        return {"uniform": [low, high], "step": step}, []
    return {"int": [low, high], **({"step": step} if step > 1 else {})}, []


def _quantized_logarithms(low: float, high: float, q: float) -> Entry:
    if q != int(q):
        note = (
            f"is rounded to multiples of {q:g}, and here it is not",
            "Write a `choice`, or round it in the script.",
        )
        return {"log_uniform": [low, high]}, [note]
    first, last, step = _rounded(low, high, q)
    notes: Notes = []
    if first <= 0:
        first = step
        notes.append(("begins at 0 once it is rounded, which has no logarithm", f"It begins at {step} here."))
    return {"log_int": [first, last], **({"step": step} if step > 1 else {})}, notes


def _quantized_exponentials(given: Mapping[str, Any]) -> Entry:
    low, high = _ends(given)
    return _quantized_logarithms(math.exp(low), math.exp(high), _quantum(given))


def _quantized_values(given: Mapping[str, Any]) -> Entry:
    low, high = _ends(given)
    return _quantized_logarithms(low, high, _quantum(given))


def _normal(kind: str, *, quantized: bool) -> Callable[[Mapping[str, Any]], Entry]:
    def read(given: Mapping[str, Any]) -> Entry:
        entry = {kind: [given.get("mu", 0), given.get("sigma", 1)]}
        if not quantized:
            return entry, []
        note = f"is rounded to multiples of {_quantum(given):g}, and here it is not"
        return entry, [(note, "Round it in the script.")]

    return read


_DISTRIBUTIONS: Mapping[str, Callable[[Mapping[str, Any]], Entry]] = {
    "categorical": _choice,
    "categorical_w_probabilities": _choice,
    "int_uniform": _range("int"),
    "uniform": _range("uniform"),
    "q_uniform": _quantized,
    "log_uniform": _logarithms,
    "log_uniform_values": _range("log_uniform"),
    "q_log_uniform": _quantized_exponentials,
    "q_log_uniform_values": _quantized_values,
    "inv_log_uniform": _inverse_logarithms,
    "inv_log_uniform_values": _range("log_uniform"),
    "normal": _normal("normal", quantized=False),
    "q_normal": _normal("normal", quantized=True),
    "log_normal": _normal("log_normal", quantized=False),
    "q_log_normal": _normal("log_normal", quantized=True),
}
"""The entry of `search` for each distribution of W&B, with a note on the difference."""
