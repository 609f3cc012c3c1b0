"""One run of a sweep: what is tried next, and what each result means.

The session sits between Ray Tune (which asks for attempts and hands in outcomes), the study (which proposes)
and the ledger (which is true). Write order: an assignment is committed before it is launched; a checkpoint is
durable before its row is committed, and the one it supersedes is deleted after; a final value is committed
before the study is told. Everything here runs in the driver, in one thread.
"""

from __future__ import annotations

import heapq
import math
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator.assignment import Assignment, Outcome
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.leftovers import clear_trial
from orchestrator.ledger.records import (
    UNFINISHED_TRIAL,
    CheckpointKind,
    CheckpointRecord,
    Event,
    Role,
    Segment,
    SweepState,
    TrialRecord,
    TrialState,
)
from orchestrator.ledger.wishes import asked_to_stop
from orchestrator.session.budget import spent
from orchestrator.session.choice import choose
from orchestrator.session.grouping import pick
from orchestrator.session.population import Mutation
from orchestrator.session.progress import SETTLED, Progress, seconds_left
from orchestrator.session.retries import UNCHARGED, wait_before_retry
from orchestrator.spec.model import Sweep
from orchestrator.storage import store
from orchestrator.storage.paths import Paths
from orchestrator.tracking import events

if TYPE_CHECKING:
    # Optuna takes a second to import, and whoever only shows progress imports this module too.
    from orchestrator.study.study import Study

HOPELESS_AFTER = 8
"""A sweep whose first settled trials, this many, have all failed is stopped: the next ones would fail too."""


SLOW_START = 120.0
"""Seconds that an attempt may take to start where nothing else runs, before it is said to wait for a node."""


class Lacking(NamedTuple):
    """That nothing runs for want of a node: since when, by the session's clock, and what there is."""

    since: float
    reason: str


