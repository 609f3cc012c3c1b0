"""Tree of a search-space file with the position of each value, and errors that name the position."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from orchestrator.errors import BadInput

Scalar: TypeAlias = str | int | float | bool | None
Plain: TypeAlias = Scalar | list["Plain"] | dict[str, "Plain"]
Path: TypeAlias = tuple[str | int, ...]

UNKNOWN_KEY = "is not a known key"

DEEPEST = 8
"""Levels of nesting; the format itself needs seven."""
MOST_NODES = 5_000
"""Keys and values of one file, so that a hostile one is refused in well under a second."""

_PLAIN = re.compile(r"""(?! )[^{}\[\],#:"'&*!|>%@`]+(?<! )""")
"""Pattern of the texts that need no quotes in a list or a mapping."""


class Violation(Exception):
    """A broken rule of the file format. `LocatedValue.pointing` adds the line to it.

    Args:
        path: Keys and indices that lead to the value.
        must: Requirement.
        remedy: Correction to suggest.
        got: Wrong value; if None, the value at `path`.

    Attributes:
        others: Further violations that the same check has found.
    """

    def __init__(self, path: Path, must: str, remedy: str, got: str | None = None) -> None:
        super().__init__(path, must, remedy, got)
        self.path, self.must, self.remedy, self.got = path, must, remedy, got
        self.others: tuple[Violation, ...] = ()


def raise_all(violations: Sequence[Violation]) -> None:
    """Raise the first violation with the others attached, if there is one."""
    if violations:
        first, *others = violations
        first.others = (*first.others, *(inner for other in others for inner in (other, *other.others)))
        raise first


class Mistake(BadInput):
    """A violation with its position, as shown to users.

    Attributes:
        path: Keys and indices that lead to the value.
        same_check: Further mistakes that the same check has found.
        repaired: Result of the file with its mistakes corrected, or None if its code is not known.
    """

    path: Path = ()
    same_check: Sequence[Mistake] = ()
    repaired: Any = None

    @property
    def is_unknown_key(self) -> bool:
        """Return True if the violation is an unknown key."""
        return self.must == UNKNOWN_KEY


@dataclass(frozen=True)
class LocatedValue:
    """A value of the file.

    Attributes:
        value: Scalar, a tuple of nodes, or a dict of nodes by key.
        where: `file:line` of the value's key, or the option that gave the value; empty for neither.
        text: Characters of a scalar as written.
    """

    value: Scalar | tuple[LocatedValue, ...] | dict[str, LocatedValue]
    where: str
    text: str = field(default="", compare=False)

    @property
    def entries(self) -> dict[str, LocatedValue]:
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

    def at(self, path: Path) -> LocatedValue:
        """Return the deepest node on `path` that exists: the place to point an error at."""
        below = self._below(path[0]) if path else None
        return self if below is None else below.at(path[1:])

    def shown(self) -> str:
        """Return the value as an error quotes it, cut to a readable length."""
        quoted = self._quoted()
        return quoted if len(quoted) <= 120 else f"{quoted[:117]}..."

    @contextmanager
    def pointing(self) -> Iterator[None]:
        """Turn a violation inside a `with` block into a mistake with its position in this tree.

        Raises:
            BadInput: A violation was raised.
        """
        try:
            yield
        except Violation as violation:
            mistake = self._mistake(violation)
            mistake.same_check = tuple(map(self._mistake, violation.others))
            raise mistake from None

    def _mistake(self, violation: Violation) -> Mistake:
        node, key = self.at(violation.path), dotted(violation.path)
        places = (node.where,) if node.where == f"--set {key}" else (node.where, key)
        where = ": ".join(place for place in places if place)
        got = node.shown() if violation.got is None else violation.got
        mistake = Mistake(where, violation.must, got, violation.remedy)
        mistake.path = violation.path
        return mistake

    def _below(self, key: str | int) -> LocatedValue | None:
        if isinstance(self.value, dict):
            return self.value.get(key) if isinstance(key, str) else None
        if isinstance(self.value, tuple) and isinstance(key, int) and key < len(self.value):
            return self.value[key]
        return None

    def _quoted(self) -> str:
        if isinstance(self.value, dict):
            return f"{{{', '.join(list(self.value)[:6])}}}" if self.value else "an empty mapping"
        if isinstance(self.value, tuple):
            more = ", ..." if len(self.value) > 6 else ""
            return f"[{', '.join(node.shown() for node in self.value[:6])}{more}]"
        if self.value is None:
            return "null"
        return repr(self.value) if isinstance(self.value, str) else self.text or str(self.value)


def strange(text: str, path: Path) -> str | None:
    """Return the first forbidden character of a text, or None.

    Line ends, control characters, bidirectional marks and surrogates are forbidden. Only a command may have
    several lines.
    """
    is_command = tuple(part for part in path if isinstance(part, str))[-2:] == ("trainable", "command")
    allowed = "\n\t" if is_command else ""
    return next((one for one in text if not one.isprintable() and one not in allowed), None)


def dotted(path: Path) -> str:
    """Return a path as dotted text: `search.learning_rate.uniform`."""
    return ".".join(part for part in path if isinstance(part, str))


def nearest(name: str, names: Iterable[str]) -> str:
    """Suggest the closest known name for an unknown one, or list all known names."""
    known = sorted(names)
    close = difflib.get_close_matches(name[:100], known, n=1, cutoff=0.6)
    if close:
        return f"Did you mean `{close[0]}`?"
    listed = ", ".join(known) or "none"
    return f"There {'is' if len(known) == 1 else 'are'}: {listed}."


def flow(value: Any) -> str:
    """Return a value in YAML's flow style; a text by itself, not in a list or a mapping, is never quoted."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_item(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_item, value))}]"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int) and abs(value) >= 10_000:
        return f"{value:_}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _item(value: Any) -> str:
    quoted = isinstance(value, str) and not _PLAIN.fullmatch(value)
    return json.dumps(value, ensure_ascii=False) if quoted else flow(value)


def tree_of(document: Any, where: str = "") -> LocatedValue:
    """Return mappings, lists and scalars as a tree, under the same limits as a file.

    Args:
        document: Mapping of plain values, as JSON has them; tuples count as lists.
        where: Name of the document, which errors put in front of a key; empty for none.

    Raises:
        BadInput: The document is not a mapping, or holds something that a file cannot hold.
    """
    node = LocatedValue(None, where)
    with LocatedValue({}, where).pointing():
        node = _Converter(where).node(document, ())
    if not isinstance(node.value, dict):
        raise BadInput(where or "document", "must be a mapping", node.shown(), "Give `task` and the rest.")
    return node


class _Converter:
    """Converts plain values to nodes and refuses values that a search-space file cannot hold."""

    def __init__(self, where: str) -> None:
        self._where, self._nodes = where, 0

    def node(self, value: Any, path: Path) -> LocatedValue:
        self._nodes += 1
        if len(path) >= DEEPEST:
            raise Violation(path, f"must have at most {DEEPEST} levels", "Flatten it.", "a deeper nesting")
        if self._nodes > MOST_NODES:
            must = f"must have at most {MOST_NODES:,} keys and values"
            raise Violation(path, must, "Shorten the document.", "more")
        if isinstance(value, Mapping):
            items = {self._key(key, path): item for key, item in value.items()}
            return LocatedValue(
                {key: self.node(item, (*path, key)) for key, item in items.items()}, self._where
            )
        if isinstance(value, list | tuple):
            nodes = (self.node(item, (*path, index)) for index, item in enumerate(value))
            return LocatedValue(tuple(nodes), self._where)
        return LocatedValue(self._scalar(value, path), self._where, str(value))

    def _key(self, key: Any, path: Path) -> str:
        if not isinstance(key, str) or not key.isprintable():
            raise Violation(path, "a key must be a word", "Write it as a string.", ascii(key)[:60])
        return key

    def _scalar(self, value: Any, path: Path) -> Scalar:
        if value is not None and not isinstance(value, str | int | float | bool):
            must = "must be a mapping, a list, a number, a string, True, False or None"
            raise Violation(path, must, "Convert it.", type(value).__name__)
        if isinstance(value, str) and (found := strange(value, path)) is not None:
            raise Violation(path, "must be plain text", "Remove the character.", ascii(found))
        if not _fits(value):
            must = "must be a finite number of 64 bits"
            raise Violation(path, must, "Give a finite number.", repr(value)[:60])
        return value


def _fits(value: Scalar) -> bool:
    """Return False for a number that is not finite or needs more than 64 bits."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return not isinstance(value, float) or math.isfinite(value)
