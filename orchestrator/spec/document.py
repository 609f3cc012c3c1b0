"""A search-space file as a tree that knows the line of every key: YAML 1.2, and only its harmless part.

No tags, no anchors or aliases, no directives, one document, no duplicate keys, few levels. The one module
that imports ruamel.yaml; it reads the parser's events, so nothing is ever constructed from the file.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
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

from orchestrator.errors import BadInput
from orchestrator.spec.numbers import NotFinite, parse_number

Scalar: TypeAlias = str | int | float | bool | None
Plain: TypeAlias = Scalar | list["Plain"] | dict[str, "Plain"]

BIGGEST = 1_000_000
"""Bytes of the longest file that is read."""
DEEPEST = 8
"""Levels of nesting; the format itself needs six."""
MOST_NODES = 5_000
"""Keys and values of one file, so that a hostile one is refused in well under a second."""

_WORDS: dict[str, Scalar] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_TAB = re.compile(r"^ *\t", re.MULTILINE)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True)
class Node:
    """A value of the file.

    Attributes:
        value: a scalar, a tuple of nodes, or a dict of nodes by key.
        where: `file:line` of the value, or the option it was given by.
        text: the characters of a scalar as written.
    """

    value: Scalar | tuple[Node, ...] | dict[str, Node]
    where: str
    text: str = field(default="", compare=False)

    def plain(self) -> Plain:
        """Return the tree as lists and dicts."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, tuple):
            return [node.plain() for node in self.value]
        return self.value

    def at(self, path: tuple[Any, ...]) -> Node:
        """Return the deepest node on `path` that exists: the place to point an error at."""
        if path and isinstance(self.value, dict) and path[0] in self.value:
            return self.value[path[0]].at(path[1:])
        if path and isinstance(self.value, tuple) and isinstance(path[0], int):
            if path[0] < len(self.value):
                return self.value[path[0]].at(path[1:])
        return self

    def shown(self) -> str:
        """Return the value as an error quotes it, cut to a readable length."""
        if isinstance(self.value, dict):
            shown = f"{{{', '.join(self.value)}}}" if self.value else "an empty mapping"
        elif isinstance(self.value, tuple):
            shown = f"[{', '.join(node.shown() for node in self.value[:6])}{', ...' * (len(self.value) > 6)}]"
        elif self.value is None:
            shown = "nothing"
        else:
            shown = repr(self.value) if isinstance(self.value, str) else self.text or str(self.value)
        return shown if len(shown) <= 120 else f"{shown[:117]}..."


def read_document(path: Path) -> tuple[Node, str]:
    """Read a file into its tree and its text.

    Raises:
        BadInput: the file is missing, unreadable, too long, not UTF-8 text or not plain YAML 1.2.
    """
    text = _text(path)
    return parse_document(text, str(path)), text


def parse_document(text: str, name: str) -> Node:
    """Parse the text of a whole file; errors name lines as `name:line`.

    Raises:
        BadInput: the text is not one mapping of plain YAML 1.2.
    """
    _refuse_tabs(text, name)
    node = _Builder(name, numbered=True).build(text)
    if not isinstance(node.value, dict):
        _refuse(node.where, "must be a mapping", node.shown(), "Write `task: ...` at its top.")
    return node


def parse_fragment(text: str, where: str) -> Node:
    """Parse one value given on the command line; errors name `where`.

    Raises:
        BadInput: the text is not plain YAML 1.2.
    """
    if _CONTROL.search(text) or "\n" in text:
        _refuse(where, "must be one line of text", repr(text[:60]), "Write the value on one line.")
    return _Builder(where, numbered=False).build(text)


def _refuse(where: str, must: str, got: str, remedy: str) -> None:
    raise BadInput(where, must, got, remedy)


