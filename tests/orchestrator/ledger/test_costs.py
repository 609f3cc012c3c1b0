"""The cost of a change does not grow with the size of the ledger: query plans, numbers of statements."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event as listener
from sqlalchemy import select

from orchestrator.ledger import integrity
from orchestrator.ledger.connect import database_file
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.integrity import examine, verify
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people import idempotency, users
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.pool.claims import Amounts, Claims, set_owner
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.queue_settings import ask_to_stop, change_settings, resume
from orchestrator.ledger.queue.submissions import SubmissionRequest, SubmissionWriter
from orchestrator.ledger.rows import REPORTS, TRIALS
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import EvaluationRecord, ReportRecord, Segment
from orchestrator.ledger.sweeps.writer import SweepWriter, trial_of
from orchestrator.ledger.tables import TRIAL
from orchestrator.ledger.transaction import Transaction
from orchestrator.sharing.pool_rows import UNIT, PoolClaim, PoolNode
from orchestrator.system import ClockSetting
from tests.orchestrator.ledger.examples import (
    SWEEP_ID,
    complete,
    create_sweep,
    event,
    saved,
    sweep_record,
    trial_record,
    writer,
)


class Recorder:
    """Records the statements that SQLite executes for a ledger.

    Attributes:
        writing: those of transactions that hold the write lock, without their beginnings and ends.
        count: number of all statements.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.writing: list[str] = []
        self.count = 0
        self._locked = False
        listener.listen(ledger._engine, "checkout", self._listen)

    def _listen(self, connection: Any, *_: Any) -> None:
        connection.set_trace_callback(self._note)

    def _note(self, statement: str) -> None:
        self.count += 1
        if statement.startswith(("BEGIN", "COMMIT", "ROLLBACK")):
            self._locked = statement == "BEGIN IMMEDIATE"
        elif self._locked:
            self.writing.append(statement)


@pytest.fixture
def ledger(sqlite_url: str) -> Iterator[Ledger]:
    opened = Ledger.open(sqlite_url)
    create_sweep(opened)
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
    for step in (11, 12, 13):
        write.record_report(attempt.id, step, {}, [saved(trial.key, step)], stored=str)
    write.end_deletions(["/a"], ["/b", "/c"])
    write.exploit(attempt.id, Segment(10, donor, trial.params), saved(trial.key, 10, path="/copy"))
    write.start_attempt(trial.key)
    write.start_attempt(trial.key)
    write.drop_checkpoint(trial.key, Path("/copy"))
    write.lose_attempts()
    write.end_attempt(write.start_attempt(trial.key).id, "FAILED", "error", "FAILED")
    write.reopen("again", [trial.key])
    write.add_evaluation(EvaluationRecord(donor, 30, "test", {"test/accuracy": 1.0}, 1.0, "scores"))
    write.record_mlflow_runs({donor: "donor", trial.key: "one"})
    write.delivered(ledger.pending(SWEEP_ID, 500), 1)
    write.redeliver()
    write.record_mlflow_runs({trial.key: "another"})
    write.amend_sweep({}, "beef", {})
    ask_to_stop(ledger, SWEEP_ID)
    write.forget_stop_request()
    write.set_sweep_state("COMPLETE")
    with Lease(ledger, SWEEP_ID):
        pass


def everything_that_people_and_the_service_change(ledger: Ledger) -> None:
    """Make every kind of change to submissions, settings, users and the pool once."""
    user, _ = users.add_user(ledger, "ada", "admin", "shell")
    set_owner(ledger, "ada", most_sweeps=5)
    request = idempotency.begin(ledger, "ada", "key", "digest")
    assert isinstance(request, idempotency.RequestKey)
    asked = Asked("ada", "submit", "a-1", {}, request)
    order = SubmissionRequest("ada", {"name": "a"}, "task: copying", {}, "key", "c0ffee")
    seen, _ = submissions.submit(ledger, order, lambda is_known: f"a-{1 + is_known('a-1')}", asked=asked)
    lost = idempotency.begin(ledger, "ada", "another", "digest")
    assert isinstance(lost, idempotency.RequestKey)
    idempotency.forget(ledger, lost)
    change_settings(ledger, "a-1", priority_class="urgent", weight=5)
    ask_to_stop(ledger, "a-1")
    resume(ledger, "a-1")
    service = SubmissionWriter(ledger, writer(ledger, "serve").token)
    service.ask_for_room("a-1")
    seen = submissions.submission(ledger, "a-1") or seen
    service.change(seen, state="STARTED", starts=1, crashed_at=1.0)
    service.pause(1.0, ClockSetting.here())
    service.go_on()
    submissions.begin(ledger, "a-1", 1, Holder.here())
    submissions.end(ledger, "a-1", 1, 0, None)
    seen = submissions.submission(ledger, "a-1") or seen
    service.change(seen, state="PARKED")
    submissions.release(ledger, "a-1")
    nodes, amounts = [PoolNode("node", UNIT)], Amounts(2, 0, 0, 0)
    claim = PoolClaim("a-1", "ada", 0.0, UNIT, 0, want=0)
    claims = Claims(ledger, writer(ledger, "a-1").token, "pool", claim)
    claims.start(nodes, amounts)
    claims.renew(nodes, amounts)
    claims.withdraw()
    users.revoke_user(ledger, user.name, "shell")


