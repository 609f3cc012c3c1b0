"""Power failures: the writes of a sweep are replayed up to a crash, on a disk that keeps what was flushed.

Two drivers without Ray run a short sweep one after the other; the first is killed. In the log of their writes
they mark what the outside world has learned: commits that were flushed, and those with delivered events.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select

from benchmarks.faults.disk import Disk, Operation, operations
from benchmarks.faults.preload import RECORDING, library
from benchmarks.faults.table import Dose, Row, Tally
from orchestrator.assignment import Assignment
from orchestrator.errors import Damaged
from orchestrator.ledger import backup
from orchestrator.ledger.integrity import replay, verify
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import EvaluationRecord
from orchestrator.ledger.tables import METADATA, TALLY
from orchestrator.session.session import Session
from orchestrator.storage.paths import Paths
from orchestrator.tracking.shipper import Shipper, Timeouts
from orchestrator.upkeep.orphans import clear
from orchestrator.upkeep.recovery import recover
from tests.orchestrator.ledger.examples import writer
from tests.orchestrator.session.sessions import Sessions, launch, outcome
from trainables import checkpoint

TRIALS, STEPS = 4, (10, 20, 30)
RETRY_SECONDS = 60.0
DELIVERY_SECONDS = 10.0
MARKS = ("committed", "delivered")

Rows = dict[tuple[Any, ...], dict[str, Any]]


def power_failures(dose: Dose) -> list[Row]:
    """Lose power at `dose.crashes` points of a short sweep, and let the next driver go on each time."""
    work, begun, log = (dose.folder / "power" / name for name in ("work", "begun", "writes"))
    for folder in (work, begun):
        folder.mkdir(parents=True, mode=0o700)
    environment = {**os.environ, "LD_PRELOAD": str(library(dose.folder, RECORDING))}
    command = [sys.executable, "-m", "benchmarks.faults.power", str(work), str(log)]
    subprocess.run(command, env=environment, check=True)
    wanted = _undisturbed(Paths(work / "mlruns"))
    recorded, chance = operations(log), random.Random(13)
    points = sorted(chance.choices(range(1, len(recorded) + 1), k=dose.crashes))
    crash = _crash(dose.folder / "power", work, recorded)
    return [_row(recorded, [crash(point, wanted, chance) for point in points])]


@dataclass(frozen=True)
class _Wanted:
    """The ledger of the undisturbed sweep.

    Attributes:
        sweep_id: Id of the sweep.
        ledger_id: Id of the ledger.
        states: Rows of the ledger after each commit, by the number of the commit.
    """

    sweep_id: str
    ledger_id: str
    states: Mapping[int, Rows]


@dataclass(frozen=True)
class _Crash:
    """The state after a loss of power.

    Attributes:
        wrong: Loss or torn data, or an empty string.
        recovered: Whether the ledger was rebuilt from its backup.
    """

    wrong: str
    recovered: bool = False


def _row(recorded: list[Operation], crashes: list[_Crash]) -> Row:
    tally, wrong = Tally(), Counter(crash.wrong for crash in crashes if crash.wrong)
    for text, count in wrong.most_common(5):
        tally.expect(False, f"{count} times: {text}")
    kinds = Counter(operation.kind for operation in recorded)
    rebuilt = sum(crash.recovered for crash in crashes)
    seen = f"{len(recorded)} operations, {kinds['W']} of them writes and {kinds['F']} flushes; "
    seen += f"{wrong.total()} of {len(crashes)} states wrong; {rebuilt} ledgers rebuilt from their backup"
    must = "nothing lost that was acknowledged after a flush or delivered; nothing torn; the sweep resumes"
    fault = f"power lost at {len(crashes)} points, unflushed writes dropped or torn"
    return tally.row(fault, must, seen)


def _undisturbed(paths: Paths) -> _Wanted:
    """Read what the two drivers have written; the rows after each commit are in the backup of the ledger."""
    ledger = Ledger.open(paths.ledger_url)
    (sweep,) = ledger.sweeps()
    rows: Rows = {}
    states = {0: rows}
    for entry in backup.entries(backup.backup_file(ledger.address, sweep.id)):
        rows = {key: dict(row) for key, row in rows.items()}
        replay(entry, rows)
        states[entry.number] = rows
    assert states[_commits(ledger)] == _rows(ledger), "the backup differs from the ledger"
    ledger.close()
    return _Wanted(sweep.id, ledger.id, states)


def _rows(ledger: Ledger) -> Rows:
    """Return every row of the one sweep of a ledger, by table and key."""
    names = ("sweep", "trial", "attempt", "report", "checkpoint", "evaluation", "mlflow_run", "outbox")
    rows: Rows = {}
    with ledger.reader() as connection:
        for table in map(METADATA.tables.__getitem__, names):
            for row in connection.execute(select(*table.columns)).mappings():
                rows[(table.name, *(row[column.name] for column in table.primary_key))] = dict(row)
    return rows


def _commits(ledger: Ledger) -> int:
    with ledger.reader() as connection:
        return int(connection.execute(select(TALLY.c.commits)).scalar() or 0)


# -------------------------------------------------------------------- after a crash


def _crash(
    folder: Path, work: Path, recorded: list[Operation]
) -> Callable[[int, _Wanted, random.Random], _Crash]:
    """Return a function that loses power after ever later operations, and examines what is left."""
    disk, position, marks = Disk(work, folder / "begun"), 0, dict.fromkeys(MARKS, 0)

    def crash(point: int, wanted: _Wanted, chance: random.Random) -> _Crash:
        nonlocal position
        for operation in recorded[position:point]:
            disk.apply(operation)
            if operation.kind == "M":
                name, _, number = operation.path.partition(" ")
                marks[name] = max(marks[name], int(number))
        position = point
        shutil.rmtree(work)
        disk.lose_power(work, chance)
        try:
            return _examined(work, wanted, marks)
        except Exception as error:  # noqa: BLE001 - any error is a finding
            return _Crash(f"{type(error).__name__}: {error}".replace(str(work), "")[:300])

    return crash


def _examined(work: Path, wanted: _Wanted, marks: Mapping[str, int]) -> _Crash:
    """Open the ledger as the next driver does, compare it with what was written, and resume the sweep."""
    paths, recovered = Paths(work / "mlruns"), False
    try:
        ledger = _verified(paths, wanted.sweep_id)
    except Damaged:
        recover(paths.ledger_url)
        ledger, recovered = _verified(paths, wanted.sweep_id), True
    commits = _commits(ledger)
    assert not marks["committed"] or ledger.id == wanted.ledger_id, "the ledger has another id"
    assert commits >= marks["committed"], "a flushed commit is lost"
    assert _rows(ledger) == wanted.states[commits], "the ledger holds other rows than were written"
    assert commits >= marks["delivered"], "an event was delivered that the ledger lost"
    for row in ledger.checkpoints(wanted.sweep_id):
        _, facts = checkpoint.load(Path(row.path), row.digest)
        assert facts["step"] == row.step, "the checkpoint of another step"
    ledger.close()
    _resume(work, wanted.sweep_id)
    return _Crash("", recovered)


def _verified(paths: Paths, sweep_id: str) -> Ledger:
    ledger = Ledger.open(paths.ledger_url)
    try:
        verify(ledger, sweep_id)
    except BaseException:
        ledger.close()
        raise
    return ledger


def _resume(work: Path, sweep_id: str) -> None:
    """Complete the sweep, and expect finished trials to be as they were."""
    sessions = Sessions(work)
    ledger, sweep = sessions.ledger, sessions.sweep(TRIALS)
    finished = [trial for trial in ledger.trials(sweep_id) if trial.finished_at is not None]
    clear(ledger, sweep_id, sessions.paths.checkpoints(sweep_id))
    if ledger.sweep(sweep_id) is not None:
        writer(ledger, sweep_id).lose_attempts()
    _complete(sessions, sessions.open(sweep), lambda: None)
    trials = ledger.trials(sweep_id)
    assert [trial.state for trial in trials] == ["COMPLETE"] * TRIALS, "the sweep does not complete"
    assert all(trial in trials for trial in finished), "a finished trial has changed"
    faults = verify(ledger, sweep_id)
    assert not faults, f"the ledger is not intact after the resume: {'; '.join(faults)}"
    ledger.close()


# -------------------------------------------------------------------- the recorded sweep


def record(work: Path, log: Path) -> None:
    """Run the sweep with two drivers, each in a forked process that records what it writes."""
    for drive in (_begin, _end):
        driver = os.fork()
        if driver == 0:
            code = 1
            try:
                ctypes.CDLL(None).record_to(str(log).encode(), str(work).encode())
                drive(Sessions(work))
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(driver, 0)[1]) == 0


def _begin(sessions: Sessions) -> None:
    """Complete a trial, lose a worker of the next one, and end like a killed driver."""
    with _driven(sessions) as (session, tell):
        _train(sessions, session, launch(session), tell)
        lost = launch(session)
        session.reported(lost.attempt_id, outcome(lost, 10, 0.2))
        session.failed(lost.attempt_id, "worker lost")
        tell()
        sessions.clock.now += RETRY_SECONDS
        left = launch(session)
        session.reported(left.attempt_id, outcome(left, 20, 0.4))
        session.check_limits()
        os._exit(0)


def _end(sessions: Sessions) -> None:
    """Resume and finish the sweep."""
    sweep_id = sessions.sweep(TRIALS).id
    verify(sessions.ledger, sweep_id)
    clear(sessions.ledger, sweep_id, sessions.paths.checkpoints(sweep_id))
    with _driven(sessions) as (session, tell):
        _complete(sessions, session, tell)
        best = sessions.ledger.trials(sweep_id)[0]
        session.writer.add_evaluation(EvaluationRecord(best.key, 30, "test", {"test/accuracy": 0.5}, 1.0))
        _mark("committed", _commits(sessions.ledger))
        session.writer.set_sweep_state("COMPLETE")
        _mark("committed", _commits(sessions.ledger))
        tell()
    sessions.ledger.close()


@contextmanager
def _driven(sessions: Sessions) -> Iterator[tuple[Session, Callable[[], None]]]:
    """Yield a session under its lease, and a function that delivers its events."""
    sweep = sessions.sweep(TRIALS)
    with Lease(sessions.ledger, sweep.id) as lease:
        if sessions.ledger.sweep(sweep.id) is not None:
            lease.writer.lose_attempts()
        sessions.writer = lambda sweep: lease.writer  # type: ignore[method-assign]
        session = sessions.open(sweep)
        _mark("committed", _commits(sessions.ledger))
        log = backup.backup_file(sessions.ledger.address, sweep.id)
        shipper = Shipper(lease, "", None, pace=Timeouts(gather=0.0), begin=lambda _: _Delivery(log))
        shipper.start()

        def tell() -> None:
            shipper.drain(DELIVERY_SECONDS)

        yield session, tell
        shipper.close()


class _Delivery:
    """Stands for MLflow's process: marks the commits of the events that it receives."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def ask(
        self, document: Mapping[str, Any] | None, seconds: float, cancelled: Callable[[], bool]
    ) -> dict[str, Any]:
        """Mark the newest commit that wrote a report or an event of a batch."""
        if document is not None and "events" in document:
            sent = {_identity(event) for event in document["events"]}
            commits = [
                entry.number
                for entry in backup.entries(self._log)
                for table, _, row in entry.changes
                if row is not None and _written(table, row) in sent
            ]
            _mark("delivered", commits[-1])
        return {"created": {}, "refused": []}

    def end(self, seconds: float) -> None:
        """Do nothing: there is no process."""

    def kill(self) -> None:
        """Do nothing: there is no process."""


