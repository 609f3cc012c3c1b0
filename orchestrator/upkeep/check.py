"""The invariants of a sweep: what its ledger and its checkpoints satisfy whatever happened to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import get_args

from orchestrator.errors import Damaged
from orchestrator.ledger.integrity import verify, verify_submissions
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue.submissions import Submission
from orchestrator.ledger.sweeps.lease import holder
from orchestrator.ledger.sweeps.records import (
    CANDIDATE,
    DRIVEN_SWEEP,
    FINISHED_SWEEP,
    FINISHED_TRIAL,
    STATES,
    AttemptRecord,
    CheckpointRecord,
    EvaluationRecord,
    ReportRecord,
    SubmissionState,
    SweepRecord,
    TrialRecord,
    attempt_number,
    by_trial,
    trial_key,
    unpack_scores,
)
from orchestrator.ledger.sweeps.selection import last_reports_of
from orchestrator.upkeep.orphans import orphans, orphans_of, owner_of, place_of
from trainables import checkpoint
from trainables.errors import DamagedCheckpoint

AtHand = Callable[[str, str, str], Path]
"""Returns the local folder of a checkpoint, by trial key, recorded path and digest; fetches it if need be."""


@dataclass(frozen=True)
class Finding:
    """A violated invariant.

    Attributes:
        where: the sweep, trial, attempt or folder.
        problem: what must hold, and what was found instead.
    """

    where: str
    problem: str


@dataclass(frozen=True)
class Facts:
    """Everything that the ledger holds of one sweep.

    Attributes:
        driven: whether a living driver holds its lease.
    """

    sweep: SweepRecord
    trials: Sequence[TrialRecord]
    driven: bool
    attempts: Mapping[str, Sequence[AttemptRecord]] = field(default_factory=dict)
    reports: Mapping[str, Sequence[ReportRecord]] = field(default_factory=dict)
    checkpoints: Mapping[str, Sequence[CheckpointRecord]] = field(default_factory=dict)
    evaluations: Mapping[str, Sequence[EvaluationRecord]] = field(default_factory=dict)

    @property
    def has_own_clock(self) -> bool:
        """Return True if a function or a command is trained, which reports at steps of its own choice.

        It may end early or beyond its last step; and one without checkpoints starts again at step 0, where it
        may report other steps, and others' values.
        """
        return not {"function", "command"}.isdisjoint(self.sweep.document.get("trainable", ()))


def check(
    ledger: Ledger, sweep_id: str, checkpoints: Path, at_hand: AtHand = lambda _, recorded, __: Path(recorded)
) -> list[Finding]:
    """Return every violated invariant of a sweep. Nothing is changed.

    Args:
        ledger: holds the sweep.
        sweep_id: of the sweep.
        checkpoints: the folder of its checkpoints, with one folder a trial and in it one a step.
        at_hand: returns the folder of a checkpoint on this machine; fetches it if it is elsewhere.

    Raises:
        KeyError: the sweep is not in the ledger.
    """
    try:
        faults = verify(ledger, sweep_id, repair_backup=False)
        facts = _facts(ledger, sweep_id)
    except Damaged as damage:
        return [Finding(damage.where, damage.problem)]
    # The last line of a living driver may not have reached the backup yet.
    findings = [Finding(sweep_id, fault) for fault in faults if not facts.driven]
    findings += [*_sweep(facts), *_numbers(facts)]
    for trial in facts.trials:
        findings += [
            *_trial(trial, facts.has_own_clock),
            *_attempts(trial, facts),
            *_reports(trial, facts),
            *_evaluations(trial, facts),
            *_kept(trial, facts, at_hand),
        ]
    is_own = owner_of(checkpoints) in (None, ledger.id)
    return [*findings, *(_orphans(facts, checkpoints) if is_own else ())]


def leftovers(ledger: Ledger, sweep_id: str, checkpoints: Path) -> list[Path]:
    """Return the orphans of the trials of an unfinished sweep, which violate no invariant.

    A killed worker leaves what it was saving, and a killed driver what it was about to delete. The next
    driver deletes both before it launches anything, and so does `gc`. A sweep that is driven has none: its
    workers save and its driver deletes at this moment. Nor has a damaged ledger: `check` reports the damage.

    Args:
        ledger: holds the sweep.
        sweep_id: of the sweep.
        checkpoints: the folder of its checkpoints.

    Raises:
        KeyError: the sweep is not in the ledger.
    """
    try:
        if _known_sweep(ledger, sweep_id).state in FINISHED_SWEEP or holder(ledger, sweep_id) is not None:
            return []
        found = orphans_of(ledger, sweep_id, checkpoints)
    except Damaged:
        return []
    return [path for path in found if path.parent != checkpoints]


def _known_sweep(ledger: Ledger, sweep_id: str) -> SweepRecord:
    if (sweep := ledger.sweep(sweep_id)) is None:
        raise KeyError(f"no sweep {sweep_id!r} in the ledger")
    return sweep


def _facts(ledger: Ledger, sweep_id: str) -> Facts:
    sweep = _known_sweep(ledger, sweep_id)
    driven = holder(ledger, sweep_id) is not None
    trials = ledger.trials(sweep_id)
    return Facts(
        sweep,
        trials,
        driven,
        by_trial(ledger.attempts(sweep_id)),
        by_trial(ledger.reports(sweep_id)),
        by_trial(ledger.checkpoints(sweep_id)),
        by_trial(ledger.evaluations(sweep_id)),
    )


def _sweep(facts: Facts) -> Iterator[Finding]:
    sweep = facts.sweep
    if sweep.state not in STATES["SweepRecord"]:
        yield Finding(sweep.id, f"its state must be a known one (got {sweep.state})")
    if sweep.state in DRIVEN_SWEEP and not facts.driven:
        yield Finding(sweep.id, f"a sweep is {sweep.state} only while a driver runs it, and none does")
    unfinished = [trial.key for trial in facts.trials if trial.state not in FINISHED_TRIAL]
    # A sweep that ends because its hours are spent has a reason, and leaves trials for `--extend`.
    if sweep.state == "COMPLETE" and sweep.reason is None and unfinished:
        yield Finding(sweep.id, f"a COMPLETE sweep has finished trials only (got {', '.join(unfinished)})")


def _numbers(facts: Facts) -> Iterator[Finding]:
    numbers = sorted(trial.number for trial in facts.trials if trial.role == "search")
    if numbers != list(range(len(numbers))):
        missing = sorted(set(range(max(numbers) + 1)) - set(numbers))
        yield Finding(facts.sweep.id, f"search trials are numbered from 0 without gaps, missing {missing}")
    for trial in facts.trials:
        key = trial_key(facts.sweep.id, trial.number, trial.role)
        if trial.key != key:
            yield Finding(trial.key, f"its key must end in its number, as {key} does")


def _trial(trial: TrialRecord, has_own_clock: bool) -> Iterator[Finding]:
    if trial.state not in STATES["TrialRecord"]:
        yield Finding(trial.key, f"its state must be a known one (got {trial.state})")
    if trial.state == "COMPLETE" and not (trial.value is not None and math.isfinite(trial.value)):
        yield Finding(trial.key, f"a COMPLETE trial has a finite value (got {trial.value})")
    # The extension of a complete trial may fail, or end with the budget.
    least = trial.extensions[-1].step if trial.extensions and trial.cause else trial.total_steps
    if trial.state == "COMPLETE" and not least <= trial.step <= trial.total_steps and not has_own_clock:
        yield Finding(trial.key, f"a COMPLETE trial has {trial.total_steps} steps (got {trial.step})")
    if trial.state == "PRUNED" and trial.step >= trial.total_steps:
        yield Finding(trial.key, f"a PRUNED trial ends before step {trial.total_steps} (got {trial.step})")
    if trial.state in ("FAILED", "DIVERGED") and not trial.cause:
        yield Finding(trial.key, f"a {trial.state} trial has a cause")
    if (trial.state in FINISHED_TRIAL) != (trial.finished_at is not None):
        yield Finding(trial.key, f"only a finished trial has a time of its end; this one is {trial.state}")


def _attempts(trial: TrialRecord, facts: Facts) -> Iterator[Finding]:
    attempts = facts.attempts.get(trial.key, ())
    if [attempt.number for attempt in attempts] != list(range(1, trial.attempts + 1)):
        yield Finding(trial.key, f"attempts are numbered 1 to {trial.attempts} (got {len(attempts)} of them)")
    running = [attempt for attempt in attempts if attempt.state == "RUNNING"]
    wanted = 1 if trial.state == "RUNNING" else 0
    if len(running) != wanted or any(attempt.number != trial.attempts for attempt in running):
        yield Finding(trial.key, f"a {trial.state} trial has {wanted} running attempt (got {len(running)})")
    if (running or trial.state == "RUNNING") and not facts.driven:
        yield Finding(trial.key, "a trial is RUNNING only while a driver runs its sweep, and none does")


def _reports(trial: TrialRecord, facts: Facts) -> Iterator[Finding]:
    reports = facts.reports.get(trial.key, ())
    if any(not 0 <= report.step <= trial.total_steps for report in reports) and not facts.has_own_clock:
        yield Finding(trial.key, f"reports are between step 0 and {trial.total_steps}")
    if reports and trial.step < reports[-1].step:
        yield Finding(
            trial.key, f"its step is at least its last report's, {reports[-1].step} (got {trial.step})"
        )
    numbers = [attempt_number(report.attempt_id) for report in reports]
    if numbers != sorted(numbers) and not facts.has_own_clock:
        yield Finding(trial.key, "a later step is reported by the same attempt or a later one")
    metric = str(facts.sweep.facts.get("metric"))
    rows: list[ReportRecord | CheckpointRecord] = [
        report for report in reports if report.step == trial.best_step
    ]
    if facts.has_own_clock:  # a step is recorded once: its best may be of an attempt that came to it again
        rows += [row for row in facts.checkpoints.get(trial.key, ()) if row.kind == "best"]
    known = [row.metrics[metric] for row in rows if row.step == trial.best_step and metric in row.metrics]
    if known and (most := last_reports_of(facts.sweep.document)) > 1:
        known = [fmean(report.metrics[metric] for report in reports[-most:])]
    if trial.state in CANDIDATE and trial.value is not None and known and trial.value not in known:
        yield Finding(
            trial.key, f"its value is the one it reported at its best step, {known[0]} (got {trial.value})"
        )


def _evaluations(trial: TrialRecord, facts: Facts) -> Iterator[Finding]:
    for row in facts.evaluations.get(trial.key, ()):
        metric = next((value for name, value in row.metrics.items() if name != f"{row.split}/loss"), math.nan)
        if row.scores is None or not math.isfinite(metric):
            continue
        mean = fmean(unpack_scores(row.scores))
        if not math.isclose(mean, metric, rel_tol=1e-5):  # the scores are rounded to 32 bits
            problem = f"the mean of its scores on {row.split} is its metric, {metric} (got {mean})"
            yield Finding(trial.key, problem)


def _kept(trial: TrialRecord, facts: Facts, at_hand: AtHand) -> Iterator[Finding]:
    kept = facts.checkpoints.get(trial.key, ())
    best = [record for record in kept if record.kind == "best"]
    is_candidate = trial.state in CANDIDATE and trial.value is not None
    if is_candidate and (not best or best[0].step != trial.best_step):
        yield Finding(
            trial.key, f"a {trial.state} trial keeps the checkpoint of its best step, {trial.best_step}"
        )
    for record in {record.path: record for record in kept}.values():
        yield from _on_disk(record, at_hand(record.trial_key, record.path, record.digest))


def _on_disk(record: CheckpointRecord, folder: Path) -> Iterator[Finding]:
    try:
        checkpoint.facts_of(folder, record.digest)
    except DamagedCheckpoint as damage:
        yield Finding(damage.where, damage.problem)


def _orphans(facts: Facts, folder: Path) -> Iterator[Finding]:
    known = {place_of(record.path) for kept in facts.checkpoints.values() for record in kept}
    trials = {trial.key for trial in facts.trials}
    for path in orphans(folder, trials, known):
        if path.parent == folder:
            yield Finding(str(path), "a checkpoint folder belongs to a trial of the ledger, this one to none")
        elif facts.sweep.state in FINISHED_SWEEP:  # before that they are `leftovers`
            yield Finding(str(path), "a checkpoint has a row in the ledger, this one has none")


def check_submissions(ledger: Ledger, submissions: Sequence[Submission]) -> list[Finding]:
    """Return every violated invariant of submissions, and the faults of the backup of all submissions.

    Args:
        ledger: holds the submissions.
        submissions: those to be checked.
    """
    try:
        faults = verify_submissions(ledger, repair_backup=False)
    except Damaged as damage:
        return [Finding(damage.where, damage.problem)]
    findings = [Finding("submissions", fault) for fault in faults]
    return findings + [finding for submission in submissions for finding in _violations(submission)]


def _violations(submission: Submission) -> Iterator[Finding]:
    where = f"submission {submission.sweep_id}"
    if submission.state not in get_args(SubmissionState):
        yield Finding(where, f"its state must be a known one (got {submission.state})")
    if submission.state == "STARTED" and submission.started_at is None:
        yield Finding(where, "a STARTED submission has a time of its start")
    if submission.state == "PARKED" and not submission.cause:
        yield Finding(where, "a PARKED submission has a cause")
    if submission.state == "ENDED" and submission.code is None:
        yield Finding(where, "an ENDED submission has an exit code")
    if submission.crashes > submission.tries:
        yield Finding(
            where,
            f"only a driver that was started can crash (got {submission.crashes} of {submission.tries})",
        )
