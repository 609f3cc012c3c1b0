"""The state of sweeps, read from the ledger alone: no Ray, JAX, MLflow, Optuna or pandas is imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from orchestrator.api.workspace import Workspace, sweep_named
from orchestrator.config.strategy import most_trials
from orchestrator.errors import BadInput
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.lease import holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import DRIVEN_SWEEP, SweepRecord
from orchestrator.ledger.selection import best_of_sweep
from orchestrator.session.board import Progress


@dataclass(frozen=True)
class Status:
    """The state of one sweep.

    Attributes:
        id: id of the sweep.
        state: the state in the ledger, or INTERRUPTED if its driver ended without saying so.
        reason: why the sweep is in this state, or None.
        task: name of the task.
        profile: name of the profile, or None.
        driver: the process that drives the sweep, or None.
        trials: number of search trials by state.
        waiting_for_mlflow: number of records that MLflow has not received yet.
        created_at: seconds since the epoch.
        finished_at: seconds since the epoch, or None.
    """

    id: str
    state: str
    reason: str | None
    task: str
    profile: str | None
    driver: Holder | None
    trials: Mapping[str, int]
    waiting_for_mlflow: int
    created_at: float
    finished_at: float | None

    def document(self) -> dict[str, Any]:
        """Return the attributes above as plain JSON values."""
        values = asdict(self)
        return {field.name: values[field.name] for field in fields(Status)}


@dataclass(frozen=True)
class DetailedStatus(Status):
    """The state of one sweep, its progress and its failures.

    Attributes:
        metric: the metric that decides which trial is best.
        progress: search trials by state, the best one so far.
        failures: number of failed search trials by cause.
    """

    metric: str
    progress: Progress
    failures: Mapping[str, int]


def sweeps(*, root: str | Path | None = None) -> list[Status]:
    """Return the state of every sweep, the oldest first.

    Args:
        root: folder of everything that sweeps write; if None, `SWEEP_ROOT` or else `mlruns`.

    Raises:
        BadInput: there is no ledger.
    """
    with Workspace.at(root).ledger() as ledger:
        return [Status(**_row(ledger, record)) for record in ledger.sweeps()]


def status(name: str | None = None, *, root: str | Path | None = None) -> DetailedStatus:
    """Return the state of one sweep.

    Args:
        name: id of the sweep or its beginning; the newest sweep if None.
        root: folder of everything that sweeps write; if None, `SWEEP_ROOT` or else `mlruns`.

    Raises:
        BadInput: there is no ledger, or `name` does not name one sweep of it.
    """
    with Workspace.at(root).ledger() as ledger:
        record = sweep_named(ledger, name) if name else _newest(ledger)
        return detailed(ledger, record)


def detailed(ledger: Ledger, record: SweepRecord) -> DetailedStatus:
    """Return the state of a sweep whose record has been read."""
    trials = ledger.trials(record.id, role="search")
    best, row = best_of_sweep(ledger, record), _row(ledger, record)
    return DetailedStatus(
        **row,
        metric=str(record.facts["metric"]),
        progress=Progress(
            dict(Counter(trial.state for trial in trials)),
            max(len(trials), most_trials(record.document)),
            best.key if best else None,
            best.value if best else None,
            state=row["state"],
            reason=row["reason"],
        ),
        failures=Counter(str(trial.cause) for trial in trials if trial.state == "FAILED"),
    )


def _row(ledger: Ledger, record: SweepRecord) -> dict[str, Any]:
    driver = holder(ledger, record.id)
    abandoned = driver is None and record.state in DRIVEN_SWEEP
    return {
        "id": record.id,
        "state": "INTERRUPTED" if abandoned else record.state,
        "reason": "its driver is gone" if abandoned else record.reason,
        "task": record.task,
        "profile": record.profile,
        "driver": driver,
        "trials": ledger.states(record.id),
        "waiting_for_mlflow": ledger.backlog(record.id),
        "created_at": record.created_at,
        "finished_at": record.finished_at,
    }


def _newest(ledger: Ledger) -> SweepRecord:
    sweeps = ledger.sweeps()
    if not sweeps:
        raise BadInput(ledger.where, "must hold a sweep", "none", "Run one first.")
    return sweeps[-1]
