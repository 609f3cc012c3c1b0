"""The end of a sweep: the chosen trial, its evaluation on the test split, the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver import publication
from orchestrator.exits import Exit
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import EvaluationRecord, SweepState, TrialRecord
from orchestrator.session.choice import choose
from orchestrator.storage.paths import Paths
from orchestrator.tracking import events

Evaluate = Callable[[str, str], Mapping[str, Any]]
"""Evaluates a trial's checkpoint, by key and recorded path, on test: `{"step": ..., "metrics": {...}}`."""


def unread(sweep: SweepConfig, ledger: Ledger) -> list[TrialRecord]:
    """Return the chosen trial and the complete confirmations for which test has not been read."""
    trials = ledger.trials(sweep.id)
    chosen = choose(sweep, trials)
    confirmed = [trial for trial in trials if trial.role == "confirmation" and trial.state == "COMPLETE"]
    evaluated = {row.trial_key for row in ledger.evaluations(sweep.id)}
    return [trial for trial in [chosen, *confirmed] if trial is not None and trial.key not in evaluated]


def read_test(sweep: SweepConfig, ledger: Ledger, evaluate: Evaluate) -> None:
    """Evaluate the chosen checkpoint and each confirmation on the test split once, and record the results."""
    for trial in unread(sweep, ledger):
        best = next(row for row in ledger.checkpoints(trial.key) if row.kind == "best")
        answer = evaluate(trial.key, best.path)
        metrics = {f"test/{name}": value for name, value in answer["metrics"].items()}
        now = time.time()
        ledger.add_evaluation(
            EvaluationRecord(trial_key=trial.key, step=answer["step"], split="test", metrics=metrics, at=now),
            events=[events.metrics(trial.key, answer["step"], metrics, events.milliseconds(now))],
        )


def conclude(sweep: SweepConfig, ledger: Ledger, paths: Paths, reason: str | None = None) -> Exit:
    """Give a sweep that has nothing left to run its last state, its report and its exit code."""
    chosen = choose(sweep, ledger.trials(sweep.id))
    end(sweep, ledger, paths, "COMPLETE" if chosen else "FAILED", reason)
    return outcome(sweep, ledger)


def end(
    sweep: SweepConfig, ledger: Ledger, paths: Paths, state: SweepState, reason: str | None = None
) -> None:
    """Write the report, then the sweep's state together with what MLflow shall know of it."""
    told = publication.conclude(ledger, sweep.id, paths, state, reason)
    ledger.set_sweep_state(sweep.id, state, reason, events=told)


def outcome(sweep: SweepConfig, ledger: Ledger) -> Exit:
    """Return the exit code of a sweep that has ended."""
    trials = ledger.trials(sweep.id)
    failed = choose(sweep, trials) is None or any(trial.state == "FAILED" for trial in trials)
    return Exit.SOME_FAILED if failed else Exit.COMPLETE
