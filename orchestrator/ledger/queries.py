"""The queries of the ledger, built once: to build one costs more than to run it.

`owner` is a sweep's id or a trial's key.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BindParameter, bindparam, func, or_, select

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
_OWNER: BindParameter[str] = bindparam("owner")


def _owned(column: Any) -> Any:
    # A trial's key is its sweep's id with a suffix, so no trial's key equals a sweep's id.
    return or_(column == _OWNER, column.in_(select(TRIAL.c.key).where(TRIAL.c.sweep_id == _OWNER)))


SWEEPS = select(*SWEEP.columns).order_by(SWEEP.c.created_at, SWEEP.c.id)
ONE_SWEEP = select(*SWEEP.columns).where(SWEEP.c.id == bindparam("id"))
ONE_TRIAL = select(*TRIAL.columns).where(TRIAL.c.key == bindparam("key"))
TRIALS = (
    select(*TRIAL.columns).where(TRIAL.c.sweep_id == _OF_SWEEP).order_by(TRIAL.c.role.desc(), TRIAL.c.number)
)
TRIALS_OF_ROLE = TRIALS.where(TRIAL.c.role == bindparam("role"))
STATES = (
    select(TRIAL.c.state, func.count())
    .where(TRIAL.c.sweep_id == _OF_SWEEP, TRIAL.c.role == "search")
    .group_by(TRIAL.c.state)
)
ATTEMPTS = (
    select(*ATTEMPT.columns)
    .where(_owned(ATTEMPT.c.trial_key))
    .order_by(ATTEMPT.c.trial_key, ATTEMPT.c.number)
)
LAST_ATTEMPT = (
    select(*ATTEMPT.columns)
    .where(ATTEMPT.c.trial_key == bindparam("trial_key"))
    .order_by(ATTEMPT.c.number.desc())
    .limit(1)
)
REPORTS = (
    select(*REPORT.columns).where(_owned(REPORT.c.trial_key)).order_by(REPORT.c.trial_key, REPORT.c.step)
)
RECENT_REPORTS = (
    select(*REPORT.columns)
    .where(REPORT.c.trial_key == bindparam("trial_key"))
    .order_by(REPORT.c.step.desc())
    .limit(bindparam("limit"))
)
REPORTERS = select(REPORT.c.attempt_id).where(REPORT.c.trial_key == bindparam("trial_key")).distinct()
_NEWEST_OF_TRIAL = (
    select(REPORT.c.at)
    .where(REPORT.c.trial_key == TRIAL.c.key)
    .order_by(REPORT.c.step.desc())
    .limit(1)
    .scalar_subquery()
)
# A trial reports rising steps: the primary key finds its newest report, the one of its highest step.
LAST_REPORT_AT = select(func.max(_NEWEST_OF_TRIAL)).where(TRIAL.c.sweep_id == _OF_SWEEP)
BEST_REPORTS = (
    select(*REPORT.columns)
    .join(TRIAL, (REPORT.c.trial_key == TRIAL.c.key) & (REPORT.c.step == TRIAL.c.best_step))
    .where(TRIAL.c.sweep_id == _OF_SWEEP)
)
CHECKPOINTS = (
    select(*CHECKPOINT.columns)
    .where(_owned(CHECKPOINT.c.trial_key))
    .order_by(CHECKPOINT.c.trial_key, CHECKPOINT.c.step.desc(), CHECKPOINT.c.kind)
)
EVALUATIONS = select(*EVALUATION.columns).where(_owned(EVALUATION.c.trial_key)).order_by(EVALUATION.c.at)
MLFLOW_RUNS = select(*MLFLOW_RUN.columns).where(MLFLOW_RUN.c.sweep_id == _OF_SWEEP)
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
