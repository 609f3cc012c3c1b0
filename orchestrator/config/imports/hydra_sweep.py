"""A Hydra configuration with a sweep, and overrides of its command line, as a search-space file.

Source: https://hydra.cc/docs/advanced/override_grammar/extended, for the grammar, and
https://hydra.cc/docs/plugins/optuna_sweeper, for the meaning of sweeps to Optuna.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from orchestrator.config.document import LocatedValue, Violation
from orchestrator.config.imports.search_draft import (
    TRIALS,
    DraftBuilder,
    SearchDraft,
    escaped,
    objective_of,
    yaml_of,
)
from orchestrator.config.sections import validated
from orchestrator.config.strategy import options_section

_SAMPLERS = {
    "tpe": "tpe",
    "random": "random",
    "cmaes": "cmaes",
    "gp": "gp",
    "nsgaii": "nsgaii",
    "qmc": "qmc",
    "grid": "grid",
    "tpesampler": "tpe",
    "randomsampler": "random",
    "cmaessampler": "cmaes",
    "gpsampler": "gp",
    "nsgaiisampler": "nsgaii",
    "qmcsampler": "qmc",
    "gridsampler": "grid",
}
_METRICS = ("optimized_metric", "optimize_metric", "objective_metric")
"""Keys under which templates name the metric that their function returns."""

_READ = frozenset({"_target_", "params", "search_space", "sampler", "direction", "n_trials", "n_jobs"})
_HARMLESS = re.compile(r"[A-Za-z0-9_.\-/:+%@?|*$^]+")
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_CALL = re.compile(r"(choice|range|interval|tag|shuffle|sort|int|float|str|bool)\s*\(")
_NAMED = re.compile(r"([a-z_]+)\s*=\s*(?!=)")
_PACKAGE = re.compile(r"^#\s*@package\s+_global_", re.MULTILINE)
_PREFIX = re.compile(r"^(\+\+|\+|~)?(.*)$", re.DOTALL)
_REMEDY = "Write the parameter by hand, as in docs/search-space.md."
_MOST_VALUES = 1_000
_DEEPEST = 20


class SweepGrammarError(ValueError):
    """A text that is not a sweep in Hydra's grammar, or one without a counterpart."""


@dataclass(frozen=True)
class HydraSweep:
    """A sweep of Hydra's grammar.

    Attributes:
        kind: `choice`, `range` or `interval`.
        values: Values of a choice.
        low: Lower end of a range or an interval.
        high: Upper end; that of a range is not one of its values.
        step: Step of a range.
        is_log: Whether it is tagged `log`.
        is_whole: Whether `int(...)` converts its values.
    """

    kind: str
    values: tuple[Any, ...] = ()
    low: float | int = 0
    high: float | int = 0
    step: float | int = 1
    is_log: bool = False
    is_whole: bool = False


def is_hydra_sweep(root: LocatedValue) -> bool:
    """Return True if a YAML file configures a sweep of Hydra."""
    found = root.plain()
    return isinstance(found, dict) and isinstance(_at(found, "hydra", "sweeper"), dict)


def is_part(text: str) -> bool:
    """Return True if a configuration is an option of a group and sets keys of the whole configuration."""
    return _PACKAGE.search(text) is not None


def hydra_draft(
    root: LocatedValue, overrides: Sequence[str], file: str, *, part: bool = False
) -> SearchDraft:
    """Return the search-space file of a configuration and overrides.

    Args:
        root: Tree of the YAML file.
        overrides: Words of the command line, such as `lr=interval(0.001, 0.1)`, before those of the file.
        file: Path of the file, which names the configuration.
        part: Whether the file is an option of the group that its folder names, as in `is_part`.

    Raises:
        BadInput: The file has nothing that can be searched.
    """
    return _HydraConfig(root, overrides, file, part=part).draft()


def parsed_sweep(text: str) -> HydraSweep | Any:
    """Parse a text as a sweep, or else as a value.

    Raises:
        SweepGrammarError: The text is neither.
    """
    return _OverrideReader(text).read()


