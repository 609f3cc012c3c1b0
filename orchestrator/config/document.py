"""A search-space file as a tree that knows the line of every key: YAML 1.2, and only its harmless part.

No tags, no anchors or aliases, no directives, one document, no duplicate keys, few levels. The one module
that imports ruamel.yaml; it reads the parser's events, so nothing is ever constructed from the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

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

from orchestrator.config.numbers import NotFiniteError, parse_number
from orchestrator.config.source import read_text, shown
from orchestrator.errors import BadInput

Scalar: TypeAlias = str | int | float | bool | None
Plain: TypeAlias = Scalar | list["Plain"] | dict[str, "Plain"]

DEEPEST = 8
"""Levels of nesting; the format itself needs seven."""
MOST_NODES = 5_000
"""Keys and values of one file, so that a hostile one is refused in well under a second."""

_WORDS: dict[str, Scalar] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass(frozen=True)
class Node:
    """A value of the file.

    Attributes:
        value: a scalar, a tuple of nodes, or a dict of nodes by key.
        where: `file:line` of the value's key, or the option it was given by.
        text: the characters of a scalar as written.
    """

    value: Scalar | tuple[Node, ...] | dict[str, Node]
    where: str
    text: str = field(default="", compare=False)

    @property
    def entries(self) -> dict[str, Node]:
        """Return the nodes of a mapping by key."""
        assert isinstance(self.value, dict), self.where
        return self.value

    def plain(self) -> Plain:
        """Return the tree as lists and dicts."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, tuple):
            return [node.plain() for node in self.value]
        return self.value

    def at(self, path: tuple[Any, ...]) -> Node:
        """Return the deepest node on `path` that exists: the place to point an error at."""
        below = self._below(path[0]) if path else None
        return self if below is None else below.at(path[1:])

    def _below(self, key: Any) -> Node | None:
        if isinstance(self.value, dict):
            return self.value.get(key)
        if isinstance(self.value, tuple) and isinstance(key, int) and key < len(self.value):
            return self.value[key]
        return None

    def shown(self) -> str:
        """Return the value as an error quotes it, cut to a readable length."""
        quoted = self._quoted()
        return quoted if len(quoted) <= 120 else f"{quoted[:117]}..."

    def _quoted(self) -> str:
        if isinstance(self.value, dict):
            return f"{{{', '.join(list(self.value)[:6])}}}" if self.value else "an empty mapping"
        if isinstance(self.value, tuple):
            more = ", ..." if len(self.value) > 6 else ""
            return f"[{', '.join(node.shown() for node in self.value[:6])}{more}]"
        if self.value is None:
            return "nothing"
        return repr(self.value) if isinstance(self.value, str) else self.text or str(self.value)


def read_document(path: Path) -> tuple[Node, str]:
    """Read a file into its tree and its text.

    Raises:
        BadInput: the file cannot be read as text, or is not plain YAML 1.2.
    """
    text = read_text(path)
    return parse_document(text, shown(path)), text


def parse_document(text: str, name: str) -> Node:
    """Parse the text of a whole file; errors name lines as `name:line`.

    Raises:
        BadInput: the text is not one mapping of plain YAML 1.2.
    """
    node = _Builder(name, numbered=True).build(text)
    if not isinstance(node.value, dict):
        raise BadInput(node.where, "must be a mapping", node.shown(), "Write `task: ...` at its top.")
    return node


def parse_fragment(text: str, where: str) -> Node:
    """Parse one value given on the command line; errors name `where`.

    Raises:
        BadInput: the text is not one line of plain YAML 1.2.
    """
    if not text.isprintable():
        raise BadInput(where, "must be one line of text", ascii(text[:60]), "Write the value on one line.")
    return _Builder(where, numbered=False).build(text or "~")


def tree_of(value: Any, where: str = "") -> Node:
    """Return mappings, lists and scalars as a tree, under the same limits as a file.

    Args:
        value: a mapping of plain values, as JSON has them; tuples count as lists.
        where: name of the document, put in front of the key that an error names; empty for none.

    Raises:
        BadInput: the value is no mapping, or holds something that a file cannot hold.
    """
    node = _Converter(where).node(value, ())
    if not isinstance(node.value, dict):
        raise BadInput(where or "document", "must be a mapping", node.shown(), "Give `task` and the rest.")
    return node


class _Converter:
    """Turn plain values into nodes, refusing whatever a search-space file cannot hold."""

    def __init__(self, where: str) -> None:
        self._where, self._nodes = where, 0

    def node(self, value: Any, path: tuple[str, ...]) -> Node:
        self._nodes += 1
        if len(path) >= DEEPEST:
            raise self._refusal(
                path, f"must have at most {DEEPEST} levels", "a deeper nesting", "Flatten it."
            )
        if self._nodes > MOST_NODES:
            must = f"must have at most {MOST_NODES:,} keys and values"
            raise self._refusal(path, must, "more", "Shorten the document.")
        if isinstance(value, Mapping):
            items = {self._key(key, path): item for key, item in value.items()}
            return Node({key: self.node(item, (*path, key)) for key, item in items.items()}, self._where)
        if isinstance(value, list | tuple):
            return Node(tuple(self.node(item, (*path, "")) for item in value), self._where)
        return Node(self._scalar(value, path), self._where, str(value))

    def _key(self, key: Any, path: tuple[str, ...]) -> str:
        if not isinstance(key, str) or not key.isprintable():
            raise self._refusal(path, "a key must be a word", ascii(key)[:60], "Write it as a string.")
        return key

    def _scalar(self, value: Any, path: tuple[str, ...]) -> Scalar:
        if isinstance(value, str) and not value.isprintable():
            strange = next(character for character in value if not character.isprintable())
            raise self._refusal(path, "must be plain text", ascii(strange), "Take the character out.")
        if not _is_number_of_64_bits(value):
            must, remedy = "must be a finite number of 64 bits", "Give a finite number."
            raise self._refusal(path, must, repr(value)[:60], remedy)
        if value is not None and not isinstance(value, str | int | float | bool):
            must = "must be a mapping, a list, a number, a string, True, False or None"
            raise self._refusal(path, must, type(value).__name__, "Convert it.")
        return value

    def _refusal(self, path: tuple[str, ...], must: str, got: str, remedy: str) -> BadInput:
        key = ".".join(part for part in path if part)
        where = ": ".join(part for part in (self._where, key) if part)
        return BadInput(where or "document", must, got, remedy)


