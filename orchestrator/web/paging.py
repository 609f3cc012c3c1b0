"""Pages of sorted rows: by offset, or after the last row of the page before.

A page by offset skips or repeats rows when others are added meanwhile. A cursor names the last row that was
returned, by what it is sorted by and its identity, so that the next page begins right behind it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from orchestrator.errors import BadInput

Row = TypeVar("Row")

MOST_WHOLE = 2**53
"""Largest whole number of a request: the largest that JavaScript has, which databases and files have too."""


@dataclass(frozen=True)
class Order(Generic[Row]):
    """How rows are sorted; rows without a value come last.

    Attributes:
        name: of the list and of what it is sorted by, which its cursors carry.
        value: what a row is sorted by, or None.
        identity: what decides between rows with the same value; unique.
        descending: whether larger values come first.
    """

    name: str
    value: Callable[[Row], Any]
    identity: Callable[[Row], Any]
    descending: bool = False

    def sorted(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows in their order."""
        by_identity = sorted(rows, key=self.identity)
        with_value = [row for row in by_identity if self.value(row) is not None]
        without = [row for row in by_identity if self.value(row) is None]
        return [*sorted(with_value, key=self.value, reverse=self.descending), *without]

    def is_after(self, row: Row, value: Any, identity: Any) -> bool:
        """Return True if a row comes after the one with a value and an identity."""
        own = self.value(row)
        if own is None or value is None:
            return self.identity(row) > identity if own is value else own is None
        if own == value:
            return bool(self.identity(row) > identity)
        return bool(own < value if self.descending else own > value)


def page(
    rows: Sequence[Row], order: Order[Row], *, after: str | None, offset: int, limit: int
) -> tuple[list[Row], str | None]:
    """Return one page of rows, and the cursor of the next page or None.

    Args:
        rows: in any order.
        order: of the rows.
        after: cursor of the page; None to begin at `offset`.
        offset: rows to skip without a cursor.
        limit: most rows of the page.

    Raises:
        BadInput: `after` is no cursor of these rows.
    """
    ordered = order.sorted(rows)
    if after is not None:
        name, value, identity = read_cursor(after, 3)
        if name != order.name:
            raise wrong_cursor(after)
        try:
            ordered = [row for row in ordered if order.is_after(row, value, identity)]
        except TypeError:
            raise wrong_cursor(after) from None
        offset = 0
    chosen = ordered[offset : offset + limit]
    if offset + limit >= len(ordered):
        return chosen, None
    last = chosen[-1]
    return chosen, cursor(order.name, order.value(last), order.identity(last))


def cursor(*parts: Any) -> str:
    """Return a cursor of plain JSON values."""
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def read_cursor(text: str, length: int) -> list[Any]:
    """Return the parts of a cursor.

    Raises:
        BadInput: the text is no cursor with so many parts.
    """
    try:
        parts = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        raise wrong_cursor(text) from None
    if not isinstance(parts, list) or len(parts) != length:
        raise wrong_cursor(text)
    return parts


def wrong_cursor(text: str) -> BadInput:
    """Return the refusal of a text that is no cursor of its list."""
    return BadInput("after", "must be the `next` of an earlier page", repr(text), "Leave it out to begin.")
