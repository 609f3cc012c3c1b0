"""Formats of numbers and durations, the same in the terminal, in Markdown and in HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.ledger.sweeps.standing import SweepCost, TimeLeft
    from trainables.cost import Cost

from orchestrator.placeholders import plain

NONE = "–"
"""Text of a missing value."""

DIGITS = 4
"""Number of significant digits of a measured value, unless `numbers` needs more to distinguish values."""

_FIXED = range(-3, 5)
"""Powers of ten of the values that are written without an exponent."""

_WHOLE = 1e15
"""Limit of the whole hyperparameters that are written with all their digits."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Characters with which a formula of a spreadsheet may begin; the last four are full-width forms."""


@dataclass(frozen=True)
class TitledTable:
    """A table of texts with a title above it and sentences below it."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    sentences: Sequence[str]


def number(value: float | None, digits: int = DIGITS) -> str:
    """Format a measured value with four significant digits, as `number` of the page's `shown.js` does.

    Values below 0.001 and from 100,000 have an exponent: `5.458e-5`.
    """
    if value is None:
        return NONE
    if value == 0 or not math.isfinite(value):
        return f"{abs(value) if value == 0 else value:g}"
    rounded = Context(prec=digits, rounding=ROUND_HALF_UP).create_decimal(Decimal(value))
    power = rounded.adjusted()
    if power in _FIXED:
        return _fixed(value, max(0, digits - 1 - power))
    return f"{rounded.scaleb(-power).normalize():f}e{power}"


def _fixed(value: float, decimals: int) -> str:
    # Halves are rounded away from zero, as JavaScript does.
    return f"{Decimal(value).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP):f}"


def _power(value: float) -> int:
    return Decimal(value).adjusted()


def numbers(values: Sequence[float | None], write: Callable[[float | None, int], str] = number) -> list[str]:
    """Format the values of a column with as many digits as distinguish them; `write` formats one value.

    Those that `number` writes without an exponent have equal decimals.
    """
    known = {value for value in values if value is not None and not math.isnan(value)}
    fixed = {value for value in known if value == 0 or (math.isfinite(value) and _power(value) in _FIXED)}
    largest = max((abs(value) for value in fixed), default=0.0)
    power = _power(largest) if largest else 0

    def in_column(value: float | None, digits: int) -> str:
        is_fixed = write is number and value in fixed and largest > 0
        return _fixed(value or 0.0, max(0, digits - 1 - power)) if is_fixed else write(value, digits)

    digits = DIGITS
    while digits < _MOST_DIGITS and len({in_column(value, digits) for value in known}) < len(known):
        digits += 1
    return [in_column(value, digits) for value in values]


_MOST_DIGITS = 17
"""Number of significant digits that distinguishes all floats."""


def brief(value: float | None, digits: int = DIGITS) -> str:
    """Format a value as `number` does, without zeros at the end of its decimals."""
    text = number(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def interval(low: float | None, high: float | None) -> str:
    """Format an interval, or a dash if it is unknown."""
    return NONE if low is None or high is None else " to ".join(numbers([low, high]))


def p_value(p: float | None) -> str:
    """Format a p value with two significant digits, or None as a dash."""
    if p is None:
        return "–"
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def setting(value: Any) -> str:
    """Format a hyperparameter, as `setting` of the page's `shown.js` does.

    Whole numbers have all their digits, other floats are as by `brief`, and the rest is as in the file.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float):
        return str(plain(value))
    return f"{value:.0f}" if value.is_integer() and abs(value) < _WHOLE else brief(value)


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


def gibibytes(count: int) -> str:
    """Return a number of bytes in GiB, such as `1.25 GiB`."""
    return f"{count / (1 << 30):.3g} GiB"


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


def run_again(name: str, profile: str | None) -> str:
    """Return the command that runs a file again as a new sweep."""
    chosen = f" --profile {profile}" if profile else ""
    return f"python -m orchestrator.sweep {name}.yaml{chosen} --new"


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
