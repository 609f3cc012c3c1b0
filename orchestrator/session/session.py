"""Decisions of one run of a sweep: the next trial, and the consequences of each outcome.

The session connects Ray Tune (which asks for attempts and reports outcomes), the study (which proposes
trials) and the ledger (the source of truth). Order of writes: an attempt is committed before it is launched;
a checkpoint is durable before its row is committed, and the superseded one is deleted after that; a final
value is committed before the study receives it. Everything runs in the driver, in one thread.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from orchestrator.accounts import Account
from orchestrator.assignment import Assignment, Outcome
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.errors import NoStore
from orchestrator.ledger.people.audit import COMMAND_LINE
from orchestrator.ledger.queue.queue_settings import reason_of
from orchestrator.ledger.queue.trial_requests import pending_requests
from orchestrator.ledger.sweeps.records import (
    FINISHED_TRIAL,
    SIMILARITY,
    UNFINISHED_TRIAL,
    SweepRecord,
    SweepState,
    TrialRecord,
    TrialState,
    trial_key_of,
)
from orchestrator.ledger.sweeps.selection import violations_of
from orchestrator.ledger.sweeps.standing import RUN_TO_THE_END, TimeLeft, spent, time_left, trial_times
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.session.attempts import Attempts, Running, any_active, foreign
from orchestrator.session.board import Progress, TrialBoard
from orchestrator.session.limits import (
    ALIKE_FAILURES,
    DIVERGED,
    FOREIGN,
    AlikeFailures,
    Shortage,
    Stop,
    hopeless,
    overspent,
    search_end,
    since_progress,
    wait_before_retry,
)
from orchestrator.session.outages import WHAT, Outages, Probe, probes_of
from orchestrator.session.population import Exploits
from orchestrator.session.promotion import Rungs
from orchestrator.session.proposals import Proposals
from orchestrator.session.tracked import LOOK_SECONDS, TrackedRuns
from orchestrator.storage.paths import Paths
from orchestrator.study.study import Study
from orchestrator.tracking import events
from orchestrator.upkeep.orphans import clear_trial
from trainables.errors import DamagedCheckpoint

ESTIMATE_SECONDS = 5.0
"""Age up to which an estimate of the time left is used again, unless a trial has ended or begun."""


def by_user(name: str) -> str:
    """Return the user of a decision in words."""
    return "from the command line" if name == COMMAND_LINE else f"by {name}"


def stopped_by_user(trial: TrialRecord, step: int) -> str:
    """Return the reason of the end of a trial that a user has stopped, in one sentence.

    Args:
        trial: Trial with the decision.
        step: Last step of the trial.
    """
    return f"stopped at step {step} {by_user(trial.decided_by('stop') or COMMAND_LINE)}"


class Resources(Protocol):
    """Resources that attempts can use now."""

    def capacity(self) -> int:
        """Return the number of attempts that fit."""

    def shortage(self) -> str:
        """Return the reason why no attempt can start now."""

    def placed(self) -> bool:
        """Return True if an attempt has its resources, so that its worker may be starting."""


class Allowance(Protocol):
    """The share of the resources that a sweep may use beside other sweeps.

    Attributes:
        leaving: Ids of the attempts that are preempted at their next report.
        overdue: Attempts of `leaving` that must save and end at once: the start of that state, by id.
        waiting: Reason why the sweep may run nothing now, or None.
    """

    leaving: Collection[str]
    overdue: Mapping[str, float]
    waiting: str | None

    def may_start(self, session: Session) -> bool:
        """Return True if one more attempt may start now, and count it as the sweep's."""


class WholeCluster:
    """The allowance of a sweep that runs alone: everything."""

    leaving: Collection[str] = frozenset()
    overdue: Mapping[str, float] = MappingProxyType({})
    waiting: str | None = None

    def may_start(self, session: Session) -> bool:
        return True


