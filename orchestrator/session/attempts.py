"""The attempts that workers hold, from the launch of each to its end; every change is committed here."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.assignment import Assignment, Outcome
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import TrialRecord, TrialState
from orchestrator.session.board import Standing
from orchestrator.session.launching import launched
from orchestrator.session.outcomes import commit, judged
from orchestrator.session.retries import UNCHARGED
from orchestrator.session.running import Running
from orchestrator.storage import store
from orchestrator.storage.paths import Paths
from orchestrator.tracking import events

if TYPE_CHECKING:
    # Optuna takes a second to import, and whoever only shows progress imports the session too.
    from orchestrator.study.study import Study


NAMED_AFTER_DEATH = 20.0
"""Seconds for which Ray may go on naming a dead node: five missed checks, three seconds apart."""


class Attempts:
    """What becomes of attempts, told to the ledger first, then to the study.

    Attributes:
        running: by id.
    """

    def __init__(
        self,
        sweep: SweepConfig,
        ledger: Ledger,
        study: Study,
        paths: Paths,
        *,
        standing: Standing,
        clock: Callable[[], float],
    ) -> None:
        self._id, self._metric = sweep.id, sweep.metric
        self._ledger, self._study, self._paths = ledger, study, paths
        self._standing, self._clock = standing, clock
        self.running: dict[str, Running] = {}
        self._lost_at: list[float] = []

    @property
    def lost_lately(self) -> int:
        """Return how many attempts were lost with a node that may still be counted as alive."""
        now = self._clock()
        self._lost_at = [at for at in self._lost_at if now - at < NAMED_AFTER_DEATH]
        return len(self._lost_at)

    def launch(self, trial: TrialRecord, sweep: SweepConfig, data: Path) -> Assignment:
        """Start the next attempt of a trial, with the resources that the sweep gives now."""
        attempt = self._ledger.start_attempt(trial.key)
        self._standing.states[trial.key] = "RUNNING"
        rows, now = self._ledger.checkpoints(trial.key), self._clock()
        self.running[attempt.id], assignment = launched(
            attempt.id, trial, rows, sweep=sweep, paths=self._paths, data=data, now=now
        )
        return assignment

    def started(self, attempt_id: str) -> None:
        """Note that a worker has taken an attempt."""
        if run := self.running.get(attempt_id):
            run.started, run.reported_at = True, self._clock()

    def reported(self, attempt_id: str, outcome: Outcome) -> None:
        """Commit an outcome: its curve points, its checkpoint, and what both make of the trial."""
        run = self.running.get(attempt_id)
        if run is None:
            return  # it found its place when nobody waited for it any more
        run.started, run.reported_at = True, self._clock()
        if outcome.waiting:
            return
        outcome = run.last = judged(outcome, self._metric)
        if outcome.failure is not None:
            return
        best = bool(outcome.metrics) and self._improves(run, outcome)
        run.step = outcome.step
        url = self._paths.stored(self._id, run.trial.key)
        for folder in commit(self._ledger, attempt_id, outcome, best=best):
            store.discard(folder, url)

    def _improves(self, run: Running, outcome: Outcome) -> bool:
        """Tell the study what a trial has reached; return whether it was never better."""
        value, searching = outcome.metrics[self._metric], run.trial.role == "search"
        if searching:
            self._study.report(run.trial.number, outcome.step, value)
        if run.best is not None and not self._standing.better(value, run.best):
            return False
        run.best, run.best_step, run.best_metrics = value, outcome.step, outcome.metrics
        if searching:
            self._standing.note(run.trial.key, value)
        return True

    def silent(self, deadline: float) -> list[str]:
        """Return the attempts that run, and have reported nothing for `deadline` seconds."""
        now = self._clock()
        late = [name for name, run in self.running.items() if now - run.reported_at > deadline]
        return [name for name in late if self.running[name].started and self.running[name].cause is None]

    def requeue(self, attempt_id: str, cause: str, wait: float) -> None:
        """End an attempt that another one follows, after a wait in seconds."""
        key = self.running.pop(attempt_id).trial.key
        if cause == "node lost":
            self._lost_at.append(self._clock())
        due = self._clock() + wait
        if cause in UNCHARGED:
            self._ledger.end_attempt(attempt_id, "LOST", cause, trial_state="PREEMPTED")
            self._standing.wait(key, "PREEMPTED", due)
        else:
            self._ledger.end_attempt(attempt_id, "FAILED", cause, trial_state="WAITING")
            self._standing.wait(key, "WAITING", due)

    def settle(self, attempt_id: str, state: TrialState, cause: str | None = None) -> None:
        """End an attempt, and its trial with it."""
        run = self.running.pop(attempt_id)
        trial = run.trial
        value = None if state == "FAILED" else run.best
        now = events.milliseconds(time.time())
        self._ledger.end_attempt(
            attempt_id,
            "FAILED" if state == "FAILED" else "ENDED",
            cause,
            trial_state=state,
            value=value,
            best_step=run.best_step,
            events=[events.trial_ended(trial.key, state, cause, run.step, value, now)],
        )
        self._standing.states[trial.key] = state
        if trial.role == "search":
            self._study.tell(trial.number, state, value, run.step, run.best_metrics)
