"""Parser of a safe subset of YAML 1.2, which records the line of every key.

No tags, no anchors or aliases, no directives, one document, no duplicate keys, few levels. A plain scalar is
a word, a number, or one of `true`, `false`, `null`; a number is an optional sign and factors joined by `*`
and `/`, each `pi` or a decimal number: `1e-4`, `50_000`, `pi/10`, `1/8`. Nothing is evaluated, and nothing is
constructed from the file: this module, the only one that imports ruamel.yaml, reads the parser's events.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

from orchestrator.config.document import DEEPEST, MOST_NODES, LocatedValue, Scalar, strange
from orchestrator.errors import BadInput
from orchestrator.text_file import read_text, shown

_WORDS: dict[str, Scalar] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*(_[0-9]+)*)")
_DECIMAL = r"(?:[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_FACTOR = re.compile(rf"\s*(pi|{_DECIMAL})\s*")
_ZERO_LED = re.compile(r"0[0-9_]+")
_LONGEST = 64


def read_document(path: Path) -> tuple[LocatedValue, str]:
    """Read a file into its tree and its text.

    Raises:
        BadInput: The file cannot be read as text, or is not plain YAML 1.2.
    """
    text = read_text(path)
    return parse_document(text, shown(path)), text


def parse_document(text: str, name: str) -> LocatedValue:
    """Parse the text of a whole file; errors name lines as `name:line`.

    Raises:
        BadInput: The text is not one mapping of plain YAML 1.2.
    """
    node = _Builder(name, numbered=True).build(text)
    if not isinstance(node.value, dict):
        raise BadInput(node.where, "must be a mapping", node.shown(), "Write `key: value` lines.")
    return node


def parse_fragment(text: str, where: str) -> LocatedValue:
    """Parse one value given on the command line; errors name `where`.

    Raises:
        BadInput: The text is not one line of plain YAML 1.2.
    """
    if not text.isprintable():
        raise BadInput(where, "must be one line of text", ascii(text[:60]), "Write the value on one line.")
    return _Builder(where, numbered=False).build(text or "~")


class NotFiniteError(ValueError):
    """A number without a finite 64-bit value."""


def parse_number(text: str) -> int | float | None:
    """Return the number in a text, or None.

    Raises:
        NotFiniteError: The value overflows, or a divisor is zero.
    """
    text = text.strip()
    if text.lower().lstrip("+-") in {".inf", ".nan"}:
        raise NotFiniteError(text)
    if len(text) > _LONGEST:
        return None
    if _INTEGER.fullmatch(text):
        return _bounded(int(text))
    return _quotient(text)


def _quotient(text: str) -> float | None:
    sign = -1.0 if text.startswith("-") else 1.0
    position = 1 if text[:1] in {"-", "+"} else 0
    value, operator = sign, "*"
    while match := _FACTOR.match(text, position):
        factor = _factor(match[1])
        if factor is None:
            return None
        value = _apply(value, operator, factor, text)
        position = match.end()
        if position == len(text):
            return value
        operator = text[position]
        if operator not in "*/":
            return None
        position += 1
    return None


def _factor(text: str) -> float | None:
    if text == "pi":
        return math.pi
    # 012 is ten in YAML 1.1 and twelve in YAML 1.2: it is read as a string.
    return None if _ZERO_LED.fullmatch(text) else float(text)


def _apply(value: float, operator: str, factor: float, text: str) -> float:
    if operator == "/" and factor == 0:
        raise NotFiniteError(text)
    result = value * factor if operator == "*" else value / factor
    if not math.isfinite(result):
        raise NotFiniteError(text)
    return result


def _bounded(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise NotFiniteError(str(value))
    return value


def _printable(name: Any) -> str:
    """Return the name of a tag or an anchor for an error; it may hold any character, even escaped ones."""
    text = str(name)[:60]
    return text if text.isprintable() else ascii(text)[1:-1]


class _Builder:
    """Converts parser events to nodes, and refuses YAML features that a search-space file does not need."""

    def __init__(self, name: str, *, numbered: bool) -> None:
        self._name = name
        self._numbered = numbered
        self._nodes = 0
        self._path: list[str] = []

    def build(self, text: str) -> LocatedValue:
        try:
            return self._document(YAML(typ="safe", pure=True).parse(text))
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem = " ".join(str(error.problem or error.context or "a syntax error").split())
            raise BadInput(self._line(mark), "must be YAML 1.2", problem[:160], "Fix the syntax.") from None
        except (YAMLError, ValueError, IndexError, OverflowError) as error:
            # ruamel's scanner raises ValueError on some malformed escapes and directives.
            problem = " ".join(str(error).split())[:160] or "a syntax error"
            raise BadInput(self._name, "must be YAML 1.2", problem, "Fix the syntax.") from None

    def _line(self, mark: Any) -> str:
        return f"{self._name}:{mark.line + 1}" if self._numbered and mark is not None else self._name

    def _refusal(self, event: Any, must: str, got: str, remedy: str) -> BadInput:
        line = self._line(event.start_mark)
        return BadInput(f"{line}: {'.'.join(self._path)}" if self._path else line, must, got, remedy)

    def _document(self, events: Iterator[Any]) -> LocatedValue:
        root: LocatedValue | None = None
        for event in events:
            if isinstance(event, StreamStartEvent | StreamEndEvent | DocumentEndEvent):
                continue
            if isinstance(event, DocumentStartEvent):
                self._check_start(event, first=root is None)
            else:
                root = self._node(event, events, depth=1)
        if root is None:
            raise BadInput(self._name, "is empty", "", "Write its content.")
        return root

    def _check_start(self, event: Any, *, first: bool) -> None:
        if not first:
            raise self._refusal(event, "must be one document", "a second one", "Remove the line `---`.")
        if event.version or event.tags:
            raise self._refusal(event, "must have no directives", "a line that begins with %", "Remove it.")

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> LocatedValue:
        self._check_event(event, depth)
        where = self._line(event.start_mark)
        if isinstance(event, ScalarEvent):
            return self._scalar(event, where)
        if isinstance(event, SequenceStartEvent):
            return self._sequence(events, where, depth)
        assert isinstance(event, MappingStartEvent)
        return self._mapping(events, where, depth)

    def _check_event(self, event: Any, depth: int) -> None:
        self._nodes += 1
        if isinstance(event, AliasEvent) or event.anchor is not None:
            got = f"`{'*' if isinstance(event, AliasEvent) else '&'}{_printable(event.anchor)}`"
            remedy = "Write the value out where it is used."
            raise self._refusal(event, "must have no anchors and no aliases", got, remedy)
        if event.ctag is not None:
            raise self._refusal(
                event, "must have no YAML tags", f"`{_printable(event.ctag)}`", "Remove the tag."
            )
        if depth > DEEPEST:
            raise self._refusal(
                event, f"must have at most {DEEPEST} levels", "a deeper nesting", "Flatten it."
            )
        if self._nodes > MOST_NODES:
            must = f"must have at most {MOST_NODES:,} keys and values"
            raise self._refusal(event, must, "more", "Shorten the file.")

    def _sequence(self, events: Iterator[Any], where: str, depth: int) -> LocatedValue:
        items: list[LocatedValue] = []
        while not isinstance(event := next(events), SequenceEndEvent):
            items.append(self._node(event, events, depth + 1))
        return LocatedValue(tuple(items), where)

    def _mapping(self, events: Iterator[Any], where: str, depth: int) -> LocatedValue:
        entries: dict[str, LocatedValue] = {}
        while not isinstance(event := next(events), MappingEndEvent):
            key = self._key(event, depth + 1)
            self._path.append(key[:60])
            if key in entries:
                got = f"a second one (the first: {entries[key].where})"
                raise self._refusal(event, "keys must be unique", got, "Keep one.")
            value = self._node(next(events), events, depth + 1)
            # An error points at the line of the key: an empty value has none of its own.
            entries[key] = LocatedValue(value.value, self._line(event.start_mark), value.text)
            self._path.pop()
        return LocatedValue(entries, where)

    def _key(self, event: Any, depth: int) -> str:
        self._check_event(event, depth)
        if not isinstance(event, ScalarEvent):
            got = "a list or a mapping"
            raise self._refusal(event, "a key must be a word", got, "Write `key: value`.")
        return self._clean(event, is_key=True)

    def _clean(self, event: Any, *, is_key: bool = False) -> str:
        text = str(event.value)
        if (found := strange(text, () if is_key else tuple(self._path))) is not None:
            raise self._refusal(event, "must be plain text", ascii(found), "Remove the character.")
        return text

    def _scalar(self, event: Any, where: str) -> LocatedValue:
        text = self._clean(event)
        if not event.implicit[0]:
            return LocatedValue(text, where, text)
        if text in _WORDS:
            return LocatedValue(_WORDS[text], where, text)
        try:
            number = parse_number(text)
        except NotFiniteError:
            remedy = "Write a finite number."
            raise self._refusal(event, "must be a finite number of 64 bits", text[:60], remedy) from None
        return LocatedValue(text if number is None else number, where, text)