class _HydraConfig:
    """The translation of one configuration."""

    def __init__(self, root: LocatedValue, overrides: Sequence[str], file: str, *, part: bool) -> None:
        plain = root.plain()
        self._plain: dict[str, Any] = plain if isinstance(plain, dict) else {}
        self._root, self._overrides, self._file, self._is_part = root, overrides, file, part
        self._builder = DraftBuilder(f"the Hydra configuration {file}")
        self._words: dict[str, str] = {}
        sweeper = _at(self._plain, "hydra", "sweeper")
        self._sweeper: dict[str, Any] = sweeper if isinstance(sweeper, dict) else {}
        self._is_basic = self._plugin() in {"", "basic"}

    def draft(self) -> SearchDraft:
        given = self._params()
        for text in self._overrides:
            self._override(text, given)
        for where, key, value in given.values():
            if isinstance(value, dict):
                self._old_entry(where, key, value)
            else:
                self._add(where, key, value)
        self._note_rest()
        self._builder.guesses.append("training.steps: a function of Hydra returns one value; 1.")
        sampler = self._sampler()
        jobs = self._sweeper.get("n_jobs")
        concurrent = jobs if type(jobs) is int and jobs > 1 else None
        return self._builder.draft(
            {
                "trainable": {"command": ["python", "train.py", *self._arguments()]},
                "training": {"steps": 1, "interval": 1},
                "objective": self._objective(),
                "sampler": sampler,
                "scheduler": "none",
                "budget": {"trials": self._trials(sampler)},
                "resources": None if concurrent is None else {"concurrent": concurrent},
            }
        )

    def _where(self, *path: str) -> str:
        node = self._root.at(path)
        return f"{node.where or self._file}: {'.'.join(path)}"

    def _plugin(self) -> str:
        """Return the name of the sweeper: `optuna`, `ax`, ..., or '' for Hydra's own."""
        target = str(self._sweeper.get("_target_", ""))
        if target:
            found = re.search(r"hydra_(\w+?)_sweeper", target)
            return found[1] if found else "basic"
        return self._default("hydra/sweeper")

    def _default(self, group: str) -> str:
        """Return the choice of a group in the list of defaults, or ''."""
        defaults = self._plain.get("defaults")
        for entry in defaults if isinstance(defaults, list) else ():
            for key, value in entry.items() if isinstance(entry, dict) else ():
                if key.removeprefix("override ").strip().lstrip("/") == group:
                    return str(value).removesuffix(".yaml")
        return ""

    def _params(self) -> dict[str, tuple[str, str, Any]]:
        """Return the place, key and value of each parameter of the file, by its key without a prefix."""
        given: dict[str, tuple[str, str, Any]] = {}
        for section in ("search_space", "params"):
            entries = self._sweeper.get(section)
            for key, value in entries.items() if isinstance(entries, dict) else ():
                given[_split(key)[1]] = (self._where("hydra", "sweeper", section, key), key, value)
        return given

    def _old_entry(self, where: str, key: str, given: Mapping[str, Any]) -> None:
        """Add a parameter of the older form, `{type: float, low: 0, high: 1, step: 0.1, log: false}`."""
        kind, is_log = given.get("type"), given.get("log") is True
        if kind == "categorical":
            entry: dict[str, Any] = {"choice": given.get("choices")}
        elif kind in {"int", "float"}:
            name = {"int": ("int", "log_int"), "float": ("uniform", "log_uniform")}[kind][is_log]
            step = given.get("step")
            entry = {name: [given.get("low"), given.get("high")], **({} if step is None else {"step": step})}
        else:
            self._builder.leave_out(where, yaml_of(given), "has no known `type`", _REMEDY)
            return
        self._search(where, key, entry, yaml_of(given))

    def _override(self, text: str, given: dict[str, tuple[str, str, Any]]) -> None:
        key, equals, value = text.partition("=")
        where = f"override {key}"
        prefix, bare = _split(key)
        given.pop(bare, None)
        if not equals or prefix == "~":
            self._words[bare] = escaped(text)
        elif bare.startswith(("hydra.", "hydra/")):
            self._builder.leave_out(where, text, "configures Hydra itself", "Write its counterpart here.")
        else:
            given[bare] = (where, key, value)

    def _add(self, where: str, key: str, value: Any) -> None:
        """Add a parameter or a fixed word."""
        try:
            read = parsed_sweep(value) if isinstance(value, str) else value
            entry = self._entry(read) if isinstance(read, HydraSweep) else None
        except (SweepGrammarError, OverflowError) as error:
            self._builder.leave_out(where, value, str(error), _REMEDY)
            return
        if entry is None:
            self._words[_split(key)[1]] = escaped(
                f"{key}={value if isinstance(value, str) else yaml_of(value)}"
            )
            return
        if wrong := [choice for choice in entry.get("choice", ()) if not _is_writable(choice)]:
            why = "has a value whose quotes for Hydra a placeholder cannot write"
            instead = "Give each value a short name in the configuration."
            self._builder.leave_out(where, yaml_of(wrong[0]), why, instead)
            return
        self._search(where, key, entry, value)

    def _search(self, where: str, key: str, entry: Mapping[str, Any], got: Any) -> None:
        bare = _split(key)[1]
        name = self._builder.add(where, bare, entry, got)
        if name is not None:
            self._words[bare] = f"{escaped(key)}={{{name}}}"

    def _entry(self, sweep: HydraSweep) -> dict[str, Any]:
        """Return the entry of `search` for a sweep.

        Optuna's sweeper draws from both ends of a `range`; Hydra's own leaves the upper end out.
        """
        if sweep.kind == "choice":
            if sweep.is_log:
                raise SweepGrammarError("has the tag `log`, which a choice cannot have")
            return {"choice": list(sweep.values)}
        low, high, step = sweep.low, sweep.high, sweep.step
        if sweep.kind == "interval":
            if sweep.is_whole:
                return {"log_int" if sweep.is_log else "int": [int(low), int(high)]}
            return {"log_uniform" if sweep.is_log else "uniform": [low, high]}
        if step <= 0 or high <= low:
            return {"choice": _in_steps(low, high, step)}
        is_real = any(isinstance(number, float) for number in (low, high, step)) and not sweep.is_whole
        if self._is_basic:
            if is_real:
                return {"choice": _in_steps(low, high, step)}
            return {"int": [low, low + (high - low - 1) // step * step], **_step(step)}
        if is_real:
            last = low + int((high - low) / step + 1e-9) * step
            return {"uniform": [low, float(f"{last:.12g}")], "step": step}
        last = low + (high - low) // step * step
        return {"log_int" if sweep.is_log else "int": [int(low), int(last)], **_step(step)}

    def _arguments(self) -> Iterator[str]:
        """Yield the words of the command after the script."""
        path = PurePath(self._file)
        if self._is_part:
            self._builder.guesses.append(
                f"trainable: {path.name} is an option of the group {path.parent.name}, as in"
                f" `train.py {path.parent.name}={path.stem}`."
            )
            yield f"{escaped(path.parent.name)}={escaped(path.stem)}"
        elif path.stem != "config":
            yield f"--config-name={escaped(path.stem)}"
        if str(_at(self._plain, "hydra", "mode")).upper() == "MULTIRUN":
            yield "hydra.mode=RUN"
        yield from self._words.values()
        self._builder.guesses.append(
            "trainable: the configuration does not name its script; train.py. It must report the value"
            " that it returns, with `sweep_client`."
        )

    def _objective(self) -> dict[str, Any]:
        named = next((self._plain[key] for key in _METRICS if isinstance(self._plain.get(key), str)), None)
        direction = self._sweeper.get("direction", "minimize")
        directions = [str(one).lower() for one in (direction if isinstance(direction, list) else [direction])]
        if wrong := [one for one in directions if one not in ("minimize", "maximize")]:
            where = self._where("hydra", "sweeper", "direction")
            self._builder.leave_out(where, wrong[0], "must be minimize or maximize", "Correct `objective`.")
            directions = ["minimize" if one in wrong else one for one in directions]
        if named is not None and len(directions) == 1:
            return {directions[0]: named}
        names = ["val/loss" if one == "minimize" else "val/score" for one in directions]
        if len(names) > 1:
            names = [f"value/{number}" for number in range(len(names))]
        self._builder.guesses.append(
            f"objective: the configuration does not name its metrics; {', '.join(names)}."
        )
        return objective_of(names, directions)

    def _sampler(self) -> Any:
        given = self._sweeper.get("sampler")
        options = given if isinstance(given, dict) else {}
        named = str(options.get("_target_", "")).rpartition(".")[2] or self._default("hydra/sweeper/sampler")
        if self._is_basic:
            if self._builder.combinations() is not None:
                return "grid"
            return "tpe"
        name = _SAMPLERS.get(named.lower(), "")
        if not name:
            if named:
                where = self._where("hydra", "sweeper", "sampler")
                self._builder.leave_out(where, named, "has no counterpart", "Choose a `sampler`: tpe here.")
            name = "tpe"
        kept: dict[str, Any] = {}
        for key, value in options.items():
            if key == "_target_" or value is None:
                continue
            try:
                validated(options_section("sampler", name), {key: value})
            except Violation as violation:
                where = self._where("hydra", "sweeper", "sampler", key)
                self._builder.leave_out(where, value, violation.must, "Leave it out.")
            else:
                kept[key] = value
        return {name: kept} if kept else name

    def _trials(self, sampler: Any) -> int:
        trials = self._sweeper.get("n_trials")
        if type(trials) is int and trials > 0:
            return trials
        if sampler == "grid" and (count := self._builder.combinations()):
            return count
        self._builder.guesses.append(f"budget.trials: the configuration does not say; {TRIALS}.")
        return TRIALS

    def _note_rest(self) -> None:
        for key, value in self._sweeper.items():
            where = self._where("hydra", "sweeper", key)
            if key in {"storage", "study_name"} and value is not None:
                instead = "Give the storage to `sweep import` to take its trials along."
                self._builder.leave_out(where, value, "names results of Optuna", instead)
            elif key not in _READ | {"storage", "study_name"} and value is not None:
                self._builder.leave_out(where, yaml_of(value), "has no counterpart", "Leave it out.")


def _at(tree: Any, *path: str) -> Any:
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _split(key: str) -> tuple[str, str]:
    """Return the prefix of an override (`+`, `++`, `~` or '') and its key."""
    match = _PREFIX.match(key)
    assert match is not None
    return match[1] or "", match[2]


def _is_writable(value: Any, *, is_inner: bool = False) -> bool:
    """Return True if Hydra reads a value from its text in a command. Strings in lists are quoted there."""
    if isinstance(value, list):
        return all(_is_writable(item, is_inner=True) for item in value)
    if isinstance(value, str):
        return is_inner or (_HARMLESS.fullmatch(value) is not None and _value_of(value) == value)
    return not isinstance(value, dict)  # Hydra's keys have no quotes, and those of JSON have


def _step(step: float) -> dict[str, int]:
    return {"step": int(step)} if step > 1 else {}


def _in_steps(low: float, high: float, step: float) -> list[Any]:
    """Return the values of a range without its upper end.

    Raises:
        SweepGrammarError: The range is empty or has too many values.
    """
    count = -(-(high - low) // step) if step else 0
    if not 0 < count <= _MOST_VALUES:
        raise SweepGrammarError(f"must be a range of 1 to {_MOST_VALUES:,} values")
    values = [low + number * step for number in range(int(count))]
    return [float(f"{value:.12g}") if isinstance(value, float) else value for value in values]


class _OverrideReader:
    """Reads one value of Hydra's override grammar, or a sweep."""

    def __init__(self, text: str) -> None:
        self._text, self._position = text.strip(), 0

    def read(self) -> HydraSweep | Any:
        """Return the value or the sweep that the whole text describes."""
        if "${" in self._text:
            if _CALL.match(self._text):
                raise SweepGrammarError("has an interpolation `${...}` in a sweep")
            return self._text
        if _CALL.match(self._text):
            found = self._element(0)
            self._space()
            if self._position < len(self._text):
                raise self._wrong()
            return found
        values = [self._element(0)]
        while self._take(","):
            values.append(self._element(0))
        self._space()
        if self._position < len(self._text):
            raise self._wrong()
        return values[0] if len(values) == 1 else HydraSweep("choice", tuple(values))

    def _wrong(self) -> SweepGrammarError:
        rest = self._text[self._position :][:20]
        place = f"at `{rest}`" if rest else "at its end"
        return SweepGrammarError(f"is not a valid override of Hydra: syntax error {place}")

    def _space(self) -> None:
        while self._text[self._position : self._position + 1].isspace():
            self._position += 1

    def _take(self, one: str) -> bool:
        self._space()
        if not self._text.startswith(one, self._position):
            return False
        self._position += len(one)
        return True

    def _expect(self, one: str) -> None:
        if not self._take(one):
            raise self._wrong()

    def _element(self, depth: int) -> Any:
        self._space()
        if depth > _DEEPEST:
            raise SweepGrammarError(f"has more than {_DEEPEST} levels")
        call = _CALL.match(self._text, self._position)
        if call:
            self._position = call.end()
            return self._call(call[1], depth + 1)
        if self._take("["):
            return self._items("]", lambda: self._element(depth + 1))
        if self._take("{"):
            return dict(self._items("}", lambda: self._pair(depth + 1)))
        for quote in ("'", '"'):
            if self._take(quote):
                return self._quoted(quote)
        return self._bare()

    def _items(self, end: str, read: Callable[[], Any]) -> list[Any]:
        items: list[Any] = []
        if self._take(end):
            return items
        while True:
            items.append(read())
            if self._take(end):
                return items
            self._expect(",")

    def _pair(self, depth: int) -> tuple[str, Any]:
        key = self._bare(":")
        self._expect(":")
        return str(key), self._element(depth)

    def _quoted(self, quote: str) -> str:
        found = re.compile(rf"((?:\\.|[^{quote}\\])*){quote}", re.DOTALL).match(self._text, self._position)
        if found is None:
            raise self._wrong()
        self._position = found.end()
        return re.sub(rf"\\([{quote}\\])", r"\1", found[1])

    def _bare(self, further: str = "") -> Any:
        found = re.compile(rf"[^,()\[\]{{}}'\"{further}]+").match(self._text, self._position)
        if found is None:
            raise self._wrong()
        self._position = found.end()
        return _value_of(found[0].strip())

    def _call(self, name: str, depth: int) -> Any:
        arguments: list[Any] = []
        named: dict[str, Any] = {}

        def read() -> None:
            self._space()
            key = _NAMED.match(self._text, self._position)
            if key:
                self._position = key.end()
                named[key[1]] = self._element(depth)
            else:
                arguments.append(self._element(depth))

        self._items(")", read)
        return _called(name, arguments, named)


def _value_of(text: str) -> Any:
    """Return an unquoted value with the type that Hydra gives it."""
    lowered = text.lower()
    if lowered in {"true", "false"}:
        return lowered == "true"
    if lowered == "null":
        return None
    if _NUMBER.fullmatch(text):
        plain = text.replace("_", "")
        return int(plain) if re.fullmatch(r"[-+]?\d+", plain) else float(plain)
    return text


def _called(name: str, arguments: list[Any], named: dict[str, Any]) -> HydraSweep:
    """Return the result of a function of the grammar.

    Raises:
        SweepGrammarError: An argument of the function is missing or wrong.
    """
    if name == "choice":
        return HydraSweep("choice", tuple(arguments))
    if name in {"range", "interval"}:
        return _ranged(name, arguments, named)
    sweep = named.get("sweep", named.get("list", arguments[-1] if arguments else None))
    if isinstance(sweep, list) and name in {"shuffle", "sort"}:
        sweep = HydraSweep("choice", tuple(sweep))
    if name in {"shuffle", "sort"} and len(arguments) > 1:
        sweep = HydraSweep("choice", tuple(arguments))
    if not isinstance(sweep, HydraSweep):
        raise SweepGrammarError(f"has no sweep in `{name}(...)`")
    changed = vars(sweep).copy()
    if name == "tag":
        tags = {str(tag) for tag in (*arguments[:-1], *_listed(named.get("tags")))}
        if unknown := sorted(tags - {"log"}):
            raise SweepGrammarError(f"has the tag `{unknown[0]}`, which has no counterpart")
        changed["is_log"] = sweep.is_log or "log" in tags
    elif name == "int":
        changed |= {"is_whole": True, "values": tuple(map(_cast(int), sweep.values))}
    elif name in {"float", "str", "bool"}:
        if sweep.kind != "choice":
            if name != "float":
                raise SweepGrammarError(f"has a range in `{name}(...)`, which has no counterpart")
            changed |= {"low": _cast(float)(sweep.low), "high": _cast(float)(sweep.high)}
        changed["values"] = tuple(map(_cast({"float": float, "str": str, "bool": bool}[name]), sweep.values))
    return HydraSweep(**changed)


def _cast(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def cast(value: Any) -> Any:
        try:
            return kind(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise SweepGrammarError(f"cannot be converted: {error}") from None

    return cast


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _ranged(name: str, arguments: list[Any], named: dict[str, Any]) -> HydraSweep:
    keys = ("start", "stop", "step") if name == "range" else ("start", "end")
    if name == "range" and len(arguments) == 1 and "stop" not in named:
        arguments = [0, *arguments]
    given = {**dict(zip(keys, arguments, strict=False)), **named}
    numbers = [given.get(key) for key in keys[:2]]
    step = given.get("step", 1)
    if len(arguments) > len(keys) or any(
        isinstance(number, bool) or not isinstance(number, int | float) for number in (*numbers, step)
    ):
        raise SweepGrammarError(f"must be `{name}({', '.join(keys)})` with numbers")
    low, high = numbers
    assert isinstance(low, int | float)
    assert isinstance(high, int | float)
    return HydraSweep(name, low=low, high=high, step=step)
