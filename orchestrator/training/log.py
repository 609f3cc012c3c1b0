"""What a trial's workers did, for people to read: one file a trial, a line an event, on shared storage."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from orchestrator.ledger.keys import attempt_number
from orchestrator.redaction import redacted


class TrialLog:
    """Appends to a trial's log; every line says when, and which attempt."""

    def __init__(self, file: Path, attempt_id: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file, self._attempt = file, attempt_number(attempt_id)

    def started(self, step: int) -> None:
        """Note where the attempt runs, and from which step."""
        self.write(f"started at step {step} on {socket.gethostname()}, process {os.getpid()}")

    def write(self, text: str) -> None:
        """Append a text; each of its lines becomes one of the log."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        lines = "".join(f"{stamp}Z attempt {self._attempt}: {line}\n" for line in redacted(text).splitlines())
        with self._file.open("a", encoding="utf-8") as out:
            out.write(lines)