def plan(file: Path, statement: str) -> str:
    """Return how SQLite finds the rows of a statement."""
    with sqlite3.connect(file) as connection:
        return "; ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}"))


def test_no_statement_under_the_write_lock_reads_a_whole_table(ledger: Ledger) -> None:
    recorder = Recorder(ledger)
    everything_that_changes_a_sweep(ledger)
    file = database_file(ledger.address)
    of_each_kind = {shape(statement): statement for statement in recorder.writing}
    assert len(of_each_kind) > 40, "the changes were recorded"
    plans = {kind: plan(file, statement) for kind, statement in of_each_kind.items()}
    # `json_each`, a virtual table, has the rows that a statement names.
    of_tables = re.compile(r"SCAN \w+\b(?! VIRTUAL TABLE)")
    assert {kind: steps for kind, steps in plans.items() if of_tables.search(steps)} == {}


BOUNDED = {"owner", "pool", "start_pause", "claim"}
"""Tables with one row for a person, for a Ray that is in use, for a live sweep, and one or none."""


def test_no_statement_of_people_or_the_service_reads_a_table_that_grows(ledger: Ledger) -> None:
    """Submissions, sweeps, requests, users and the audit log grow for ever."""
    recorder = Recorder(ledger)
    everything_that_people_and_the_service_change(ledger)
    of_each_kind = {shape(statement): statement for statement in recorder.writing}
    assert len(of_each_kind) > 40, "the changes were recorded"
    plans = {kind: plan(database_file(ledger.address), one) for kind, one in of_each_kind.items()}
    scanned = {kind: set(re.findall(r"SCAN (\w+)", steps)) - BOUNDED for kind, steps in plans.items()}
    assert {kind: names for kind, names in scanned.items() if names} == {}


def shape(statement: str) -> str:
    """Return a statement without its values."""
    return re.sub(r"'(?:[^']|'')*'|\b\d[\d.]*(?:e[+-]?\d+)?|NULL", "?", statement)


def test_a_whole_table_that_is_read_under_the_lock_is_noticed(ledger: Ledger) -> None:
    recorder = Recorder(ledger)
    with ledger.writer() as connection:
        connection.execute(select(TRIAL.c.key).where(TRIAL.c.state == "RUNNING"))
    [statement] = recorder.writing
    assert "SCAN" in plan(database_file(ledger.address), statement)


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
    reads = [statement for statement in recorder.writing if "FROM report" in statement]
    assert len(reads) == 3
    assert all("LIMIT" in statement for statement in reads)
    assert all(
        "SEARCH report USING PRIMARY KEY" in plan(database_file(ledger.address), read) for read in reads
    )


def test_the_time_of_the_newest_report_is_found_without_reading_the_reports(ledger: Ledger) -> None:
    """SQLite's instructions are counted: they are the same for 5 and for 200 reports of each trial."""
    write, counts = writer(ledger), []
    for number in range(3):
        write.add_trial(trial_record(number, total_steps=1000))
    instructions = deque[None]()
    listener.listen(
        ledger._engine,
        "checkout",
        lambda connection, *_: connection.set_progress_handler(lambda: instructions.append(None), 1),
    )
    for steps in (range(5), range(5, 200)):
        for number in range(3):
            add_reports(write, trial_record(number).key, steps)
        instructions.clear()
        assert ledger.last_report_at(SWEEP_ID) == steps[-1]
        counts.append(len(instructions))
    assert counts[0] == counts[1] > 0


