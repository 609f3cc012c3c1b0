"""How numbers and durations are written, the same in the terminal, in Markdown and in HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def number(value: float | None) -> str:
    """Write a measured value to four digits after the point, or a dash."""
    return "–" if value is None else f"{value:.4f}"


def setting(value: Any) -> str:
    """Write a hyperparameter shortly: floats to four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def duration(seconds: float) -> str:
    """Write a duration in the unit that suits it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def share(part: float, whole: float) -> str:
    """Write a part of a whole in percent."""
    return f"{100 * part / whole:.0f} %" if whole else "–"


def near(path: Path) -> str:
    """Write a path from here, if it lies below here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
