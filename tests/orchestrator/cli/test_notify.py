"""News reach a real command and a real server, once each, and cannot fail a sweep."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.cli.notify import Notified, Notifier, changes
from orchestrator.cli.progress import Watch
from orchestrator.errors import BadInput
from orchestrator.session.board import Progress
from tests.orchestrator.cli.test_progress import progress


@pytest.fixture
def posted() -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Yield the address of a server, and what is posted to it."""
    found: list[dict[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(500 if self.path == "/broken" else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep silent."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", found
        server.shutdown()
        thread.join()


def test_a_webhook_is_told_once_of_each_news(posted: tuple[str, list[dict[str, object]]]) -> None:
    """A best value is no news when a sweep is resumed, and none when it stays."""
    address, found = posted
    complaints: list[str] = []
    notifier = Notifier(address, complaints.append)
    watcher = Notified(_silent(), notifier, "val/accuracy")
    better = {"best_value": 0.7, "best_key": "x-4"}
    for seen in (progress(1), progress(2), progress(3, **better), progress(4, **better)):
        watcher.show(seen)
    watcher.show(progress(4, **better, states={"COMPLETE": 4, "FAILED": 2}))
    notifier.close()
    assert found == [
        {"event": "best", "trial": "x-4", "metric": "val/accuracy", "value": 0.7},
        {"event": "failed", "failed": 2, "trials": 12},
    ]
    assert complaints == []


def test_a_command_reads_the_news(tmp_path: Path) -> None:
    """A command gets one JSON object on its standard input."""
    notifier = Notifier(f"tee {tmp_path / 'news'}", print)
    notifier.tell({"event": "ended", "sweep": "x"})
    notifier.close()
    assert json.loads((tmp_path / "news").read_text()) == {"event": "ended", "sweep": "x"}


@pytest.mark.parametrize("path", ["/broken", None])
def test_what_is_not_taken_is_said_once(
    posted: tuple[str, list[dict[str, object]]], path: str | None
) -> None:
    """A server that fails and a command that is not there cost one line, without the address."""
    target = f"{posted[0]}{path}" if path else "no-such-command-here"
    complaints: list[str] = []
    notifier = Notifier(target, complaints.append)
    for _ in range(3):
        notifier.tell({"event": "failed"})
    notifier.close()
    assert len(complaints) == 1
    assert target not in complaints[0]


@pytest.mark.parametrize("target", ["", "mail 'unclosed"])
def test_no_command_is_refused(target: str) -> None:
    """What is neither an address nor a command line is refused before anything runs."""
    with pytest.raises(BadInput, match="--notify"):
        Notifier(target, print)


def test_the_first_best_value_is_news() -> None:
    """A fresh sweep's first value is a new best."""
    assert changes(Progress({}, 12), progress(1), "val/loss")[0]["value"] == 0.61234


def _silent() -> Watch:
    return Watch(Console(quiet=True), "val/accuracy", quiet=True)
