"""Compare MLflow's database with the ledger: one run for each trial, and each point once.

The database is read without MLflow. That of an MLflow server is not compared.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from orchestrator.ledger.lease import holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import UNFINISHED_TRIAL, ReportRecord, SweepRecord, TrialRecord, by_trial
from orchestrator.tracking import events
from orchestrator.tracking.fold import is_number, legal_name
from orchestrator.tracking.mlflow_private import Point, StoredRuns, stored_runs
from orchestrator.upkeep.check import Finding

REMEDY = "`recover --mlflow` delivers it again"


def disagreements(ledger: Ledger, sweep: SweepRecord, database: Path) -> list[Finding]:
    """Return the differences between MLflow and the ledger; none while events of the sweep are pending.

    Args:
        ledger: holds the sweep.
        sweep: its record.
        database: SQLite file of MLflow.
    """
    if ledger.backlog(sweep.id):
        return []
    driven = holder(ledger, sweep.id) is not None
    try:
        with stored_runs(database) as runs:
            return [*_compared(ledger, sweep, runs, driven)]
    except sqlite3.Error as error:
        return [Finding(str(database), f"must be MLflow's database, got {error}; {REMEDY}")]


def _compared(ledger: Ledger, sweep: SweepRecord, stored: StoredRuns, driven: bool) -> Iterator[Finding]:
    runs = stored.of_sweep(sweep.id, repr(sweep.created_at))
    reports = by_trial(ledger.reports(sweep.id))
    for trial in ledger.trials(sweep.id):
        of_trial = runs.get(trial.key, [])
        if len(of_trial) != 1:
            yield Finding(trial.key, f"MLflow has one run of a trial, got {len(of_trial)}; {REMEDY}")
            continue
        [(run_id, status)] = of_trial
        yield from _status(trial, status, driven)
        yield from _points(trial.key, _reported(reports.get(trial.key, [])), stored.points(run_id))


def _status(trial: TrialRecord, status: str, driven: bool) -> Iterator[Finding]:
    if trial.state in UNFINISHED_TRIAL:
        if status == "RUNNING" and not driven:
            must = "a run is RUNNING in MLflow only while a driver runs its sweep"
            yield Finding(trial.key, f"{must}, and none does")
    elif status != (expected := events.status_of(trial.state)):
        yield Finding(trial.key, f"a {trial.state} trial is {expected} in MLflow, got {status}; {REMEDY}")


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
        yield Finding(key, f"MLflow has every point that was reported, missing {len(missing)}; {REMEDY}")
    counts = Counter((name, step) for name, step, _ in stored)
    if repeated := [point for point, count in counts.items() if count > 1]:
        yield Finding(key, f"MLflow has every point once, got {len(repeated)} of them more often")
