"""The queries of the ledger, built once: to build one costs more than to run it.

`owner` is a sweep's id or a trial's key.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BindParameter, bindparam, func, select, tuple_, union_all

from orchestrator.ledger.records import POINTS
from orchestrator.ledger.tables import (
    ATTEMPT,
    CHECKPOINT,
    DELETION,
    EVALUATION,
    MLFLOW_RUN,
    OUTBOX,
    REPORT,
    SWEEP,
    TRIAL,
)

_OF_SWEEP: BindParameter[str] = bindparam("sweep_id")
_OF_TRIAL: BindParameter[str] = bindparam("trial_key")


def _of_its_trials(column: Any) -> Any:
    # By the rows of its trials and not by its id, which may be the key of another sweep's trial: the second
    # sweep of a file is `x-2`, as is trial 2 of the first one.
    return column.in_(select(TRIAL.c.key).where(TRIAL.c.sweep_id == _OF_SWEEP))


SWEEPS = select(*SWEEP.columns).order_by(SWEEP.c.created_at, SWEEP.c.id)
ONE_SWEEP = select(*SWEEP.columns).where(SWEEP.c.id == bindparam("id"))
ONE_TRIAL = select(*TRIAL.columns).where(TRIAL.c.key == bindparam("key"))
TRIALS = (
    select(*TRIAL.columns).where(TRIAL.c.sweep_id == _OF_SWEEP).order_by(TRIAL.c.role.desc(), TRIAL.c.number)
)
TRIALS_OF_ROLE = TRIALS.where(TRIAL.c.role == bindparam("role"))
TRIALS_IN_STATE = TRIALS.where(TRIAL.c.state == bindparam("state"))
_CANDIDATES = select(*TRIAL.columns).where(
    TRIAL.c.sweep_id == _OF_SWEEP,
    TRIAL.c.role == "search",
    TRIAL.c.state == "COMPLETE",
    TRIAL.c.value.is_not(None),
)
LARGEST_VALUE = _CANDIDATES.order_by(TRIAL.c.value.desc(), TRIAL.c.number).limit(1)
SMALLEST_VALUE = _CANDIDATES.order_by(TRIAL.c.value, TRIAL.c.number).limit(1)
FAILURES = (
    select(TRIAL.c.cause, func.count())
    .where(TRIAL.c.sweep_id == _OF_SWEEP, TRIAL.c.role == "search", TRIAL.c.state == "FAILED")
    .group_by(TRIAL.c.cause)
)
STATES = (
    select(TRIAL.c.state, func.count())
    .where(TRIAL.c.sweep_id == _OF_SWEEP, TRIAL.c.role == "search")
    .group_by(TRIAL.c.state)
)
ATTEMPTS = (
    select(*ATTEMPT.columns)
    .where(_of_its_trials(ATTEMPT.c.trial_key))
    .order_by(ATTEMPT.c.trial_key, ATTEMPT.c.number)
)
TRIAL_ATTEMPTS = select(*ATTEMPT.columns).where(ATTEMPT.c.trial_key == _OF_TRIAL).order_by(ATTEMPT.c.number)
LAST_ATTEMPT = (
    select(*ATTEMPT.columns)
    .where(ATTEMPT.c.trial_key == _OF_TRIAL)
    .order_by(ATTEMPT.c.number.desc())
    .limit(1)
)
RUNNING_BY_NODE = (
    select(ATTEMPT.c.node, func.count())
    .join(TRIAL, TRIAL.c.key == ATTEMPT.c.trial_key)
    .where(TRIAL.c.sweep_id == _OF_SWEEP, TRIAL.c.state == "RUNNING", ATTEMPT.c.state == "RUNNING")
    .group_by(ATTEMPT.c.node)
)
_LAST_CHANGE = func.coalesce(ATTEMPT.c.ended_at, ATTEMPT.c.started_at)
RECENT_ATTEMPTS = (
    select(*ATTEMPT.columns)
    .join(TRIAL, TRIAL.c.key == ATTEMPT.c.trial_key)
    .where(TRIAL.c.sweep_id == _OF_SWEEP)
    .order_by(_LAST_CHANGE.desc(), ATTEMPT.c.id)
    .limit(bindparam("limit"))
)
REPORTS = (
    select(*REPORT.columns)
    .where(_of_its_trials(REPORT.c.trial_key))
    .order_by(REPORT.c.trial_key, REPORT.c.step)
)
TRIAL_REPORTS = select(*REPORT.columns).where(REPORT.c.trial_key == _OF_TRIAL).order_by(REPORT.c.step)
RECENT_REPORTS = (
    select(*REPORT.columns)
    .where(REPORT.c.trial_key == _OF_TRIAL)
    .order_by(REPORT.c.step.desc())
    .limit(bindparam("limit"))
)
REPORTS_AFTER = (
    select(*REPORT.columns)
    .join(TRIAL, TRIAL.c.key == REPORT.c.trial_key)
    .where(
        TRIAL.c.sweep_id == _OF_SWEEP,
        tuple_(REPORT.c.at, REPORT.c.trial_key, REPORT.c.step)
        > tuple_(bindparam("at"), bindparam("trial_key"), bindparam("step")),
    )
    .order_by(REPORT.c.at, REPORT.c.trial_key, REPORT.c.step)
    .limit(bindparam("limit"))
)
REPORTERS = select(REPORT.c.attempt_id).where(REPORT.c.trial_key == _OF_TRIAL).distinct()
_NEWEST_OF_TRIAL = (
    select(REPORT.c.at)
    .where(REPORT.c.trial_key == TRIAL.c.key)
    .order_by(REPORT.c.step.desc())
    .limit(1)
    .scalar_subquery()
)
# The index finds both: the newest time of all trials, and the trials that an earlier version wrote. These
# report rising steps, so that the primary key finds their newest reports, those of the highest steps.
_TIMES = union_all(
    select(func.max(TRIAL.c.reported_at).label("at")).where(TRIAL.c.sweep_id == _OF_SWEEP),
    select(func.max(_NEWEST_OF_TRIAL)).where(
        TRIAL.c.sweep_id == _OF_SWEEP, TRIAL.c.reported_at.is_(None), TRIAL.c.step > 0
    ),
).subquery()
LAST_REPORT_AT = select(func.max(_TIMES.c.at))
BEST_REPORTS = (
    select(*REPORT.columns)
    .join(TRIAL, (REPORT.c.trial_key == TRIAL.c.key) & (REPORT.c.step == TRIAL.c.best_step))
    .where(TRIAL.c.sweep_id == _OF_SWEEP)
)
CHECKPOINTS = (
    select(*CHECKPOINT.columns)
    .where(_of_its_trials(CHECKPOINT.c.trial_key))
    .order_by(CHECKPOINT.c.trial_key, CHECKPOINT.c.step.desc(), CHECKPOINT.c.kind)
)
TRIAL_CHECKPOINTS = (
    select(*CHECKPOINT.columns)
    .where(CHECKPOINT.c.trial_key == _OF_TRIAL)
    .order_by(CHECKPOINT.c.step.desc(), CHECKPOINT.c.kind)
)
EVALUATIONS = (
    select(*EVALUATION.columns).where(_of_its_trials(EVALUATION.c.trial_key)).order_by(EVALUATION.c.at)
)
MLFLOW_RUNS = select(*MLFLOW_RUN.columns).where(MLFLOW_RUN.c.sweep_id == _OF_SWEEP)
ONE_MLFLOW_RUN = MLFLOW_RUNS.where(MLFLOW_RUN.c.run == bindparam("run"))
DELETIONS = (
    select(DELETION.c.target)
    .where(DELETION.c.sweep_id == _OF_SWEEP)
    .order_by(DELETION.c.tries, DELETION.c.since)
    .limit(bindparam("limit"))
)
_UNDELIVERED = (OUTBOX.c.sweep_id == _OF_SWEEP) & ~OUTBOX.c.delivered
PENDING = select(*OUTBOX.columns).where(_UNDELIVERED).order_by(OUTBOX.c.seq).limit(bindparam("limit"))
BACKLOG = select(func.count()).where(_UNDELIVERED)
KEPT_POINTS = select(*OUTBOX.columns).where(OUTBOX.c.sweep_id == _OF_SWEEP, OUTBOX.c.kind == POINTS)
