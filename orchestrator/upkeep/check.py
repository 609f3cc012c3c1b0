"""The invariants of a sweep that its ledger and its checkpoints keep, whatever happened to it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from orchestrator.errors import Damaged
from orchestrator.ledger.integrity import verify
from orchestrator.ledger.keys import attempt_number, trial_key
from orchestrator.ledger.lease import holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import (
    FINISHED_TRIAL,
    STATES,
    AttemptRecord,
    CheckpointRecord,
    ReportRecord,
    SweepRecord,
    TrialRecord,
)
from orchestrator.upkeep.orphans import leftovers
from trainables import checkpoint
from trainables.errors import DamagedCheckpoint

AtHand = Callable[[str, str], Path]
"""Brings a trial's checkpoint here, by key and recorded path, and returns its folder."""
Owned = TypeVar("Owned", AttemptRecord, ReportRecord, CheckpointRecord)


@dataclass(frozen=True)
class Finding:
    """Something that is not as it must be.

    Attributes:
        where: the sweep, trial, attempt or folder.
        problem: what must hold and what is there instead.
    """

    where: str
    problem: str


@dataclass(frozen=True)
class Facts:
    """All that the ledger holds of one sweep.

    Attributes:
        driven: whether a living driver holds its lease.
    """

    sweep: SweepRecord
    trials: Sequence[TrialRecord]
    driven: bool
    attempts: Mapping[str, Sequence[AttemptRecord]] = field(default_factory=dict)
    reports: Mapping[str, Sequence[ReportRecord]] = field(default_factory=dict)
    checkpoints: Mapping[str, Sequence[CheckpointRecord]] = field(default_factory=dict)


def check(
    ledger: Ledger, sweep_id: str, checkpoints: Path, at_hand: AtHand = lambda _, recorded: Path(recorded)
) -> list[Finding]:
    """Return all that is wrong with a sweep; nothing is changed.

    Args:
        ledger: where it is kept.
        sweep_id: of the sweep.
        checkpoints: the folder of its checkpoints, one folder a trial and in it one a step.
        at_hand: brings a checkpoint here, where it lies elsewhere, and returns its folder.

    Raises:
        KeyError: the ledger knows no such sweep.
    """
    try:
        behind = verify(ledger, sweep_id, mend=False)
        facts = _facts(ledger, sweep_id)
    except Damaged as damage:
        return [Finding(damage.where, f"{damage.must}, got {damage.got}")]
    # A driver's last line may still be on its way to the backup.
    found = [Finding(sweep_id, problem) for problem in behind if not facts.driven]
    found += [*_sweep(facts), *_numbers(facts)]
    for trial in facts.trials:
        found += [
            *_trial(trial),
            *_attempts(trial, facts),
            *_reports(trial, facts),
            *_kept(trial, facts, at_hand),
        ]
    return [*found, *_left_over(facts, checkpoints)]


def _facts(ledger: Ledger, sweep_id: str) -> Facts:
    sweep = ledger.sweep(sweep_id)
    if sweep is None:
        raise KeyError(f"no sweep {sweep_id!r} in the ledger")
    driven = holder(ledger, sweep_id) is not None
    trials = ledger.trials(sweep_id)
    return Facts(
        sweep,
        trials,
        driven,
        _by_trial(ledger.attempts(sweep_id)),
        _by_trial(ledger.reports(sweep_id)),
        _by_trial(ledger.checkpoints(sweep_id)),
    )


def _by_trial(records: Iterable[Owned]) -> dict[str, list[Owned]]:
    grouped: dict[str, list[Owned]] = defaultdict(list)
    for record in records:
        grouped[record.trial_key].append(record)
    return grouped


def _sweep(facts: Facts) -> Iterator[Finding]:
    sweep = facts.sweep
    if sweep.state not in STATES["SweepRecord"]:
        yield Finding(sweep.id, f"its state must be a known one, got {sweep.state}")
    if sweep.state in ("RUNNING", "WAITING") and not facts.driven:
        yield Finding(sweep.id, f"a sweep is {sweep.state} only under a driver, and none is alive")
    unfinished = [trial.key for trial in facts.trials if trial.state not in FINISHED_TRIAL]
    # One whose hours are spent leaves trials for `--extend`, and says so.
    if sweep.state == "COMPLETE" and sweep.reason is None and unfinished:
        yield Finding(sweep.id, f"a COMPLETE sweep has finished trials only, got {', '.join(unfinished)}")


