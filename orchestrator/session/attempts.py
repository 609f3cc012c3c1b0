"""The running attempts, from the launch of each to its end. Every change is committed to the ledger first."""

from __future__ import annotations

import math
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.accounts import Account
from orchestrator.assignment import LARGEST_STEP, Assignment, Outcome, SavedCheckpoint
from orchestrator.config.strategy import SCHEDULERS
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.sweeps.records import (
    AttemptState,
    CheckpointKind,
    CheckpointRecord,
    Extension,
    TrialRecord,
    TrialState,
    attempt_number,
    trial_key_of,
)
from orchestrator.ledger.sweeps.selection import Constraints, last_reports, mean_of_last, total_violation
from orchestrator.ledger.sweeps.standing import HoursSpent, TrialTime
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.session.board import TrialBoard
from orchestrator.session.limits import (
    FOREIGN,
    SLOW_PLACEMENT,
    SLOW_START,
    UNCHARGED,
    SearchEnd,
    Spending,
)
from orchestrator.storage import store
from orchestrator.storage.paths import Paths
from orchestrator.study.study import Study
from orchestrator.tracking import events

DEAD_NODE_SECONDS = 20.0
"""Time for which Ray may report a dead node as alive: five missed health checks, 3 s apart, and a margin."""

DEAF_SECONDS = 10.0
"""A driver polls twice a second; a longer gap between two polls is not counted as silence of its attempts."""

LEAVE_SECONDS = 60.0
"""Time limit for an attempt to obey a stop request; a training one obeys after its current step."""


@dataclass
class Running:
    """An attempt that was launched and has not ended. Times are those of the session's clock.

    Attributes:
        trial: Row of the trial when the attempt was launched.
        resumed: Path, as in the ledger, of the checkpoint from which the attempt resumed, or None.
        step: Last reported step.
        best: Value of the trial so far: its best report, its last one, or the mean of the last ones; or None.
        best_step: Step of the checkpoint that belongs to this value.
        best_metrics: All metrics of that step.
        reported_at: Time of the launch or of the last outcome; heartbeats in between do not count.
        last: Last outcome, or None.
        cause: Reason for which the driver itself ended the attempt, or None.
        started_at: Time when a worker or the queue of an engine took the attempt, or None before.
        progressed_at: Time of the last report; `started_at` before the first one.
        trained_at: Time of the last heartbeat while training; 0 before the first one.
        charged: Whether the attempt costs time, because it holds its resources and not only a place in a
            queue.
        refused: Error in a foreign report for this attempt, or None.
        scheduled: Last step of the schedule of the attempt; an extended trial continues after it.
    """

    trial: TrialRecord
    resumed: str | None
    step: int
    best: float | None
    best_step: int | None
    reported_at: float
    best_metrics: Mapping[str, float] | None = None
    last: Outcome | None = None
    cause: str | None = None
    started_at: float | None = None
    progressed_at: float = 0.0
    trained_at: float = 0.0
    charged: bool = False
    refused: str | None = None
    scheduled: int | None = None

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds until the last step at this attempt's speed, or None if the speed is unknown."""
        done = self.step - self.trial.step
        if self.started_at is None or done <= 0 or self.progressed_at <= self.started_at:
            return None
        left = max(0, self.trial.total_steps - self.step)
        return left * (self.progressed_at - self.started_at) / done

    def time(self, now: float) -> TrialTime:
        """Return the time of the trial so far, by the clock of `started_at`."""
        seconds = 0.0 if self.started_at is None else now - self.started_at
        done = self.step / max(1, self.step, self.trial.total_steps)
        return TrialTime(seconds, done, self.seconds_left)

    @property
    def failed_at(self) -> int:
        """Return the step of the last outcome, which may be a failure, or else of the last report."""
        return self.step if self.last is None else self.last.step

    @property
    def started(self) -> bool:
        """Return True if a worker has taken the attempt, or it is queued in an engine that has a device."""
        return self.started_at is not None


