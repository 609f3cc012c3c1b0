"""Round trips of a report to a PostgreSQL server, counted and delayed by a proxy between the two."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest
from sqlalchemy import text

from orchestrator.ledger import connect
from orchestrator.ledger.integrity import verify
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.system import System
from tests.orchestrator.ledger.examples import SWEEP_ID, create_sweep, event, saved, trial_record, writer
from tests.orchestrator.ledger.test_lost_acknowledgement import Proxy, relaying
from tests.postgres import Server

DELAY = 0.03
"""Seconds that an answer takes, within which whatever a client sends belongs to one round trip."""

ROUND_TRIPS = 1
"""Round trips of a report: all statements, and the commit with them."""


class SlowProxy(Proxy):
    """Delays each answer.

    Args:
        port: Port of the server.
        delay: Seconds that an answer takes.

    Attributes:
        trips: Number of times that a client has sent something after the answer to what it sent before.
    """

    def __init__(self, port: int, delay: float = DELAY) -> None:
        super().__init__(port)
        self.delay, self.trips = delay, 0

    def before(self, url: str) -> str:
        """Return the URL of a database of the server, behind this proxy."""
        return url.replace(f":{self.port}/", f":{self.server_address[1]}/")

    def relay(self, client: socket.socket) -> None:
        """Pass on the bytes of one connection."""
        is_waiting = threading.Event()

        def answer(server: socket.socket) -> None:
            with suppress(OSError):  # the client has closed the connection
                while part := server.recv(65_536):
                    time.sleep(self.delay)
                    is_waiting.clear()
                    client.sendall(part)

        with socket.create_connection(("127.0.0.1", self.port)) as server:
            for each in (client, server):  # a kernel that collects small parts would add 40 ms
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=answer, args=(server,), daemon=True).start()
            while part := client.recv(65_536):
                self.trips += not is_waiting.is_set()
                is_waiting.set()
                server.sendall(part)
            server.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxy(postgres_server: Server) -> Iterator[SlowProxy]:
    """Run a proxy in front of the server."""
    with relaying(SlowProxy(postgres_server.port)) as running:
        yield running


@pytest.fixture
def ledger(postgres_url: str, proxy: SlowProxy) -> Iterator[Ledger]:
    """Open a ledger with one sweep behind the proxy."""
    opened = Ledger.open(proxy.before(postgres_url))
    create_sweep(opened)
    yield opened
    opened.close()


def test_a_report_takes_one_round_trip(ledger: Ledger, proxy: SlowProxy) -> None:
    write, trial = writer(ledger), trial_record(0)
    write.add_trial(trial)
    attempt = write.start_attempt(trial.key).id

    def trips(step: int, write: SweepWriter = write) -> int:
        """Report two metrics, two checkpoints, an event and deletions in a store; return the round trips."""
        before, metrics = proxy.trips, {"val/accuracy": step / 100, "train/loss": 1 / step}
        saves = [saved(trial.key, step), saved(trial.key, step, "best")]
        write.record_report(attempt, step, metrics, saves, [event(trial.key, step)], "node", stored=str)
        return proxy.trips - before

    counts = [trips(step) for step in range(1, 12)]
    assert counts[0] > ROUND_TRIPS, "the first report reads its rows"
    assert counts[1:] == [ROUND_TRIPS] * 10, counts
    assert trips(20, SweepWriter(ledger, write.token)) > ROUND_TRIPS, "a new writer reads them too"
    assert [row.step for row in ledger.trial_reports(trial.key)] == [*range(1, 12), 20]
    assert [(row.kind, row.step) for row in ledger.trial_checkpoints(trial.key)] == [
        ("best", 20),
        ("last", 20),
        ("best", 11),
        ("last", 11),
    ]
    assert len(ledger.deletions(SWEEP_ID, 100)) == 10
    assert verify(ledger, SWEEP_ID) == []


@pytest.mark.parametrize("idle", [0.0, 60.0])
def test_a_connection_that_the_server_has_closed_is_replaced(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, idle: float
) -> None:
    """A look finds an idle one; the first statement finds one that was used just now."""
    monkeypatch.setattr(connect, "IDLE_SECONDS", idle)
    with closing(Ledger.open(postgres_url)) as ledger, closing(Ledger.open(postgres_url)) as other:
        create_sweep(ledger)
        with ledger.reader() as used:
            pid = used.execute(text("SELECT pg_backend_pid()")).scalar_one()
        with other.reader() as connection:
            connection.execute(text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": pid})
        waits: list[float] = []
        monkeypatch.setattr(ledger, "system", Unhurried(waits))
        assert [sweep.id for sweep in ledger.sweeps()] == [SWEEP_ID]
        assert len(waits) == (idle > 0)


class Unhurried(System):
    """A system that notes how long it should sleep."""

    def __init__(self, waits: list[float]) -> None:
        self._waits = waits

    def sleep(self, seconds: float) -> None:
        """Note the seconds, and return at once."""
        self._waits.append(seconds)
