"""Sweeps with confirmations whose test examples were scored, for the tests of comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from orchestrator.ledger.sweeps.records import EvaluationRecord, TrialRecord, pack_scores
from orchestrator.report.history import History
from orchestrator.report.summary import Summary, summarise
from tests import sweeps

EXAMPLES = 400


def right_answers(share: float, seed: int) -> list[float]:
    """Return scores of examples of which a share is right: the easier ones, apart from a little noise."""
    rng = np.random.default_rng(seed)
    ease = np.linspace(0.0, 1.0, EXAMPLES) + rng.normal(scale=0.02, size=EXAMPLES)
    return [float(score) for score in ease >= np.quantile(ease, 1.0 - share)]


def confirmation(number: int, state: str = "COMPLETE", **changes: object) -> TrialRecord:
    """Return a retraining of the best trial of `tests.sweeps.trials`."""
    key = f"{sweeps.SWEEP_ID}-c{number}"
    return replace(sweeps.trial(7, state), key=key, number=number, role="confirmation", **changes)  # type: ignore[arg-type]


def evaluated(trial: TrialRecord, scores: Sequence[float], *, recorded: bool = True) -> EvaluationRecord:
    """Return the evaluation of a confirmation on test, with or without the scores of the examples."""
    metrics = {"test/loss": 0.7, "test/accuracy": float(np.mean(scores))}
    return EvaluationRecord(
        trial.key, sweeps.STEPS, "test", metrics, sweeps.CREATED, pack_scores(scores) if recorded else None
    )


def history(shares: Sequence[float], *, recorded: bool = True, **changes: object) -> History:
    """Return the sweep with a complete confirmation for each share of right answers on test."""
    before = sweeps.history(**changes)
    trials = [confirmation(number) for number in range(len(shares))]
    rows = {
        trial.key: [evaluated(trial, right_answers(share, trial.number), recorded=recorded)]
        for trial, share in zip(trials, shares, strict=True)
    }
    return replace(before, trials=(*before.trials, *trials), evaluations={**before.evaluations, **rows})


def summary(sweep_id: str, shares: Sequence[float], **changes: object) -> Summary:
    """Return the summary of a sweep with confirmations; `changes` are of its fields."""
    return replace(summarise(history(shares)), sweep_id=sweep_id, **changes)  # type: ignore[arg-type]
