"""Exit codes of every command."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What a finished command tells its caller."""

    COMPLETE = 0
    FINDINGS = 1
    BAD_INPUT = 2
    SOME_FAILED = 3
    RESUMABLE = 4
    GOES_ON = 5
