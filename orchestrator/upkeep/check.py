"""Checks of the invariants that the ledger and the checkpoints of a sweep satisfy at any time."""

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
"""Function from a trial's key, a recorded path and a digest to the local folder of the checkpoint."""


@dataclass(frozen=True)
class Finding:
    """A violated invariant.

    Attributes:
        where: Sweep, trial, attempt or folder.
        problem: Violation as a phrase about `where`.
    """

    where: str
    problem: str


@dataclass(frozen=True)
class Facts:
    """All rows of one sweep in the ledger.

    Attributes:
        driven: Whether a living driver holds its lease.
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

        Such a trial may end before or after its last step. Without checkpoints, it starts again at step 0,
        and may then report other steps and other values.
        """
        return not {"function", "command"}.isdisjoint(self.sweep.document.get("trainable", ()))


def check(
    ledger: Ledger, sweep_id: str, checkpoints: Path, at_hand: AtHand = lambda _, recorded, __: Path(recorded)
) -> list[Finding]:
    """Return every violated invariant of a sweep. Nothing is changed.

    Args:
        ledger: Ledger of the sweep.
        sweep_id: Id of the sweep.
        checkpoints: Folder of its checkpoints, with a folder for each trial and in it one for each step.
        at_hand: Function that returns the local folder of a checkpoint, after downloading it if necessary.

    Raises:
        KeyError: The sweep is not in the ledger.
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

    A killed worker leaves an incomplete checkpoint, and a killed driver leaves superseded ones. The next
    driver deletes both before it launches anything, and so does `gc`. The result is empty for a sweep with a
    living driver, because its files change meanwhile, and for a damaged ledger, which `check` reports.

    Args:
        ledger: Ledger of the sweep.
        sweep_id: Id of the sweep.
        checkpoints: Folder of its checkpoints.

    Raises:
        KeyError: The sweep is not in the ledger.
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
        yield Finding(sweep.id, f"has the unknown state {sweep.state}")
    if sweep.state in DRIVEN_SWEEP and not facts.driven:
        yield Finding(sweep.id, f"is {sweep.state}, but no driver runs it")
    unfinished = [trial.key for trial in facts.trials if trial.state not in FINISHED_TRIAL]
    # A sweep that ends because its hours are spent has a reason, and leaves trials for `--extend`.
    if sweep.state == "COMPLETE" and sweep.reason is None and unfinished:
        yield Finding(sweep.id, f"is COMPLETE with unfinished trials: {', '.join(unfinished)}")


def _numbers(facts: Facts) -> Iterator[Finding]:
    numbers = sorted(trial.number for trial in facts.trials if trial.role == "search")
    if numbers != list(range(len(numbers))):
        missing = sorted(set(range(max(numbers) + 1)) - set(numbers))
        yield Finding(facts.sweep.id, f"lacks the search trials with the numbers {missing}")
    for trial in facts.trials:
        key = trial_key(facts.sweep.id, trial.number, trial.role)
        if trial.key != key:
            yield Finding(trial.key, f"has a key that does not match its number; expected {key}")


def _trial(trial: TrialRecord, has_own_clock: bool) -> Iterator[Finding]:
    if trial.state not in STATES["TrialRecord"]:
        yield Finding(trial.key, f"has the unknown state {trial.state}")
    if trial.state == "COMPLETE" and not (trial.value is not None and math.isfinite(trial.value)):
        yield Finding(trial.key, f"is COMPLETE without a finite value (got {trial.value})")
    # The extension of a complete trial may fail, or end with the budget.
    least = trial.extensions[-1].step if trial.extensions and trial.cause else trial.total_steps
    if trial.state == "COMPLETE" and not least <= trial.step <= trial.total_steps and not has_own_clock:
        yield Finding(trial.key, f"is COMPLETE at step {trial.step} of {trial.total_steps}")
    if trial.state == "PRUNED" and trial.step >= trial.total_steps:
        yield Finding(trial.key, f"is PRUNED, but has all {trial.total_steps} steps")
    if trial.state in ("FAILED", "DIVERGED") and not trial.cause:
        yield Finding(trial.key, f"is {trial.state} without a cause")
    if (trial.state in FINISHED_TRIAL) != (trial.finished_at is not None):
        presence = "without" if trial.finished_at is None else "with"
        yield Finding(trial.key, f"is {trial.state} {presence} an end time")


def _attempts(trial: TrialRecord, facts: Facts) -> Iterator[Finding]:
    attempts = facts.attempts.get(trial.key, ())
    if [attempt.number for attempt in attempts] != list(range(1, trial.attempts + 1)):
        yield Finding(trial.key, f"has {len(attempts)} of the attempts 1 to {trial.attempts}")
    running = [attempt for attempt in attempts if attempt.state == "RUNNING"]
    wanted = 1 if trial.state == "RUNNING" else 0
    if len(running) != wanted or any(attempt.number != trial.attempts for attempt in running):
        got = [attempt.number for attempt in running]
        yield Finding(trial.key, f"is {trial.state} with the running attempts {got} of {trial.attempts}")
    if (running or trial.state == "RUNNING") and not facts.driven:
        yield Finding(trial.key, "is marked as running, but no driver runs its sweep")


def _reports(trial: TrialRecord, facts: Facts) -> Iterator[Finding]:
    reports = facts.reports.get(trial.key, ())
    if any(not 0 <= report.step <= trial.total_steps for report in reports) and not facts.has_own_clock:
        yield Finding(trial.key, f"has reports outside of steps 0 to {trial.total_steps}")
    if reports and trial.step < reports[-1].step:
        yield Finding(trial.key, f"is at step {trial.step}, but has a report of step {reports[-1].step}")
    numbers = [attempt_number(report.attempt_id) for report in reports]
    if numbers != sorted(numbers) and not facts.has_own_clock:
        yield Finding(trial.key, "has a later step that was reported by an earlier attempt")
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
        yield Finding(trial.key, f"has the value {trial.value}, but its best step reported {known[0]}")


def _evaluations(trial: TrialRecord, facts: Facts) -> Iterator[Finding]:
    for row in facts.evaluations.get(trial.key, ()):
        metric = next((value for name, value in row.metrics.items() if name != f"{row.split}/loss"), math.nan)
        if row.scores is None or not math.isfinite(metric):
            continue
        mean = fmean(unpack_scores(row.scores))
        if not math.isclose(mean, metric, rel_tol=1e-5):  # the scores are rounded to 32 bits
            problem = f"has the metric {metric} on {row.split}, but the mean of its scores is {mean}"
            yield Finding(trial.key, problem)


def _kept(trial: TrialRecord, facts: Facts, at_hand: AtHand) -> Iterator[Finding]:
    kept = facts.checkpoints.get(trial.key, ())
    best = [record for record in kept if record.kind == "best"]
    is_candidate = trial.state in CANDIDATE and trial.value is not None
    if is_candidate and (not best or best[0].step != trial.best_step):
        yield Finding(trial.key, f"is {trial.state} without a checkpoint of its best step {trial.best_step}")
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
            yield Finding(str(path), "checkpoint folder without a trial in the ledger")
        elif facts.sweep.state in FINISHED_SWEEP:  # before that they are `leftovers`
            yield Finding(str(path), "checkpoint without a row in the ledger")


def check_submissions(ledger: Ledger, submissions: Sequence[Submission]) -> list[Finding]:
    """Return every violated invariant of submissions, and the faults of the backup of all submissions.

    Args:
        ledger: Ledger of the submissions.
        submissions: Submissions to check.
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
        yield Finding(where, f"has the unknown state {submission.state}")
    if submission.state == "STARTED" and submission.started_at is None:
        yield Finding(where, "is STARTED without a start time")
    if submission.state == "PARKED" and not submission.cause:
        yield Finding(where, "is PARKED without a cause")
    if submission.state == "ENDED" and submission.code is None:
        yield Finding(where, "is ENDED without an exit code")
    if submission.crashes > submission.tries:
        yield Finding(where, f"has {submission.crashes} crashes, but {submission.tries} failed starts")
