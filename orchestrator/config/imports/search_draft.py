"""A search-space file translated from a file of another tool, with notes on what could not be translated."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.config.document import tree_of
from orchestrator.config.imports.argparse_draft import CLOCKS, GIVEN, LONGEST_TRIAL, MOST_SEARCHED, STEPS
from orchestrator.config.resolve import from_dict
from orchestrator.config.sections import SearchEntry, validated
from orchestrator.config.space import Distribution, read_space, size
from orchestrator.config.yaml_reader import NotFiniteError, parse_number
from orchestrator.errors import BadInput
from trainables.trial import variable_of

TRIALS = 64
"""Trials of a search whose budget is not known."""

_LONGEST_NAME = 64
_LONGEST_SHOWN = 120
_MOST_TRIALS = 100_000
_PLAIN = re.compile(r"[A-Za-z][\w./-]*|--?[A-Za-z][\w.-]*", re.ASCII)
_WORDS = frozenset({"null", "true", "false"})


@dataclass(frozen=True)
class Untranslated:
    """A part of the other tool's file that the search-space file does not have.

    Attributes:
        where: File, line and key.
        got: Value, as text; '' if there is none.
        why: Reason, as a predicate of the key.
        instead: Remedy, as a sentence.
    """

    where: str
    got: str
    why: str
    instead: str

    def line(self) -> str:
        """Return the part as one line."""
        got = f" (got {self.got})" if self.got else ""
        return one_line(f"{self.where[-_LONGEST_SHOWN:]}: {self.why}{got}. {self.instead}")


@dataclass(frozen=True)
class SearchDraft:
    """A search-space file.

    Attributes:
        origin: The file or the study that was translated.
        sections: Sections by name, in the order of the file.
        guesses: Sentences about values that the origin does not contain.
        untranslated: Parts that could not be translated.
        results: Known results: names of hyperparameters and objectives, then the values of each trial.
    """

    origin: str
    sections: Mapping[str, Any]
    guesses: tuple[str, ...] = ()
    untranslated: tuple[Untranslated, ...] = ()
    results: tuple[tuple[Any, ...], ...] = ()

    def notes(self) -> tuple[str, ...]:
        """Return a line for each part that is not translated, and for each guess."""
        return (
            *(f"Not translated: {part.line()}" for part in self.untranslated),
            *(f"Guessed: {one_line(guess)}" for guess in self.guesses),
        )

    def text(self) -> str:
        """Return the text of the file, with its guesses and the untranslated parts as comments."""
        return "\n".join(
            [
                f"# Translated from {one_line(self.origin)}.",
                *(f"# {note}" for note in self.notes()),
                *(line for name, section in self.sections.items() for line in _section(name, section)),
                "",
            ]
        )


def one_line(text: str) -> str:
    """Return a text as one printable line."""
    return text if text.isprintable() else ascii(text)[1:-1]


def shown(value: Any) -> str:
    """Return a value as one line of limited length."""
    text = one_line(value if isinstance(value, str) else yaml_of(value))
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


def yaml_of(value: Any) -> str:
    """Return plain values in YAML's flow style, from which a reader gets the same values."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_word(str(key))}: {yaml_of(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(yaml_of, value))}]"
    if isinstance(value, str):
        return _word(value)
    return json.dumps(value) if value is None or isinstance(value, bool) else repr(value)


def _word(text: str) -> str:
    """Return a string as a YAML word, in quotes where it could be read as something else."""
    try:
        is_number = parse_number(text) is not None
    except NotFiniteError:
        is_number = True
    if is_number or not _PLAIN.fullmatch(text) or text.lower() in _WORDS:
        return json.dumps(text, ensure_ascii=False)
    return text


def _section(name: str, section: Any) -> Iterator[str]:
    if name in {"search", "fixed", "trainable"}:
        yield f"{name}:"
        yield from (f"  {_word(key)}: {yaml_of(value)}" for key, value in section.items())
    else:
        yield f"{name}: {yaml_of(section)}"