class Attempts:
    """Launches attempts, commits their outcomes to the ledger, and then passes them on to the study.

    Functions and commands run as `account`, or as the account of their workers if it is None.

    Attributes:
        running: Attempts that were launched and have not ended, by id.
        took: Times of the trials that have ended last, the oldest first.
    """

    def __init__(
        self,
        sweep: SweepConfig,
        writer: SweepWriter,
        study: Study,
        paths: Paths,
        data: Path,
        *,
        board: TrialBoard,
        end: SearchEnd,
        spent: HoursSpent,
        took: Iterable[TrialTime],
        clock: Callable[[], float],
        account: Account | None = None,
    ) -> None:
        self._account = account
        self._sweep, self._writer, self._study, self._paths, self._data = sweep, writer, study, paths, data
        self._board, self._end, self._clock = board, end, clock
        self._constraints: Constraints = sweep.document()["constraints"]
        self._last_reports = last_reports(sweep.reports)
        self.running: dict[str, Running] = {}
        self.took: deque[TrialTime] = deque(took, maxlen=100)
        self._spending = Spending(spent, sweep.resources.total_gpu)
        self._lost_at: list[float] = []
        self._superseded: list[Path] = []
        self._listened_at = clock()

    @property
    def recently_lost(self) -> int:
        """Return the number of attempts lost with a node that Ray may still report as alive."""
        now = self._clock()
        self._lost_at = [at for at in self._lost_at if now - at < DEAD_NODE_SECONDS]
        return len(self._lost_at)

    def launch(self, trial: TrialRecord, tracking: Mapping[str, str] | None = None) -> Assignment:
        """Commit the next attempt of a trial and return its assignment.

        Args:
            trial: Trial to launch.
            tracking: Variables that give a script access to its run in MLflow, if it has one.
        """
        before = self._writer.ledger.last_attempt(trial.key)
        attempt = self._writer.start_attempt(trial.key)
        self._board.enter(trial.key, "RUNNING")
        rows, now = self._writer.ledger.trial_checkpoints(trial.key), self._clock()
        run, assignment = launched(
            attempt.id,
            trial,
            rows,
            sweep=self._sweep,
            paths=self._paths,
            ledger_id=self._writer.ledger.id,
            data=self._data,
            now=now,
        )
        if run.best is not None:
            run.best = self._averaged(trial.key, run.best)
        self.running[attempt.id] = run
        self._score(run)  # an earlier driver may have received its reports
        alone = before is not None and before.cause == "engine lost"
        return replace(assignment, alone=alone, tracking=tracking or {}, account=self._account)

    def started(self, attempt_id: str) -> None:
        """Record that a worker has taken an attempt and holds its resources."""
        if run := self.running.get(attempt_id):
            self._hear(run)
            self._charge(attempt_id, run, 0.0)

    def refuse(self, attempt_id: str, why: str) -> None:
        """Record a foreign report for an attempt, which then counts as lost and ends with `FOREIGN`."""
        if run := self.running.get(attempt_id):
            run.refused, run.cause = run.refused or why, run.cause or FOREIGN

    def reported(self, attempt_id: str, outcome: Outcome) -> None:
        """Commit an outcome: its metrics and its checkpoint.

        An outcome of another attempt is refused, and an invalid one is a failure with a cause.
        """
        run = self.running.get(attempt_id)
        if run is None:
            return  # a late report of an attempt that has ended
        if why := foreign(attempt_id, outcome):
            self.refuse(attempt_id, why)
        if run.refused is not None:
            return
        if outcome.training:
            run.trained_at = self._clock()
        else:
            self._hear(run)
        if outcome.queued:
            return
        self._charge(attempt_id, run, outcome.held or 0.0)
        if outcome.training:
            return
        outcome = run.last = accepted(outcome, *self._sweep.finite_metrics)
        if outcome.failure is not None or (outcome.interrupted and outcome.checkpoint is None):
            return  # nothing was saved
        value = outcome.metrics.get(self._sweep.metric)
        best = value is not None and self._replaces(value, run.best)
        url = self._paths.stored(self._writer.ledger.id, self._sweep.id, run.trial.key)
        self.supersede(_commit(self._writer, attempt_id, outcome, best=best, url=url))
        run.step, run.progressed_at = outcome.step, self._clock()
        if outcome.metrics:
            self._learn(run, outcome, best=best)

    def _replaces(self, value: float, best: float | None) -> bool:
        """Return True if a trial's value, and its checkpoint, are now those of a new report."""
        return bool(self._last_reports) or best is None or self._board.better(value, best)

    def _averaged(self, trial_key: str, value: float) -> float:
        """Return the value of a trial whose newest report in the ledger has this value of the objective."""
        if self._last_reports < 2:
            return value
        return mean_of_last(self._writer.ledger, trial_key, self._sweep.metric, self._last_reports)

    def supersede(self, folders: Sequence[Path]) -> None:
        """Record the folders of checkpoints to which no row refers any more."""
        self._superseded += folders

    def delete_superseded(self) -> None:
        """Delete the superseded checkpoints, after one flush for all of them."""
        if not self._superseded:
            return
        self._writer.ledger.flush()
        for folder in self._superseded:
            shutil.rmtree(folder, ignore_errors=True)
        self._superseded.clear()

    def _hear(self, run: Running) -> None:
        """Record a heartbeat of a worker."""
        run.reported_at = self._clock()
        if not run.started:
            run.started_at = run.progressed_at = run.reported_at

    def _charge(self, attempt_id: str, run: Running, held: float) -> None:
        """Charge the time of an attempt from now on, plus the `held` seconds before."""
        if not run.charged:
            run.charged = True
            self._spending.take(attempt_id, self._without_outages() - held)
            self._writer.take_attempt(attempt_id, held)

    def remove(self, attempt_id: str) -> Running:
        """Remove an attempt that has ended, and return it."""
        self._spending.end(attempt_id, self._without_outages())
        return self.running.pop(attempt_id)

    def spent(self) -> HoursSpent:
        """Return the time in which workers have held resources, without outages of the database."""
        return self._spending.total(self._without_outages())

    def _without_outages(self) -> float:
        """Return the time of a clock that stops during outages of the ledger's database."""
        return self._clock() - self._writer.ledger.outages.seconds

    def _learn(self, run: Running, outcome: Outcome, *, best: bool) -> None:
        """Pass a committed value on to the study, and to the board if it is the trial's best so far."""
        value = outcome.metrics[self._sweep.metric]
        if run.trial.role == "search":
            self._study.report(run.trial.number, outcome.step, value)
        if best:
            run.best = self._averaged(run.trial.key, value)
            run.best_step, run.best_metrics = outcome.step, outcome.metrics
            self._score(run)

    def _score(self, run: Running) -> None:
        """Pass the best value so far of a trial of the search on to the board."""
        if run.trial.role == "search" and run.best is not None and run.best_metrics is not None:
            self._board.score(run.trial, run.best, total_violation(self._constraints, run.best_metrics))

    def silent(self, deadline: float, stopped_at: float | None = None) -> list[str]:
        """Return the started attempts that have sent no heartbeat for too long.

        An attempt that was asked to end has less time, and heartbeats while training do not extend it.
        Gaps in which the driver did not poll, because it was suspended or waited for its ledger, do not
        count.

        Args:
            deadline: Longest silence of an attempt in seconds.
            stopped_at: Time when all attempts were asked to end within `LEAVE_SECONDS`, or None.
        """
        now = self._clock()
        if (deaf := now - self._listened_at) > DEAF_SECONDS:
            for run in self.running.values():
                run.reported_at = min(now, run.reported_at + deaf)
                run.trained_at = min(now, run.trained_at + deaf)
        self._listened_at = now

        def is_late(run: Running) -> bool:
            asked = stopped_at is not None and now - max(run.reported_at, stopped_at) > LEAVE_SECONDS
            return asked or now - max(run.reported_at, run.trained_at) > deadline

        expected = {name: run for name, run in self.running.items() if run.started and run.cause is None}
        return [name for name, run in expected.items() if is_late(run)]

    def ignoring(self, asked: Mapping[str, float]) -> set[str]:
        """Return the started attempts that were asked to end more than `LEAVE_SECONDS` ago.

        `asked` has the times of the requests by attempt id.
        """
        now = self._clock()
        expected = {name: self.running[name] for name in asked.keys() & self.running.keys()}
        return {
            name
            for name, run in expected.items()
            if run.started and run.cause is None and now - max(run.reported_at, asked[name]) > LEAVE_SECONDS
        }

    def requeue(self, attempt_id: str, cause: str, wait: float) -> None:
        """End an attempt and queue its trial for another one, due in `wait` seconds."""
        state: AttemptState
        trial_state: TrialState
        state, trial_state = ("LOST", "PREEMPTED") if cause in UNCHARGED else ("FAILED", "WAITING")
        run = self.running[attempt_id]
        noted = []
        if run.refused is not None:
            about = {f"attempt.{attempt_number(attempt_id)}.refused": run.refused}
            noted.append(events.tags(run.trial.key, about, events.milliseconds(self._writer.ledger.now())))
        self._writer.end_attempt(attempt_id, state, cause, trial_state=trial_state, events=noted)
        key = self.remove(attempt_id).trial.key
        if cause == "node lost":
            self._lost_at.append(self._clock())
        self._board.retry(key, trial_state, self._clock() + wait)

    def lengthen(self, attempt_id: str) -> None:
        """End an attempt at the end of its schedule; the next one has the schedule of the extension."""
        self._writer.end_attempt(attempt_id, "ENDED", "extended")
        key = self.remove(attempt_id).trial.key
        self._board.retry(key, "WAITING", self._clock())

    def pause(self, attempt_id: str) -> None:
        """End an attempt whose trial waits at its rung until it is promoted."""
        self._writer.end_attempt(attempt_id, "ENDED", "paused", trial_state="WAITING")
        self._board.enter(self.remove(attempt_id).trial.key, "WAITING")

    def prune(self, trial: TrialRecord, cause: str | None = None) -> None:
        """End a trial that is paused or waits, with the reason.

        It gets no further attempt: a driver that dies after the start of one would have promoted the trial.
        """
        best = _of_kind(self._writer.ledger.trial_checkpoints(trial.key), "best")
        value, best_step, metrics = None, None, None
        if best is not None:
            value = self._averaged(trial.key, best.metrics[self._sweep.metric])
            best_step, metrics = best.step, best.metrics
        now = events.milliseconds(self._writer.ledger.now())
        ended = events.trial_ended(trial.key, "PRUNED", cause, trial.step, value, now)
        self._writer.prune(trial.key, value, best_step, [ended], cause=cause)
        self._board.enter(trial.key, "PRUNED")
        if trial.role == "search":
            self._end.add("PRUNED", value, 0.0)
            self._study.tell(trial.number, "PRUNED", value, trial.step, metrics)

    def settle(self, attempt_id: str, state: TrialState, cause: str | None = None) -> None:
        """End an attempt and its trial."""
        run = self.running[attempt_id]
        trial = run.trial
        # After a report that is not finite, neither the last report nor a mean with it is a value.
        has_none = state == "FAILED" or (state == "DIVERGED" and self._last_reports > 0)
        value = None if has_none else run.best
        now = events.milliseconds(self._writer.ledger.now())
        self._writer.end_attempt(
            attempt_id,
            "FAILED" if state == "FAILED" else "ENDED",
            cause,
            trial_state=state,
            value=value,
            best_step=run.best_step,
            events=[events.trial_ended(trial.key, state, cause, run.step, value, now)],
        )
        self.remove(attempt_id)
        if run.started_at is not None:
            part = 1.0 if state == "COMPLETE" else run.step / max(1, run.step, trial.total_steps)
            self.took.append(TrialTime(self._clock() - run.started_at, part))
        self._board.enter(trial.key, state)
        if value is None:
            self._board.forget(trial.key)
        if trial.role == "search":
            self._end.add(state, value, total_violation(self._constraints, run.best_metrics or {}))
            self._study.tell(trial.number, state, value, run.step, run.best_metrics)


