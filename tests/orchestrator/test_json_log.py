"""Each record of a structured log is one line, whatever it says."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

from orchestrator import json_log
from orchestrator.json_log import JsonLines, message_of
from orchestrator.ledger.ledger import Ledger
from orchestrator.storage.paths import Paths

HOSTILE = 'a\n{"level": "error", "message": "forged"}\r\x0b\x85\u2028\x1b[2J\u202e\ud800'


def records(code: str) -> list[dict[str, str | None]]:
    """Return the records that a process writes, each of which is one line."""
    begin = "import logging; from orchestrator import json_log; json_log.begin()\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + code], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_no_text_begins_a_line_of_its_own() -> None:
    """`splitlines` knows more ends of lines than a newline."""
    first, second, third = records(f"""
text = {HOSTILE!r}
json_log.log(json_log.LogLine(text, text, text, text))
try:
    raise ValueError(text)
except ValueError:
    logging.getLogger("orchestrator.x").exception("%s", text)
import warnings
warnings.warn(text)
""")
    assert (first["level"], second["level"], third["level"]) == ("info", "error", "warning")
    assert first["message"] == first["event"] == first["sweep"] == first["trial"] == HOSTILE
    assert "forged" in str(second["error"])
    assert "forged" in str(third["message"])


def test_a_record_has_time_level_event_sweep_and_trial() -> None:
    record = logging.LogRecord("orchestrator", logging.INFO, "", 0, "%d trials", (3,), None)
    record.created, record.event, record.sweep = 1_790_000_000.25, "ended", "s-1"
    assert json.loads(JsonLines().format(record)) == {
        "time": "2026-09-21T14:13:20.250Z",
        "level": "info",
        "event": "ended",
        "sweep": "s-1",
        "trial": None,
        "message": "3 trials",
    }


def test_a_driver_logs_what_changes() -> None:
    found = records("""
from orchestrator.driver.log import StructuredLog
from orchestrator.session.board import Progress
log = StructuredLog("s-1", "loss")
log.say("loading")
for done in (1, 1, 2):
    log.show(Progress({"COMPLETE": done}, 2, "s-1-3", 0.5))
""")
    assert [(one["event"], one["sweep"], one["trial"]) for one in found] == [
        ("message", "s-1", None),
        ("best", "s-1", "s-1-3"),
        ("progress", "s-1", None),
        ("progress", "s-1", None),
    ]


def test_a_refused_driver_logs_its_error(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "mlruns")
    paths.create()
    Ledger.open(paths.ledger_url).close()
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.driver", "none\n-1", "--start", "1", "--root", str(paths.root)],
        env={**os.environ, json_log.LOG: json_log.JSON},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    [line] = done.stdout.splitlines()
    record = json.loads(line)
    assert (record["level"], record["event"]) == ("error", "error")
    assert "was not submitted" in record["message"]
    assert done.stderr == ""


def test_the_cause_of_a_crash_is_the_message_of_the_last_line() -> None:
    assert message_of('{"message": "ValueError: poison"}') == "ValueError: poison"
    for text in ("ValueError: poison", "{", "[1]", "{}", ""):
        assert message_of(text) == text
