"""The cost of a launch, a report and a check of the limits does not grow with a sweep's history.

SQLite's own instructions are counted: unlike seconds they are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from orchestrator.assignment import Assignment
from orchestrator.ledger.backup import backup_file
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import trial_key
from orchestrator.session.session import Session
from tests.orchestrator.ledger.test_lost_acknowledgement import relaying
from tests.orchestrator.ledger.test_round_trips import ROUND_TRIPS, SlowProxy
from tests.orchestrator.session.sessions import SPACE, Sessions, outcome
from tests.postgres import Server

FEW, MANY = 4, 60

TRACKED = """
trainable: {function: train.py:train, mlflow: true}
search: {rate: {log_uniform: [1e-4, 1e-2]}}
training: {steps: 30, interval: 10}
objective: {maximize: val/accuracy}
sampler: {random: {seed: 3}}
budget: {trials: BUDGET}
"""
"""A sweep whose trials write to runs of MLflow that the ledger names."""

DEEPER = 1.25
"""The most that searches in the deeper trees of a larger ledger may cost more; reading all costs 15 times."""


@dataclass
class Meter:
    """Counts what SQLite does for a ledger.

    Attributes:
        statements: Run so far.
        instructions: Instructions of SQLite's virtual machine so far.
    """

    ledger: Ledger
    statements: int = 0
    instructions: int = 0

    def __post_init__(self) -> None:
        event.listen(self.ledger._engine, "checkout", self._listen)

    def _listen(self, connection: Any, *_: Any) -> None:
        connection.set_trace_callback(self._statement)
        connection.set_progress_handler(self._instruction, 1)

    def _statement(self, _: str) -> None:
        self.statements += 1

    def _instruction(self) -> int:
        self.instructions += 1
        return 0

    def cost(self, act: Callable[[], object]) -> tuple[int, int]:
        """Return the statements and the instructions of an action."""
        before = self.statements, self.instructions
        act()
        return self.statements - before[0], self.instructions - before[1]


@dataclass
class Sweep:
    """A sweep that has run for a while.

    Attributes:
        session: Session of its driver.
        meter: Meter of its ledger.
        last: The attempt that was launched last.
        sessions: Sessions that opened it.
    """

    session: Session
    meter: Meter
    last: Assignment
    sessions: Sessions


REPORTS = 100

DATABASE_BYTES, BACKUP_BYTES = 250, 2000
"""The most that a report of two metrics adds to a SQLite ledger and, until it is rewritten, to its backup."""


def launched(session: Session) -> Assignment:
    assignment = session.next_assignment()
    assert assignment is not None
    return assignment


def with_running(folder: Path, count: int) -> Sweep:
    """Return a sweep with so many running attempts, each with a report."""
    sessions = Sessions(folder)
    session = sessions.open(sessions.sweep(MANY + 5), capacity=MANY + 5)
    for _ in range(count):
        assignment = launched(session)
        session.started(assignment.attempt_id)
        session.reported(assignment.attempt_id, outcome(assignment, 10, 0.5))
    return Sweep(session, Meter(sessions.ledger), assignment, sessions)


def with_past(folder: Path, count: int) -> Sweep:
    """Return a sweep whose one trial has been preempted so many times."""
    sessions = Sessions(folder)
    session = sessions.open(sessions.sweep(1), capacity=1)
    for _ in range(count):
        assignment = launched(session)
        session.failed(assignment.attempt_id, "node lost")
        sessions.clock.now += 100.0
    return Sweep(session, Meter(sessions.ledger), assignment, sessions)


def with_mlflow_runs(folder: Path, count: int) -> Sweep:
    """Return a sweep of a function that writes to MLflow, with the runs of so many trials."""
    sessions = Sessions(folder)
    (folder / "train.py").write_text("def train(trial): pass")
    sweep = sessions.of(TRACKED.replace("BUDGET", str(MANY + 5)))
    session = sessions.open(sweep, capacity=MANY + 5)
    runs = {trial_key(sweep.id, number): str(number) for number in range(count + 1)}
    session.writer.record_mlflow_runs(runs)
    for _ in range(count):
        assignment = launched(session)
    return Sweep(session, Meter(sessions.ledger), assignment, sessions)


Prepare = Callable[[Path, int], Sweep]


def costs(folder: Path, prepare: Prepare, act: Callable[[Sweep], object]) -> list[tuple[int, int]]:
    """Return the cost of an action after few and after many attempts."""
    found = []
    for count in (FEW, MANY):
        (own := folder / str(count)).mkdir()
        sweep = prepare(own, count)
        sweep.session.check_limits()  # deletes what is superseded
        found.append(sweep.meter.cost(lambda sweep=sweep: act(sweep)))
        sweep.sessions.ledger.close()
    return found


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("prepare", [with_running, with_past, with_mlflow_runs])
def test_a_launch_costs_the_same_after_many_attempts(tmp_path: Path, prepare: Prepare) -> None:
    (few, small), (many, large) = costs(tmp_path, prepare, lambda sweep: launched(sweep.session))
    assert many == few
    assert large <= DEEPER * small


@pytest.mark.parametrize("prepare", [with_running, with_past])
def test_a_look_at_the_limits_costs_the_same_after_many_attempts(tmp_path: Path, prepare: Prepare) -> None:
    """It is made several times a minute; it reads the stop request and nothing else."""
    before, after = costs(tmp_path, prepare, lambda sweep: sweep.session.check_limits())
    assert before == after
    assert before[0] == 1


def test_a_report_costs_the_same_after_many_attempts(tmp_path: Path) -> None:
    def report(sweep: Sweep) -> None:
        sweep.session.reported(sweep.last.attempt_id, outcome(sweep.last, 20, 0.6))

    (few, small), (many, large) = costs(tmp_path, with_running, report)
    assert many == few
    assert large <= DEEPER * small


def reporting(sessions: Sessions) -> Callable[[int], None]:
    """Return a function that makes the first trial of a sweep report a step."""
    session = sessions.open(sessions.of(SPACE.replace("BUDGET", "1").replace("steps: 30", "steps: 9000")))
    assignment = launched(session)
    session.started(assignment.attempt_id)

    def report(step: int) -> None:
        session.reported(assignment.attempt_id, outcome(assignment, step, 0.5 + step / 1e6))
        session.check_limits()

    for interval in range(1, 6):  # until each report supersedes a checkpoint
        report(10 * interval)
    return report


def test_a_report_makes_one_round_trip_to_a_server(
    tmp_path: Path, postgres_server: Server, postgres_url: str
) -> None:
    """From a worker's outcome to the committed rows, without the look at the limits that follows."""
    with relaying(SlowProxy(postgres_server.port)) as proxy:
        sessions = Sessions(tmp_path, proxy.before(postgres_url))
        session = sessions.open(sessions.of(SPACE.replace("BUDGET", "1").replace("steps: 30", "steps: 9000")))
        assignment = launched(session)
        session.started(assignment.attempt_id)
        counts = []
        for step in range(10, 100, 10):
            before = proxy.trips
            session.reported(assignment.attempt_id, outcome(assignment, step, 0.5 + step / 1e6))
            counts.append(proxy.trips - before)
        assert [row.step for row in sessions.ledger.trial_reports(assignment.trial_key)] == [
            *range(10, 100, 10)
        ]
        assert counts[0] > ROUND_TRIPS, counts
        assert set(counts[1:]) == {ROUND_TRIPS}, counts
        sessions.ledger.close()


def test_a_report_takes_little_disk(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    report = reporting(sessions)
    log = backup_file(sessions.ledger.address, next(iter(sessions.ledger.sweeps())).id)

    def sizes() -> tuple[int, int]:
        with sessions.ledger.reader() as connection:
            ((pages, free, size),) = connection.exec_driver_sql(
                "SELECT * FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
            )
        return (pages - free) * size, log.stat().st_size

    before = sizes()
    for interval in range(6, 6 + REPORTS):
        report(10 * interval)
    database, backup = (after - was for after, was in zip(sizes(), before, strict=True))
    assert 0 < database / REPORTS <= DATABASE_BYTES
    assert 0 < backup / REPORTS <= BACKUP_BYTES
    sessions.ledger.close()