def any_active(running: Sequence[Running], now: float, placed: Callable[[], bool]) -> bool:
    """Return True if an attempt runs, or was launched so recently that its worker may still be starting.

    Args:
        running: Attempts that were launched and have not ended.
        now: Time by the clock of the launches.
        placed: Function that returns True if one of the attempts has its resources; called if none runs.
    """
    if not running or any(run.started for run in running):
        return bool(running)
    patience = SLOW_START if placed() else SLOW_PLACEMENT
    return any(now - run.reported_at <= patience for run in running)


def launched(
    attempt_id: str,
    trial: TrialRecord,
    checkpoints: Sequence[CheckpointRecord],
    *,
    sweep: SweepConfig,
    paths: Paths,
    ledger_id: str,
    data: Path,
    now: float,
) -> tuple[Running, Assignment]:
    """Return the record and the assignment of an attempt that resumes its trial's last checkpoint."""
    last, best = _of_kind(checkpoints, "last"), _of_kind(checkpoints, "best")
    before = trial.extensions[-1] if trial.extensions else Extension(0)
    step = last.step if last else 0
    run = Running(
        trial,
        last.path if last else None,
        step,
        best.metrics[sweep.metric] if best else before.value,
        best.step if best else before.best_step,
        now,
        best.metrics if best else None,
        scheduled=trial.schedule_steps(step),
    )
    resume = None
    if last:
        folder = paths.at_hand(sweep.id, trial.key, last.path)
        resume = SavedCheckpoint(str(folder), last.step, last.digest, last.bytes)
    assignment = Assignment(
        attempt_id=attempt_id,
        trial_key=trial.key,
        ledger=ledger_id,
        settings=sweep.settings(trial.params, trial.seed, run.scheduled),
        cpu=sweep.resources.cpu,
        gpu=sweep.resources.gpu,
        data=str(data),
        checkpoints=str(paths.trial_checkpoints(sweep.id, trial.key)),
        resume=resume,
        log=str(paths.log(sweep.id, trial.key)),
        compilations=str(paths.compilations),
        store=paths.stored(ledger_id, sweep.id, trial.key),
        observed=sweep.observed_metrics if sweep.trainable is not None else (),
        copied=_resumes(sweep),
    )
    return run, assignment