@dataclass
class Running:
    """An attempt that a worker holds.

    Attributes:
        trial: the trial's row as it was when the attempt started.
        resumed: checkpoint folder that it went on from, or None.
        step: last step reported.
        best: best validation value so far, or None.
        best_step: its step.
        best_metrics: all that was reported with it.
        reported_at: time of the launch, then of the last sign of life, by the session's clock.
        last: the last outcome, or None.
        cause: why the driver itself ended the attempt, if it did.
        started: whether a worker has taken it; until then it waits for its resources.
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
    started: bool = False


class Proposed(NamedTuple):
    """Hyperparameters to train with, and what the sampler must find again."""

    params: Mapping[str, Any]
    system_attrs: Mapping[str, Any]


@dataclass(frozen=True)
class Stop:
    """Why a session launches nothing more.

    Attributes:
        reason: for people.
        state: what the sweep then is: INTERRUPTED, PAUSED until somebody makes room, or COMPLETE.
    """

    reason: str
    state: SweepState


class Session:
    """The decisions of one driver over one sweep.

    Attributes:
        running: attempts that workers hold, by id.
        stopped: why nothing more is launched, or None.
        capacity: tells how many attempts fit on the cluster now.
        lack: tells why none starts now.
        patience: seconds to wait for a node while there is none that a trial fits on.
    """

    def __init__(
        self,
        sweep: Sweep,
        ledger: Ledger,
        study: Study,
        paths: Paths,
        data: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sweep, self.ledger, self.study, self.paths, self.data = sweep, ledger, study, paths, data
        self.running: dict[str, Running] = {}
        self.stopped: Stop | None = None
        self.capacity: Callable[[], int] = lambda: 1
        self.lack: Callable[[], str] = lambda: "no node"
        self.patience = 10.0
        self._lacking: Lacking | None = None
        self._clock, self._began = clock, clock()
        self._states: dict[str, TrialState] = {}
        self._best: tuple[str, float] | None = None
        self._waiting: list[tuple[float, str]] = []
        self._proposed: list[TrialRecord] = []
        self._donors: dict[str, str] = {}
        self._next_number, self._exhausted = 0, False
        self._confirmations = 0
        self._settled_before = 0
        for trial in ledger.trials(sweep.id):
            self._adopt(trial)
        self._settled_before = self.progress().settled

    def _adopt(self, trial: TrialRecord) -> None:
        """Take a trial of an earlier driver over: an unfinished one waits for its next attempt."""
        if trial.role == "search":
            self._next_number = max(self._next_number, trial.number + 1)
        else:
            self._confirmations = max(self._confirmations, trial.number + 1)
        self._states[trial.key] = trial.state
        if trial.state in UNFINISHED_TRIAL:
            self._states[trial.key] = "WAITING"
            heapq.heappush(self._waiting, (0.0, trial.key))
        elif trial.state == "COMPLETE" and trial.role == "search":
            self._note_best(trial.key, trial.value)

    # ---------------------------------------------------------------- what is next

    def next_assignment(self) -> Assignment | None:
        """Return the next attempt to launch, committed to the ledger; None if there is none now."""
        if self.stopped or len(self.running) >= self.concurrency:
            return None
        if self._waiting and self._waiting[0][0] <= self._clock():
            _, key = heapq.heappop(self._waiting)
            return self._go_on(self.ledger.trial(key))
        if len(self.running) + len(self._waiting) >= self.concurrency:
            return None  # a trial that waits to be retried keeps its place: a new one might hold it for hours
        return self._confirm() if self._asked_all and not self._proposed else self._search()

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
        left = self.progress().wanted - self.progress().settled
        return min(left, self.sweep.resources.concurrent or left)

    @property
    def finished(self) -> bool:
        """Tell whether no attempt is running and none will ever be launched again."""
        if self.running:
            return False
        left = self._waiting or self._proposed or not self._asked_all or self._unconfirmed
        return self.stopped is not None or not left

    @property
    def _asked_all(self) -> bool:
        return self._exhausted or self._next_number >= self.sweep.budget.trials

    @property
    def _unconfirmed(self) -> bool:
        """Tell whether the chosen hyperparameters are still to be trained with another fresh seed."""
        return self._best is not None and self._confirmations < self.sweep.confirm.seeds

    def _confirm(self) -> Assignment | None:
        """Launch the next confirmation, once no trial of the search can change the choice any more."""
        searching = any(run.trial.role == "search" for run in self.running.values())
        if searching or self._waiting or not self._unconfirmed:
            return None
        chosen = choose(self.sweep, self.ledger.trials(self.sweep.id, role="search"))
        if chosen is None:
            return None
        number = self._confirmations
        key = f"{self.sweep.id}-c{number}"
        seed = self.sweep.confirmation_seed(number)
        self._confirmations += 1
        return self._launch(self._enter(key, number, "confirmation", Proposed(chosen.params, {}), seed))

    def _search(self) -> Assignment | None:
        """Launch a trial of the search, of a static choice that runs already if there is one."""
        ahead = self.concurrency if self._several_programs else 1
        while len(self._proposed) < ahead and not self._asked_all:
            self._ask()
        if not self._proposed:
            return None
        running = [self._static(run.trial) for run in self.running.values()]
        return self._launch(self._proposed.pop(pick([*map(self._static, self._proposed)], running)))

    @cached_property
    def _several_programs(self) -> bool:
        """Tell whether the search goes over static choices, each of which is a program of its own."""
        free = self.sweep.settings(self.sweep.largest(), seed=0).free()
        return not self.sweep.search.keys() <= {"seed", *free}

    def _static(self, trial: TrialRecord) -> Hashable:
        return self.sweep.settings(trial.params, trial.seed).static()

    def _ask(self) -> None:
        """Enter one more trial, to be launched when its turn comes."""
        number = self._next_number
        proposal = self.study.ask(number)
        if proposal is None:
            self._exhausted = True
            return
        self._next_number = number + 1
        key = f"{self.sweep.id}-{number}"
        drawn = Proposed(proposal.params, proposal.system_attrs)
        seed = self.sweep.trial_seed(number, proposal.params)
        self._proposed.append(self._enter(key, number, "search", drawn, seed))

    def _enter(self, key: str, number: int, role: Role, drawn: Proposed, seed: int) -> TrialRecord:
        """Commit a new trial."""
        trial = TrialRecord(
            key=key,
            sweep_id=self.sweep.id,
            number=number,
            role=role,
            state="WAITING",
            cause=None,
            params=dict(drawn.params),
            system_attrs=dict(drawn.system_attrs),
            seed=seed,
            value=None,
            best_step=None,
            step=0,
            total_steps=self.sweep.settings(drawn.params, seed).training.steps,
            attempts=0,
            created_at=time.time(),
        )
        self.ledger.add_trial(trial, events=[events.trial_started(trial, self.sweep)])
        self._states[key] = "WAITING"
        return trial

    def _go_on(self, trial: TrialRecord) -> Assignment | None:
        """Launch the next attempt of a trial, or settle it if only that was missing when its driver died."""
        assignment = self._launch(trial)
        if self.running[assignment.attempt_id].step < trial.total_steps:
            return assignment
        self._settle(assignment.attempt_id, "COMPLETE")
        return self.next_assignment()

    def settle_stopped(self, keys: Collection[str]) -> None:
        """Settle trials that the scheduler had stopped when their driver died, before that was committed."""
        for due, key in sorted(self._waiting):
            trial = self.ledger.trial(key)
            if key in keys and trial.step < trial.total_steps:
                self._waiting.remove((due, key))
                self._settle(self._launch(trial).attempt_id, "PRUNED")
        heapq.heapify(self._waiting)

    def _launch(self, trial: TrialRecord) -> Assignment:
        attempt = self.ledger.start_attempt(trial.key)
        self._states[trial.key] = "RUNNING"
        rows = self.ledger.checkpoints(trial.key)
        last = next((row for row in rows if row.kind == "last"), None)
        best = next((row for row in rows if row.kind == "best"), None)
        resume = str(self.paths.at_hand(self.sweep.id, trial.key, last.path)) if last else None
        self.running[attempt.id] = Running(
            trial,
            resume,
            last.step if last else 0,
            best.metrics[self.sweep.metric] if best else None,
            best.step if best else None,
            self._clock(),
            best.metrics if best else None,
        )
        return Assignment(
            attempt_id=attempt.id,
            trial_key=trial.key,
            number=trial.number,
            settings=self.sweep.settings(trial.params, trial.seed),
            cpu=self.sweep.resources.cpu,
            gpu=self.sweep.resources.gpu,
            data=str(self.data),
            checkpoints=str(self.paths.trial_checkpoints(self.sweep.id, trial.key)),
            resume=resume,
            resume_digest=last.digest if last else None,
            stop_wish=str(self.paths.stop_wish(self.sweep.id)),
            log=str(self.paths.log(self.sweep.id, trial.key)),
            compilations=str(self.paths.compilations),
            store=self.paths.stored(self.sweep.id, trial.key),
        )

    # ---------------------------------------------------------------- what came back

    def started(self, attempt_id: str) -> None:
        """Note that a worker has taken an attempt."""
        if run := self.running.get(attempt_id):
            run.started, run.reported_at = True, self._clock()

    def reported(self, attempt_id: str, outcome: Outcome) -> None:
        """Commit an outcome: its curve points, its checkpoint, and what both make of the trial."""
        run = self.running.get(attempt_id)
        if run is None:
            return  # it found its place when nobody waited for it any more
        run.started = True
        if outcome.waiting:
            run.reported_at = self._clock()
            return
        outcome = self._judged(outcome)
        run.last, run.reported_at = outcome, self._clock()
        if outcome.failure is not None:
            return
        kinds: list[CheckpointKind] = ["last"]
        if outcome.metrics and self._improves(run, outcome):
            kinds.append("best")
        run.step = outcome.step
        superseded = self.ledger.record_report(
            attempt_id,
            outcome.step,
            outcome.metrics,
            checkpoints=[_checkpoint_row(run.trial.key, outcome, kind) for kind in kinds],
            events=self._points(run, outcome),
        )
        for folder in superseded:
            self._delete(run.trial.key, folder)

    def _delete(self, trial_key: str, folder: Path) -> None:
        """Delete a checkpoint that no row refers to any more, wherever it is."""
        shutil.rmtree(folder, ignore_errors=True)
        if url := self.paths.stored(self.sweep.id, trial_key):
            store.drop_later(folder, url)

    def _judged(self, outcome: Outcome) -> Outcome:
        """Turn an objective that is no number into a failure; the study must never see it."""
        value = outcome.metrics.get(self.sweep.metric, 0.0)
        if math.isfinite(value):
            return outcome
        told = f"{self.sweep.metric} is {value}"
        return replace(outcome, done=True, metrics={}, failure="non-finite", message=told)

    def _improves(self, run: Running, outcome: Outcome) -> bool:
        value = outcome.metrics[self.sweep.metric]
        if run.trial.role == "search":
            self.study.report(run.trial.number, outcome.step, value)
        if run.best is not None and not self._better(value, run.best):
            return False
        run.best, run.best_step, run.best_metrics = value, outcome.step, outcome.metrics
        if run.trial.role == "search":
            self._note_best(run.trial.key, value)
        return True

    def _points(self, run: Running, outcome: Outcome) -> list[Event]:
        if not outcome.metrics:
            return []
        now = events.milliseconds(time.time())
        return [events.metrics(run.trial.key, outcome.step, outcome.metrics, now)]

    def completed(self, attempt_id: str) -> None:
        """Settle an attempt whose process lives on: complete, pruned, interrupted or failed."""
        run = self.running.get(attempt_id)
        if run is None:
            return
        outcome, donor = run.last, self._donors.pop(run.trial.key, None)
        if outcome is not None and outcome.failure is not None:
            self.failed(attempt_id, outcome.failure, outcome.message)
        elif outcome is not None and outcome.step >= run.trial.total_steps:
            self._settle(attempt_id, "COMPLETE")
        elif outcome is None or outcome.interrupted or self.stopped:
            self._requeue(attempt_id, "interrupted", 0.0)
        elif donor is not None:
            self._go_on_from(attempt_id, donor)
        else:
            self._settle(attempt_id, "PRUNED")

    def exploit(self, trial_key: str, step: int, donors: Sequence[str]) -> bool:
        """Note whom a trial shall go on from, once its attempt has stopped; tell whether anybody can be had.

        Args:
            trial_key: of the trial.
            step: that it has reached.
            donors: better trials, the best first.
        """
        if self.stopped:
            return False
        static = self._static(self.ledger.trial(trial_key))
        for key in donors:
            donor = self.ledger.trial(key)
            if step <= donor.step < donor.total_steps and self._static(donor) == static:
                self._donors[trial_key] = key
                return True
        return False

    def _go_on_from(self, attempt_id: str, donor_key: str) -> None:
        """End an attempt; the trial's next one has the donor's state, and hyperparameters next to its own."""
        run, donor = self.running.pop(attempt_id), self.ledger.trial(donor_key)
        key = run.trial.key
        theirs = next(row for row in self.ledger.checkpoints(donor_key) if row.kind == "last")
        source = store.at_hand(self.paths, self.sweep.id, donor_key, theirs.path)
        folder = self.paths.trial_checkpoints(self.sweep.id, key) / f"{source.name}-{donor.number}"
        shutil.copytree(source, folder, dirs_exist_ok=True)
        if url := self.paths.stored(self.sweep.id, key):
            store.keep(folder, url)
        chance = random.Random(f"{self.sweep.sampler.seed}/{attempt_id}")
        params = self._mutation.applied(donor.params, self.sweep.search, chance)
        segment = Segment(theirs.step, donor_key, params)
        now = events.milliseconds(time.time())
        told = events.tags(key, {f"segment.{attempt_id.rpartition('.')[2]}": asdict(segment)}, now)
        row = replace(theirs, trial_key=key, path=str(folder))
        self.ledger.exploit(attempt_id, segment, row, events=[told])
        self._states[key] = "WAITING"
        heapq.heappush(self._waiting, (self._clock(), key))

    @cached_property
    def _mutation(self) -> Mutation:
        options = self.sweep.scheduler.options
        low, high = options["factors"]
        return Mutation(options["mutations"], options["resample"], (low, high))

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
            self._settle(attempt_id, "FAILED", f"{cause}: {message}" if message else cause)
        else:
            self._requeue(attempt_id, cause, wait)

    def _requeue(self, attempt_id: str, cause: str, wait: float) -> None:
        run = self.running.pop(attempt_id)
        key = run.trial.key
        if cause in UNCHARGED:
            self.ledger.end_attempt(attempt_id, "LOST", cause, trial_state="PREEMPTED")
            self._states[key] = "PREEMPTED"
        else:
            self.ledger.end_attempt(attempt_id, "FAILED", cause, trial_state="WAITING")
            self._states[key] = "WAITING"
        heapq.heappush(self._waiting, (self._clock() + wait, key))

    def _settle(self, attempt_id: str, state: TrialState, cause: str | None = None) -> None:
        run = self.running.pop(attempt_id)
        trial = run.trial
        value = None if state == "FAILED" else run.best
        now = events.milliseconds(time.time())
        self.ledger.end_attempt(
            attempt_id,
            "FAILED" if state == "FAILED" else "ENDED",
            cause,
            trial_state=state,
            value=value,
            best_step=run.best_step,
            events=[events.trial_ended(trial.key, state, cause, run.step, value, now)],
        )
        self._states[trial.key] = state
        if trial.role == "search":
            self.study.tell(trial.number, state, value, run.step, run.best_metrics)

    # ---------------------------------------------------------------- when it ends early

    def stop(self, reason: str, state: SweepState) -> None:
        """Launch nothing more, and ask every worker to save and leave; the first reason stands."""
        if self.stopped is None:
            self.stopped = Stop(reason, state)
        for attempt_id in [name for name, run in self.running.items() if not run.started]:
            self._requeue(attempt_id, "interrupted", 0.0)
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
        elif self._hopeless():
            self.stop(f"the first {HOPELESS_AFTER} trials all failed", "COMPLETE")
        elif over := self._over_budget():
            self.stop(over, "COMPLETE")

    def _waited_in_vain(self) -> str | None:
        """Say in the ledger whether the sweep waits for a node, and why; return why if it took too long."""
        before, self._lacking = self._lacking, None
        if self._has_room():
            if before is not None:
                self.ledger.set_sweep_state(self.sweep.id, "RUNNING")
            return None
        lack = self.lack()
        since = before.since if before else self._clock()
        if before is None or before.reason != lack:
            self.ledger.set_sweep_state(self.sweep.id, "WAITING", lack)
        self._lacking = Lacking(since, lack)
        return lack if self._clock() - since > self.patience else None

    def _has_room(self) -> bool:
        """Tell whether an attempt runs, or is about to: a worker takes a while to start."""
        now = self._clock()
        if any(run.started or now - run.reported_at <= SLOW_START for run in self.running.values()):
            return True
        return not self.running and self.capacity() > 0

    def _hopeless(self) -> bool:
        settled = Counter(state for state in self._states.values() if state in SETTLED)
        return settled["FAILED"] >= HOPELESS_AFTER and settled["FAILED"] == settled.total()

    def _over_budget(self) -> str | None:
        budget, gpu = self.sweep.budget, self.sweep.resources.gpu
        if budget.hours is None and budget.gpu_hours is None:
            return None
        total = spent(self.ledger.attempts(self.sweep.id), now=time.time())
        if budget.hours is not None and total.hours >= budget.hours:
            return f"the budget of {budget.hours:g} hours is spent"
        if budget.gpu_hours is not None and gpu * total.attempt_hours >= budget.gpu_hours:
            return f"the budget of {budget.gpu_hours:g} GPU hours is spent"
        return None

    def silent(self, deadline: float) -> list[str]:
        """Return the attempts that run, and have reported nothing for `deadline` seconds."""
        now = self._clock()
        late = [name for name, run in self.running.items() if now - run.reported_at > deadline]
        return [name for name in late if self.running[name].started and self.running[name].cause is None]

    def condemn(self, attempt_id: str, cause: str) -> None:
        """Note why the driver itself ends an attempt; its process's death is then no surprise."""
        self.running[attempt_id].cause = cause

    # ---------------------------------------------------------------- what a person sees

    def _better(self, value: float, than: float) -> bool:
        return value > than if self.sweep.direction == "maximize" else value < than

    def _note_best(self, key: str, value: float | None) -> None:
        if value is not None and (self._best is None or self._better(value, self._best[1])):
            self._best = (key, value)

    def progress(self) -> Progress:
        """Return the counts, the best so far and an estimate of the time left."""
        key, value = self._best or (None, None)
        wanted = self.sweep.budget.trials + self.sweep.confirm.seeds
        lacking = self._lacking.reason if self._lacking else None
        now = Progress(dict(Counter(self._states.values())), wanted, key, value, waiting=lacking)
        elapsed = self._clock() - self._began
        return replace(now, seconds_left=seconds_left(now.settled, self._settled_before, now.wanted, elapsed))


def _checkpoint_row(key: str, outcome: Outcome, kind: CheckpointKind) -> CheckpointRecord:
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
