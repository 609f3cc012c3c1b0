"""Small records, and a trial from its start to its end, for the tests of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from orchestrator.ledger.holder import Holder
from orchestrator.ledger.lease_backends import next_token
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import CheckpointRecord, Event, SweepRecord, TrialRecord
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.system import System

SWEEP_ID = "copy-laptop-0123abcd"
STEPS = 30


class SetClock(System):
    """A system whose wall clock a test sets."""

    def __init__(self, now: float) -> None:
        self.now = now

    def time(self) -> float:
        return self.now


def sweep_record(**changes: Any) -> SweepRecord:
    """Return a sweep."""
    record = SweepRecord(
        id=SWEEP_ID,
        name="copy",
        profile="laptop",
        task="copy",
        document={"search": {"learning_rate": {"uniform": [0.1, 0.2]}}, "steps": STEPS},
        digest="0123abcd",
        state="RUNNING",
        reason=None,
        data_source="made up",
        data_digest="ff",
        facts={"metric": "val/accuracy", "direction": "maximize", "versions": {"jax": "0.10.2"}},
        created_at=1_790_000_000.125,
    )
    return replace(record, **changes)


def trial_record(number: int = 0, **changes: Any) -> TrialRecord:
    """Return a WAITING trial."""
    record = TrialRecord(
        key=f"{changes.get('sweep_id', SWEEP_ID)}-{number}",
        sweep_id=SWEEP_ID,
        number=number,
        role="search",
        state="WAITING",
        cause=None,
        params={"learning_rate": 0.1 + number * 1e-9, "heads": 4, "layer": "rotrnn", "flag": True},
        system_attrs={"trial": {"generation": 3}},
        seed=2**31 - 1 - number,
        value=None,
        best_step=None,
        step=0,
        total_steps=STEPS,
        attempts=0,
        created_at=1_790_000_001.5,
    )
    return replace(record, **changes)


def saved(key: str, step: int, kind: Any = "last", path: str | None = None) -> CheckpointRecord:
    """Return a checkpoint."""
    where = path or f"/checkpoints/{key}/step-{step}"
    return CheckpointRecord(key, step, kind, where, "ab" * 32, 1000 + step, {"val/accuracy": step / STEPS})


def event(run: str, at_ms: int) -> Event:
    """Return an event."""
    return Event("metrics", run, {"values": {"loss": 0.5}, "step": at_ms}, at_ms)


def writer(ledger: Ledger, sweep_id: str = SWEEP_ID) -> SweepWriter:
    """Return a writer with the newest token of a sweep, as if its driver had just taken the lease."""
    return SweepWriter(ledger, next_token(ledger.writer, sweep_id, Holder.here()))


def create_sweep(ledger: Ledger, record: SweepRecord | None = None, events: Sequence[Event] = ()) -> None:
    """Add a sweep, by default `sweep_record()`, as its first driver does."""
    new = sweep_record() if record is None else record
    writer(ledger, new.id).create_sweep(new, events)


def complete(ledger: Ledger, number: int) -> str:
    """Complete a trial with three reports and a checkpoint for each; return its key."""
    trial = trial_record(number)
    write = writer(ledger)
    write.add_trial(trial, [event(trial.key, 0)])
    attempt = write.start_attempt(trial.key)
    for step in (10, 20, 30):
        metrics = {"val/accuracy": step / STEPS, "train/loss": 1 / step}
        checkpoints = [saved(trial.key, step), saved(trial.key, step, "best")]
        write.record_report(attempt.id, step, metrics, checkpoints, [event(trial.key, step)], "node-1")
    write.end_attempt(attempt.id, "ENDED", None, "COMPLETE", 1.0, 30, [event(trial.key, 31)])
    return trial.key


def everything(ledger: Ledger) -> tuple[Any, ...]:
    """Return everything that a ledger holds of the sweep."""
    return (
        ledger.sweep(SWEEP_ID),
        ledger.trials(SWEEP_ID),
        ledger.attempts(SWEEP_ID),
        ledger.reports(SWEEP_ID),
        ledger.checkpoints(SWEEP_ID),
        ledger.evaluations(SWEEP_ID),
        ledger.pending(SWEEP_ID, 10**6),
    )
