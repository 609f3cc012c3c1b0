"""One run of a sweep: what is tried next, and what each result means.

The session sits between Ray Tune (which asks for attempts and hands in outcomes), the study (which proposes)
and the ledger (which is true). Write order: an assignment is committed before it is launched; a checkpoint is
durable before its row is committed, and the one it supersedes is deleted after; a final value is committed
before the study is told. Everything here runs in the driver, in one thread.
"""

from __future__ import annotations

import heapq
import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.assignment import Assignment, Outcome
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import (
    AttemptState,
    CheckpointKind,
    CheckpointRecord,
    TrialRecord,
    TrialState,
)
from orchestrator.paths import Paths
from orchestrator.spec.model import Sweep
from orchestrator.tracking import events

if TYPE_CHECKING:
    # Optuna takes a second to import, and whoever only shows progress imports this module too.
    from orchestrator.study.study import Study

_RETRIES = {"worker lost": 3, "out of memory": 2, "hung": 1, "error": 1, "damaged checkpoint": 1}
"""How often a cause of failure is retried; causes not named (non-finite, bad data) would only fail again."""

_UNCHARGED = frozenset({"interrupted", "node lost"})
"""Causes that say nothing about the trial: re-issued without limit."""

_BACKOFF_SECONDS = 2.0
_BACKOFF_CAP_SECONDS = 60.0


@dataclass
class Running:
    """An attempt that a worker holds.

    Attributes:
        trial: the trial's row as it was when the attempt started.
        step: last step reported.
        best: best validation value so far, or None.
        reported_at: monotonic time of the last sign of life, in seconds.
        last: the last outcome, or None.
        cause: why the driver itself ended the attempt, if it did.
    """

    trial: TrialRecord
    step: int
    best: float | None
    best_step: int | None
    reported_at: float
    last: Outcome | None = None
    cause: str | None = None


@dataclass(frozen=True)
class Progress:
    """What a person watching a sweep wants to know.

    Attributes:
        states: number of trials by state.
        wanted: number of trials of the budget.
        best_key: key of the best trial so far, or None.
        best_value: its best validation value.
        steps_done: optimiser steps reported, all trials.
        seconds_left: estimate until the end, or None while there is nothing to estimate from.
    """

    states: Mapping[str, int]
    wanted: int
    best_key: str | None
    best_value: float | None
    steps_done: int
    seconds_left: float | None