def _text(path: Path) -> str:
    where = str(path)
    data = _bytes(path)
    if data.startswith(_UTF16):
        raise BadInput(where, "must be UTF-8 text", "UTF-16", "Save it as UTF-8.")
    if b"\x00" in data:
        raise BadInput(where, "must be UTF-8 text", "a binary file", "Name a YAML file.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        got = f"the byte 0x{data[error.start]:02x}"
        raise BadInput(f"{where}:{line}", "must be UTF-8 text", got, "Save it as UTF-8.") from None
    if not text.strip():
        raise BadInput(where, "must hold a search space", "an empty file", "Begin with `task: retrieval`.")
    if found := _CONTROL.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise BadInput(
            f"{where}:{line}", "must be plain text", repr(found[0]), "Take the control character out."
        )
    return text


def _bytes(path: Path) -> bytes:
    where = str(path).replace("\n", "\\n")
    remedy = "Name a YAML file, such as search_spaces/retrieval.yaml."
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise BadInput(where, "must be a file", "a directory", remedy)
        if not stat.S_ISREG(found.st_mode):
            raise BadInput(where, "must be a regular file", "a device or a pipe", remedy)
        if found.st_size > BIGGEST:
            raise BadInput(where, f"must be at most {BIGGEST:,} bytes", f"{found.st_size:,}", remedy)
        return path.read_bytes()
    except FileNotFoundError:
        raise BadInput(where, "must exist", "no such file", remedy) from None
    except PermissionError:
        raise BadInput(
            where, "must be readable", "permission denied", "Make it readable: chmod u+r."
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(where[:200], "must be a readable file", reason, remedy) from None


def _refuse_tabs(text: str, name: str) -> None:
    if found := _TAB.search(text):
        line = text.count("\n", 0, found.start()) + 1
        _refuse(f"{name}:{line}", "must be indented by spaces", "a tab", "Replace the tab by spaces.")


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
            raise BadInput(self._where(mark), "must be YAML 1.2", problem[:160], "Mend the syntax.") from None
        except (YAMLError, ValueError, IndexError, OverflowError) as error:
            # ruamel's scanner raises ValueError on some malformed escapes and directives.
            problem = " ".join(str(error).split())[:160] or "a syntax error"
            raise BadInput(self._name, "must be YAML 1.2", problem, "Mend the syntax.") from None

    def _where(self, mark: Any) -> str:
        return f"{self._name}:{mark.line + 1}" if self._numbered and mark is not None else self._name

    def _document(self, events: Iterator[Any]) -> Node:
        root: Node | None = None
        for event in events:
            if isinstance(event, (StreamStartEvent, StreamEndEvent, DocumentEndEvent)):
                continue
            if isinstance(event, DocumentStartEvent):
                self._check_start(event, first=root is None)
            else:
                root = self._node(event, events, depth=1)
        if root is None:
            raise BadInput(self._name, "must hold a value", "nothing", "Write one.")
        return root

    def _check_start(self, event: Any, *, first: bool) -> None:
        where = self._where(event.start_mark)
        if not first:
            raise BadInput(where, "must be one document", "a second one", "Remove the line `---`.")
        if event.version or event.tags:
            raise BadInput(where, "must have no directives", "a line that begins with %", "Remove it.")

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        where = self._where(event.start_mark)
        self._check_event(event, where, depth)
        if isinstance(event, ScalarEvent):
            return self._scalar(event, where)
        if isinstance(event, SequenceStartEvent):
            return self._sequence(events, where, depth)
        assert isinstance(event, MappingStartEvent)
        return self._mapping(events, where, depth)

    def _at_key(self, where: str) -> str:
        return f"{where}: {'.'.join(self._path)}" if self._path else where

    def _check_event(self, event: Any, where: str, depth: int) -> None:
        self._nodes += 1
        where = self._at_key(where)
        if isinstance(event, AliasEvent) or event.anchor is not None:
            sign = "*" if isinstance(event, AliasEvent) else "&"
            got = f"`{sign}{str(event.anchor)[:40]}`"
            raise BadInput(
                where, "must have no anchors and no aliases", got, "Write the value out where it is used."
            )
        if event.ctag is not None:
            raise BadInput(where, "must have no YAML tags", f"`{str(event.ctag)[:60]}`", "Remove the tag.")
        if depth > DEEPEST:
            raise BadInput(where, f"must have at most {DEEPEST} levels", "a deeper nesting", "Flatten it.")
        if self._nodes > MOST_NODES:
            raise BadInput(
                where, f"must have at most {MOST_NODES:,} keys and values", "more", "Shorten the file."
            )

    def _sequence(self, events: Iterator[Any], where: str, depth: int) -> Node:
        items: list[Node] = []
        while not isinstance(event := next(events), SequenceEndEvent):
            items.append(self._node(event, events, depth + 1))
        return Node(tuple(items), where)

    def _mapping(self, events: Iterator[Any], where: str, depth: int) -> Node:
        entries: dict[str, Node] = {}
        while not isinstance(event := next(events), MappingEndEvent):
            key = self._key(event, events, depth + 1)
            line = self._where(event.start_mark)
            self._path.append(key)
            if key in entries:
                first = entries[key].where
                raise BadInput(
                    self._at_key(line), "keys must be unique", f"a second one ({first})", "Keep one."
                )
            # An error points at the line of the key: an empty value has none of its own.
            value = self._node(next(events), events, depth + 1)
            entries[key] = Node(value.value, line, value.text)
            self._path.pop()
        return Node(entries, where)

    def _key(self, event: Any, events: Iterator[Any], depth: int) -> str:
        where = self._where(event.start_mark)
        self._check_event(event, where, depth)
        if not isinstance(event, ScalarEvent):
            raise BadInput(where, "a key must be a word", "a list or a mapping", "Write `key: value`.")
        return self._clean(str(event.value), where)

    def _clean(self, text: str, where: str) -> str:
        if found := _UNPRINTABLE.search(text):
            raise BadInput(
                self._at_key(where), "must be plain text", repr(found[0]), "Take the character out."
            )
        return text

    def _scalar(self, event: Any, where: str) -> Node:
        text = self._clean(str(event.value), where)
        if not event.implicit[0]:
            return Node(text, where, text)
        if text in _WORDS:
            return Node(_WORDS[text], where, text)
        try:
            number = parse_number(text)
        except NotFinite:
            at = self._at_key(where)
            raise BadInput(at, "must be a finite number", text[:60], "Write a finite one.") from None
        return Node(text if number is None else number, where, text)
