"""Which trial of a sweep is the best one: every part of the service that names a best trial asks here.

A trial is a candidate if it belongs to the search (confirmations do not), is COMPLETE and has a value. The
best value wins, and the lower number wins a tie, so the answer depends neither on the order in which trials
finished nor on the order in which rows are read. With several objectives the value is that of the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from orchestrator.ledger.records import CheckpointRecord, TrialRecord


def order(value: float, number: int, *, maximize: bool) -> tuple[float, int]:
    """Return a sort key for a trial: the smaller key is the better trial.

    Args:
        value: best validation value of the trial.
        number: of the trial within its sweep; decides a tie.
        maximize: whether more of the metric is better.
    """
    return (-value if maximize else value), number


def best_trial(
    trials: Iterable[TrialRecord],
    *,
    maximize: bool,
    checkpoints: Mapping[str, Sequence[CheckpointRecord]] | None = None,
) -> TrialRecord | None:
    """Return the best trial of a search, or None if there is no candidate.

    Args:
        trials: of one sweep, in any order and of any role and state.
        maximize: whether more of the metric is better.
        checkpoints: by trial key; if given, only a trial that still has the checkpoint of its best step is a
            candidate. Whoever loads the weights of the best trial must pass them.
    """
    best = None
    for trial in trials:
        if trial.role != "search" or trial.state != "COMPLETE" or trial.value is None:
            continue
        if checkpoints is not None and best_checkpoint(trial, checkpoints.get(trial.key, ())) is None:
            continue
        key = order(trial.value, trial.number, maximize=maximize)
        if best is None or key < best[0]:
            best = key, trial
    return best[1] if best else None


def best_checkpoint(trial: TrialRecord, checkpoints: Iterable[CheckpointRecord]) -> CheckpointRecord | None:
    """Return the checkpoint of a trial's best step, or None if it is not kept.

    Older checkpoints of kind `best` are kept beside it, so the step decides, not the kind alone.
    """
    for row in checkpoints:
        if row.kind in ("best", "pinned") and row.step == trial.best_step:
            return row
    return None
