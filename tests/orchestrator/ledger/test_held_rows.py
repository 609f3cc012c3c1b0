"""A report changes rows that the one before it has left, without reading them, unless they were changed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, select, text

from orchestrator.errors import Busy, Damaged
from orchestrator.ledger.integrity import verify
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.rows import ATTEMPTS
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import CheckpointRecord
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.ledger.tables import ATTEMPT
from orchestrator.ledger.transaction import Transaction
from tests.orchestrator.ledger.examples import SWEEP_ID, create_sweep, everything, saved, trial_record, writer


def started(ledger: Ledger, number: int = 0) -> tuple[SweepWriter, str, str]:
    """Return a writer, and a trial with an attempt that has reported twice."""
    write, trial = writer(ledger), trial_record(number)
    write.add_trial(trial)
    attempt = write.start_attempt(trial.key).id
    for step in (1, 2):
        report(write, attempt, trial.key, step)
    return write, trial.key, attempt


def report(write: SweepWriter, attempt: str, key: str, step: int) -> tuple[Path, ...]:
    return write.record_report(attempt, step, {"val/accuracy": step / 100}, [saved(key, step)])


def names(folders: Sequence[Path], key: str) -> list[str]:
    return [str(folder).replace(key, "trial") for folder in folders]


def another(write: SweepWriter) -> SweepWriter:
    """Return another writer with the same token."""
    return SweepWriter(write.ledger, write.token)


@pytest.fixture
def swept(ledger: Ledger) -> Ledger:
    """Return a ledger of either kind with a sweep."""
    create_sweep(ledger)
    return ledger


def test_a_report_reads_only_its_token(sqlite_url: str) -> None:
    ledger = Ledger.open(sqlite_url)
    create_sweep(ledger)
    write, key, attempt = started(ledger)
    ran: list[str] = []
    event.listen(ledger._engine, "checkout", lambda raw, *_: raw.set_trace_callback(ran.append))
    assert report(write, attempt, key, 3) == (Path(f"/checkpoints/{key}/step-1"),)
    assert [statement.split(" \n")[0] for statement in ran if statement.startswith("SELECT")] == [
        "SELECT lease.number"
    ]
    assert len(ran) == 8, ran
    ledger.close()


def test_reports_leave_the_rows_that_reports_which_read_them_leave(swept: Ledger) -> None:
    """The same reports by one writer, and by a new writer for each, which has nothing to hold."""
    draws = random.Random(5)
    (write, one, first), (_, two, second) = started(swept, 0), started(swept, 1)
    write = writer(swept)
    at, step = 2e9, 2
    for _ in range(60):
        step = max(0, step + draws.choice([0, 1, 1, 1, -1]))
        metrics = {"val/accuracy": draws.random()} if draws.random() < 0.8 else {}
        kinds = draws.choice([(), ("last",), ("last", "best"), ("best",)])
        node, at = draws.choice([None, "node-1", "node-2"]), at + 1.0

        def saving(key: str, kinds: tuple[Any, ...] = kinds, step: int = step) -> list[CheckpointRecord]:
            return [saved(key, step, kind, f"/{step}") for kind in kinds]

        held = write.record_report(first, step, metrics, saving(one), node=node, at=at)
        read = another(write).record_report(second, step, metrics, saving(two), node=node, at=at)
        assert names(held, one) == names(read, two)
    rows = [
        [
            [replace(row, trial_key=one, **of) for row in rows if row.trial_key == key]
            for rows, of in (
                (swept.reports(SWEEP_ID), {"attempt_id": first}),
                (swept.checkpoints(SWEEP_ID), {}),
            )
        ]
        for key in (one, two)
    ]
    rows[0][0][:2] = rows[1][0][:2] = []  # of `started`, whose times differ
    assert rows[0] == rows[1]
    assert len(rows[0][0]) > 10
    trials = [swept.trial(key) for key in (one, two)]
    assert (trials[0].step, trials[0].reported_at) == (trials[1].step, trials[1].reported_at)
    assert verify(swept, SWEEP_ID) == []


CHANGES: dict[str, Callable[[SweepWriter, str, str], object]] = {
    "ended": lambda write, key, attempt: write.end_attempt(attempt, "FAILED", "error", "FAILED"),
    "superseded": lambda write, key, attempt: write.start_attempt(key),
    "lost": lambda write, key, attempt: write.lose_attempts(),
    "a checkpoint dropped": lambda write, key, attempt: write.drop_checkpoint(
        key, Path(f"/checkpoints/{key}/step-1")
    ),
    "reported": lambda write, key, attempt: report(write, attempt, key, 3),
    "taken": lambda write, key, attempt: write.take_attempt(attempt),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_report_reads_rows_that_were_changed_meanwhile(swept: Ledger, change: str) -> None:
    """The result is that of a writer that has held nothing."""
    (write, one, first), (_, two, second) = started(swept, 0), started(swept, 1)
    write = writer(swept)
    report(write, first, one, 2)  # holds its rows
    for key, attempt in ((one, first), (two, second)):
        CHANGES[change](another(write), key, attempt)
    for step in (3, 4, 5):
        held = report(write, first, one, step)
        read = report(another(write), second, two, step)
        assert names(held, one) == names(read, two)

    def left(key: str) -> list[Any]:
        trial = swept.trial(key)
        attempts = [(row.state, row.taken_at is None, row.node) for row in swept.trial_attempts(key)]
        reports = [(row.step, row.metrics) for row in swept.trial_reports(key)]
        saves = [(row.kind, row.step) for row in swept.trial_checkpoints(key)]
        return [trial.state, trial.step, attempts, reports, saves]

    assert left(one) == left(two)
    assert verify(swept, SWEEP_ID) == []


def test_a_change_begins_again_if_another_thread_has_changed_a_row_that_it_has_read(
    postgres_url: str,
) -> None:
    """On a server, where a query without a lock lets others write."""
    ledger = Ledger.open(postgres_url)
    create_sweep(ledger)
    write, key, attempt = started(ledger)
    runs = []

    def change(tx: Transaction) -> None:
        tx.sweep_id = SWEEP_ID
        query = select(*ATTEMPT.columns).where(ATTEMPT.c.id == attempt)
        (row,) = tx.connection.execute(query).all()
        if not runs:
            write.record_report(attempt, 3, {"val/accuracy": 0.3}, node="node-2")
        runs.append(row.node)
        tx.change(ATTEMPTS, tx.read(ATTEMPTS, row), cause="changed")

    ledger.write(change, write.token)
    assert runs == [None, "node-2"]
    last = ledger.last_attempt(key)
    assert last is not None
    assert (last.node, last.cause) == ("node-2", "changed")
    ledger.close()


def altered(ledger: Ledger, change: str) -> None:
    with ledger.writer() as connection:
        assert connection.execute(text(change)).rowcount == 1
        connection.commit()


def test_a_report_notices_a_damaged_row_that_it_replaces(sqlite_url: str) -> None:
    ledger = Ledger.open(sqlite_url)
    create_sweep(ledger)
    write, key, attempt = started(ledger)
    altered(ledger, f"UPDATE trial SET row_digest = row_digest + 1 WHERE key = '{key}'")
    before = everything_of_reports(ledger)
    with pytest.raises(Damaged):
        report(write, attempt, key, 3)
    assert everything_of_reports(ledger) == before
    ledger.close()


@pytest.mark.parametrize("column", ["state = 'PRUNED'", "seed = seed + 1", "step = step + 1"])
def test_a_report_repairs_a_changed_row_or_leaves_it_to_be_noticed(sqlite_url: str, column: str) -> None:
    ledger = Ledger.open(sqlite_url)
    create_sweep(ledger)
    write, key, attempt = started(ledger)
    before = ledger.trial(key)
    altered(ledger, f"UPDATE trial SET {column} WHERE key = '{key}'")
    report(write, attempt, key, 3)
    if column.startswith("step"):
        assert replace(ledger.trial(key), step=2, reported_at=before.reported_at) == before
        assert verify(ledger, SWEEP_ID) == []
    else:
        with pytest.raises(Damaged):
            ledger.trial(key)
        with pytest.raises(Damaged):
            verify(ledger, SWEEP_ID)
    ledger.close()


def everything_of_reports(ledger: Ledger) -> list[Any]:
    return [ledger.reports(SWEEP_ID), ledger.checkpoints(SWEEP_ID), ledger.attempts(SWEEP_ID)]


def test_a_writer_holds_no_row_of_an_attempt_that_has_ended(swept: Ledger) -> None:
    create = [started(swept, number) for number in range(3)]
    write = create[-1][0]
    for _, key, attempt in create:
        report(write, attempt, key, 3)
    assert len(write._held) == 3
    for _, _, attempt in create:
        write.end_attempt(attempt, "FAILED", "error", "FAILED")
    assert not write._held


def test_a_driver_that_was_cut_off_changes_nothing(swept: Ledger) -> None:
    write, key, attempt = started(swept)
    before = everything(swept)
    with Lease(swept, SWEEP_ID), pytest.raises(Busy):
        report(write, attempt, key, 3)
    assert everything(swept) == before


@pytest.mark.parametrize("ends", [Connection.commit, Connection.rollback])
def test_a_report_waits_for_a_driver_that_is_taking_the_lease(
    postgres_url: str, ends: Callable[[Connection], None]
) -> None:
    """The server commits a report in the same round trip, and then only under the newest token."""
    with closing(Ledger.open(postgres_url)) as ledger, closing(Ledger.open(postgres_url)) as other:
        create_sweep(ledger)
        write, key, attempt = started(ledger)
        reported: list[object] = []

        def third() -> None:
            try:
                reported.append(report(write, attempt, key, 3))
            except Busy as error:
                reported.append(error)

        thread = threading.Thread(target=third)
        with other.writer() as connection:
            connection.execute(text("UPDATE lease SET number = number + 1"))
            thread.start()
            thread.join(0.5)
            assert thread.is_alive(), "it waits for the row of the lease"
            ends(connection)
            thread.join()
        is_taken = ends is Connection.commit
        assert [isinstance(each, Busy) for each in reported] == [is_taken]
        assert [row.step for row in ledger.trial_reports(key)] == ([1, 2] if is_taken else [1, 2, 3])