def _numbers(facts: Facts) -> Iterator[Finding]:
    numbers = sorted(trial.number for trial in facts.trials if trial.role == "search")
    if numbers != list(range(len(numbers))):
        missing = sorted(set(range(max(numbers) + 1)) - set(numbers))
        yield Finding(facts.sweep.id, f"search trials are numbered from 0 without gaps, missing {missing}")
    for trial in facts.trials:
        key = trial_key(facts.sweep.id, trial.number, trial.role)
        if trial.key != key:
            yield Finding(trial.key, f"its key must end in its number, as {key} does")


def _trial(trial: TrialRecord) -> Iterator[Finding]:
    if trial.state not in STATES["TrialRecord"]:
        yield Finding(trial.key, f"its state must be a known one, got {trial.state}")
    if trial.state == "COMPLETE" and not (trial.value is not None and math.isfinite(trial.value)):
        yield Finding(trial.key, f"a COMPLETE trial has a finite value, got {trial.value}")
    if trial.state == "COMPLETE" and trial.step != trial.total_steps:
        yield Finding(trial.key, f"a COMPLETE trial has {trial.total_steps} steps, got {trial.step}")
    if trial.state == "PRUNED" and trial.step >= trial.total_steps:
        yield Finding(trial.key, f"a PRUNED trial ends before step {trial.total_steps}, got {trial.step}")
    if trial.state == "FAILED" and not trial.cause:
        yield Finding(trial.key, "a FAILED trial has a cause, got none")
    if (trial.state in FINISHED_TRIAL) != (trial.finished_at is not None):
        yield Finding(trial.key, f"a finished trial, and no other, has an end; it is {trial.state}")


def _attempts(trial: TrialRecord, facts: Facts) -> Iterator[Finding]:
    attempts = facts.attempts.get(trial.key, ())
    if [attempt.number for attempt in attempts] != list(range(1, trial.attempts + 1)):
        yield Finding(trial.key, f"attempts are numbered 1 to {trial.attempts}, got {len(attempts)} of them")
    running = [attempt for attempt in attempts if attempt.state == "RUNNING"]
    wanted = 1 if trial.state == "RUNNING" else 0
    if len(running) != wanted or any(attempt.number != trial.attempts for attempt in running):
        yield Finding(trial.key, f"a {trial.state} trial has {wanted} running attempt, got {len(running)}")
    if (running or trial.state == "RUNNING") and not facts.driven:
        yield Finding(trial.key, "nothing is RUNNING without a driver, and none is alive")


def _reports(trial: TrialRecord, facts: Facts) -> Iterator[Finding]:
    reports = facts.reports.get(trial.key, ())
    if any(not 0 <= report.step <= trial.total_steps for report in reports):
        yield Finding(trial.key, f"reports lie between step 0 and {trial.total_steps}")
    if reports and trial.step < reports[-1].step:
        yield Finding(
            trial.key, f"its step is at least its last report's, {reports[-1].step}, got {trial.step}"
        )
    order = [attempt_number(report.attempt_id) for report in reports]
    if order != sorted(order):
        yield Finding(trial.key, "a later step is reported by the same attempt or a later one")
    metric = str(facts.sweep.facts.get("metric"))
    best = {report.step: report.metrics for report in reports}.get(trial.best_step or -1)
    if trial.state == "COMPLETE" and best is not None and metric in best and best[metric] != trial.value:
        yield Finding(
            trial.key, f"its value is what it reported at its best step, {best[metric]}, got {trial.value}"
        )


def _kept(trial: TrialRecord, facts: Facts, at_hand: AtHand) -> Iterator[Finding]:
    kept = facts.checkpoints.get(trial.key, ())
    best = [record for record in kept if record.kind == "best"]
    if trial.state == "COMPLETE" and (not best or best[0].step != trial.best_step):
        yield Finding(trial.key, f"a COMPLETE trial keeps the checkpoint of its best step, {trial.best_step}")
    for record in {record.path: record for record in kept}.values():
        yield from _on_disk(record, at_hand(record.trial_key, record.path))


def _on_disk(record: CheckpointRecord, folder: Path) -> Iterator[Finding]:
    try:
        checkpoint.load(folder, record.digest)
    except DamagedCheckpoint as damage:
        yield Finding(damage.where, f"{damage.must}, got {damage.got}")


def _left_over(facts: Facts, folder: Path) -> Iterator[Finding]:
    known = {Path(record.path).resolve() for kept in facts.checkpoints.values() for record in kept}
    trials = {trial.key for trial in facts.trials}
    running = {trial.key for trial in facts.trials if trial.state == "RUNNING"} if facts.driven else set()
    for path in leftovers(folder, trials, known):
        if path.parent == folder:
            yield Finding(str(path), "belongs to no trial of the ledger")
        elif path.parent.name not in running:  # a running trial may just be writing one
            yield Finding(str(path), "is no checkpoint that the ledger knows")
