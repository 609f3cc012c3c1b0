"""Whether MLflow's own database says what the ledger says: every trial's run once, every point once.

It is read without MLflow, which takes seconds to import; a server's database is not ours to read.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from orchestrator.ledger.lease import holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import UNFINISHED_TRIAL, ReportRecord, SweepRecord, TrialRecord
from orchestrator.tracking import events
from orchestrator.tracking.limits import is_number, legal_name
from orchestrator.upkeep.check import Finding

REMEDY = "`recover --mlflow` tells it again"
Point = tuple[str, int, float]
Run = tuple[str, str]

_RUNS = """
SELECT trial.value, runs.run_uuid, runs.status FROM runs
JOIN tags AS trial ON trial.run_uuid = runs.run_uuid AND trial.key = 'trial.key'
JOIN tags AS parent ON parent.run_uuid = runs.run_uuid AND parent.key = 'mlflow.parentRunId'
JOIN tags AS sweep ON sweep.run_uuid = parent.value AND sweep.key = 'sweep.id' AND sweep.value = ?
JOIN tags AS began ON began.run_uuid = parent.value AND began.key = 'sweep.created' AND began.value = ?
"""


def disagreements(ledger: Ledger, sweep: SweepRecord, database: Path) -> list[Finding]:
    """Return what an MLflow of our own says otherwise than the ledger; nothing while it is being told."""
    if ledger.backlog(sweep.id):
        return []
    driven = holder(ledger, sweep.id) is not None
    try:
        with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True, timeout=30)) as reader:
            return [*_compared(ledger, sweep, reader, driven)]
    except sqlite3.Error as error:
        return [Finding(str(database), f"must be MLflow's database, got {error}; {REMEDY}")]


def _compared(
    ledger: Ledger, sweep: SweepRecord, reader: sqlite3.Connection, driven: bool
) -> Iterator[Finding]:
    runs: dict[str, list[Run]] = {}
    for key, run, status in reader.execute(_RUNS, (sweep.id, repr(sweep.created_at))):
        runs.setdefault(key, []).append((run, status))
    reports: dict[str, list[ReportRecord]] = {}
    for report in ledger.reports(sweep.id):
        reports.setdefault(report.trial_key, []).append(report)
    for trial in ledger.trials(sweep.id):
        own = runs.get(trial.key, [])
        if len(own) != 1:
            yield Finding(trial.key, f"MLflow has one run of a trial, got {len(own)}; {REMEDY}")
            continue
        [(run, status)] = own
        yield from _status(trial, status, driven)
        drawn = reader.execute("SELECT key, step, value FROM metrics WHERE run_uuid = ?", (run,))
        yield from _points(trial.key, _told(reports.get(trial.key, [])), drawn.fetchall())


def _status(trial: TrialRecord, status: str, driven: bool) -> Iterator[Finding]:
    if trial.state in UNFINISHED_TRIAL:
        if status == "RUNNING" and not driven:
            yield Finding(trial.key, "nothing is RUNNING in MLflow without a driver, and none is alive")
    elif status != (wanted := events.status_of(trial.state)):
        yield Finding(trial.key, f"a {trial.state} trial is {wanted} in MLflow, got {status}; {REMEDY}")


def _told(reports: Iterable[ReportRecord]) -> set[Point]:
    return {
        (legal_name(name), report.step, float(value))
        for report in reports
        for name, value in events.curves(report.metrics).items()
        if is_number(value)
    }


def _points(key: str, told: set[Point], drawn: Sequence[Point]) -> Iterator[Finding]:
    if missing := told - set(drawn):
        yield Finding(key, f"MLflow has every point that was reported, missing {len(missing)}; {REMEDY}")
    times = Counter((name, step) for name, step, _ in drawn)
    if twice := [place for place, count in times.items() if count > 1]:
        yield Finding(key, f"MLflow has every point once, got {len(twice)} of them more often")
