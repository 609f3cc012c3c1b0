"""A server that is lost after a commit, before its acknowledgement: the change is made once, and succeeds."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import TypeVar

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError

from orchestrator.ledger.connect import is_committed, transaction_number
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people import idempotency, users
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.people.idempotency import Known, RequestKey
from orchestrator.ledger.people.shelf import shelve
from orchestrator.ledger.queue import queue_settings, submissions
from orchestrator.ledger.queue.submissions import SubmissionWriter
from orchestrator.ledger.queue.trial_requests import ask_about_trial
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.tables import METADATA, NOTE
from tests.orchestrator.ledger.examples import SWEEP_ID, create_sweep, event, saved, trial_record, writer
from tests.orchestrator.ledger.test_recovery_under_writers import ORDER, WRITES
from tests.postgres import Server

ADA = Asked("ada", "try", SWEEP_ID)


class Proxy(socketserver.ThreadingTCPServer):
    """Passes bytes between clients and a PostgreSQL server on this machine.

    Attributes:
        loses_commit: Whether it closes the next connection that commits, once the server has answered.
    """

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port, self.loses_commit = port, False

    def relay(self, client: socket.socket) -> None:
        """Pass on the bytes of one connection."""
        with socket.create_connection(("127.0.0.1", self.port)) as server:
            is_lost = threading.Event()
            threading.Thread(target=_answer, args=(server, client, is_lost), daemon=True).start()
            while part := client.recv(65_536):
                if b"COMMIT" in part and self.loses_commit:
                    self.loses_commit = False
                    is_lost.set()
                server.sendall(part)
            server.shutdown(socket.SHUT_WR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a connection that has ended."""


AnyProxy = TypeVar("AnyProxy", bound=Proxy)


def _answer(server: socket.socket, client: socket.socket, is_lost: threading.Event) -> None:
    with suppress(OSError):  # the client has closed the connection
        while part := server.recv(65_536):
            if is_lost.is_set():
                client.shutdown(socket.SHUT_RDWR)
                return
            client.sendall(part)


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Proxy)
        self.server.relay(self.request)


@contextmanager
def relaying(proxy: AnyProxy) -> Iterator[AnyProxy]:
    """Run a proxy in a thread for a `with` block."""
    with proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield proxy
        proxy.shutdown()
        thread.join()


@pytest.fixture
def proxy(postgres_server: Server) -> Iterator[Proxy]:
    """Run a proxy in front of the server."""
    with relaying(Proxy(postgres_server.port)) as running:
        yield running


@pytest.fixture
def ledger(postgres_server: Server, postgres_url: str, proxy: Proxy) -> Iterator[Ledger]:
    """Open a ledger with one sweep behind the proxy."""
    opened = Ledger.open(postgres_url.replace(f":{postgres_server.port}/", f":{proxy.server_address[1]}/"))
    create_sweep(opened)
    yield opened
    opened.close()


def _submitted(ledger: Ledger) -> None:
    submissions.submit(ledger, ORDER, lambda is_known: SWEEP_ID)


def _stopped(ledger: Ledger) -> None:
    _submitted(ledger)
    queue_settings.ask_to_stop(ledger, SWEEP_ID)


def _parked(ledger: Ledger) -> None:
    _submitted(ledger)
    with Lease(ledger, "service") as lease:
        (submission,) = submissions.submissions(ledger)
        assert SubmissionWriter(ledger, lease.token).change(submission, state="PARKED")


def _begin_request(ledger: Ledger) -> None:
    assert isinstance(idempotency.begin(ledger, "ada", "key-1", "digest"), RequestKey)


def _begin_driver(ledger: Ledger) -> None:
    submissions.begin(ledger, SWEEP_ID, 0, Holder.here())


def _end_driver(ledger: Ledger) -> None:
    assert submissions.end(ledger, SWEEP_ID, 0, 0, None)


def _nothing(_: Ledger) -> None:
    pass