def _is_number_of_64_bits(value: Any) -> bool:
    """Return False for a number that is not finite or does not fit; True for anything else."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return not isinstance(value, float) or math.isfinite(value)


def _printable(name: Any) -> str:
    """Return the name of a tag or an anchor for an error; it may hold any character, even escaped ones."""
    text = str(name)[:60]
    return text if text.isprintable() else ascii(text)[1:-1]


class _Builder:
    """Turn parser events into nodes, refusing whatever a search-space file does not need."""

    def __init__(self, name: str, *, numbered: bool) -> None:
        self._name = name
        self._numbered = numbered
        self._nodes = 0
        self._path: list[str] = []

    def build(self, text: str) -> Node:
        try:
            return self._document(YAML(typ="safe", pure=True).parse(text))
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem = " ".join(str(error.problem or error.context or "a syntax error").split())
            raise BadInput(self._line(mark), "must be YAML 1.2", problem[:160], "Mend the syntax.") from None
        except (YAMLError, ValueError, IndexError, OverflowError) as error:
            # ruamel's scanner raises ValueError on some malformed escapes and directives.
            problem = " ".join(str(error).split())[:160] or "a syntax error"
            raise BadInput(self._name, "must be YAML 1.2", problem, "Mend the syntax.") from None

    def _line(self, mark: Any) -> str:
        return f"{self._name}:{mark.line + 1}" if self._numbered and mark is not None else self._name

    def _refusal(self, event: Any, must: str, got: str, remedy: str) -> BadInput:
        line = self._line(event.start_mark)
        return BadInput(f"{line}: {'.'.join(self._path)}" if self._path else line, must, got, remedy)

    def _document(self, events: Iterator[Any]) -> Node:
        root: Node | None = None
        for event in events:
            if isinstance(event, StreamStartEvent | StreamEndEvent | DocumentEndEvent):
                continue
            if isinstance(event, DocumentStartEvent):
                self._check_start(event, first=root is None)
            else:
                root = self._node(event, events, depth=1)
        if root is None:
            raise BadInput(self._name, "must hold a value", "nothing", "Write one.")
        return root

    def _check_start(self, event: Any, *, first: bool) -> None:
        if not first:
            raise self._refusal(event, "must be one document", "a second one", "Remove the line `---`.")
        if event.version or event.tags:
            raise self._refusal(event, "must have no directives", "a line that begins with %", "Remove it.")

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
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

    def _sequence(self, events: Iterator[Any], where: str, depth: int) -> Node:
        items: list[Node] = []
        while not isinstance(event := next(events), SequenceEndEvent):
            items.append(self._node(event, events, depth + 1))
        return Node(tuple(items), where)

    def _mapping(self, events: Iterator[Any], where: str, depth: int) -> Node:
        entries: dict[str, Node] = {}
        while not isinstance(event := next(events), MappingEndEvent):
            key = self._key(event, depth + 1)
            self._path.append(key[:60])
            if key in entries:
                got = f"a second one (the first: {entries[key].where})"
                raise self._refusal(event, "keys must be unique", got, "Keep one.")
            value = self._node(next(events), events, depth + 1)
            # An error points at the line of the key: an empty value has none of its own.
            entries[key] = Node(value.value, self._line(event.start_mark), value.text)
            self._path.pop()
        return Node(entries, where)

    def _key(self, event: Any, depth: int) -> str:
        self._check_event(event, depth)
        if not isinstance(event, ScalarEvent):
            got = "a list or a mapping"
            raise self._refusal(event, "a key must be a word", got, "Write `key: value`.")
        return self._clean(event)

    def _clean(self, event: Any) -> str:
        text = str(event.value)
        if not text.isprintable():
            # Line ends, controls, marks that reorder text, halves of characters: none belongs in a name.
            strange = next(character for character in text if not character.isprintable())
            raise self._refusal(event, "must be plain text", ascii(strange), "Take the character out.")
        return text

    def _scalar(self, event: Any, where: str) -> Node:
        text = self._clean(event)
        if not event.implicit[0]:
            return Node(text, where, text)
        if text in _WORDS:
            return Node(_WORDS[text], where, text)
        try:
            number = parse_number(text)
        except NotFiniteError:
            remedy = "Write a finite number."
            raise self._refusal(event, "must be a finite number of 64 bits", text[:60], remedy) from None
        return Node(text if number is None else number, where, text)
