"""An attempt as it is launched: what the driver remembers of it, and what its worker is told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.assignment import Assignment
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.records import CheckpointKind, CheckpointRecord, TrialRecord
from orchestrator.session.running import Running
from orchestrator.storage.paths import Paths


def launched(
    attempt_id: str,
    trial: TrialRecord,
    checkpoints: Sequence[CheckpointRecord],
    *,
    sweep: SweepConfig,
    paths: Paths,
    data: Path,
    now: float,
) -> tuple[Running, Assignment]:
    """Return an attempt that goes on from its trial's last checkpoint, for the driver and for the worker."""
    last, best = _of_kind(checkpoints, "last"), _of_kind(checkpoints, "best")
    resume = str(paths.at_hand(sweep.id, trial.key, last.path)) if last else None
    run = Running(
        trial,
        resume,
        last.step if last else 0,
        best.metrics[sweep.metric] if best else None,
        best.step if best else None,
        now,
        best.metrics if best else None,
    )
    assignment = Assignment(
        attempt_id=attempt_id,
        trial_key=trial.key,
        number=trial.number,
        settings=sweep.settings(trial.params, trial.seed),
        cpu=sweep.resources.cpu,
        gpu=sweep.resources.gpu,
        data=str(data),
        checkpoints=str(paths.trial_checkpoints(sweep.id, trial.key)),
        resume=resume,
        resume_digest=last.digest if last else None,
        stop_wish=str(paths.stop_wish(sweep.id)),
        log=str(paths.log(sweep.id, trial.key)),
        compilations=str(paths.compilations),
        store=paths.stored(sweep.id, trial.key),
    )
    return run, assignment


def _of_kind(rows: Sequence[CheckpointRecord], kind: CheckpointKind) -> CheckpointRecord | None:
    return next((row for row in rows if row.kind == kind), None)
