"""The exception for a violated invariant."""

from __future__ import annotations


class Violation(Exception):
    """Raised when an invariant does not hold.

    Attributes:
        invariant: Its name.
    """

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


def require(holds: bool, invariant: str, text: str) -> None:
    """Raise Violation unless something holds."""
    if not holds:
        raise Violation(invariant, text)
