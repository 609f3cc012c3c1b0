"""How numbers and durations are written: the same in the terminal, in Markdown and in HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def number(value: float | None) -> str:
    """Format a measured value with four decimals, or as a dash if there is none."""
    return "–" if value is None else f"{value:.4f}"


def interval(low: float | None, high: float | None) -> str:
    """Format an interval by its ends, or as a dash if there is none."""
    return "–" if low is None or high is None else f"{low:.4f} to {high:.4f}"


def p_value(p: float | None) -> str:
    """Format a p value with two significant digits, or as a dash if there is none."""
    if p is None:
        return "–"
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def setting(value: Any) -> str:
    """Format a hyperparameter briefly: a float with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def count(value: float | None) -> str:
    """Format a whole number with separators, or as a dash if there is none."""
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


def duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours, whichever suits it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def share(part: float, whole: float) -> str:
    """Format a part of a whole in percent, or as a dash if the whole is 0."""
    return f"{100 * part / whole:.0f} %" if whole else "–"


def near(path: Path) -> str:
    """Format a path relative to the working directory if it is below it."""
    working = Path.cwd()
    return str(path.relative_to(working) if path.is_relative_to(working) else path)
