"""Defects that are known and not repaired yet: their violations do not fail the tests of the simulation.

An entry is removed by the change that repairs its defect.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.violation import Violation


@dataclass(frozen=True)
class Known:
    """A defect.

    Attributes:
        what: The defect, in a few words.
        invariant: Invariant that it violates.
        text: Part of the violation's text.
    """

    what: str
    invariant: str
    text: str


KNOWN: tuple[Known, ...] = ()


def is_known(violation: Violation) -> bool:
    """Return True if a violation is that of a known defect."""
    return any(known.invariant == violation.invariant and known.text in str(violation) for known in KNOWN)
