"""What was done, what had to hold, what was seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        fault: what was done.
        must: what had to hold.
        seen: what was seen, with figures.
        holds: whether it did.
        plain: what the plain stack did under such a fault, where that was measured.
    """

    fault: str
    must: str
    seen: str
    holds: bool
    plain: str = ""


@dataclass(frozen=True)
class Dose:
    """How much of a fault a scenario does.

    Attributes:
        folder: where the scenario may write.
        kills: how many processes are killed, a kind.
        cases: how many files are damaged.
        writes: how many writes are made to fail, one a case.
        outage: seconds that a server or a lock is away.
        soak: seconds of the soak.
    """

    folder: Path
    kills: int = 20
    cases: int = 50
    writes: int = 200
    outage: float = 60.0
    soak: float = 1200.0


Scenario = Callable[[Dose], list[Row]]


@dataclass
class Tally:
    """Counts what went wrong, in words, until a row is made of it."""

    wrong: list[str] = field(default_factory=list)

    def expect(self, holds: bool, otherwise: str) -> None:
        """Note what is wrong unless it holds."""
        if not holds:
            self.wrong.append(otherwise)

    def row(self, fault: str, must: str, seen: str, plain: str = "") -> Row:
        """Return the line, with what was wrong at its end."""
        return Row(fault, must, "; ".join([seen, *self.wrong]), not self.wrong, plain)


def markdown(rows: list[Row]) -> str:
    """Return the table."""
    lines = ["| fault | must hold | seen | holds | plain stack |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *map(_line, rows)])


def _line(row: Row) -> str:
    verdict = "yes" if row.holds else "**no**"
    cells = (row.fault, row.must, row.seen, verdict, row.plain)
    return f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') for cell in cells)} |"