def _identity(event: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the trial and the step of a report's event, else the kind, the run and the time of an event."""
    if event["kind"] == "metrics":
        return event["run"], event["payload"]["step"]
    return event["kind"], event["run"], event["at_ms"]


def _written(table: str, row: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the identity of the event that a new row gives, or None."""
    if table == "report":
        return row["trial_key"], row["step"]
    return (row["kind"], row["run"], row["at_ms"]) if table == "outbox" and "payload" in row else None


def _complete(sessions: Sessions, session: Session, tell: Callable[[], None]) -> None:
    while not session.finished:
        sessions.clock.now += RETRY_SECONDS
        session.check_limits()
        # There is none if all that was left was to settle a trial whose last step had been reported.
        if assignment := session.next_assignment():
            session.started(assignment.attempt_id)
            _train(sessions, session, assignment, tell)


def _train(sessions: Sessions, session: Session, assignment: Assignment, tell: Callable[[], None]) -> None:
    """Report the steps of a trial that are left, as a worker would."""
    done = assignment.resume.step if assignment.resume else 0
    for step in (step for step in STEPS if step > done):
        session.reported(assignment.attempt_id, outcome(assignment, step, step / 50))
        session.check_limits()
        tell()
    session.completed(assignment.attempt_id)
    _mark("committed", _commits(sessions.ledger))


def _mark(name: str, number: int) -> None:
    """Write to the log what the outside world knows from now on; do nothing in a process without a log."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mark"):
        library.mark(f"{name} {number}".encode())


if __name__ == "__main__":
    record(Path(sys.argv[1]), Path(sys.argv[2]))
