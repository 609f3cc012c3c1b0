"""Errors that users can act on.

Refusal                    root: where, requirement, value found, remedy
+-- BadData                a data set is missing, truncated or not in its published format
+-- DamagedCheckpoint      a checkpoint does not match its manifest
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_PREDICATES = (
    "already",
    "belongs",
    "cannot",
    "does",
    "generates",
    "has",
    "is",
    "may",
    "must",
    "needs",
    "requires",
    "was",
)
"""First words of a requirement whose subject is the place itself."""

_LINE_OF_A_FILE = re.compile(r":\d+$")


def problem(must: str, got: str) -> str:
    """Return a requirement with the value found: `must be positive (got -1)`."""
    return f"{must} (got {got})" if got else must


def sentence(where: str, must: str, got: str, remedy: str) -> str:
    """Return the parts of a refusal as one line.

    A requirement that begins with a verb has the place as its subject: `--drivers must be at least 1 (got 0).
    Leave it out for the default.` Other requirements, and all that concern a line of a file, follow a colon:
    `search.yaml:12: must be UTF-8 text (got UTF-16). Save it as UTF-8.`
    """
    has_subject = must.split(" ", 1)[0] in _PREDICATES and not _LINE_OF_A_FILE.search(where)
    return f"{where}{' ' if has_subject else ': '}{problem(must, got)}. {remedy}".rstrip()


def in_one_line(error: Exception) -> str:
    """Return the type of an exception and the first line of its text, such as `ValueError: no such axis`."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


class Refusal(Exception):
    """Base class of errors that users see as one line, without a traceback.

    >>> print(Refusal("search.yaml:12: learning_rate", "must be positive", "-1", "Try 1e-3."))
    search.yaml:12: learning_rate must be positive (got -1). Try 1e-3.

    Args:
        where: File and line, key, path or option.
        must: Requirement; begins with a verb if `where` is its subject.
        got: Value found; empty if there is none to show.
        remedy: What to do, as a sentence.

    Attributes:
        more: Further mistakes of the same input.
    """

    more: Sequence[Refusal] = ()

    def __init__(self, where: str, must: str, got: str, remedy: str) -> None:
        self.where, self.must, self.got, self.remedy = where, must, got, remedy
        super().__init__(where, must, got, remedy)

    def __str__(self) -> str:
        return sentence(self.where, self.must, self.got, self.remedy)

    @property
    def problem(self) -> str:
        """Requirement with the value found, without the place and the remedy."""
        return problem(self.must, self.got)

    def parts(self) -> dict[str, str]:
        """Return where, requirement, value found and remedy by name."""
        return {"where": self.where, "must": self.must, "got": self.got, "remedy": self.remedy}

    def all(self) -> list[Refusal]:
        """Return this refusal and those in `more`."""
        return [self, *self.more]


class BadData(Refusal):
    """A data set is missing or not in its published format; raised before the first trial."""


class DamagedCheckpoint(Refusal):
    """The files of a checkpoint do not match the sizes and digests of its manifest."""
