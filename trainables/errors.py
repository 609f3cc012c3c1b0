"""Errors that a user can act on.

Refusal                    root: where - what must hold - what was found - what would be right
+-- BadData                a data set is missing, truncated or not in its published format
+-- DamagedCheckpoint      a checkpoint does not match its manifest
"""

from __future__ import annotations

from collections.abc import Sequence


class Refusal(Exception):
    """Base class of errors that users see as one line, without a traceback.

    Args:
        where: File and line, key, path or option.
        must: What must hold.
        got: What was found instead.
        remedy: What would be right.

    Attributes:
        more: Further mistakes of the same input.
    """

    more: Sequence[Refusal] = ()

    def __init__(self, where: str, must: str, got: str, remedy: str) -> None:
        self.where, self.must, self.got, self.remedy = where, must, got, remedy
        super().__init__(where, must, got, remedy)

    def __str__(self) -> str:
        return f"{self.where}: {self.must}, got {self.got}. {self.remedy}"

    def parts(self) -> dict[str, str]:
        """Return the four parts by name."""
        return {"where": self.where, "must": self.must, "got": self.got, "remedy": self.remedy}

    def all(self) -> list[Refusal]:
        """Return this refusal and the further ones of the same input."""
        return [self, *self.more]


class BadData(Refusal):
    """Raised before the first trial when a data set cannot be read as published."""


class DamagedCheckpoint(Refusal):
    """Raised when a checkpoint's files do not match the sizes and digests of its manifest."""
