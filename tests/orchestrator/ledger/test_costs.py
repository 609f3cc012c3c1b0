"""The cost of a change does not grow with the size of the ledger: query plans, numbers of statements."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event as listener

from orchestrator.ledger import integrity
from orchestrator.ledger.connect import WRITING, database_file
from orchestrator.ledger.integrity import verify
from orchestrator.ledger.lease import Lease
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import EvaluationRecord, Segment
from tests.orchestrator.ledger.examples import (
    SWEEP_ID,
    complete,
    event,
    saved,
    sweep_record,
    trial_record,
    writer,
)

Statement = tuple[str, Any]


class Recorder:
    """Records the statements that a ledger executes.

    Attributes:
        writing: the statements of transactions that hold the write lock.
        count: number of all statements.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.writing: list[Statement] = []
        self.count = 0
        listener.listen(ledger._engine, "before_cursor_execute", self._note)

    def _note(self, connection: Any, _: Any, statement: str, parameters: Any, *__: Any) -> None:
        self.count += 1
        if connection.get_execution_options().get(WRITING):
            self.writing.append((statement, parameters))


@pytest.fixture
def ledger(sqlite_url: str) -> Iterator[Ledger]:
    opened = Ledger.open(sqlite_url)
    opened.create_sweep(sweep_record())
    yield opened
    opened.close()


def everything_that_changes_a_sweep(ledger: Ledger) -> None:
    """Make every kind of change once."""
    donor = complete(ledger, 0)
    write = writer(ledger)
    trial = trial_record(1)
    write.add_trial(trial)
    attempt = write.start_attempt(trial.key)
    write.take_attempt(attempt.id)
    write.record_report(attempt.id, 10, {"val/accuracy": 0.1}, [saved(trial.key, 10)], [event(trial.key, 1)])
    write.exploit(attempt.id, Segment(10, donor, trial.params), saved(trial.key, 10, path="/copy"))
    write.start_attempt(trial.key)
    write.start_attempt(trial.key)
    write.drop_checkpoint(trial.key, Path("/copy"))
    write.lose_attempts()
    write.end_attempt(write.start_attempt(trial.key).id, "FAILED", "error", "FAILED")
    write.reopen_trial(trial.key)
    write.add_evaluation(EvaluationRecord(donor, 30, "test", {"test/accuracy": 1.0}, 1.0))
    write.delivered([row.seq for row in ledger.pending(SWEEP_ID, 500)])
    write.redeliver()
    write.amend_sweep({}, "beef", {})
    write.set_sweep_state("COMPLETE")
    with Lease(ledger, SWEEP_ID):
        pass


def plan(file: Path, statement: Statement) -> str:
    """Return how SQLite finds the rows of a statement."""
    text, parameters = statement
    first = parameters[0] if isinstance(parameters, list) else parameters
    with sqlite3.connect(file) as connection:
        return "; ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", first))


def test_no_statement_under_the_write_lock_reads_a_whole_table(ledger: Ledger) -> None:
    recorder = Recorder(ledger)
    everything_that_changes_a_sweep(ledger)
    file = database_file(ledger.address)
    texts = {text.split("\n")[0]: (text, parameters) for text, parameters in recorder.writing}
    assert len(texts) > 15, "the changes were recorded"
    plans = {text: plan(file, statement) for text, statement in texts.items()}
    assert {text: steps for text, steps in plans.items() if "SCAN" in steps} == {}


def test_a_restart_reads_one_report_of_each_lost_attempt(ledger: Ledger) -> None:
    """The restart does not read the reports of all trials for each attempt."""
    write = writer(ledger)
    for number in range(3):
        trial = trial_record(number, total_steps=1000)
        write.add_trial(trial)
        attempt = write.start_attempt(trial.key)
        for step in range(50):
            write.record_report(attempt.id, step, {"val/accuracy": 0.5})
    recorder = Recorder(ledger)
    assert write.lose_attempts() == 3
    reads = [(text, values) for text, values in recorder.writing if "FROM report" in text]
    assert len(reads) == 3
    assert all("LIMIT" in text for text, _ in reads)
    assert all(
        "SEARCH report USING PRIMARY KEY" in plan(database_file(ledger.address), read) for read in reads
    )


def test_500_deliveries_are_marked_by_few_statements(ledger: Ledger) -> None:
    write = writer(ledger)
    write.add_trial(trial_record(), [event(trial_record().key, n) for n in range(500)])
    seqs = [row.seq for row in ledger.pending(SWEEP_ID, 500)]
    recorder = Recorder(ledger)
    write.delivered(seqs)
    assert recorder.count <= 6
    assert ledger.backlog(SWEEP_ID) == 0
    verify(ledger, SWEEP_ID)


def test_other_writers_do_not_wait_for_a_verification(
    ledger: Ledger, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another sweep writes while the rows of this one are compared."""
    complete(ledger, 0)
    inside, written = threading.Event(), threading.Event()
    real = integrity._check_pages

    def slowly(*arguments: Any) -> None:
        real(*arguments)
        inside.set()
        assert written.wait(20), "the other sweep had to wait"

    monkeypatch.setattr(integrity, "_check_pages", slowly)

    def write_elsewhere() -> None:
        other = Ledger.open(sqlite_url)
        assert inside.wait(20)
        other.create_sweep(sweep_record(id="another"))
        written.set()
        other.close()

    thread = threading.Thread(target=write_elsewhere)
    thread.start()
    assert verify(ledger, SWEEP_ID) == []
    thread.join()