def _resumes(sweep: SweepConfig) -> bool:
    """Return True if the scheduler of a sweep continues trials from any of their checkpoints."""
    resumes = SCHEDULERS.settings(sweep.scheduler.name).resumes
    return resumes is not None and resumes.items() <= sweep.scheduler.options.items()


def _of_kind(rows: Sequence[CheckpointRecord], kind: CheckpointKind) -> CheckpointRecord | None:
    return next((row for row in rows if row.kind == kind), None)


def not_finite(metrics: Mapping[str, Any], *objectives: str) -> str | None:
    """Return the first objective that is infinite or NaN, or None."""
    return next((name for name in objectives if not math.isfinite(metrics.get(name, 0.0))), None)


def foreign(attempt_id: str, outcome: Outcome, loan: str | None = None) -> str | None:
    """Return an error message if an outcome does not belong to an attempt, else None.

    Args:
        attempt_id: Id of the attempt.
        outcome: Outcome from a process for this attempt.
        loan: Loan of that process, or None if any loan is accepted.
    """
    wanted = f"a report must be about {attempt_id}"
    if outcome.attempt_id != attempt_id:
        return f"{wanted} (got one of {outcome.attempt_id or 'no attempt'} at step {outcome.step})"
    if loan is not None and outcome.loan != loan:
        got = f"one by {outcome.loan or 'none'} at step {outcome.step}"
        return f"{wanted} by the loan {loan or 'none'} (got {got})"
    return None


