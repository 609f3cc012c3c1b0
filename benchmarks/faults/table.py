"""The table of fault scenarios: the fault, the requirement, and the observation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        fault: Injected fault.
        must: Requirement.
        seen: Observation, with figures.
        holds: Whether the requirement was met.
    """

    fault: str
    must: str
    seen: str
    holds: bool


@dataclass(frozen=True)
class Dose:
    """The size of the faults that the scenarios inject.

    Attributes:
        folder: Folder that the scenario may write to.
        kills: Number of processes to kill, for each kind of process.
        cases: Number of files to damage.
        writes: Number of writes to make fail, one per case.
        outage: Duration of each server outage, in seconds.
        soak: Duration of the soak test, in seconds.
        moments: Number of drivers without Ray to interrupt.
        commands: Number of times to interrupt the ordinary command.
        pauses: Durations of the pauses of each process, in seconds, separated by commas.
        crashes: Number of power failures.
        services: Number of services to kill twice.
        faults: Kinds of fault for `rivals`, separated by commas; empty for all of them.
    """

    folder: Path
    kills: int = 20
    cases: int = 50
    writes: int = 200
    outage: float = 60.0
    soak: float = 1200.0
    moments: int = 500
    commands: int = 40
    pauses: str = "10,60"
    crashes: int = 500
    services: int = 6
    faults: str = ""


Scenario = Callable[[Dose], list[Row]]


@dataclass
class Tally:
    """Collects descriptions of failed expectations, and builds a row from them."""

    wrong: list[str] = field(default_factory=list)

    def expect(self, holds: bool, otherwise: str) -> None:
        """Record the message `otherwise` unless `holds` is true."""
        if not holds:
            self.wrong.append(otherwise)

    def row(self, fault: str, must: str, seen: str) -> Row:
        """Return the row; `seen` ends with the failed expectations."""
        return Row(fault, must, "; ".join([seen, *self.wrong]), not self.wrong)


def markdown(rows: list[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| fault | must hold | seen | holds |", "|---|---|---|---|"]
    return "\n".join([*lines, *map(_line, rows)])


def _line(row: Row) -> str:
    verdict = "yes" if row.holds else "**no**"
    cells = (row.fault, row.must, row.seen, verdict)
    return f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') for cell in cells)} |"
