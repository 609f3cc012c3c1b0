"""Formats of numbers and durations, the same in the terminal, in Markdown and in HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.ledger.sweeps.standing import SweepCost, TimeLeft
    from trainables.cost import Cost

from orchestrator.placeholders import plain

NONE = "–"
"""Text of a missing value."""

DECIMALS = 4
"""Number of decimals of a measured value, unless `numbers` needs more to distinguish values."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Characters with which a formula of a spreadsheet may begin; the last four are full-width forms."""


@dataclass(frozen=True)
class TitledTable:
    """A table of texts with a title above it and sentences below it."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    sentences: Sequence[str]


def number(value: float | None, decimals: int = DECIMALS) -> str:
    """Format a measured value with four decimals, or four significant digits if it is very small or large."""
    if value is None:
        return "–"
    return f"{value:.{decimals}{'f' if value == 0 or 1e-3 <= abs(value) < 1e6 else 'g'}}"


def numbers(values: Sequence[float | None], write: Callable[[float | None, int], str] = number) -> list[str]:
    """Format the values of a column with as many digits as distinguish them; `write` formats one value."""
    known = {value for value in values if value is not None and not math.isnan(value)}
    digits = DECIMALS
    while digits < _MOST_DIGITS and len({write(value, digits) for value in known}) < len(known):
        digits += 1
    return [write(value, digits) for value in values]


_MOST_DIGITS = 17
"""Number of significant digits that distinguishes all floats."""


def brief(value: float | None, digits: int = DECIMALS) -> str:
    """Format a value with four significant digits, or None as a dash."""
    return "–" if value is None else f"{value:.{digits}g}"


def interval(low: float | None, high: float | None) -> str:
    """Format an interval, or a dash if it is unknown."""
    return "–" if low is None or high is None else f"{low:.4f} to {high:.4f}"


def p_value(p: float | None) -> str:
    """Format a p value with two significant digits, or None as a dash."""
    if p is None:
        return "–"
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def setting(value: Any) -> str:
    """Format a hyperparameter: floats with four significant digits, lists and mappings as JSON."""
    return f"{value:.4g}" if isinstance(value, float) else str(plain(value))


def count(value: float | None) -> str:
    """Format a whole number with separators, or None as a dash."""
    return "–" if value is None else f"{value:,.0f}"


def amount(value: float | None, unit: str = "") -> str:
    """Format a large number with three significant digits and a prefix, such as `83.7 MB`."""
    if value is None:
        return "–"
    scaled, prefixes = float(value), iter(("", "k", "M", "G", "T", "P"))
    prefix = next(prefixes)
    while scaled >= 999.5 and prefix != "P":
        scaled, prefix = scaled / 1000, next(prefixes)
    return f"{scaled:.3g} {prefix}{unit}".rstrip()


def size(cost: Cost) -> str:
    """Format the size of a network, with the FLOPs of a step if they were counted."""
    parts = [
        f"{count(cost.parameters)} parameters ({count(cost.layer_parameters)} in the layers, "
        f"{count(cost.recurrent_parameters)} recurrent)",
        f"a state of {count(cost.state_floats)} numbers",
    ]
    if cost.flops is not None and cost.bytes is not None:
        parts.append(f"{amount(cost.flops, 'FLOP')} and {amount(cost.bytes, 'B')} a training step")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def time_left(left: TimeLeft) -> str:
    """Format an estimate of the time left with its range, such as `about 3.0 min left (2.1 to 4.5 min)`."""
    low, likely, high = (duration(seconds) for seconds in (left.low, left.likely, left.high))
    if low == high:
        return f"about {likely} left"
    same_unit = low.rpartition(" ")[2] == high.rpartition(" ")[2]
    return f"about {likely} left ({low.rpartition(' ')[0] if same_unit else low} to {high})"


def used(cost: SweepCost) -> str:
    """Format the cost of a sweep beside the limits of its budget.

    `5 of 12 trials ended, 63 s elapsed of 2.0 h, 4.2 min compute, 0.1 of 8 GPU-hours`
    """
    parts = [
        f"{count(cost.trials_ended)} of {count(cost.trials_limit)} trials ended",
        f"{duration(cost.elapsed_seconds)} elapsed",
        f"{duration(cost.compute_seconds)} compute",
    ]
    if cost.elapsed_limit_seconds is not None:
        parts[1] += f" of {duration(cost.elapsed_limit_seconds)}"
    if cost.gpu_hours or cost.gpu_hours_limit is not None:
        limit = "" if cost.gpu_hours_limit is None else f" of {brief(cost.gpu_hours_limit)}"
        parts.append(f"{brief(cost.gpu_hours)}{limit} GPU-hours")
    return ", ".join(parts)


def share(part: float, whole: float) -> str:
    """Format a fraction in percent, or as a dash if the whole is 0."""
    return f"{100 * part / whole:.0f} %" if whole else "–"


def near(path: Path) -> str:
    """Format a path relative to the working directory if it lies below it."""
    working = Path.cwd()
    return str(path.relative_to(working) if path.is_relative_to(working) else path)


def inert(cell: Any) -> Any:
    """Return a cell, with an apostrophe in front if a spreadsheet would run it as a formula."""
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
