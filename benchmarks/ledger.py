"""Cost of the ledger and the session, and its growth with the number of reports and running attempts.

    python -m benchmarks.ledger                          # a minute
    python -m benchmarks.ledger --resume 1000000         # resume a sweep with this many reports
    python -m benchmarks.ledger --deliver 100000         # deliver this many points to MLflow

No trial trains, and Ray does not run: each number is the CPU time of one call in one process, with
a SQLite ledger in a temporary folder, or with the empty PostgreSQL database of `--ledger`, each answer of
which `--latency` delays. For a resume, and for reports one after the other, it is the elapsed time: measure
them on a quiet machine.

`--resume` takes the way of a driver from its lease to its first launch, without the import and the start of
Ray and without loading the data: the integrity check, the end of the lost attempts, the study, the scheduler,
the session. The sweep of `--running` trials has a backup of one line a report, as a driver that was killed
leaves it. A process beside the first resume rewrites it, and the second one has the rewritten backup.

`--deliver` fills the ledger with reports of `--running` open runs, and delivers them as a driver does, by a
thread and a process, to an MLflow database on SQLite: first a backlog of so many points, then 2,000 points a
second for as long as those take, at most a minute. The rate is sustained if MLflow is not further behind in
the second half of that time than in the first one; what is left at its end comes in the last row. What MLflow
needs for a point depends on the number of points of a run in one batch.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from itertools import groupby
from multiprocessing import Pipe, active_children, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import event, insert, make_url, select, update

from orchestrator.assignment import Assignment, Outcome, SavedCheckpoint
from orchestrator.config import load
from orchestrator.driver import execution, sweep_rows
from orchestrator.driver.admission import LeasedSweep, Run
from orchestrator.driver.log import Observer
from orchestrator.driver.shutdown import Shutdown
from orchestrator.ledger.backup import Change, Entry, backup_file, locked
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.rows import DIGEST_MODULUS, REPORTS
from orchestrator.ledger.sweeps.index import oldest_pending
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import ReportRecord, SweepRecord
from orchestrator.ledger.tables import REPORT, TALLY, TRIAL
from orchestrator.schedule import schedulers
from orchestrator.session.session import Session
from orchestrator.storage.paths import Paths
from orchestrator.study.study import Study
from orchestrator.tracking.events import chunks
from orchestrator.tracking.shipper import Shipper
from tests.orchestrator.ledger.examples import create_sweep
from tests.orchestrator.ledger.test_lost_acknowledgement import relaying
from tests.orchestrator.ledger.test_round_trips import SlowProxy

FILE = """
task: retrieval
model: {{layer: rotrnn, depth: 1, d_model: 8, d_state: 8, heads: 2}}
training: {{steps: {steps}, interval: 10, batch_size: 4, recurrent_learning_rate: 1e-3}}
search: {{learning_rate: {{log_uniform: [1e-4, 1e-2]}}, depth: {{choice: [1, 2]}}}}
objective: {{maximize: val/accuracy}}
sampler: {{random: {{seed: 3}}}}
scheduler: {{{scheduler}: {{}}}}
budget: {{trials: 4000, hours: 1000}}
resources: {{cpu: 1}}
"""
METRICS = {f"hidden_norm/head/layer_{n}": 1.0 + n / 7 for n in range(6)} | {
    "val/loss": 0.7,
    "train/loss": 0.6,
}


IN_TURN = 2000
"""Number of reports of all running trials in turn."""


class Unlimited:
    """Resources for a fixed number of attempts."""

    def __init__(self, attempts: int) -> None:
        self.attempts = attempts

    def capacity(self) -> int:
        """Return the number of attempts that fit."""
        return self.attempts

    def shortage(self) -> str:
        """Return why no attempt can start."""
        return "none"

    def placed(self) -> bool:
        """Return True, as every attempt here has its resources at once."""
        return True


class Statements:
    """Counts the statements that a ledger executes: in SQLite, once for each row of several."""

    def __init__(self, ledger: Ledger) -> None:
        self.count = 0
        if ledger.is_file:
            # Most statements do not pass through SQLAlchemy's events.
            event.listen(ledger._engine, "checkout", lambda raw, *_: raw.set_trace_callback(self._add))
        else:
            event.listen(ledger._engine, "before_cursor_execute", self._add)

    def _add(self, *_: Any) -> None:
        self.count += 1


@contextmanager
def opened(
    folder: Path, url: str | None, attempts: int, steps: int = 10**6, scheduler: str = "none"
) -> Iterator[tuple[Session, Lease, Statements]]:
    """Begin a sweep in a new folder, with resources for the given number of attempts."""
    file = folder / "space.yaml"
    file.write_text(FILE.format(steps=steps, scheduler=scheduler))
    sweep, paths = load(file, profile=None, gpus=0), Paths(folder / "mlruns", database=url)
    paths.create()
    ledger = Ledger.open(paths.ledger_url)
    about = (sweep.id, sweep.name, None, sweep.task, sweep.document(), sweep.digest)
    create_sweep(ledger, SweepRecord(*about, "RUNNING", None, "none", "", {}, time.time()))
    with Lease(ledger, sweep.id) as lease:
        resources = Unlimited(attempts)
        yield (
            Session(
                sweep,
                lease.writer,
                Study(sweep),
                paths,
                folder,
                resources=resources,
                node_wait=10.0,
                busy_wait=10.0,
            ),
            lease,
            Statements(ledger),
        )
    ledger.close()


def report(assignment: Assignment, step: int) -> Outcome:
    """Return a worker's report that names a checkpoint without creating it."""
    folder = f"{assignment.checkpoints}/step-{step:09d}-1-0123456789ab"
    saved = SavedCheckpoint(folder, step, "0" * 64, 1000)
    metrics = {**METRICS, "val/accuracy": 0.5 + (step % 97) / 1000}
    return Outcome(assignment.attempt_id, step, done=False, metrics=metrics, checkpoint=saved, node="node-1")