@dataclass
class Session:
    """The decisions of one driver over one sweep."""

    sweep: Sweep
    ledger: Ledger
    study: Study
    paths: Paths
    data: Path
    clock: Callable[[], float] = time.monotonic
    capacity: Callable[[], int] = lambda: 1
    stopping: bool = False
    running: dict[str, Running] = field(default_factory=dict)
    _states: dict[str, str] = field(default_factory=dict)
    _best: tuple[str, float] | None = None
    _waiting: list[tuple[float, str]] = field(default_factory=list)
    _failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    _next_number: int = 0
    _exhausted: bool = False
    _steps_done: int = 0
    _started: float = 0.0
    _settled_before: int = 0

    def __post_init__(self) -> None:
        self._started = self.clock()
        for trial in self.ledger.trials(self.sweep.id, role="search"):
            self._adopt(trial)

    def _adopt(self, trial: TrialRecord) -> None:
        """Take a trial of an earlier driver over: an unfinished one waits for its next attempt."""
        self._next_number = max(self._next_number, trial.number + 1)
        if trial.state in ("WAITING", "RUNNING", "PREEMPTED"):
            self._states[trial.key] = "WAITING"
            heapq.heappush(self._waiting, (0.0, trial.key))
            return
        self._states[trial.key] = trial.state
        self._settled_before += 1
        if trial.state == "COMPLETE" and trial.value is not None:
            self._note_best(trial.key, trial.value)

    # ---------------------------------------------------------------- what is next

    def next_assignment(self) -> Assignment | None:
        """Return the next attempt to launch, committed to the ledger; None if there is none now."""
        if self.stopping or len(self.running) >= self.concurrency:
            return None
        if self._waiting and self._waiting[0][0] <= self.clock():
            _, key = heapq.heappop(self._waiting)
            return self._launch(self.ledger.trial(key))
        if self._next_number < self.sweep.budget.trials and not self._exhausted:
            return self._ask()
        return None

    @property
    def concurrency(self) -> int:
        """Return how many attempts may run at once: what fits on the cluster now, or the file's own limit."""
        limit = self.sweep.resources.concurrent
        return min(limit, self.capacity()) if limit else self.capacity()

    @property
    def finished(self) -> bool:
        """Tell whether no attempt is running and none will ever be launched again."""
        if self.running:
            return False
        return self.stopping or (not self._waiting and self._asked_all)

    @property
    def _asked_all(self) -> bool:
        return self._exhausted or self._next_number >= self.sweep.budget.trials

    def _ask(self) -> Assignment | None:
        number = self._next_number
        proposal = self.study.ask(number)
        if proposal is None:
            self._exhausted = True
            return None
        seed = self.sweep.trial_seed(number)
        settings = self.sweep.settings(proposal.params, seed)
        trial = TrialRecord(
            key=f"{self.sweep.id}-{number}",
            sweep_id=self.sweep.id,
            number=number,
            role="search",
            state="WAITING",
            cause=None,
            params=dict(proposal.params),
            system_attrs=dict(proposal.system_attrs),
            seed=seed,
            value=None,
            best_step=None,
            step=0,
            total_steps=settings.training.steps,
            attempts=0,
            created_at=time.time(),
        )
        self.ledger.add_trial(trial, events=[events.trial_started(trial, self.sweep)])
        self._next_number = number + 1
        return self._launch(trial)

    def _launch(self, trial: TrialRecord) -> Assignment:
        attempt = self.ledger.start_attempt(trial.key)
        self._states[trial.key] = "RUNNING"
        saved = {row.kind: row for row in self.ledger.checkpoints(trial.key)}
        self.running[attempt.id] = self._begun(trial, saved.get("best"))
        last = saved.get("last")
        return Assignment(
            attempt_id=attempt.id,
            trial_key=trial.key,
            number=trial.number,
            settings=self.sweep.settings(trial.params, trial.seed),
            data=str(self.data),
            checkpoints=str(self.paths.trial_checkpoints(self.sweep.id, trial.key)),
            resume=last.path if last else None,
            stop_wish=str(self.paths.stop_wish(self.sweep.id)),
            compilations=str(self.paths.compilations),
        )

    def _begun(self, trial: TrialRecord, best: CheckpointRecord | None) -> Running:
        value = best.metrics[self.sweep.metric] if best else None
        return Running(trial, trial.step, value, best.step if best else None, reported_at=self.clock())

    # ---------------------------------------------------------------- what came back

    def reported(self, attempt_id: str, outcome: Outcome) -> None:
        """Commit an outcome: its curve points, its checkpoint, and what both make of the trial."""
        run = self.running[attempt_id]
        run.last, run.reported_at = outcome, self.clock()
        if outcome.failure is not None:
            return
        now = time.time()
        kinds: list[CheckpointKind] = ["last"]
        if outcome.metrics:
            value = outcome.metrics[self.sweep.metric]
            if not math.isfinite(value):
                told = f"{self.sweep.metric} is {value}"
                run.last = Outcome(outcome.step, True, {}, failure="non-finite", message=told)
                return
            if run.best is None or self._better(value, run.best):
                run.best, run.best_step = value, outcome.step
                kinds.append("best")
            self.study.report(run.trial.number, outcome.step, value)
            self._note_best(run.trial.key, run.best)
        self._steps_done += max(outcome.step - run.step, 0)
        run.step = outcome.step
        superseded = self.ledger.record_report(
            attempt_id,
            outcome.step,
            outcome.metrics,
            checkpoints=[self._checkpoint_row(run.trial.key, outcome, kind) for kind in kinds],
            events=[events.metrics(run.trial.key, outcome.step, outcome.metrics, int(now * 1000))]
            if outcome.metrics
            else [],
        )
        for folder in superseded:
            shutil.rmtree(folder, ignore_errors=True)

    def _checkpoint_row(self, key: str, outcome: Outcome, kind: CheckpointKind) -> CheckpointRecord:
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

    def completed(self, attempt_id: str) -> None:
        """Settle an attempt whose process lives on: complete, pruned, interrupted or failed."""
        run = self.running.get(attempt_id)
        if run is None:
            return
        outcome = run.last
        if outcome is None or outcome.interrupted:
            self._requeue(attempt_id, "interrupted", uncharged=True)
        elif outcome.failure is not None:
            self.failed(attempt_id, outcome.failure, outcome.message)
        elif outcome.step >= run.trial.total_steps:
            self._settle(attempt_id, "COMPLETE", run.best)
        elif self.stopping:
            self._requeue(attempt_id, "interrupted", uncharged=True)
        else:
            self._settle(attempt_id, "PRUNED", run.best)

    def failed(self, attempt_id: str, cause: str, message: str | None = None) -> None:
        """Retry a failed attempt if its cause allows it, or settle the trial as FAILED."""
        run = self.running.get(attempt_id)
        if run is None:
            return
        cause = run.cause or cause
        if cause in _UNCHARGED:
            self._requeue(attempt_id, cause, uncharged=True)
            return
        counted = self._failures[run.trial.key, cause] = self._failures[run.trial.key, cause] + 1
        if counted <= _RETRIES.get(cause, 0):
            self._requeue(attempt_id, cause, uncharged=False)
        else:
            self._settle(attempt_id, "FAILED", None, f"{cause}: {message}" if message else cause)

    def _requeue(self, attempt_id: str, cause: str, *, uncharged: bool) -> None:
        run = self.running.pop(attempt_id)
        key = run.trial.key
        self.ledger.end_attempt(attempt_id, "LOST", cause, trial_state="PREEMPTED")
        self._states[key] = "PREEMPTED"
        failures = 0 if uncharged else sum(n for (trial, _), n in self._failures.items() if trial == key)
        wait = min(_BACKOFF_SECONDS * 2 ** (failures - 1), _BACKOFF_CAP_SECONDS) if failures else 0.0
        heapq.heappush(self._waiting, (self.clock() + wait, key))

    def _settle(
        self, attempt_id: str, state: TrialState, value: float | None, cause: str | None = None
    ) -> None:
        run = self.running.pop(attempt_id)
        trial = run.trial
        attempt_state: AttemptState = "FAILED" if state == "FAILED" else "ENDED"
        self.ledger.end_attempt(
            attempt_id,
            attempt_state,
            cause,
            trial_state=state,
            value=value,
            best_step=run.best_step,
            events=[events.trial_ended(trial.key, state, cause, run.step, value, int(time.time() * 1000))],
        )
        self._states[trial.key] = state
        self.study.tell(trial.number, state, value, run.step)

    # ---------------------------------------------------------------- what a person sees

    def _better(self, value: float, than: float) -> bool:
        return value > than if self.sweep.direction == "maximize" else value < than

    def _note_best(self, key: str, value: float | None) -> None:
        if value is not None and (self._best is None or self._better(value, self._best[1])):
            self._best = (key, value)

    def progress(self) -> Progress:
        """Return the counts, the best so far and an estimate of the time left."""
        states = Counter(self._states.values())
        settled = sum(states[name] for name in ("COMPLETE", "PRUNED", "FAILED"))
        here = settled - self._settled_before
        rate = here / max(self.clock() - self._started, 1e-9) if here else None
        left = (self.sweep.budget.trials - settled) / rate if rate else None
        key, value = self._best or (None, None)
        return Progress(dict(states), self.sweep.budget.trials, key, value, self._steps_done, left)

    def failures(self) -> dict[str, Any]:
        """Return how many attempts failed, by cause."""
        causes: Counter[str] = Counter()
        for (_, cause), count in self._failures.items():
            causes[cause] += count
        return dict(causes)

    def silent(self, deadline: float) -> list[str]:
        """Return the attempts that have reported nothing for `deadline` seconds."""
        now = self.clock()
        return [
            name for name, run in self.running.items() if now - run.reported_at > deadline and not run.cause
        ]

    def condemn(self, attempt_id: str, cause: str) -> None:
        """Note why the driver itself ends an attempt; its process's death is then no surprise."""
        self.running[attempt_id].cause = cause
