"""Pages of sorted rows, by offset or by cursor.

If rows are added meanwhile, pages by offset skip or repeat rows. A cursor holds the sort value and the
identity of the last row of a page, so that the next page begins right after that row.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Query

from orchestrator.errors import BadInput

Row = TypeVar("Row")

MOST_WHOLE = 2**53
"""Largest integer of a request: the largest that JavaScript represents exactly."""

After = Annotated[str | None, Query(description="`next` of the previous page.", max_length=400)]
Offset = Annotated[int, Query(ge=0, le=MOST_WHOLE, description="Rows to skip without `after`.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Largest number of rows.")]


@dataclass(frozen=True)
class SortOrder(Generic[Row]):
    """Sort order of rows; rows without a value come last.

    Attributes:
        name: Name of the list and of the sort column, which its cursors contain.
        value: Sort value of a row, or None.
        identity: Unique tie-breaker of a row.
        descending: Whether larger values come first.
    """

    name: str
    value: Callable[[Row], Any]
    identity: Callable[[Row], Any]
    descending: bool = False

    def sorted(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows in this order."""
        by_identity = sorted(rows, key=self.identity)
        with_value = [row for row in by_identity if self.value(row) is not None]
        without = [row for row in by_identity if self.value(row) is None]
        return [*sorted(with_value, key=self.value, reverse=self.descending), *without]

    def is_after(self, row: Row, value: Any, identity: Any) -> bool:
        """Return True if a row comes after the row with this value and identity."""
        own = self.value(row)
        if own is None or value is None:
            return self.identity(row) > identity if own is value else own is None
        if own == value:
            return bool(self.identity(row) > identity)
        return bool(own < value if self.descending else own > value)


def page(
    rows: Sequence[Row], order: SortOrder[Row], *, after: str | None, offset: int, limit: int
) -> tuple[list[Row], str | None]:
    """Return one page of rows, and the cursor of the next page or None.

    Args:
        rows: Rows in any order.
        order: Sort order.
        after: Cursor of the page, or None to begin at `offset`.
        offset: Number of rows to skip without a cursor.
        limit: Largest number of rows of the page.

    Raises:
        BadInput: `after` is not a cursor of these rows.
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
    """Return a cursor that contains JSON values."""
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def read_cursor(text: str, length: int) -> list[Any]:
    """Return the parts of a cursor.

    Raises:
        BadInput: The text is not a cursor with this number of parts.
    """
    try:
        parts = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        raise wrong_cursor(text) from None
    if not isinstance(parts, list) or len(parts) != length:
        raise wrong_cursor(text)
    return parts


def wrong_cursor(text: str) -> BadInput:
    """Return the refusal of a text that is not a cursor of its list."""
    remedy = "Omit it for the first page."
    return BadInput("after", "must be the `next` of an earlier page", repr(text), remedy)
