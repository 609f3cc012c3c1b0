"""Differences of data from the published data: other options of the task, other numbers of examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def other_options(published: Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
    """Return the options that are not the published ones, such as `length 512 instead of 2,048`.

    Args:
        published: Published value of each option, or a tuple of several.
        options: Options of a task.
    """
    return [
        f"{name} {_written(options[name])} instead of {_either(wanted)}"
        for name, wanted in published.items()
        if name in options and options[name] not in _several(wanted)
    ]


def other_rows(published: Mapping[str, int], rows: Mapping[str, int]) -> list[str]:
    """Return the splits that have another number of examples than the published ones.

    Args:
        published: Number of examples by split.
        rows: Number of examples by split.
    """
    return [
        f"{rows[split]:,} {split} examples instead of {wanted:,}"
        for split, wanted in published.items()
        if rows[split] != wanted
    ]


def _several(wanted: Any) -> tuple[Any, ...]:
    return wanted if isinstance(wanted, tuple) else (wanted,)


def _either(wanted: Any) -> str:
    *others, last = map(_written, _several(wanted))
    return f"{', '.join(others)} or {last}" if others else last


def _written(value: Any) -> str:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if is_number else str(value).replace("e-0", "e-")  # 1e-5, as reports write it
