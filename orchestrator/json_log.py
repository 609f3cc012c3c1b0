"""Structured logs: one JSON object a line, for the service and its drivers.

    {"time": "2026-11-29T17:05:18.250Z", "level": "info", "event": "started", "sweep": "listops-0a1b2c3d",
     "trial": null, "message": "listops-0a1b2c3d: started driver 4711 (start 1)."}

The JSON holds ASCII alone, so that no name or message can begin a line of its own.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime

LOG = "SWEEP_LOG"
"""Environment variable with the format of the logs: `text` or `json`."""

JSON, TEXT = "json", "text"

MESSAGE = "message"
"""Event of a line without another one."""

_LOG = logging.getLogger("orchestrator")


class LogLine(str):
    """Log line with its event, sweep and trial.

    >>> LogLine("listops-0a1b2c3d restarts in 5 s.", "restarts", "listops-0a1b2c3d").event
    'restarts'

    Attributes:
        event: One word.
        sweep: ID of the sweep, or None.
        trial: Key of the trial, or None.
    """

    event: str
    sweep: str | None
    trial: str | None

    def __new__(
        cls, text: str, event: str = MESSAGE, sweep: str | None = None, trial: str | None = None
    ) -> LogLine:
        line = super().__new__(cls, text)
        line.event, line.sweep, line.trial = event, sweep, trial
        return line


class JsonLines(logging.Formatter):
    """Formatter of the standard library that writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        document = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", MESSAGE),
            "sweep": getattr(record, "sweep", None),
            "trial": getattr(record, "trial", None),
            "message": record.getMessage(),
        }
        if record.exc_info:
            document["error"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=True)


def message_of(line: str) -> str:
    """Return the message of a line of JSON, or a line of text as it is."""
    try:
        document = json.loads(line)
    except ValueError:
        return line
    return str(document["message"]) if isinstance(document, dict) and "message" in document else line


def is_json() -> bool:
    """Return True if this process writes its log as JSON."""
    return os.environ.get(LOG) == JSON


def begin() -> None:
    """Write the log of this process, warnings of Python included, to standard output as JSON."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    _LOG.setLevel(logging.INFO)
    logging.captureWarnings(True)


def log(line: str, level: int = logging.INFO) -> None:
    """Log a line, with the event, sweep and trial of a `LogLine`."""
    known = line if isinstance(line, LogLine) else LogLine(line)
    about = {"event": known.event, "sweep": known.sweep, "trial": known.trial}
    _LOG.log(level, "%s", str(known), extra=about)
