"""The exit codes of every command."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """How a command or a sweep has ended.

    Attributes:
        COMPLETE: everything was done.
        FINDINGS: `check` has found something, or `evaluate` other numbers than recorded.
        BAD_INPUT: the input was refused before anything ran.
        SOME_FAILED: the sweep is finished, and some of its trials, or all, have failed.
        RESUMABLE: the sweep was interrupted; running it again resumes it.
        STILL_RUNNING: the sweep is still running, without this command.
    """

    COMPLETE = 0
    FINDINGS = 1
    BAD_INPUT = 2
    SOME_FAILED = 3
    RESUMABLE = 4
    STILL_RUNNING = 5
