"""The client over HTTP, against a real server."""

from __future__ import annotations

import http.server
import math
import os
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator import Sweep
from orchestrator.api.local import LocalBackend
from orchestrator.client import http as client_http
from orchestrator.client.answers import Submitted
from orchestrator.client.following import follow
from orchestrator.client.http import TIMEOUT_SECONDS, decoded
from orchestrator.client.protocol import Backend
from orchestrator.errors import BadInput, Busy, Exit, NoServer, NotFound, exit_of
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.people.shelf import shelve
from orchestrator.ledger.sweeps.index import known_sweeps
from orchestrator.web.file_checks import WAIT_SECONDS
from orchestrator.web.limited_process import CheckLimits
from tests import sweeps
from tests.orchestrator.cli.screens import terminal
from tests.orchestrator.ledger.examples import create_sweep, trial_record, writer
from tests.orchestrator.web.server import FILE, QUEUED, Client


def connect(client: Client, user: str = "ada") -> Backend:
    return Sweep.connect(client.address, token=client.tokens[user])


@pytest.mark.slow
def test_a_file_is_submitted_once_for_a_key(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(FILE)
    service = connect(client)
    first = service.submit(file, overrides=["budget.trials=3"], key="monday")
    assert service.submit(file, overrides=["budget.trials=3"], key="monday").id == first.id
    assert service.status(first.id).state == "QUEUED"
    service.move(first.id, "idle")
    assert {entry.sweep: entry.priority_class for entry in service.queue()}[first.id] == "idle"
    with pytest.raises(Busy, match="is already queued or running"):
        service.extend(first.id, trials=5)
    assert client.tokens["ada"] not in repr(service)


def test_a_sweep_is_stopped_and_resumed(client: Client) -> None:
    service = connect(client)
    with pytest.raises(BadInput, match="is not stopped"):
        service.resume(QUEUED)
    service.stop(QUEUED)
    assert service.status(QUEUED).paused
    assert not service.resume(QUEUED).paused
    with pytest.raises(BadInput, match="the owner of the sweep or an admin"):
        connect(client, "bob").stop(QUEUED)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["local", "http"])
def test_the_newest_sweep_is_not_archived(client: Client, place: str) -> None:
    backend = connect(client) if place == "http" else LocalBackend(client.workspace.paths.root)
    with client.workspace.ledger() as ledger:
        create_sweep(ledger, sweeps.sweep_record(id="archived-1", created_at=2e9))
        writer(ledger, "archived-1").add_trial(trial_record(sweep_id="archived-1"))
        everything = list(known_sweeps(ledger))
    shelving = LocalBackend(client.workspace.paths.root)
    assert (backend.status().id, backend.trial("0").trial.key) == ("archived-1", "archived-1-0")
    shelving.shelve("archived-1", "archived")
    time.sleep(1.1)  # the service's list of sweeps is at most a second old
    assert backend.status().id == QUEUED
    assert backend.trial("0").trial.key == f"{sweeps.SWEEP_ID}-0"
    with client.workspace.ledger() as ledger:
        with ledger.writer() as connection:
            connection.exec_driver_sql(f"UPDATE submission SET state = 'ENDED' WHERE sweep_id = '{QUEUED}'")
            connection.commit()
        for each in everything:
            shelve(ledger, each, "archived", Asked("ada", "shelve", each))
    time.sleep(1.1)
    with pytest.raises(NotFound, match="has no sweeps that are not archived"):
        backend.status()
    with pytest.raises(NotFound, match="0 is not the key of a trial"):
        backend.trial("0")


def test_an_admin_adds_lists_and_revokes_users(client: Client) -> None:
    service = connect(client, "grace")
    eve = service.add_user("eve", days=math.inf)
    assert (eve.role, eve.expires_at) == ("member", None)
    assert Sweep.connect(client.address, token=eve.token).sweeps()
    with pytest.raises(BadInput, match="already has a valid token"):
        service.add_user("eve")
    assert eve.token not in repr(service.users())
    assert service.revoke_user("eve").revoked_at is not None
    with pytest.raises(BadInput, match="unknown, revoked or expired"):
        Sweep.connect(client.address, token=eve.token).sweeps()
    with pytest.raises(BadInput, match=r"is not a user"):
        service.revoke_user("nobody")
    with pytest.raises(BadInput, match="requires an admin"):
        connect(client, "ada").users()