Step = Callable[[Ledger], object]
CHANGES: dict[str, tuple[Step, Step]] = {
    **{kind: (_nothing, write) for kind, (write, _) in WRITES.items()},
    "resume": (_stopped, lambda ledger: queue_settings.resume(ledger, SWEEP_ID, asked=ADA)),
    "resume a trial": (_nothing, lambda ledger: ask_about_trial(ledger, f"{SWEEP_ID}-0", "exempt", ADA)),
    "release": (_parked, lambda ledger: submissions.release(ledger, SWEEP_ID, asked=ADA)),
    "undo a deletion": (
        lambda ledger: shelve(ledger, SWEEP_ID, "deleted", ADA),
        lambda ledger: shelve(ledger, SWEEP_ID, None, ADA),
    ),
    "begin a request with a key": (_nothing, _begin_request),
    "revoke a user": (
        lambda ledger: users.add_user(ledger, "ada", "member", "grace"),
        lambda ledger: users.revoke_user(ledger, "ada", "grace"),
    ),
    "beginning of a driver": (_submitted, _begin_driver),
    "end of a driver": (_submitted, _end_driver),
}
"""Each kind of change without a sweep's lease: what precedes it, and the change."""


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_whose_acknowledgement_is_lost_is_made_once(ledger: Ledger, proxy: Proxy, kind: str) -> None:
    before, change = CHANGES[kind]
    before(ledger)
    rows = _counts(ledger)
    proxy.loses_commit = True
    change(ledger)
    assert not proxy.loses_commit
    added = {name: count - rows[name] for name, count in _counts(ledger).items()}
    assert added["audit"] <= 1
    assert sum(added.values()) - added["audit"] <= 1
    assert any(added.values()) or kind in {"beginning of a driver", "end of a driver"}


def _counts(ledger: Ledger) -> dict[str, int]:
    """Return the number of rows of each table."""
    tables = METADATA.sorted_tables
    counts = [select(func.count()).select_from(table) for table in tables]
    found = ledger.query(lambda connection: [connection.execute(each).scalar_one() for each in counts])
    return dict(zip((table.name for table in tables), found, strict=True))


def test_a_note_is_changed_once(ledger: Ledger, proxy: Proxy) -> None:
    proxy.loses_commit = True
    WRITES["note"][0](ledger)
    revision = select(NOTE.c.revision)
    assert ledger.query(lambda connection: connection.execute(revision).scalar_one()) == 1


def test_a_decision_of_the_service_is_made_once(ledger: Ledger, proxy: Proxy) -> None:
    _submitted(ledger)
    (submission,) = submissions.submissions(ledger)
    with Lease(ledger, "service") as lease:
        proxy.loses_commit = True
        assert SubmissionWriter(ledger, lease.token).change(submission, state="STARTED", starts=1)
    (changed,) = submissions.submissions(ledger)
    assert (changed.starts, changed.revision) == (1, submission.revision + 1)


def test_a_report_is_made_once_and_the_next_one_reads_its_rows(ledger: Ledger, proxy: Proxy) -> None:
    write, trial = writer(ledger), trial_record(0)
    write.add_trial(trial)
    attempt = write.start_attempt(trial.key).id
    for step in range(1, 7):
        proxy.loses_commit = step % 2 == 0
        saves = [saved(trial.key, step)]
        write.record_report(attempt, step, {"val/accuracy": step / 10}, saves, [event(trial.key, step)])
        assert not proxy.loses_commit
    assert [row.step for row in ledger.trial_reports(trial.key)] == [1, 2, 3, 4, 5, 6]
    assert [row.step for row in ledger.trial_checkpoints(trial.key)] == [6, 5]
    assert [row.event.at_ms for row in ledger.pending(SWEEP_ID, 100).events] == [1, 2, 3, 4, 5, 6]


def test_a_submission_answers_its_request_once(ledger: Ledger, proxy: Proxy) -> None:
    request = idempotency.begin(ledger, "ada", "key-1", "digest")
    assert isinstance(request, RequestKey)
    asked = Asked("ada", "submit", SWEEP_ID, request=request)
    proxy.loses_commit = True
    _, is_new = submissions.submit(ledger, ORDER, lambda is_known: SWEEP_ID, asked=asked)
    assert is_new
    known = idempotency.begin(ledger, "ada", "key-1", "digest")
    assert isinstance(known, Known)
    assert known.answer is not None
    assert known.answer["added"]


def test_an_end_in_doubt_is_known_when_the_server_has_noticed_the_loss(postgres_url: str) -> None:
    with closing(Ledger.open(postgres_url)) as ledger, ledger.reader() as asking:
        for ends in (False, True):
            with ledger.reader() as lost:
                number = transaction_number(lost)
                with pytest.raises(OperationalError, match="has not ended yet"):
                    is_committed(asking, number)
                lost.commit() if ends else lost.rollback()
            assert is_committed(asking, number) == ends
