"""Follow the output of a sweep."""

from __future__ import annotations

import time
from collections.abc import Callable

from orchestrator.client.protocol import Backend
from orchestrator.errors import Exit

LOOK_SECONDS = 1.0
"""Polling interval in seconds."""


def follow(backend: Backend, sweep: str, show: Callable[[str], None], start: int | None = None) -> Exit:
    """Show the output of the drivers of a sweep until it has ended or is parked; return its exit code.

    >>> follow(backend, "listops", print)  # doctest: +SKIP
    <Exit.COMPLETE: 0>

    Args:
        backend: The backend.
        sweep: ID of the sweep, or the beginning of it.
        show: Receives the output, and a line for each new reason for waiting.
        start: First position in the log, in bytes; the last lines of the log if None.
    """
    note: str | None = None
    while True:
        part = backend.log(sweep, start)
        if part.note is not None and part.note != note:
            show(f"{sweep}: {part.note}\n")
        note = part.note
        if part.text:
            show(part.text)
        start = part.end if part.size else start
        if part.end < part.size:
            continue
        if part.is_over:
            code = backend.status(sweep).exit_code
            return Exit.RESUMABLE if code is None else Exit(code)
        time.sleep(LOOK_SECONDS)
