"""MLflow's copy of a sweep: comparison with the ledger, and redelivery of lost records.

The copy has one run for each trial, and each point once. A SQLite database is read without MLflow. The
database of an MLflow server is not compared.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from orchestrator.errors import counted
from orchestrator.ledger.connect import SQLITE_PARTS
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import Lease, holder
from orchestrator.ledger.sweeps.records import (
    UNFINISHED_TRIAL,
    ReportRecord,
    SweepRecord,
    TrialRecord,
    by_trial,
)
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.storage.paths import Paths
from orchestrator.tracking import events
from orchestrator.tracking.address import sqlite_path
from orchestrator.tracking.events import is_number, legal_name
from orchestrator.tracking.mlflow_private import Point, StoredRuns, stored_runs
from orchestrator.tracking.shipper import Shipper
from orchestrator.upkeep.check import Finding

REMEDY = "`mlflow rebuild` delivers it again"


def disagreements(ledger: Ledger, sweep: SweepRecord, database: Path) -> list[Finding]:
    """Return the differences between MLflow and the ledger; none while events of the sweep are pending.

    Args:
        ledger: Ledger of the sweep.
        sweep: Record of the sweep.
        database: SQLite file of MLflow.
    """
    # A driver may go on meanwhile: what is read before an empty outbox is counted has been delivered.
    driven = holder(ledger, sweep.id) is not None
    trials, reports = ledger.trials(sweep.id), by_trial(ledger.reports(sweep.id))
    if ledger.backlog(sweep.id):
        return []
    try:
        with stored_runs(database) as stored:
            return [*_compared(sweep, trials, reports, stored, driven)]
    except sqlite3.Error as error:
        return [Finding(str(database), f"must be MLflow's database (got {error}); {REMEDY}")]


def _compared(
    sweep: SweepRecord,
    trials: Iterable[TrialRecord],
    reports: Mapping[str, Sequence[ReportRecord]],
    stored: StoredRuns,
    driven: bool,
) -> Iterator[Finding]:
    runs = stored.of_sweep(sweep.id, repr(sweep.created_at))
    scripts_write = sweep.document.get("trainable", {}).get("mlflow", False)
    for trial in trials:
        of_trial = runs.get(trial.key, [])
        if len(of_trial) != 1:
            yield Finding(trial.key, f"has {len(of_trial)} runs in MLflow instead of one; {REMEDY}")
            continue
        [(run_id, status)] = of_trial
        yield from _status(trial, status, driven)
        reported, points = _reported(reports.get(trial.key, [])), stored.points(run_id)
        if scripts_write:  # names of their own, as often as they like
            names = {name for name, _, _ in reported}
            points = [point for point in points if point[0] in names]
        yield from _points(trial.key, reported, points)


def _status(trial: TrialRecord, status: str, driven: bool) -> Iterator[Finding]:
    if trial.state in UNFINISHED_TRIAL:
        if status == "RUNNING" and not driven:
            yield Finding(trial.key, "is RUNNING in MLflow, but no driver runs its sweep")
    elif status != (expected := events.status_of(trial.state)):
        yield Finding(trial.key, f"is {status} in MLflow instead of {expected}; {REMEDY}")


def _reported(reports: Iterable[ReportRecord]) -> set[Point]:
    """Return the points that MLflow must have."""
    return {
        (legal_name(name), report.step, float(value))
        for report in reports
        for name, value in events.curves(report.metrics).items()
        if is_number(value)
    }


def _points(key: str, reported: set[Point], stored: Sequence[Point]) -> Iterator[Finding]:
    if missing := reported - set(stored):
        yield Finding(key, f"lacks {counted(len(missing), 'reported point')} in MLflow; {REMEDY}")
    counts = Counter((name, step) for name, step, _ in stored)
    if repeated := [point for point, count in counts.items() if count > 1]:
        yield Finding(key, f"has {counted(len(repeated), 'repeated point')} in MLflow")


def redeliver(ledger: Ledger, sweep_id: str, paths: Paths, seconds: float) -> tuple[int, int]:
    """Deliver a whole sweep again; return the number of records, and the number still pending.

    Args:
        ledger: Ledger of the sweep.
        sweep_id: Id of the sweep.
        paths: Paths of MLflow.
        seconds: Maximum time of the delivery.

    Raises:
        Busy: A driver runs the sweep, and delivers its events itself.
    """
    with Lease(ledger, sweep_id) as lease:
        count = put_back(lease.writer)
        shipper = Shipper(lease, paths.tracking_uri, paths.artifacts)
        shipper.start()
        pending = shipper.drain(seconds)
        shipper.close()
    return count, pending


def put_back(writer: SweepWriter) -> int:
    """Mark everything of a sweep as undelivered; return the number of records, which a shipper delivers."""
    writer.redeliver()
    return writer.ledger.backlog(writer.token.sweep_id)


def set_aside(paths: Paths) -> Path | None:
    """Rename an unreadable SQLite database of MLflow; return its new name, or None if it is intact.

    Its write-ahead logs are renamed too, even if the database is missing, because SQLite would apply them to
    the next database.
    """
    local = sqlite_path(paths.tracking_uri)
    if local is None or _is_intact(file := Path(local)):
        return None
    parts = [file.with_name(file.name + part) for part in SQLITE_PARTS]
    aside = file.with_name(f"{file.name}.damaged")
    for part in parts:
        if part.exists():
            part.replace(part.with_name(part.name.replace(file.name, aside.name, 1)))
    return aside if aside.exists() else None


def _is_intact(file: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True, timeout=30)) as reader:
            return bool(reader.execute("PRAGMA quick_check").fetchone() == ("ok",))
    except sqlite3.Error:
        return False
