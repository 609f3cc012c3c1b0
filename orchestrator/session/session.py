"""One run of a sweep: what is tried next, and what each result means.

The session sits between Ray Tune (which asks for attempts and hands in outcomes), the study (which proposes)
and the ledger (which is true). Write order: an assignment is committed before it is launched; a checkpoint is
durable before its row is committed, and the one it supersedes is deleted after; a final value is committed
before the study is told. Everything here runs in the driver, in one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.assignment import Assignment, Outcome
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import SweepState, TrialRecord
from orchestrator.ledger.stop_requests import asked_to_stop
from orchestrator.session.attempts import Attempts
from orchestrator.session.board import Standing
from orchestrator.session.budget import overspent, spent
from orchestrator.session.choice import choose
from orchestrator.session.ending import HOPELESS_AFTER, Stop, hopeless
from orchestrator.session.exploits import Exploits
from orchestrator.session.progress import Progress
from orchestrator.session.proposals import Proposals
from orchestrator.session.retries import wait_before_retry
from orchestrator.session.running import Running
from orchestrator.session.shortage import Shortage, any_begins
from orchestrator.storage.paths import Paths
from orchestrator.upkeep.orphans import clear_trial

if TYPE_CHECKING:
    # Optuna takes a second to import, and whoever only shows progress imports this module too.
    from orchestrator.study.study import Study


class Session:
    """The decisions of one driver over one sweep.

    Attributes:
        stopped: why nothing more is launched, or None.
        capacity: tells how many attempts fit on the cluster now.
        lack: tells why none starts now.
        patience: seconds to wait for a node while there is none that a trial fits on.
    """

    def __init__(
        self,
        sweep: SweepConfig,
        ledger: Ledger,
        study: Study,
        paths: Paths,
        data: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take over the trials of earlier drivers: an unfinished one waits for its next attempt."""
        self.sweep, self.ledger, self.study, self.paths, self.data = sweep, ledger, study, paths, data
        self.stopped: Stop | None = None
        self.capacity: Callable[[], int] = lambda: 1
        self.lack: Callable[[], str] = lambda: "no node"
        self.patience = 10.0
        self._clock, self._began = clock, clock()
        trials = ledger.trials(sweep.id)
        # Which share of a GPU is best may yet be measured: these parts read no `sweep.resources`.
        self._standing = Standing(sweep, trials)
        self._attempts = Attempts(sweep, ledger, study, paths, standing=self._standing, clock=clock)
        self._proposals = Proposals(sweep, ledger, study, self._standing, trials)
        self._exploits = Exploits(sweep, ledger, paths)
        self._shortage = Shortage(ledger, sweep.id)

    @property
    def running(self) -> Mapping[str, Running]:
        """Return the attempts that workers hold, by id."""
        return self._attempts.running

    def next_assignment(self) -> Assignment | None:
        """Return the next attempt to launch, committed to the ledger; None if there is none now."""
        if self.stopped or len(self.running) >= self.concurrency:
            return None
        if key := self._standing.waiting.pop(self._clock()):
            return self._go_on(self.ledger.trial(key))
        # A trial that waits to be retried keeps its place, for a new one might hold it for hours; nor is the
        # room of a lost node given away, which for seconds seems to be there still.
        kept = len(self._standing.waiting) + self._attempts.lost_lately
        if len(self.running) + kept >= self.concurrency:
            return None
        trial = self._search() if self._proposals.searching else self._confirm()
        return self._launch(trial) if trial else None

    @property
    def concurrency(self) -> int:
        """Return how many attempts may run at once: what fits on the cluster now, or the file's own limit."""
        limit = self.sweep.resources.concurrent
        return min(limit, self.capacity()) if limit else self.capacity()

    @property
    def demand(self) -> int:
        """Return how many attempts would run at once, if there were room for all."""
        if self.stopped:
            return 0
        left = self._standing.unsettled
        return min(left, self.sweep.resources.concurrent or left)

    @property
    def finished(self) -> bool:
        """Tell whether no attempt is running and none will ever be launched again."""
        if self.running:
            return False
        left = self._standing.waiting or self._proposals.searching or self._proposals.unconfirmed
        return self.stopped is not None or not left

    def _search(self) -> TrialRecord | None:
        return self._proposals.next([run.trial for run in self.running.values()], self.concurrency)

    def _confirm(self) -> TrialRecord | None:
        """Return the next confirmation, once no trial of the search can change the choice any more."""
        searching = any(run.trial.role == "search" for run in self.running.values())
        if searching or self._standing.waiting or not self._proposals.unconfirmed:
            return None
        chosen = choose(self.sweep, self.ledger.trials(self.sweep.id, role="search"))
        return self._proposals.confirmation(chosen) if chosen else None

    def _go_on(self, trial: TrialRecord) -> Assignment | None:
        """Launch the next attempt of a trial, or settle it if only that was missing when its driver died."""
        assignment = self._launch(trial)
        if self.running[assignment.attempt_id].step < trial.total_steps:
            return assignment
        self._attempts.settle(assignment.attempt_id, "COMPLETE")
        return self.next_assignment()

    def settle_stopped(self, keys: Collection[str]) -> None:
        """Settle trials that the scheduler had stopped when their driver died, before that was committed."""
        for key in self._standing.waiting.in_turn():
            trial = self.ledger.trial(key)
            if key in keys and trial.step < trial.total_steps:
                self._standing.waiting.remove(key)
                self._attempts.settle(self._launch(trial).attempt_id, "PRUNED")

    def _launch(self, trial: TrialRecord) -> Assignment:
        return self._attempts.launch(trial, self.sweep, self.data)

    def started(self, attempt_id: str) -> None:
        """Note that a worker has taken an attempt."""
        self._attempts.started(attempt_id)

    def reported(self, attempt_id: str, outcome: Outcome) -> None:
        """Commit an outcome: its curve points, its checkpoint, and what both make of the trial."""
        self._attempts.reported(attempt_id, outcome)

    def completed(self, attempt_id: str) -> None:
        """Settle an attempt whose process lives on: complete, pruned, interrupted or failed."""
        run = self.running.get(attempt_id)
        if run is None:
            return
        outcome, donor = run.last, self._exploits.pop_donor(run.trial.key)
        if outcome is not None and outcome.failure is not None:
            self.failed(attempt_id, outcome.failure, outcome.message)
        elif outcome is not None and outcome.step >= run.trial.total_steps:
            self._attempts.settle(attempt_id, "COMPLETE")
        elif outcome is None or outcome.interrupted or self.stopped:
            self._attempts.requeue(attempt_id, "interrupted", 0.0)
        elif donor is not None:
            del self._attempts.running[attempt_id]
            self._exploits.take_over(attempt_id, donor)
            self._standing.wait(run.trial.key, "WAITING", self._clock())
        else:
            self._attempts.settle(attempt_id, "PRUNED")

    def exploit(self, trial_key: str, step: int, donors: Sequence[str]) -> bool:
        """Note whom a trial shall go on from, once its attempt has stopped; tell whether anybody can be had.

        Args:
            trial_key: of the trial.
            step: that it has reached.
            donors: better trials, the best first.
        """
        return not self.stopped and self._exploits.intend(trial_key, step, donors)

    def failed(self, attempt_id: str, cause: str, message: str | None = None) -> None:
        """Retry a failed attempt if its cause allows it, or settle the trial as FAILED."""
        run = self.running.get(attempt_id)
        if run is None:
            return
        cause = run.cause or cause
        if cause == "damaged checkpoint" and run.resumed is not None:
            # The one kept behind it is next; without one the trial starts again.
            self.ledger.drop_checkpoint(run.trial.key, Path(run.resumed))
        if cause == "disk full":
            self.stop(f"a disk is full: {message}", "PAUSED")
        clear_trial(self.ledger, run.trial.key, self.paths.trial_checkpoints(self.sweep.id, run.trial.key))
        past = [each for each in self.ledger.attempts(run.trial.key) if each.id != attempt_id]
        wait = wait_before_retry(cause, past)
        if wait is None:
            self._attempts.settle(attempt_id, "FAILED", f"{cause}: {message}" if message else cause)
        else:
            self._attempts.requeue(attempt_id, cause, wait)

    def stop(self, reason: str, state: SweepState) -> None:
        """Launch nothing more, and ask every worker to save and leave; the first reason stands."""
        if self.stopped is None:
            self.stopped = Stop(reason, state)
        for attempt_id in [name for name, run in self.running.items() if not run.started]:
            self._attempts.requeue(attempt_id, "interrupted", 0.0)
        wish = self.paths.stop_wish(self.sweep.id)
        wish.parent.mkdir(parents=True, exist_ok=True)
        wish.touch()

    def look_around(self) -> None:
        """Stop if somebody wished so, if the budget is spent, or if nothing succeeds."""
        if self.stopped:
            return
        if asker := asked_to_stop(self.ledger, self.sweep.id):
            self.stop(f"stopped by `stop` on {asker}", "INTERRUPTED")
        elif lack := self._waited_in_vain():
            self.stop(f"waited {self.patience:g} s: {lack}", "INTERRUPTED")
        elif hopeless(self._standing.states.values()):
            self.stop(f"the first {HOPELESS_AFTER} trials all failed", "COMPLETE")
        elif over := self._over_budget():
            self.stop(over, "COMPLETE")

    def _waited_in_vain(self) -> str | None:
        """Return why nothing runs, if it took too long."""
        now = self._clock()
        room = any_begins(self.running.values(), now) or (not self.running and self.capacity() > 0)
        lack = None if room else self.lack()
        return lack if self._shortage.note(lack, now) > self.patience else None

    def _over_budget(self) -> str | None:
        budget, gpu = self.sweep.budget, self.sweep.resources.gpu
        if budget.hours is None and budget.gpu_hours is None:
            return None
        return overspent(budget, spent(self.ledger.attempts(self.sweep.id), now=time.time()), gpu)

    def silent(self, deadline: float) -> list[str]:
        """Return the attempts that run, and have reported nothing for `deadline` seconds."""
        return self._attempts.silent(deadline)

    def condemn(self, attempt_id: str, cause: str) -> None:
        """Note why the driver itself ends an attempt; its process's death is then no surprise."""
        self.running[attempt_id].cause = cause

    def progress(self) -> Progress:
        """Return the counts, the best so far and an estimate of the time left."""
        return self._standing.progress(self._clock() - self._began, self._shortage.reason)
