"""Cost of the ledger and the session, and its growth with the number of reports and running attempts.

    python -m benchmarks.ledger                        # a minute
    python -m benchmarks.ledger --reports 1000000      # resume a sweep with this many reports

No trial trains, and neither Ray nor MLflow runs: each number is the CPU time of one call in one process, with
a SQLite ledger in a temporary folder, or with the empty PostgreSQL database of `--ledger`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import event, insert, update

from orchestrator.assignment import Assignment, Outcome, SavedCheckpoint
from orchestrator.config import load
from orchestrator.ledger.integrity import verify
from orchestrator.ledger.lease import Lease
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import ReportRecord, SweepRecord
from orchestrator.ledger.rows import DIGEST_MODULUS, REPORTS
from orchestrator.ledger.tables import REPORT, TALLY
from orchestrator.session.session import Session
from orchestrator.storage.paths import Paths
from orchestrator.study.study import Study

FILE = """
task: retrieval
model: {layer: rotrnn, depth: 1, d_model: 8, d_state: 8, heads: 2}
training: {steps: 1000000, interval: 10, batch_size: 4, recurrent_learning_rate: 1e-3}
search: {learning_rate: {log_uniform: [1e-4, 1e-2]}, depth: {choice: [1, 2]}}
objective: {maximize: val/accuracy}
sampler: {random: {seed: 3}}
scheduler: {none: {}}
budget: {trials: 4000, hours: 1000}
resources: {cpu: 1}
"""
METRICS = {f"hidden_norm/layer_{n}": 1.0 + n / 7 for n in range(6)} | {"val/loss": 0.7, "train/loss": 0.6}


class Unlimited:
    """Resources for a fixed number of attempts."""

    def __init__(self, attempts: int) -> None:
        self.attempts = attempts

    def capacity(self) -> int:
        """Return how many attempts fit."""
        return self.attempts

    def shortage(self) -> str:
        """Return why no attempt can start."""
        return "none"


class Statements:
    """Counts the statements that a ledger executes."""

    def __init__(self, ledger: Ledger) -> None:
        self.count = 0
        event.listen(ledger._engine, "before_cursor_execute", self._add)

    def _add(self, *_: Any) -> None:
        self.count += 1


@contextmanager
def opened(folder: Path, url: str | None, attempts: int) -> Iterator[tuple[Session, Lease, Statements]]:
    """Begin a sweep in a new folder, with resources for the given number of attempts."""
    file = folder / "space.yaml"
    file.write_text(FILE)
    sweep, paths = load(file, profile=None, gpus=0), Paths(folder / "mlruns", database=url)
    paths.create()
    ledger = Ledger.open(paths.ledger_url)
    about = (sweep.id, sweep.name, None, sweep.task, sweep.document(), sweep.digest)
    ledger.create_sweep(SweepRecord(*about, "RUNNING", None, "none", "", {}, time.time()))
    with Lease(ledger, sweep.id) as lease:
        resources = Unlimited(attempts)
        yield (
            Session(sweep, lease.writer, Study(sweep), paths, folder, resources=resources, node_wait=10.0),
            lease,
            Statements(ledger),
        )
    ledger.close()


def report(assignment: Assignment, step: int) -> Outcome:
    """Return a worker's report that names a checkpoint without creating it."""
    folder = f"{assignment.checkpoints}/step-{step:09d}-1-0123456789ab"
    saved = SavedCheckpoint(folder, step, "0" * 64, 1000)
    metrics = {**METRICS, "val/accuracy": 0.5 + (step % 97) / 1000}
    return Outcome(step, done=False, metrics=metrics, checkpoint=saved, node="node-1")


def timed(call: Callable[[], object]) -> float:
    """Return the CPU seconds of one call; elapsed time would depend on other load."""
    began = time.process_time()
    call()
    return time.process_time() - began


def measure(folder: Path, url: str | None, running: int, reports: int) -> Iterator[tuple[str, float, float]]:
    """Yield the name of each measurement, its milliseconds, and its number of SQL statements."""
    with opened(folder, url, running + 1) as (session, lease, statements):

        def costs(call: Callable[[], object], times: int) -> tuple[float, float]:
            before = statements.count
            seconds = [timed(call) for _ in range(times)]
            return statistics.median(seconds) * 1e3, (statements.count - before) / times

        first = session.next_assignment()
        assert first is not None
        session.started(first.attempt_id)
        steps = iter(range(10, 10**9, 10))
        yield "a report", *costs(lambda: session.reported(first.attempt_id, report(first, next(steps))), 500)
        pending = [row.seq for row in lease.writer.ledger.pending(session.sweep.id, 500)]
        yield f"{len(pending)} deliveries", *costs(lambda: lease.writer.delivered(pending), 1)
        yield "a launch, 1 running", *costs(session.next_assignment, 1)
        while len(session.running) < running:
            assignment = session.next_assignment()
            assert assignment is not None
            session.started(assignment.attempt_id)
        yield f"a launch, {running} running", *costs(session.next_assignment, 1)
        yield f"a look around, {running} running", *costs(session.check_limits, 20)
        yield f"the progress, {running} running", *costs(session.progress, 20)
        yield from resumed(session, lease, reports, costs)


def resumed(
    session: Session, lease: Lease, reports: int, costs: Callable[..., tuple[float, float]]
) -> Iterator[tuple[str, float, float]]:
    """Yield the measurements of resuming the sweep with the given number of reports."""
    ledger = lease.writer.ledger
    fill(ledger, [run.trial.key for run in session.running.values()], reports)
    yield f"lose_attempts, {reports} reports", *costs(lease.writer.lose_attempts, 1)
    yield f"read the reports, {reports}", *costs(lambda: ledger.reports(session.sweep.id), 1)
    if ledger.is_file:
        verify(ledger, session.sweep.id)  # the first call writes the backup of the reports
        yield f"verify, {reports} reports", *costs(lambda: verify(ledger, session.sweep.id), 1)


def fill(ledger: Ledger, keys: list[str], reports: int) -> None:
    """Insert reports in one transaction that bypasses the ledger's writer, so they have no backup yet."""
    metrics = {**METRICS, "val/accuracy": 0.5}
    reports_per_trial = max(1, reports // len(keys))
    template = ReportRecord(keys[0], 0, f"{keys[0]}.1", metrics, 1.8e9)
    with ledger.writer() as connection, connection.begin():
        for key in keys:
            own = replace(template, trial_key=key, attempt_id=f"{key}.1")
            rows = [REPORTS.encode(replace(own, step=10**7 + n)) for n in range(reports_per_trial)]
            connection.execute(insert(REPORT), rows)
            total = TALLY.c.total + sum(row["row_digest"] for row in rows) % DIGEST_MODULUS
            added = {"rows": TALLY.c.rows + len(rows), "total": total % DIGEST_MODULUS}
            connection.execute(update(TALLY).values(**added))


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--running", type=int, default=1800, help="number of running attempts")
    parser.add_argument("--reports", type=int, default=20_000, help="number of reports of the resumed sweep")
    parser.add_argument("--ledger", help="address of an empty PostgreSQL database")
    options = parser.parse_args()
    print("| what | ms | statements |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for what, milliseconds, count in measure(
            Path(folder), options.ledger, options.running, options.reports
        ):
            print(f"| {what} | {milliseconds:.2f} | {count:.0f} |", flush=True)


if __name__ == "__main__":
    main()
