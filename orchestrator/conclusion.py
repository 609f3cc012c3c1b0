"""The end of a sweep: the chosen trial, the one reading of test, the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.exits import Exit
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import ReadingRecord, SweepState, TrialRecord
from orchestrator.paths import Paths
from orchestrator.report import report
from orchestrator.spec.model import Sweep
from orchestrator.tracking import events

Evaluate = Callable[[str], Mapping[str, Any]]
"""Evaluates the checkpoint in a folder on test: `{"step": ..., "metrics": {...}}`."""


def choose(sweep: Sweep, trials: Sequence[TrialRecord]) -> TrialRecord | None:
    """Return the complete trial with the best validation value; the lower number wins a tie."""
    complete = [trial for trial in trials if trial.state == "COMPLETE" and trial.value is not None]
    sign = 1.0 if sweep.direction == "maximize" else -1.0
    return max(complete, key=lambda trial: (sign * (trial.value or 0.0), -trial.number), default=None)


def unread(sweep: Sweep, ledger: Ledger) -> TrialRecord | None:
    """Return the chosen trial if test has not been read for it."""
    chosen = choose(sweep, ledger.trials(sweep.id, role="search"))
    read = {reading.trial_key for reading in ledger.readings(sweep.id)}
    return None if chosen is None or chosen.key in read else chosen


def read_test(sweep: Sweep, ledger: Ledger, evaluate: Evaluate) -> None:
    """Read test for the chosen checkpoint, unless that was done, and write the reading down."""
    chosen = unread(sweep, ledger)
    if chosen is None:
        return
    best = next(row for row in ledger.checkpoints(chosen.key) if row.kind == "best")
    answer = evaluate(best.path)
    metrics = {f"test/{name}": value for name, value in answer["metrics"].items()}
    now = time.time()
    ledger.add_reading(
        ReadingRecord(trial_key=chosen.key, step=answer["step"], split="test", metrics=metrics, at=now),
        events=[events.metrics(chosen.key, answer["step"], metrics, events.milliseconds(now))],
    )


def conclude(sweep: Sweep, ledger: Ledger, paths: Paths, reason: str | None = None) -> Exit:
    """Give a sweep that has nothing left to run its last state, its report and its exit code."""
    chosen = choose(sweep, ledger.trials(sweep.id))
    end(sweep, ledger, paths, "COMPLETE" if chosen else "FAILED", reason)
    return outcome(sweep, ledger)


def end(sweep: Sweep, ledger: Ledger, paths: Paths, state: SweepState, reason: str | None = None) -> None:
    """Write the report, then the sweep's state together with what MLflow shall know of it."""
    told = report.conclude(ledger, sweep.id, paths, state, reason)
    ledger.set_sweep_state(sweep.id, state, reason, events=told)


def outcome(sweep: Sweep, ledger: Ledger) -> Exit:
    """Return the exit code of a sweep that has ended."""
    trials = ledger.trials(sweep.id)
    failed = choose(sweep, trials) is None or any(trial.state == "FAILED" for trial in trials)
    return Exit.SOME_FAILED if failed else Exit.COMPLETE