@dataclass
class DraftBuilder:
    """Collects the parts of a search-space file, and notes those that the format refuses with the reason.

    Attributes:
        origin: The file or the study that is translated.
        search: Accepted entries of `search`, by the names of the hyperparameters.
        fixed: Values that every trial gets.
        untranslated: Parts that could not be translated.
        guesses: Sentences about values that the origin does not contain.
    """

    origin: str
    search: dict[str, dict[str, Any]] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    untranslated: list[Untranslated] = field(default_factory=list)
    guesses: list[str] = field(default_factory=list)
    _variables: set[str] = field(default_factory=set)

    def leave_out(self, where: str, got: Any, why: str, instead: str) -> None:
        """Note a part that is not translated."""
        self.untranslated.append(Untranslated(where, "" if got is None else shown(got), why, instead))

    def _name_of(self, key: str) -> str:
        """Return a free name for the hyperparameter of a key such as `model/optimizer`."""
        name = (
            re.sub(r"[^A-Za-z0-9_.]", "_", key.replace("/", "."))[-_LONGEST_NAME:].lstrip("0123456789.")
            or "value"
        )
        stem, number = name[: _LONGEST_NAME - 4], 1
        while variable_of(name) in self._variables:
            number += 1
            name = f"{stem}_{number}"
        return name

    def _accept(self, where: str, key: str, entry: Mapping[str, Any], got: Any) -> str | None:
        """Return the name under which the format accepts an entry, or None."""
        name = self._name_of(key)
        try:
            distribution_of(name, entry)
        except BadInput as error:
            self.leave_out(where, got, error.must, error.remedy)
            return None
        if name != key:
            why = f"is named {name} here, because names are made of letters, digits, _ and dots"
            self.leave_out(where, key, why, f"Read it under this name, from `trial.params[{name!r}]`.")
        self._variables.add(variable_of(name))
        return name

    def add(self, where: str, key: str, entry: Mapping[str, Any], got: Any) -> str | None:
        """Add a searched hyperparameter.

        Args:
            where: File, line and key.
            key: Key of the other tool.
            entry: Entry of `search`: a distribution, perhaps with a step and a condition.
            got: Value in the other file, for a note.

        Returns:
            The name of the hyperparameter, or None if the format refuses the entry.
        """
        if len(self.search) == MOST_SEARCHED:
            self.leave_out(
                where, got, f"is one more than the {MOST_SEARCHED} that a file searches", "Fix its value."
            )
            return None
        name = self._accept(where, key, entry, got)
        if name is not None:
            self.search[name] = dict(entry)
        return name

    def fix(self, where: str, key: str, value: Any) -> str | None:
        """Add a value that every trial gets; return its name, or None if a file cannot hold the value."""
        if len(self.fixed) == MOST_SEARCHED:
            why = f"is one more than the {MOST_SEARCHED} fixed values that a file has"
            self.leave_out(where, value, why, "Write it in the script.")
            return None
        if key in GIVEN:
            self.leave_out(
                where, value, "has the name of a value that every trial has", "Set it in the script."
            )
            return None
        name = self._accept(where, key, {"choice": [value]}, value)
        if name is not None:
            self.fixed[name] = value
        return name

    def steps(self) -> int:
        """Return the steps of a trial: the value of a fixed option such as `epochs`, or a guess."""
        known = [value for name, value in self.fixed.items() if name.rpartition(".")[2] in CLOCKS]
        for value in known:
            if type(value) is int and 0 < value <= LONGEST_TRIAL:
                return value
        self.guesses.append(f"training.steps: how often a trial reports is not known; {STEPS}.")
        return STEPS

    def combinations(self) -> int | None:
        """Return the number of settings, or None if a range is continuous."""
        space = {name: distribution_of(name, entry) for name, entry in self.search.items()}
        if any(distribution.count() is None for distribution in space.values()):
            return None
        return min(size(space, frozenset(space)), _MOST_TRIALS)

    def draft(
        self,
        sections: Mapping[str, Any],
        known: str | None = None,
        results: Sequence[tuple[Any, ...]] = (),
    ) -> SearchDraft:
        """Return the file with these sections beside `search` and `fixed`.

        Args:
            sections: Other sections by name, of which None is left out.
            known: Where the file finds known results, or None.
            results: Known results, as in `SearchDraft`.

        Raises:
            BadInput: Nothing is searched, or the sections contradict each other.
        """
        if not self.search:
            remedy = "Write the file as in docs/search-space.md."
            reasons = "; ".join(part.line() for part in self.untranslated[:8])
            raise BadInput(one_line(self.origin), "must have something to search", reasons, remedy)
        fixed = {"fixed": self.fixed} if self.fixed else {}
        first = {"trainable": sections["trainable"]} if "trainable" in sections else {}
        document = {**first, "search": self.search, **fixed, **sections}
        document = {name: section for name, section in document.items() if section is not None}
        if known is not None and len(results) > 1:
            document["known"] = known
        from_dict(document, name="translation", profile=None, gpus=0)
        return SearchDraft(
            self.origin, document, tuple(self.guesses), tuple(self.untranslated), tuple(results)
        )


def distribution_of(name: str, entry: Mapping[str, Any]) -> Distribution:
    """Return the distribution of an entry of `search`.

    Raises:
        BadInput: The format refuses the entry.
    """
    unconditional = {key: value for key, value in entry.items() if key != "when"}
    tree = tree_of({"search": {name: entry}})
    with tree.pointing():
        section = validated(SearchEntry, unconditional, ("search", name))
        return read_space({name: section})[name]


def objective_of(names: Sequence[str], goals: Sequence[str]) -> dict[str, Any]:
    """Return the section `objective` of metrics with their directions, `minimize` or `maximize`."""
    objective: dict[str, list[str]] = {}
    for name, goal in zip(names, goals, strict=True):
        objective.setdefault(goal, []).append(name)
    return {goal: listed[0] if len(listed) == 1 else listed for goal, listed in objective.items()}


def escaped(text: str) -> str:
    """Return a word of a command with its braces escaped."""
    return text.replace("{", "{{").replace("}", "}}")


def csv_of(rows: Sequence[Sequence[Any]]) -> str:
    """Return rows as the text of a CSV file. A value that is not a string is JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        writer.writerow([value if isinstance(value, str) else json.dumps(value) for value in row])
    return text.getvalue()