def test_the_time_of_the_newest_report_is_found_without_reading_the_trials(ledger: Ledger) -> None:
    """SQLite's instructions are counted: they are the same for 3 and for 200 trials, reporting or waiting."""
    write, counts = writer(ledger), []
    instructions = deque[None]()
    listener.listen(
        ledger._engine,
        "checkout",
        lambda connection, *_: connection.set_progress_handler(lambda: instructions.append(None), 1),
    )
    for numbers in (range(3), range(3, 151)):
        for number in numbers:
            write.add_trial(trial_record(number))
            if number % 2 == 0:
                attempt = write.start_attempt(trial_record(number).key)
                write.record_report(attempt.id, 10, {"val/accuracy": 0.5}, at=float(number))
        instructions.clear()
        assert ledger.last_report_at(SWEEP_ID) == numbers[-1] // 2 * 2
        counts.append(len(instructions))
    assert counts[0] == counts[1] > 0


def test_500_delivered_reports_are_one_position(ledger: Ledger) -> None:
    write, key = writer(ledger), trial_record().key
    write.add_trial(trial_record())
    write.start_attempt(key)
    add_reports(write, key, range(1, 501))
    write.record_mlflow_runs({key: "run"})
    pending = ledger.pending(SWEEP_ID, 500)
    assert [report.step for report in pending.reports] == list(range(1, 501))
    recorder = Recorder(ledger)
    write.delivered(pending)
    assert recorder.count <= 10
    assert [each.partition(" SET")[0] for each in recorder.writing if each.startswith("UPDATE")] == [
        "UPDATE mlflow_run"
    ]
    assert ledger.backlog(SWEEP_ID) == 0
    assert verify(ledger, SWEEP_ID) == []


def test_other_writers_do_not_wait_for_a_verification(
    ledger: Ledger, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another sweep writes while the rows of this one are compared."""
    complete(ledger, 0)
    inside, written = threading.Event(), threading.Event()
    real = integrity._checked

    def slowly(*arguments: Any) -> Any:
        compared = real(*arguments)
        inside.set()
        assert written.wait(20), "the other sweep had to wait"
        return compared

    monkeypatch.setattr(integrity, "_checked", slowly)

    def write_elsewhere() -> None:
        other = Ledger.open(sqlite_url)
        assert inside.wait(20)
        create_sweep(other, sweep_record(id="another"))
        written.set()
        other.close()

    thread = threading.Thread(target=write_elsewhere)
    thread.start()
    assert verify(ledger, SWEEP_ID) == []
    thread.join()


@pytest.mark.slow
def test_reading_the_reports_of_a_resumed_sweep_costs_little_more_than_selecting_them(ledger: Ledger) -> None:
    """In CPU time of this thread, the least of several tries: other load does not count."""
    write, trial = writer(ledger), trial_record(0, total_steps=10**9)
    write.add_trial(trial)
    write.start_attempt(trial.key)
    add_reports(write, trial.key, range(4000))
    with closing(sqlite3.connect(database_file(ledger.address))) as connection:
        selected = least(lambda: deque(connection.execute("SELECT * FROM report"), maxlen=0))
    examined = least(lambda: examine(ledger, SWEEP_ID, ["val/accuracy"]))
    assert len(examine(ledger, SWEEP_ID, ["val/accuracy"]).curves) == 4000
    assert examined < 25 * selected
    add_reports(write, trial.key, range(4000, 16000))
    assert least(lambda: examine(ledger, SWEEP_ID, ["val/accuracy"])) < 6 * examined, "not in proportion"


def add_reports(write: SweepWriter, key: str, steps: range) -> None:
    """Add reports in one commit."""
    metrics = {f"layer_{n}/norm": 1 + n / 7 for n in range(8)} | {"val/accuracy": 0.5}
    reports = [ReportRecord(key, step, f"{key}.1", metrics, float(step)) for step in steps]

    def add(tx: Transaction) -> None:
        tx.change(TRIALS, trial_of(tx, key), step=steps[-1], reported_at=float(steps[-1]))
        tx.insert(REPORTS, *reports)

    write.ledger.write(add, write.token)


def least(call: Callable[[], object]) -> float:
    """Return the least CPU time of several calls, in seconds."""
    seconds = []
    for _ in range(5):
        began = time.thread_time()
        call()
        seconds.append(time.thread_time() - began)
    return min(seconds)
