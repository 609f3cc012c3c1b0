"""What measurements of several sizes come to: a table of them, and the lines through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import linear_regression

Row = Mapping[str, float]


@dataclass(frozen=True)
class Line:
    """The straight line of least squares through some points.

    Attributes:
        at_none: its value at 0.
        slope: what it gains by one more.
        off: the largest distance of a point from it.
        points: how many there are.
    """

    at_none: float
    slope: float
    off: float
    points: int

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]]) -> Line:
        """Return the line through points (x, y), no two of them at the same x."""
        slope, at_none = linear_regression(*zip(*points, strict=True))
        off = max(abs(y - at_none - slope * x) for x, y in points)
        return cls(at_none, slope, off, len(points))

    def __str__(self) -> str:
        told = f"{self.at_none:.3g}, and {self.slope:.3g} more for each"
        return f"{told} ({self.points} points, at most {self.off:.2g} off)"


_TAKEN: dict[str, tuple[str, Callable[[Row], float]]] = {
    "driver, by reports a second": ("reports_a_second", lambda row: 1000 * row["driver_share_of_a_core"]),
    "MLflow's writer, by reports a second": (
        "reports_a_second",
        lambda row: row["writer_ms_a_report"] * row["reports_a_second"],
    ),
    "Ray's head, by nodes": ("nodes", lambda row: row["gcs_ms_a_second"]),
    "a raylet, by nodes": ("nodes", lambda row: row["raylet_ms_a_second"]),
}
"""What is asked of a cluster: against which figure, and how many ms of a processor a second it takes."""


def lines(rows: Sequence[Row]) -> str:
    """Return what each process of a cluster takes as it grows, a line each."""
    found = {what: Line.through([(row[x], y(row)) for row in rows]) for what, (x, y) in _TAKEN.items()}
    return "\n".join(f"{what}, in ms a second: {line}" for what, line in found.items())


def table(rows: Sequence[Row]) -> str:
    """Return rows as a table, a column a figure."""
    heads = [
        "| " + " | ".join(name.replace("_", " ") for name in rows[0]) + " |",
        "|" + "---|" * len(rows[0]),
    ]
    told = ["| " + " | ".join(f"{each:.3g}" for each in row.values()) + " |" for row in rows]
    return "\n".join([*heads, *told])
