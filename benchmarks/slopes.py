"""Summaries of measurements at several sizes: a table, and straight lines fitted to the points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import linear_regression

Row = Mapping[str, float]


@dataclass(frozen=True)
class Line:
    """A straight line fitted to points by least squares.

    Attributes:
        at_none: its value at 0.
        slope: its increase per unit of x.
        off: the largest vertical distance of a point from it.
        points: number of points.
    """

    at_none: float
    slope: float
    off: float
    points: int

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]]) -> Line:
        """Return the line fitted to points (x, y), which must not all have the same x."""
        slope, at_none = linear_regression(*zip(*points, strict=True))
        off = max(abs(y - at_none - slope * x) for x, y in points)
        return cls(at_none, slope, off, len(points))

    def __str__(self) -> str:
        formula = f"{self.at_none:.3g}, and {self.slope:.3g} more for each"
        return f"{formula} ({self.points} points, at most {self.off:.2g} off)"


_TAKEN: dict[str, tuple[str, Callable[[Row], float]]] = {
    "driver, by reports a second": ("reports_a_second", lambda row: 1000 * row["driver_share_of_a_core"]),
    "MLflow's writer, by reports a second": (
        "reports_a_second",
        lambda row: row["writer_ms_a_report"] * row["reports_a_second"],
    ),
    "Ray's head, by nodes": ("nodes", lambda row: row["gcs_ms_a_second"]),
    "a raylet, by nodes": ("nodes", lambda row: row["raylet_ms_a_second"]),
}
"""For each process of a cluster: the figure on the x axis, and its processor time in ms per second."""


def lines(rows: Sequence[Row]) -> str:
    """Return the fitted line of each process of a cluster, one per line of text."""
    fits = {what: Line.through([(row[x], y(row)) for row in rows]) for what, (x, y) in _TAKEN.items()}
    return "\n".join(f"{what}, in ms a second: {line}" for what, line in fits.items())


def table(rows: Sequence[Row]) -> str:
    """Return rows as a Markdown table, with a column per figure."""
    heads = [
        "| " + " | ".join(name.replace("_", " ") for name in rows[0]) + " |",
        "|" + "---|" * len(rows[0]),
    ]
    body = ["| " + " | ".join(f"{value:.3g}" for value in row.values()) + " |" for row in rows]
    return "\n".join([*heads, *body])