def accepted(outcome: Outcome, *objectives: str) -> Outcome:
    """Return a valid outcome unchanged, and an invalid one as a failure with its cause.

    The first objective determines the best trial, and every report must have it.
    """
    if outcome.failure is not None:
        return outcome
    if why := malformed(outcome, objectives[0]):
        return replace(outcome, done=True, metrics={}, failure="error", message=f"a report must {why}")
    return finite_or_failed(outcome, *objectives)


def malformed(outcome: Outcome, metric: str) -> str | None:
    """Return the requirement that a report violates, or None if it is valid."""
    step = outcome.step
    if type(step) is not int or not 0 <= step <= LARGEST_STEP:
        return f"have a whole step from 0 to {LARGEST_STEP} (got {step!r:.40})"
    if not isinstance(outcome.metrics, Mapping):
        return f"hold metrics by name (got {outcome.metrics!r:.80})"
    for name, value in outcome.metrics.items():
        if not isinstance(name, str) or isinstance(value, bool) or not isinstance(value, (int, float)):
            return f"hold a number for each metric (got {name!r:.80}: {value!r:.40})"
    if outcome.metrics and metric not in outcome.metrics:
        return f"hold {metric}, the objective (got {', '.join(sorted(outcome.metrics)[:8])})"
    if outcome.checkpoint is None and not outcome.interrupted:
        return f"come with a checkpoint (got none at step {step})"
    return None


def finite_or_failed(outcome: Outcome, *objectives: str) -> Outcome:
    """Return an outcome with finite objectives unchanged, and any other as a failure that no study sees."""
    if (metric := not_finite(outcome.metrics, *objectives)) is None:
        return outcome
    message = f"{metric} is {outcome.metrics[metric]}"
    return replace(outcome, done=True, metrics={}, failure="non-finite", message=message)


def _commit(
    writer: SweepWriter, attempt_id: str, outcome: Outcome, *, best: bool, url: str | None
) -> Sequence[Path]:
    """Commit a report and its checkpoint; return the folders of the superseded checkpoints."""
    key = trial_key_of(attempt_id)
    kinds: list[CheckpointKind] = ["last", "best"] if best else ["last"]
    at = writer.next_report_at()
    noted = [] if outcome.logged is None else events.logged(key, outcome.logged, events.milliseconds(at))
    return writer.record_report(
        attempt_id,
        outcome.step,
        outcome.metrics,
        checkpoints=[_checkpoint_row(key, outcome, kind) for kind in kinds],
        events=noted,
        node=outcome.node,
        stored=store.urls_under(url),
        at=at,
    )


def _checkpoint_row(key: str, outcome: Outcome, kind: CheckpointKind) -> CheckpointRecord:
    saved = outcome.checkpoint
    assert saved is not None, "an outcome that is neither a failure nor interrupted carries a checkpoint"
    return CheckpointRecord(
        trial_key=key,
        step=saved.step,
        kind=kind,
        path=saved.path,
        digest=saved.digest,
        bytes=saved.size,
        metrics=outcome.metrics,
    )
