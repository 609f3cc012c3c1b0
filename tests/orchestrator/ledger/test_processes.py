"""Several processes on one ledger: first starts, many writers, long locks and sudden deaths."""

from __future__ import annotations

import random
import sqlite3
import threading
import time

import pytest

from orchestrator.errors import BadInput
from orchestrator.ledger import connect
from orchestrator.ledger.integrity import verify
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import holder
from tests.orchestrator.ledger.examples import (
    SWEEP_ID,
    create_sweep,
    event,
    sweep_record,
    trial_record,
    writer,
)
from tests.orchestrator.ledger.processes import answer, line, start
from tests.postgres import Server

WRITE = """
import sys
from orchestrator.ledger.ledger import Ledger
from tests.orchestrator.ledger.examples import *
url, sweep_id, many = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
ledger = Ledger.open(url)
create_sweep(ledger, sweep_record(id=sweep_id), [event(sweep_id, 0)])
write = writer(ledger, sweep_id)
for number in range(many):
    write.add_trial(trial_record(number, sweep_id=sweep_id), [event("x", number)])
"""

WRITE_FOR_EVER = """
import itertools, sys
from orchestrator.ledger.ledger import Ledger
from tests.orchestrator.ledger.examples import *
ledger = Ledger.open(sys.argv[1])
for number in itertools.count(len(ledger.trials(SWEEP_ID))):
    complete(ledger, number)
    print(number, flush=True)
"""

WRITERS = 8


@pytest.mark.slow
def test_eight_first_starts_and_many_writers(url: str) -> None:
    """Eight processes, each with its own sweep, create the tables once and lose no write."""
    many = 200 if url.startswith("sqlite") else 50
    sweeps = [f"copy-{index}" for index in range(WRITERS)]
    writers = [start(WRITE, url, sweep_id, str(many)) for sweep_id in sweeps]
    for process in writers:
        assert line(process) == "ready"
    for process in writers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in writers:
        answer(process)
    ledger = Ledger.open(url)
    for sweep_id in sweeps:
        assert [trial.number for trial in ledger.trials(sweep_id)] == list(range(many))
        assert ledger.backlog(sweep_id) == many + 1
        assert verify(ledger, sweep_id) == []
    ledger.close()


def test_sudden_death_loses_no_acknowledged_change(sqlite_url: str) -> None:
    """A killed writer leaves every acknowledged change, no partial one, and an intact database."""
    draws = random.Random(7)
    create_sweep(Ledger.open(sqlite_url), sweep_record())
    acknowledged: list[int] = []
    for kills in range(1, 5):
        with start(WRITE_FOR_EVER, sqlite_url) as process:
            deadline = time.monotonic() + draws.uniform(0.05, 0.4)
            while True:
                acknowledged.append(int(line(process)))
                if time.monotonic() > deadline:
                    break
            process.kill()
            # communicate() would leave out what readline() has already buffered.
            assert process.stdout is not None
            acknowledged += [int(number) for number in process.stdout.read().split()]
        ledger = Ledger.open(sqlite_url)
        verify(ledger, SWEEP_ID)
        trials = ledger.trials(SWEEP_ID)
        assert {trials[number].state for number in acknowledged} == {"COMPLETE"}
        # Each death leaves one unacknowledged trial, in any state.
        assert [trial.number for trial in trials] == list(range(len(trials)))
        assert len(trials) <= len(acknowledged) + kills
        ledger.close()


def _hold(path: str, seconds: float) -> threading.Thread:
    """Hold SQLite's write lock for some seconds, in a thread."""
    held = threading.Event()

    def hold() -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        held.set()
        time.sleep(seconds)
        connection.execute("ROLLBACK")
        connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    return thread


def test_a_writer_waits_for_a_lock(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits again if the lock outlasts SQLite's own timeout of 30 s."""
    assert connect.BUSY_SECONDS == 30.0
    monkeypatch.setattr(connect, "BUSY_SECONDS", 0.6)
    ledger = Ledger.open(sqlite_url)
    driver = writer(ledger)
    thread = _hold(sqlite_url.removeprefix("sqlite:///"), 1.0)
    driver.create_sweep(sweep_record())
    thread.join()
    assert ledger.sweep(SWEEP_ID) == sweep_record()


@pytest.mark.slow
def test_an_endless_lock_is_refused(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is bounded, and the refusal says what to do."""
    monkeypatch.setattr(connect, "BUSY_SECONDS", 0.1)
    ledger = Ledger.open(sqlite_url)
    driver = writer(ledger)
    thread = _hold(sqlite_url.removeprefix("sqlite:///"), 2.0)
    with pytest.raises(BadInput, match="locked"):
        driver.create_sweep(sweep_record())
    thread.join()


def test_readers_do_not_wait_for_a_writer(sqlite_url: str) -> None:
    """`status` answers while another process holds the write lock."""
    ledger = Ledger.open(sqlite_url)
    create_sweep(ledger)
    thread = _hold(sqlite_url.removeprefix("sqlite:///"), 1.0)
    began = time.monotonic()
    assert ledger.sweep(SWEEP_ID) == sweep_record()
    assert time.monotonic() - began < 0.5
    thread.join()


@pytest.mark.slow
def test_a_restarted_server_costs_nothing(postgres_server: Server, postgres_url: str) -> None:
    """A driver whose server crashes and restarts loses no change and repeats none."""
    ledger = Ledger.open(postgres_url)
    create_sweep(ledger)
    write = writer(ledger)
    write.add_trial(trial_record())
    postgres_server.stop()
    restart = threading.Timer(1.0, postgres_server.start)
    restart.start()
    attempt = write.start_attempt(trial_record().key, events=[event("x", 1)])
    restart.join()
    assert ledger.attempts(SWEEP_ID) == [attempt]
    assert ledger.backlog(SWEEP_ID) == 1
    ledger.close()


@pytest.mark.slow
def test_the_holder_of_a_lease_is_read_once_the_server_answers_again(
    postgres_server: Server, postgres_url: str
) -> None:
    """The service asks for it at every poll, and must not end with the server."""
    ledger = Ledger.open(postgres_url)
    postgres_server.stop()
    restart = threading.Timer(1.0, postgres_server.start)
    restart.start()
    assert holder(ledger, SWEEP_ID) is None
    restart.join()
    ledger.close()