def test_the_audit_log_is_read_page_by_page(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    service = connect(client, "grace")
    service.add_user("eve")
    service.revoke_user("eve")
    everything = list(service.audit_log(1_000))
    monkeypatch.setattr(client_http, "PAGE", 2)
    assert len(everything) > 3
    assert list(service.audit_log(1_000)) == everything
    assert list(service.audit_log(3)) == everything[:3]


def test_pages_of_trials_are_read_to_the_end(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_http, "PAGE", 3)
    assert [trial.number for trial in connect(client, "vera").trials(sweeps.SWEEP_ID)] == list(range(8))


def test_a_later_version_may_add_fields() -> None:
    """Fields that this version does not know are ignored, also in nested answers."""
    document = {"id": "copying", "state": "QUEUED", "added": False, "cost": {"euros": 3}}
    assert decoded(Submitted, document) == Submitted("copying", "QUEUED", False)


@pytest.mark.slow  # tests/orchestrator/cli/test_live.py draws the same view in every run
@pytest.mark.parametrize(("option", "is_drawn"), [([], True), (["--plain"], False)])
def test_follow_shows_a_sweep_on_another_machine(client: Client, option: list[str], is_drawn: bool) -> None:
    log = client.workspace.paths.driver_log(QUEUED)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("Preparing.\ntrials 0/2 (2 running)\n")
    arguments = ["follow", QUEUED, "--server", client.address, *option]
    variables = {**os.environ, "SWEEP_TOKEN": client.tokens["vera"]}
    with terminal(arguments, variables, columns=100, rows=30) as shown:
        shown.wait_for(lambda rows: any(row.startswith("Preparing.") for row in rows))
        if is_drawn:
            shown.wait_for(lambda rows: any(row.startswith(f"{QUEUED} · QUEUED") for row in rows))
        assert any("trials 0/2" in row for row in shown.screen.rows) is not is_drawn


def test_a_log_is_followed_to_the_end_of_the_sweep(client: Client) -> None:
    log = client.workspace.paths.driver_log(sweeps.SWEEP_ID)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("x" * 100_000 + "\nend\n")
    shown: list[str] = []
    code = follow(connect(client), sweeps.SWEEP_ID, shown.append, 0)
    now = connect(client).status(sweeps.SWEEP_ID)
    assert (now.state, now.submission, now.exit_code) == ("INTERRUPTED", "ENDED", code)
    assert code == Exit.COMPLETE, "the submission has ended with this code"
    assert "".join(shown) == log.read_text()


def test_a_client_waits_as_long_as_a_service_may_check_a_file() -> None:
    assert WAIT_SECONDS + CheckLimits().seconds < TIMEOUT_SECONDS


def test_a_refusal_keeps_its_four_parts(client: Client) -> None:
    with pytest.raises(BadInput) as refused:
        connect(client, "bob").stop(QUEUED)
    assert refused.value.must == "requires the owner of the sweep or an admin"
    assert refused.value.got == "bob, a member"
    with pytest.raises(BadInput, match="must be the ID of one sweep"):
        connect(client).status("nothing")


@pytest.mark.slow
def test_all_mistakes_of_a_file_reach_the_client(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(FILE.replace("interval: 10", "interval: -3").replace("random: {seed", "randon: {seed"))
    for ask in (connect(client).submit, connect(client).validate):
        with pytest.raises(BadInput) as refused:
            ask(file)
        assert [mistake.got for mistake in refused.value.all()] == ["-3", "`randon`"]


@pytest.mark.parametrize("url", ["http://sweeps.example.org", "ftp://127.0.0.1", "sweeps", "https://"])
def test_a_token_is_not_sent_without_tls(url: str) -> None:
    with pytest.raises(BadInput, match="must begin with https"):
        Sweep.connect(url, token="secret")


def test_a_missing_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWEEP_TOKEN", raising=False)
    with pytest.raises(BadInput, match="SWEEP_TOKEN"):
        Sweep.connect("http://127.0.0.1:1")


def test_a_server_that_does_not_answer_can_be_tried_again() -> None:
    with pytest.raises(NoServer) as refused:
        Sweep.connect("http://127.0.0.1:1", token="secret").queue()
    assert exit_of(refused.value) == Exit.RESUMABLE


def test_a_redirection_does_not_receive_the_token() -> None:
    received: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append(self.path)
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        with pytest.raises(NoServer, match="302"):
            Sweep.connect(f"http://127.0.0.1:{listening.server_port}", token="secret").queue()
        listening.shutdown()
        thread.join()
    assert received == ["/api/v1/queue"]


@contextmanager
def answering(content: bytes) -> Iterator[str]:
    """Answer every request with the same bytes; yield the address.

    The connection is closed after them, or, after a text that ends in `...`, kept for as long as the client
    waits.
    """

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            self.wfile.write(content)
            if content.endswith(b"..."):
                self.rfile.read(1)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_address[1]}"
        finally:
            listening.shutdown()
            thread.join()


HTML = b"<html>Log in to the network</html>"
HELLO = b"SSH-2.0-OpenSSH_9.6\r\n"
OTHER_ANSWERS = {
    "a page": (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + HTML,
        "not a JSON object: '<html>Log in",
    ),
    "another document": (b"HTTP/1.1 200 OK\r\n\r\n[]", r"not a JSON object: '\[\]'"),
    "bytes of no text": (b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe", "not a JSON object"),
    "half of a body": (b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"queue"', "ends too early"),
    "half of a chunk": (
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n{"queue"',
        "ends too early",
    ),
    "half of a refusal": (b'HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\n{"where"', "503 Busy"),
    "a refusal that does not end": (b"HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\n...", "503 Busy"),
    "a body that does not end": (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n...", "timed out"),
    "no HTTP": (HELLO, "is not HTTP: 'SSH-2.0-OpenSSH_9.6'"),
    "nothing": (b"", "closed connection without response"),
}


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("name", OTHER_ANSWERS)
def test_an_answer_that_is_none_of_a_service_is_a_refusal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program has its port, a network asks for a password first, or the connection breaks."""
    content, got = OTHER_ANSWERS[name]
    monkeypatch.setattr(client_http, "TIMEOUT_SECONDS", 1.0)
    with answering(content) as address:
        with pytest.raises(NoServer, match=got) as refused:
            Sweep.connect(address, token="secret").queue()
        assert (refused.value.where, refused.value.must) == (
            address,
            "does not answer as the HTTP server of a service",
        )
    assert exit_of(refused.value) == Exit.RESUMABLE