def timed(call: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Return the seconds of one call: of CPU time, as elapsed time would depend on other load."""
    began = clock()
    call()
    return clock() - began


def measure(folder: Path, url: str | None, running: int) -> Iterator[tuple[str, float, float]]:
    """Yield the name of each measurement, its milliseconds, and its number of SQL statements."""
    with opened(folder, url, running + 1) as (session, lease, statements):

        def costs(
            call: Callable[[], object],
            times: int,
            of: Callable[[list[float]], float] = statistics.median,
        ) -> tuple[float, float]:
            before = statements.count
            seconds = [timed(call) for _ in range(times)]
            return of(seconds) * 1e3, (statements.count - before) / times

        first = session.next_assignment()
        assert first is not None
        session.started(first.attempt_id)
        steps = iter(range(10, 10**9, 10))

        def reported() -> None:
            session.reported(first.attempt_id, report(first, next(steps)))

        yield "a report", *costs(reported, 500)
        yield "the fastest of 1,000 reports", *costs(reported, 1000, min)
        lease.writer.record_mlflow_runs({run: run for run in (session.sweep.id, first.trial_key)})
        pending = lease.writer.ledger.pending(session.sweep.id, 500)
        count = len(pending.events) + len(pending.reports)
        yield f"{count} deliveries", *costs(lambda: lease.writer.delivered(pending), 1)
        yield "a launch, 1 running", *costs(session.next_assignment, 1)
        assignments = [first]
        while len(session.running) < running:
            assignment = session.next_assignment()
            assert assignment is not None
            session.started(assignment.attempt_id)
            assignments.append(assignment)
        yield f"a launch, {running} running", *costs(session.next_assignment, 1)
        yield f"a look around, {running} running", *costs(session.check_limits, 20)
        yield f"the progress, {running} running", *costs(session.progress, 20)

        def all_reported(rounds: int) -> None:
            for _ in range(rounds):
                step = next(steps)
                for each in assignments:
                    session.reported(each.attempt_id, report(each, step))

        all_reported(1)  # which reads the rows of each trial
        before, rounds = statements.count, max(1, IN_TURN // len(assignments))
        began = time.process_time()
        seconds, count = timed(lambda: all_reported(rounds), time.perf_counter), rounds * len(assignments)
        used = time.process_time() - began
        sent, what = (statements.count - before) / count, f"a report of {len(assignments)} trials in turn"
        yield what, 1e3 * used / count, sent
        yield f"elapsed {what}, {count / seconds:.0f} a second", 1e3 * seconds / count, sent


def resumes(
    folder: Path, url: str | None, trials: int, reports: int, scheduler: str
) -> Iterator[tuple[str, float, float]]:
    """Yield the measurements of resuming a sweep twice: name, milliseconds, number of SQL statements."""
    length = reports // trials
    with opened(folder, url, trials, steps=20 * length, scheduler=scheduler) as (session, lease, statements):
        keys, ledger = launched(session), lease.writer.ledger
        fill(ledger, session.sweep.id, keys, length)
        for title in ("first", "second"):
            total = 0.0
            for what, call in way_to_the_first_launch(session, lease):
                before = statements.count
                milliseconds = 1e3 * timed(call, time.perf_counter)
                total += milliseconds
                yield f"{title} resume: {what}", milliseconds, statements.count - before
            yield f"{title} resume, {reports} reports", total, 0
            for compaction in active_children():
                if compaction.name != PROXY:
                    compaction.join()


def launched(session: Session) -> list[str]:
    """Start as many trials as fit, and return their keys."""
    keys = []
    while (assignment := session.next_assignment()) is not None:
        session.started(assignment.attempt_id)
        keys.append(assignment.trial_key)
    return keys


def way_to_the_first_launch(old: Session, lease: Lease) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the steps of a driver that resumes a sweep, in order, each with a name."""
    ledger, sweep = lease.writer.ledger, old.sweep
    run = Run(old.paths, Path("data"), hardware=None)  # type: ignore[arg-type]
    with Shutdown() as shutdown:
        leased = LeasedSweep(sweep, run, ledger, lease, Silent(), shutdown)
        made: dict[str, Any] = {}

        def remember(name: str, call: Callable[[], object]) -> tuple[str, Callable[[], object]]:
            return name, lambda: made.update({name: call()})

        yield remember("integrity check", lambda: sweep_rows.check_integrity(leased))
        curves = made["integrity check"]
        yield "end lost attempts", lambda: sweep_rows.enter(leased, data=None)
        yield "reopen the runs", lambda: sweep_rows.resume(leased)
        yield remember("study", lambda: execution.rebuilt_study(leased, curves))
        yield remember("scheduler", lambda: schedulers.build(sweep, curves))

        def launch() -> None:
            resources = Unlimited(len(old.running))
            session = Session(
                sweep,
                lease.writer,
                made["study"],
                old.paths,
                old.paths.root,
                resources=resources,
                node_wait=10.0,
                busy_wait=10.0,
            )
            session.settle_stopped(made["scheduler"].stopped)
            assert session.next_assignment() is not None

        yield "session and first launch", launch


class Silent(Observer):
    """Shows nothing."""


def fill(ledger: Ledger, sweep_id: str, keys: list[str], reports: int) -> None:
    """Insert reports of all trials in turn, and their lines in the backup, without the ledger's writer."""
    log = backup_file(ledger.address, sweep_id)
    with ledger.writer() as connection:
        tally = connection.execute(select(TALLY).where(TALLY.c.sweep_id == sweep_id)).one_or_none()
        commits, rows, total = (tally.commits, tally.rows, tally.total) if tally else (0, 0, 0)
        with locked(log) if ledger.is_file else nullcontext() as lines:
            for index in range(reports):
                at, values = 1.8e9 + index, METRICS | {"val/accuracy": index / reports}
                records = [
                    ReportRecord(key, 10 * (index + 1), f"{key}.1", values, at + place / len(keys))
                    for place, key in enumerate(keys)
                ]
                added = [REPORTS.encode(record) for record in records]
                connection.execute(insert(REPORT), added)
                rows, total = rows + len(added), total + sum(row["row_digest"] for row in added)
                if lines is not None:
                    for row in added:
                        commits += 1
                        lines.append(Entry(commits, line_of(row)))
        if tally:
            sums = {"commits": commits, "rows": rows, "total": total % DIGEST_MODULUS}
            connection.execute(update(TALLY).values(**sums))
        connection.commit()


def line_of(row: dict[str, Any]) -> list[Change]:
    """Return changes as long as those of a report: its row, its trial, and two checkpoints."""
    key, step = row["trial_key"], row["step"]
    place = {"trial_key": key, "kind": "last", "step": step}
    saved = {"path": f"{key}/step-{step:09d}-1-0123456789ab", "digest": "0" * 64, "bytes": 1000}
    checkpoint = {**place, **saved, "metrics": row["metrics"], "row_digest": row["row_digest"]}
    return [
        ("report", {"trial_key": key, "step": step}, row),
        ("trial", {"key": key}, {"step": step, "row_digest": row["row_digest"]}),
        ("checkpoint", place, checkpoint),
        ("checkpoint", {**place, "kind": "best"}, {**checkpoint, "kind": "best"}),
        ("checkpoint", {**place, "step": step - 10}, None),
    ]


@contextmanager
def delayed(url: str | None, seconds: float) -> Iterator[str | None]:
    """Yield the URL of a database whose server answers later by some seconds.

    The proxy that delays the answers has a process of its own, whose time is not that of a report.
    """
    if url is None or not seconds:
        yield url
        return
    ours, theirs = Pipe()
    proxy = get_context("spawn").Process(target=_delay, args=(url, seconds, theirs), name=PROXY)
    proxy.start()
    yield ours.recv()
    ours.send(None)
    proxy.join()


PROXY = "proxy"
"""Name of the process of `delayed`."""


def _delay(url: str, seconds: float, ours: Connection) -> None:
    """Send the URL of the delayed database, and relay until something is received."""
    with relaying(SlowProxy(make_url(url).port or 5432, seconds)) as proxy:
        ours.send(proxy.before(url))
        ours.recv()


BEGAN = 1.8e9
"""Time of the first report, seconds since the epoch."""

STEADY = 2_000
"""Points a second of the steady state."""

POINTS_A_REPORT = len(METRICS) + 1

LONGEST_SECONDS = 300.0
"""Longest time for the backlog. What is left then says nothing new."""


class Use:
    """What the process that delivers to MLflow, and the thread of this one that feeds it, use from now on."""

    def __init__(self) -> None:
        (self._child,) = (each for each in psutil.Process().children() if _delivers(each))
        self.began, self._before = time.perf_counter(), self._spent()

    def of(self, points: int) -> tuple[str, ...]:
        """Return points a second, the CPU time of a point in process and thread, and the process's peak."""
        seconds, points = time.perf_counter() - self.began, max(points, 1)
        spent = (now - before for now, before in zip(self._spent(), self._before, strict=True))
        (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self._child.pid}/status").read_text())
        costs = (f"{1e6 * cpu / points:,.0f}" for cpu in spent)
        return f"{points / seconds:,.0f}", *costs, f"{int(peak) / 1024:.0f}"

    def _spent(self) -> tuple[float, float]:
        times = self._child.cpu_times()
        return times.user + times.system, time.process_time() - time.thread_time()


def _delivers(process: psutil.Process) -> bool:
    return "orchestrator.tracking.deliver" in process.cmdline()


def deliveries(folder: Path, running: int, points: int) -> Iterator[tuple[str, ...]]:
    """Yield the measurements of delivering points of open runs to MLflow: a name, and those of `Use`."""
    with opened(folder, None, running) as (session, lease, _):
        keys, ledger, sweep_id = launched(session), lease.writer.ledger, session.sweep.id

        def report_all(rows: Sequence[tuple[str, int]], at: float) -> None:
            """Insert reports of trials by number, without the writer and the backup."""
            values = [METRICS | {"val/accuracy": index / 1e5} for _, index in rows]
            records = [
                ReportRecord(key, 10 * (index + 1), f"{key}.1", each, BEGAN + at)
                for (key, index), each in zip(rows, values, strict=True)
            ]
            of_chosen = update(TRIAL).where(TRIAL.c.key.in_([key for key, _ in rows]))
            with ledger.writer() as connection:
                connection.execute(insert(REPORT), [REPORTS.encode(record) for record in records])
                connection.execute(of_chosen.values(reported_at=BEGAN + at))
                connection.commit()
            shipper.nudge()

        def behind(at: float) -> tuple[int, float]:
            """Return the points that MLflow lacks, and the age of the oldest one in seconds."""
            oldest = oldest_pending(ledger, [sweep_id])
            return POINTS_A_REPORT * ledger.backlog(sweep_id), 0.0 if oldest is None else BEGAN + at - oldest

        with closing(Shipper(lease, session.paths.tracking_uri, session.paths.artifacts)) as shipper:
            shipper.start()
            assert shipper.drain(600.0) == 0, "the runs begin before the measurement"
            each = max(1, points // (POINTS_A_REPORT * running))
            count = POINTS_A_REPORT * running * each
            for index in range(each):
                report_all([(key, index) for key in keys], float(index))
            use = Use()
            if left := shipper.drain(LONGEST_SECONDS):
                delivered = count - POINTS_A_REPORT * left
                yield f"{delivered:,} of a backlog of {count:,} points", *use.of(delivered)
                return
            yield f"a backlog of {count:,} points", *use.of(count)
            seconds = min(max(5, count // STEADY), 60)
            total = seconds * STEADY // POINTS_A_REPORT
            rows = [(keys[n % running], each + n // running) for n in range(total)]
            use, lags = Use(), list[tuple[int, float]]()
            for second, at_once in enumerate(chunks(rows, total // seconds + 1), start=1):
                for _, of_round in groupby(at_once, lambda row: row[1]):
                    report_all(list(of_round), each + time.perf_counter() - use.began)
                time.sleep(max(0.0, use.began + second - time.perf_counter()))
                lags.append(behind(each + time.perf_counter() - use.began))
            halves = lags[: seconds // 2], lags[seconds // 2 :]
            furthest = [f"{max(late for _, late in half):.1f} s" for half in halves]
            (middle, _), (left, _) = halves[0][-1], halves[1][-1]
            delivered = POINTS_A_REPORT * total - left
            title = (
                f"{STEADY:,} a second for {seconds} s: at most {' and '.join(furthest)} behind in its halves,"
                f" {middle:,} and {left:,} points at their ends"
            )
            yield title, *use.of(delivered)
            use = Use()
            assert shipper.drain(LONGEST_SECONDS) == 0
            yield f"then the {left:,} that wait", *use.of(left)


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--running", type=int, default=1800, help="number of running attempts")
    parser.add_argument("--resume", type=int, metavar="REPORTS", help="resume a sweep with so many reports")
    parser.add_argument("--deliver", type=int, metavar="POINTS", help="deliver so many points to MLflow")
    parser.add_argument("--scheduler", default="asha", help="of the resumed sweep")
    parser.add_argument("--ledger", help="address of an empty PostgreSQL database")
    parser.add_argument("--latency", type=float, default=0.0, help="ms by which the database answers later")
    options = parser.parse_args()
    if options.deliver:
        titles = ("what", "points a second", "µs of CPU a point", "of the driver", "peak RSS, MiB")
        print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
        with tempfile.TemporaryDirectory() as name:
            for row in deliveries(Path(name), options.running, options.deliver):
                print(f"| {' | '.join(row)} |", flush=True)
        return
    print("| what | ms | statements |\n|---|---|---|")
    with (
        tempfile.TemporaryDirectory() as name,
        delayed(options.ledger, options.latency / 1e3) as url,
    ):
        folder, running = Path(name), options.running
        table = (
            resumes(folder, url, running, options.resume, options.scheduler)
            if options.resume
            else measure(folder, url, running)
        )
        for what, milliseconds, count in table:
            print(f"| {what} | {milliseconds:.2f} | {count:.0f} |", flush=True)


if __name__ == "__main__":
    main()
