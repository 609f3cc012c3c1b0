"""What a worker reported, as it is judged and committed."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.assignment import Outcome
from orchestrator.ledger.keys import trial_key_of
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import CheckpointKind, CheckpointRecord
from orchestrator.tracking import events


def judged(outcome: Outcome, metric: str) -> Outcome:
    """Turn an objective that is no number into a failure; the study must never see it."""
    value = outcome.metrics.get(metric, 0.0)
    if math.isfinite(value):
        return outcome
    told = f"{metric} is {value}"
    return replace(outcome, done=True, metrics={}, failure="non-finite", message=told)


def commit(ledger: Ledger, attempt_id: str, outcome: Outcome, *, best: bool) -> Sequence[Path]:
    """Commit a report and its checkpoint; return the folders of those that are superseded.

    Args:
        ledger: of the sweep.
        attempt_id: of the attempt that reported.
        outcome: its report, no failure.
        best: whether the trial was never better.
    """
    key = trial_key_of(attempt_id)
    kinds: list[CheckpointKind] = ["last", "best"] if best else ["last"]
    now = events.milliseconds(time.time())
    return ledger.record_report(
        attempt_id,
        outcome.step,
        outcome.metrics,
        checkpoints=[_checkpoint_row(key, outcome, kind) for kind in kinds],
        events=[events.metrics(key, outcome.step, outcome.metrics, now)] if outcome.metrics else [],
        node=outcome.node,
    )


def _checkpoint_row(key: str, outcome: Outcome, kind: CheckpointKind) -> CheckpointRecord:
    saved = outcome.checkpoint
    assert saved is not None, "an outcome without a failure carries a checkpoint"
    return CheckpointRecord(
        trial_key=key,
        step=saved.step,
        kind=kind,
        path=saved.path,
        digest=saved.digest,
        bytes=saved.size,
        metrics=outcome.metrics,
    )
