"""Messages reach a real command and a real server, once each, and cannot fail a sweep."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.cli.app import run_command
from orchestrator.driver.log import Display
from orchestrator.driver.notifications import MOST_WAITING, Notified, Notifier, Seen, changes
from orchestrator.errors import BadInput, Exit
from orchestrator.session.board import Progress
from tests.orchestrator.cli.test_display import progress
from tests.orchestrator.cli.test_inputs import SPACE


@pytest.fixture
def posted() -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Yield the address of a server, and the list of the documents that are posted to it."""
    received: list[dict[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(500 if self.path == "/broken" else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()
        thread.join()


def test_a_webhook_receives_each_change_once(posted: tuple[str, list[dict[str, object]]]) -> None:
    """Neither the best value that a resumed sweep begins with nor an unchanged one is sent."""
    address, received = posted
    warnings: list[str] = []
    notifier = Notifier(address, warnings.append)
    observer = Notified(_quiet(), notifier, "x", "val/accuracy")
    better = {"best_value": 0.7, "best_key": "x-4"}
    for shown in (progress(1), progress(2), progress(3, **better), progress(4, **better)):
        observer.show(shown)
    observer.show(progress(4, **better, states={"COMPLETE": 4, "FAILED": 2}))
    notifier.close()
    assert received == [
        {"event": "best", "sweep": "x", "trial": "x-4", "metric": "val/accuracy", "value": 0.7},
        {"event": "failed", "sweep": "x", "failed": 2, "trials": 12},
    ]
    assert warnings == []


def test_a_command_reads_messages_on_its_standard_input(tmp_path: Path) -> None:
    notifier = Notifier(f"tee {tmp_path / 'message'}", print)
    notifier.send({"event": "ended", "sweep": "x"})
    notifier.close()
    assert json.loads((tmp_path / "message").read_text()) == {"event": "ended", "sweep": "x"}


@pytest.mark.parametrize("path", ["/broken", None])
def test_messages_that_cannot_be_sent_cost_one_line(
    posted: tuple[str, list[dict[str, object]]], path: str | None
) -> None:
    """The line does not contain the address, which may hold a secret."""
    target = f"{posted[0]}{path}" if path else "no-such-command"
    warnings: list[str] = []
    notifier = Notifier(target, warnings.append)
    for _ in range(3):
        notifier.send({"event": "failed"})
    notifier.close()
    assert len(warnings) == 1
    assert target not in warnings[0]


@pytest.mark.parametrize("target", ["", "mail 'unclosed"])
def test_a_target_that_is_neither_address_nor_command_is_refused(target: str) -> None:
    with pytest.raises(BadInput, match="--notify"):
        Notifier(target, print)


def test_the_first_best_value_is_a_change() -> None:
    found = changes("x", "val/loss", Seen.of(Progress({}, 12)), Seen.of(progress(1)))
    assert found[0]["value"] == 0.61234


def test_a_slow_target_holds_a_bounded_number_of_messages(tmp_path: Path) -> None:
    """The command is busy with the first message while the others arrive."""
    begun, free = tmp_path / "begun", tmp_path / "free"
    script = tmp_path / "slow.sh"
    script.write_text(
        f"cat >> {tmp_path / 'got'}; touch {begun}; while [ ! -e {free} ]; do sleep 0.05; done\n"
    )
    notifier = Notifier(f"sh {script}", print)
    notifier.send({"event": "ended", "sweep": "x"})
    while not begun.exists():
        time.sleep(0.05)
    for _ in range(3 * MOST_WAITING):
        notifier.send({"event": "ended", "sweep": "y"})
    free.touch()
    notifier.close()
    assert (tmp_path / "got").read_text().count("event") == 1 + MOST_WAITING


def _quiet() -> Display:
    return Display(Console(quiet=True), "val/accuracy", quiet=True)


def test_the_end_of_a_run_that_is_refused_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal passes on, and the message holds the exit code of the command."""
    monkeypatch.chdir(tmp_path)
    file, received = tmp_path / "space.yaml", tmp_path / "message"
    file.write_text(SPACE.replace("cpu: 1", "cpu: 4096"))
    assert run_command(["run", str(file), "--notify", f"tee {received}"]) == Exit.BAD_INPUT
    message = json.loads(received.read_text())
    assert message.pop("sweep").startswith("space-")
    assert message == {"event": "ended", "exit": 2, "result": "bad_input"}