class Session:
    """Decides the next attempt of a sweep, and handles the outcome of each.

    Trials of earlier drivers are resumed.

    Example:

        while not session.finished:
            if assignment := session.next_assignment():
                session.started(assignment.attempt_id)
                session.reported(assignment.attempt_id, train(assignment))
                session.completed(assignment.attempt_id)

    Args:
        sweep: Sweep with the resources of each attempt.
        writer: Writer of the sweep.
        study: Study of the sweep.
        paths: Paths where files are written.
        data: Folder of the data sets.
        resources: Resources that attempts can use.
        share: Allowance of the sweep; all resources by default.
        node_wait: Longest wait in seconds while no node can hold an attempt; then the sweep is interrupted.
        busy_wait: Longest wait in seconds while the nodes that can hold an attempt are in use.
        clock: Clock in seconds.
        probes: Probes of outages, by cause; by default those of `paths`.
        account: Account of functions and commands; None for the account of their workers.

    Attributes:
        stopped: Reason why nothing more is launched, or None.
        reasons: Reason of each stop by the scheduler, by trial key; the scheduler fills it.
        exempt: Keys of the trials that users have exempted from early stopping.
        searched: Last step of the search by key of each trial that earlier drivers have extended.
    """

    def __init__(
        self,
        sweep: SweepConfig,
        writer: SweepWriter,
        study: Study,
        paths: Paths,
        data: Path,
        *,
        resources: Resources,
        share: Allowance | None = None,
        node_wait: float,
        busy_wait: float,
        clock: Callable[[], float] = time.monotonic,
        probes: Mapping[str, Probe] | None = None,
        account: Account | None = None,
    ) -> None:
        self.sweep, self.writer, self.ledger, self.paths = sweep, writer, writer.ledger, paths
        self._study = study
        self.stopped: Stop | None = None
        self._stopped_at: float | None = None
        self._resources, self._node_wait, self._busy_wait = resources, node_wait, busy_wait
        self._share = share or WholeCluster()
        self._clock = clock
        record, trials = self._record, self.ledger.trials(sweep.id)
        self.searched = {trial.key: trial.as_searched().step for trial in trials if trial.extensions}
        self._similarities = record.facts.get(SIMILARITY, {})
        violations, attempts = violations_of(self.ledger, record), self.ledger.attempts(sweep.id)
        maximize = sweep.direction == "maximize"
        self._board = TrialBoard(trials, maximize=maximize, violations=violations, has_best=sweep.has_best)
        self._end = search_end(sweep.budget, trials, maximize=maximize, violations=violations)
        self._attempts = Attempts(
            sweep,
            writer,
            study,
            paths,
            data,
            board=self._board,
            end=self._end,
            spent=spent(attempts, record),
            took=trial_times(trials, attempts, {}, self.ledger.now())[0],
            clock=clock,
            account=account,
        )
        self._proposals = Proposals(sweep, writer, study, self._board, self._end, trials)
        self._estimate: tuple[float, tuple[int, ...], TimeLeft | None] = (0.0, (), None)
        self._has_dropped = False
        self._exploits = Exploits(sweep, writer, paths)
        self._rungs = Rungs()
        self.reasons: Mapping[str, str] = {}
        self.exempt = {trial.key for trial in trials if trial.decided_by("exempt")}
        unfinished = [trial for trial in trials if trial.state in UNFINISHED_TRIAL]
        self._stopping = {trial.key: clock() for trial in unfinished if trial.decided_by("stop")}
        self._unbegun: dict[str, float] = {}  # attempts that a user has stopped before a worker took them
        self._tracked = TrackedRuns(sweep, self.ledger, paths, clock)
        self._shortage = Shortage(writer)
        self._alike_failures = AlikeFailures()
        self._outages = Outages(writer, probes or probes_of(paths, self.ledger, sweep.id), clock)

    @property
    def _record(self) -> SweepRecord:
        record = self.ledger.sweep(self.sweep.id)
        assert record is not None, "a driver enters its sweep in the ledger first"
        return record

    # ---------------------------------------------------------------- launching

    @property
    def running(self) -> Mapping[str, Running]:
        """Return the attempts that were launched and have not ended, by id."""
        return self._attempts.running

    @property
    def concurrency(self) -> int:
        """Return the maximum number of concurrent attempts: those that fit now, or the limit of the file."""
        limit = self.sweep.resources.concurrent
        return min(limit, self._resources.capacity()) if limit else self._resources.capacity()

    @property
    def demand(self) -> int:
        """Return the number of attempts that would run concurrently with unlimited resources."""
        if self.stopped:
            return 0
        paused = len(self._rungs.paused) - len(self._promotable)
        left = self._proposals.wanted - self._board.settled - paused
        return min(left, self.sweep.resources.concurrent or left)

    @property
    def startable(self) -> int:
        """Return the number of attempts that could run concurrently now with unlimited resources.

        Unlike `demand`, it excludes confirmations while the search may still change the best trial, and
        everything that does not run yet during an outage.
        """
        if self.stopped or self._outages.reason:
            return len(self.running)
        left = len(self._board.retries) + len(self._promotable) + self._proposals.unlaunched
        if not left and not self._is_searching():
            left = self._proposals.confirmable
        most = self.sweep.resources.concurrent
        return min(len(self.running) + left, most) if most else len(self.running) + left

    @property
    def finished(self) -> bool:
        """Return True if no attempt runs and none will ever be launched again."""
        if self.running:
            return False
        trials = self._board.retries or self._rungs.paused or self._proposals.searching
        left = trials or self._proposals.confirmable
        return self.stopped is not None or not left

    @property
    def end(self) -> Stop | None:
        """Return the reason why the sweep ends before it has all trials of its budget, or None."""
        if self.stopped is None and self._end.reason is not None:
            return Stop(self._end.reason, "COMPLETE")
        return self.stopped

    def _drop_unbegun(self) -> None:
        """Take the trials that no worker has begun out of the queue, once the search has ended."""
        if self._end.reason is None or self._has_dropped:
            return
        self._has_dropped = True
        for key in self._board.retries.in_order():
            trial = self.ledger.trial(key)
            if trial.role == "search" and not trial.attempts:
                self._board.retries.remove(key)
                self._proposals.drop(key)

    def next_assignment(self) -> Assignment | None:
        """Return the next attempt to launch, committed to the ledger, or None if there is none now."""
        self._drop_unbegun()
        if self.stopped or self._outages.reason or len(self.running) >= self.concurrency:
            return None
        if self._board.retries.is_due(now := self._clock()):
            key = self._board.retries.pop(now) if self._share.may_start(self) else None
            return self._resume(self.ledger.trial(key)) if key else None
        # Reserve a slot for each queued retry, because a new trial might hold it for hours, and the slots of
        # a lost node, because Ray reports it as alive for up to 20 s.
        reserved = len(self._board.retries) + self._attempts.recently_lost
        if len(self.running) + reserved >= self.concurrency:
            return None
        if promotable := self._promotable:
            return self._promote(promotable[0]) if self._share.may_start(self) else None
        trial = self._next_of_search() if self._proposals.searching else self._next_confirmation()
        return self._launch(trial) if trial else None

    @property
    def _promotable(self) -> Sequence[str]:
        """Return the paused trials that may go on, the next one first."""
        if promotable := self._rungs.promotable:
            return promotable
        if self._proposals.searching or self._board.retries or self._is_searching():
            return ()
        # Of few trials none may be promoted: the leader goes on, so that the sweep has a complete trial.
        leader = None if self._board.counts["COMPLETE"] else self._rungs.leader
        return () if leader is None else (leader,)

    def _promote(self, key: str) -> Assignment | None:
        self._rungs.resume(key)
        return self._launch(self.ledger.trial(key))

    def _launch(self, trial: TrialRecord) -> Assignment | None:
        """Launch the next attempt of a trial, or postpone it until its run in MLflow exists."""
        if not self._tracked.is_ready(trial.key):
            self._board.retry(trial.key, "WAITING", self._clock() + LOOK_SECONDS)
            return None
        return self._attempts.launch(trial, self._tracked.variables(trial.key))

    def _next_of_search(self) -> TrialRecord | None:
        if not self._share.may_start(self):
            return None
        return self._proposals.next([run.trial for run in self.running.values()], self.concurrency)

    def _next_confirmation(self) -> TrialRecord | None:
        """Return the next confirmation, or None while the search may still change the best trial."""
        if self._is_searching() or self._board.retries:
            return None
        self._settle_paused()
        if not self._proposals.confirmable:
            return None
        chosen = self._proposals.confirmed_next()
        return self._proposals.confirmation(chosen) if chosen and self._share.may_start(self) else None

    def _is_searching(self) -> bool:
        return any(run.trial.role == "search" for run in self.running.values())

    def _resume(self, trial: TrialRecord) -> Assignment | None:
        """Launch the next attempt of a trial, or settle the trial if it has reported its last step."""
        if (assignment := self._launch(trial)) is None:
            return None
        if self.running[assignment.attempt_id].step < trial.total_steps:
            return assignment
        self._settle_complete(assignment.attempt_id)
        return self.next_assignment()

    def _settle_complete(self, attempt_id: str) -> None:
        """Settle a trial that has reached its last step as COMPLETE, or as FAILED if it has no value."""
        run = self.running[attempt_id]
        if run.best is not None:
            self._attempts.settle(attempt_id, "COMPLETE")
            return
        must = f"a trial must report a finite {self.sweep.metric} before it ends"
        self._attempts.settle(attempt_id, "FAILED", f"error: {must} (got none by step {run.step})")

    # ---------------------------------------------------------------- decisions of users

    @property
    def overdue(self) -> Mapping[str, float]:
        """Return the attempts that must save and end at once: the time of the request, by id."""
        stopping = {
            name: self._stopping[run.trial.key]
            for name, run in self.running.items()
            if run.trial.key in self._stopping
        }
        return {**self._share.overdue, **self._unbegun, **stopping}

    def take_requests(self) -> str | None:
        """Take the requests of users about single trials: stop one, or exempt it from early stopping.

        Requests about trials that have ended are dropped. A stopping session leaves the others to the next
        driver.

        Returns:
            The name of the machine that requested a stop of the sweep, `ROOM`, or None without a request.
        """
        asker, requests = pending_requests(self.ledger, self.sweep.id)
        for request in requests:
            key = request.trial_key
            if self.stopped and self.ledger.trial(key).state in UNFINISHED_TRIAL:
                continue
            about = {f"trial.{request.decision}": by_user(request.asker)}
            self.writer.take_request(request, [events.tags(key, about, events.milliseconds(request.at))])
            trial = self.ledger.trial(key)
            if trial.state in FINISHED_TRIAL or trial.decided_by(request.decision) is None:
                continue
            if request.decision == "stop":
                self._stopping.setdefault(key, self._clock())
                self._rungs.resume(key)
            elif key not in self._stopping:
                self.exempt.add(key)
                if key in self._rungs.paused:
                    self._rungs.resume(key)
                    self._board.retry(key, "WAITING", self._clock())
        self._settle_waiting()
        return asker

    def _settle_waiting(self) -> None:
        """Settle the trials that users have stopped and that no worker trains."""
        attempts = {run.trial.key: name for name, run in self.running.items()}
        for key in tuple(self._stopping):
            trial, attempt_id = self.ledger.trial(key), attempts.get(key)
            if trial.state in FINISHED_TRIAL:
                del self._stopping[key]
            elif attempt_id is not None and not self.running[attempt_id].started:
                self._unbegun[attempt_id] = self._stopping[key]
                self._settle_stopping(attempt_id)
            elif attempt_id is None and trial.step < trial.total_steps:
                self._board.retries.remove(key)
                self._proposals.withdraw(key)
                if trial.extensions:
                    self._settle_stopping(self._attempts.launch(trial).attempt_id)
                else:
                    self._attempts.prune(trial, stopped_by_user(trial, trial.step))
                    del self._stopping[key]

    def _settle_stopping(self, attempt_id: str) -> None:
        """Settle a trial that a user has stopped; an extended one was complete before."""
        run = self.running[attempt_id]
        trial = self.ledger.trial(run.trial.key)
        was_complete = trial.role == "search" and trial.extensions and run.best is not None
        state: TrialState = "COMPLETE" if was_complete else "PRUNED"
        self._rungs.resume(trial.key)
        self._attempts.settle(attempt_id, state, stopped_by_user(trial, run.step))
        del self._stopping[trial.key]

    def settle_stopped(self, keys: Collection[str]) -> None:
        """Settle the unfinished trials among `keys`, which the scheduler stopped before their driver died."""
        for key in self._board.retries.in_order():
            if key in keys and (trial := self.ledger.trial(key)).step < trial.total_steps:
                self._board.retries.remove(key)
                self._attempts.settle(
                    self._attempts.launch(trial).attempt_id, "PRUNED", self.reasons.get(key)
                )

    def settle_extended(self) -> None:
        """Settle the unfinished extended trials, which were complete before, once the budget is spent."""
        if self.stopped is None or self.stopped.state != "COMPLETE":
            return
        for key in self._board.retries.in_order():
            if (trial := self.ledger.trial(key)).role == "search" and trial.extensions:
                self._board.retries.remove(key)
                cause = f"extension ended: {self.stopped.reason}"
                self._attempts.settle(self._attempts.launch(trial).attempt_id, "COMPLETE", cause)

    def _settle_paused(self) -> None:
        """Settle the paused trials at the end of the search, when none of them can be promoted any more."""
        for key in tuple(self._rungs.paused):
            self._rungs.resume(key)
            self._attempts.prune(self.ledger.trial(key), self.reasons.get(key))

    def follow(self, rungs: Rungs) -> None:
        """Pause trials at rungs, and resume those that are promoted.

        Trials that have ended, or gone on, since the reports that the rungs have seen are not paused.

        Args:
            rungs: Rungs that have seen the reports of earlier drivers.
        """
        unfinished = set(self._board.retries.in_order())
        for key in tuple(rungs.paused):
            if key in unfinished and self._has_reported(key):
                self._board.retries.remove(key)
            else:
                rungs.resume(key)
        states: tuple[TrialState, ...] = ("FAILED", "DIVERGED")
        for trial in chain.from_iterable(self.ledger.trials_in_state(self.sweep.id, each) for each in states):
            if trial.role == "search":
                rungs.fail(trial.key)
        self._rungs = rungs

    def _has_reported(self, key: str) -> bool:
        """Return True if the newest attempt of a trial has reported, unlike that of a trial just promoted."""
        attempt = self.ledger.last_attempt(key)
        return attempt is not None and attempt.id in self.ledger.reporters(key)

    # ---------------------------------------------------------------- outcomes

    def started(self, attempt_id: str) -> None:
        """Record that a worker has taken an attempt."""
        self._attempts.started(attempt_id)

    def reported(self, attempt_id: str, outcome: Outcome) -> None:
        """Commit an outcome: its metrics and its checkpoint; see `Attempts.reported`."""
        self._attempts.reported(attempt_id, outcome)

    def refused(self, attempt_id: str, outcome: Outcome, loan: str | None) -> str | None:
        """Return an error message if an outcome does not belong to an attempt, which then counts as lost.

        See `orchestrator.session.attempts.foreign`.
        """
        if why := foreign(attempt_id, outcome, loan):
            self.refuse(attempt_id, why)
        return why

    def refuse(self, attempt_id: str, why: str) -> str:
        """Reject a foreign report for an attempt; return the cause of the attempt's end."""
        self._attempts.refuse(attempt_id, why)
        return FOREIGN

    def completed(self, attempt_id: str) -> None:
        """Settle an attempt that ended without an error: complete, pruned, interrupted or failed."""
        run = self.running.get(attempt_id)
        if run is None:
            return
        outcome, donor = run.last, self._exploits.pop_donor(run.trial.key)
        is_shed = run.cause == "shared" or attempt_id in self._share.overdue
        if outcome is not None and outcome.failure is not None:
            self.failed(attempt_id, outcome.failure, outcome.message)
        elif run.refused is not None:
            self.failed(attempt_id, FOREIGN)
        elif run.trial.key in self._stopping and not (
            outcome is not None and (outcome.complete or outcome.step >= run.trial.total_steps)
        ):
            self._settle_stopping(attempt_id)
        elif outcome is not None and (run.scheduled or math.inf) <= outcome.step < run.trial.total_steps:
            self._attempts.lengthen(attempt_id)
        elif outcome is not None and (outcome.complete or outcome.step >= run.trial.total_steps):
            self._settle_complete(attempt_id)
        elif run.trial.key in self._rungs.paused:
            self._attempts.pause(attempt_id)
        elif is_shed or outcome is None or outcome.interrupted or self.stopped:
            self._attempts.requeue(attempt_id, "shared" if is_shed else "interrupted", 0.0)
        elif donor is not None:
            self._exploit(attempt_id, donor)
        else:
            self._attempts.settle(attempt_id, "PRUNED", self.reasons.get(run.trial.key))

    def _exploit(self, attempt_id: str, donor: str) -> None:
        """End an attempt whose trial copies its donor; postpone that during an outage of the store."""
        key = self.running[attempt_id].trial.key
        try:
            self._attempts.supersede(self._exploits.apply(attempt_id, donor))
            self._proposals.follow(self.ledger.trial(key))
        except NoStore as lost:
            self._outages.begin("store lost", lost.got)
            self._exploits.postpone(attempt_id, donor)
            self.condemn(attempt_id, "interrupted")  # its worker has left, so no report will come
            return
        except DamagedCheckpoint:
            self._attempts.requeue(attempt_id, "interrupted", 0.0)  # the trial keeps its own state
            return
        self._attempts.remove(attempt_id)
        self._board.retry(key, "WAITING", self._clock())

    def failed(self, attempt_id: str, cause: str, message: str | None = None) -> None:
        """Retry a failed attempt if its cause allows it, or settle the trial as FAILED or DIVERGED."""
        run = self.running.get(attempt_id)
        if run is None:
            return
        cause = run.cause or cause
        if cause == "damaged checkpoint" and run.resumed is not None:
            # The next attempt resumes the checkpoint before it, or starts over if there is none.
            self.writer.drop_checkpoint(run.trial.key, Path(run.resumed))
        if cause in WHAT:
            self._outages.begin(cause, message)
        clear_trial(self.writer, run.trial.key, self.paths.trial_checkpoints(self.sweep.id, run.trial.key))
        if run.trial.key in self._stopping:
            self._settle_stopping(attempt_id)
            return
        past, progressed = self.ledger.trial_attempts(run.trial.key), self.ledger.reporters(run.trial.key)
        wait = wait_before_retry(cause, past, progressed)
        if self._alike_failures.are_enough(cause, message) and not any(
            trial.reported_at is not None for trial in self.ledger.trials(self.sweep.id)
        ):
            wait = None
            remedy = f"Correct it, then run `sweep retry-failed {self.sweep.id}`."
            self.stop(
                f"{ALIKE_FAILURES} attempts failed alike before any report: {message} {remedy}", "COMPLETE"
            )
        if wait is None:
            self._fail(attempt_id, cause, message)
        else:
            self._attempts.requeue(attempt_id, cause, wait)

    def _fail(self, attempt_id: str, cause: str, message: str | None) -> None:
        """Settle a trial that is not retried: DIVERGED, FAILED, or COMPLETE if its extension has failed."""
        run = self.running[attempt_id]
        ended = f"diverged at step {run.failed_at}" if cause == DIVERGED else cause
        why = f"{ended}: {message}" if message else ended
        if run.trial.role == "search" and run.trial.extensions and run.best is not None:
            self._attempts.settle(attempt_id, "COMPLETE", f"extension failed: {why}")
            return
        self._attempts.settle(attempt_id, "DIVERGED" if cause == DIVERGED else "FAILED", why)
        if run.trial.role == "search":
            self._rungs.fail(run.trial.key)

    def has_lost_its_slot(self, attempt_id: str) -> bool:
        """Return True if the trial of an attempt has lost its slot without progress since."""
        key = trial_key_of(attempt_id)
        recent = since_progress(self.ledger.trial_attempts(key), self.ledger.reporters(key))
        return any(attempt.cause == "slot lost" for attempt in recent)

    def exploit(self, trial_key: str, step: int, donors: Sequence[str]) -> bool:
        """Choose a donor that the trial's next attempt copies; return False if there is none.

        See `Exploits.plan`.
        """
        if self.stopped or trial_key in self.exempt or trial_key in self._stopping:
            return False
        return self._exploits.plan(trial_key, step, donors)

    # ---------------------------------------------------------------- stopping

    def stop(self, reason: str, state: SweepState) -> None:
        """Launch nothing more. The reason of the first call is kept. Attempts without a worker end at once.

        The running attempts end at their next report, or earlier if the stop request reaches their workers.
        The driver kills those that do neither; see `silent`.
        """
        if self.stopped is None:
            self.stopped, self._stopped_at = Stop(reason, state), self._clock()
        unstarted = [name for name, run in self.running.items() if not run.started]
        for attempt_id in (*unstarted, *self._exploits.pop_postponed()):
            self._attempts.requeue(attempt_id, "interrupted", 0.0)

    def sheds(self, attempt_id: str) -> bool:
        """Return True if an attempt that has just reported is stopped by a user or preempted.

        The trial of one that is preempted for another sweep is not charged and is launched next.
        """
        run = self.running.get(attempt_id)
        if attempt_id in self._unbegun or (run is not None and run.trial.key in self._stopping):
            return True
        if attempt_id not in self._share.leaving or run is None:
            return False
        run.cause = run.cause or "shared"
        return True

    def check_limits(self) -> None:
        """Stop on request, after a lasting shortage, when all trials fail, or when the budget is spent.

        Call it often: it also takes requests about trials, deletes superseded checkpoints, detects the end of
        an outage, and records how similar the earlier sweeps and the known results are.
        """
        self._attempts.delete_superseded()
        self._record_similarities()
        asker = self.take_requests()
        if self.stopped:
            return
        self._outages.poll()
        if not self._outages.reason:
            for attempt_id, donor in self._exploits.pop_postponed().items():
                self._exploit(attempt_id, donor)
        self._drop_unbegun()
        if asker:
            self.stop(reason_of(asker), "INTERRUPTED")
        elif shortage := self._lasting_shortage():
            self.stop(f"waited {self._longest_wait:g} s: {shortage}", "INTERRUPTED")
        elif why := hopeless(self.sweep.budget, self._board.counts):
            self.stop(why, "COMPLETE")
        elif over := self._over_budget():
            self.stop(over, "COMPLETE")

    def _record_similarities(self) -> None:
        """Record how similar each earlier sweep and known source is, if a trial has changed that."""
        found = {source: similarity.facts() for source, similarity in self._study.similarities.items()}
        if found != self._similarities:
            record = self._record
            self.writer.amend_sweep(record.document, record.digest, {**record.facts, SIMILARITY: found})
            self._similarities = found

    def _lasting_shortage(self) -> str | None:
        """Return the reason why no attempt has run for too long, or None.

        Time in which other sweeps use all resources does not count.
        """
        if self._outages.reason:
            return None
        now = self._clock()
        if not self.running and (waiting := self._share.waiting):
            self._shortage.update(waiting, now, counts=False)
            return None
        starting = any_active([*self.running.values()], now, self._resources.placed)
        room = starting or (not self.running and self._resources.capacity() > 0)
        reason = None if room else self._resources.shortage()
        return reason if self._shortage.update(reason, now) > self._longest_wait else None

    @property
    def _longest_wait(self) -> float:
        return self._busy_wait if self._resources.capacity() else self._node_wait

    def _over_budget(self) -> str | None:
        budget = self.sweep.budget
        if budget.hours is None and budget.gpu_hours is None:
            return None
        return overspent(budget, self._attempts.spent())

    # ---------------------------------------------------------------- watching

    def silent(self, deadline: float) -> list[str]:
        """Return the started attempts that have been silent for too long and must be killed.

        Args:
            deadline: Longest silence of an attempt in seconds; an attempt that was asked to end has less
                time.
        """
        silent = self._attempts.silent(deadline, self._stopped_at)
        return [*silent, *(self._attempts.ignoring(self.overdue) - set(silent))]

    def condemn(self, attempt_id: str, cause: str) -> None:
        """Record the cause for which the driver is about to kill an attempt.

        A trial is not charged if the session is stopping or preempts it, because the driver has not waited
        long enough to know that the attempt hangs.
        """
        is_shed = attempt_id in self._share.overdue
        self.running[attempt_id].cause = "interrupted" if self.stopped else "shared" if is_shed else cause

    def progress(self) -> Progress:
        """Return the counts, the best trial so far and an estimate of the time left."""
        wanted = self._proposals.wanted
        if paused := self._outages.reason:
            return self._board.progress(wanted, "PAUSED", paused, None)
        waiting = self._shortage.reason
        return self._board.progress(
            wanted, "WAITING" if waiting else "RUNNING", waiting, self._time_left(wanted)
        )

    def _time_left(self, wanted: int) -> TimeLeft | None:
        """Return an estimate of the time left, made again when a trial has ended and every few seconds."""
        now, settled = self._clock(), self._board.settled
        at, before, _ = self._estimate
        if before != (wanted, settled, len(self.running)) or now - at >= ESTIMATE_SECONDS:
            left = max(0, wanted - settled - len(self.running))
            estimate = time_left(
                [*self._attempts.took],
                [run.time(now) for run in self.running.values()],
                waiting=left,
                places=max(len(self.running), min(self.concurrency, len(self.running) + left)),
                stops_early=self.sweep.scheduler.name not in RUN_TO_THE_END,
            )
            self._estimate = now, (wanted, settled, len(self.running)), estimate
        return self._estimate[2]
