"""Replay: the cost and the result of a scheduler on recorded learning curves.

The decisions are those of the scheduler that real sweeps use. Time is simulated: each trial takes the time
that its curve says, and a worker that is free takes the next trial at once.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any, Literal

import numpy as np
from ray.tune.schedulers import TrialScheduler

from orchestrator.assignment import shown_as
from orchestrator.config.strategy import SCHEDULERS
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.sweeps.records import (
    FINISHED_TRIAL,
    CurvePoint,
    TrialRecord,
    by_trial,
    is_confirmation,
    trial_key,
)
from orchestrator.ledger.sweeps.selection import last_reports
from orchestrator.schedule import schedulers
from orchestrator.schedule.keyed import NO_CONTROLLER, KeyedScheduler, KeyedTrial

Ending = Literal["COMPLETE", "FAILED", "PRUNED"]

_ENDINGS: Mapping[str, Ending] = {
    "COMPLETE": "COMPLETE",
    "PRUNED": "PRUNED",
    "DIVERGED": "FAILED",
    "FAILED": "FAILED",
}
"""Ending of a curve by the state of its trial; a diverged trial counts as failed."""
Tail = Literal["runs", "stops"]
"""Behaviour of a trial beyond its last recorded report: it runs to its last step, or stops at once."""


@dataclass(frozen=True)
class LearningCurve:
    """Reports of a trial.

    Attributes:
        steps: Steps of the reports, rising.
        values: Values of the objective at these steps, finite.
        compared: Values of the metric that the scheduler compares; None if that is the objective.
        ending: COMPLETE at the last step, or FAILED or PRUNED after the last report. The later reports of a
            PRUNED trial are unknown.
        cost: Cost of the whole trial, in any unit: trainings, seconds.
        is_stopped: Whether a user has stopped the trial after its last report, which no scheduler changes.
        is_exempt: Whether a user has exempted it from early stopping.
    """

    steps: Sequence[int]
    values: Sequence[float]
    ending: Ending
    cost: float = 1.0
    compared: Sequence[float] | None = None
    is_stopped: bool = False
    is_exempt: bool = False


@dataclass
class Replayed:
    """Result of a replay.

    Attributes:
        cost: Cost of all trials, in the unit of the curves.
        time: Time of the last end of a trial, in the same unit.
        endings: State and last step of each trial, by number.
        unknown: Trials that continued beyond the end of their curves.
        best: Number of the best complete trial, or None if none is complete.
    """

    cost: float = 0.0
    time: float = 0.0
    endings: dict[int, tuple[Ending, int]] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)
    best: int | None = None


class ReplayObserver:
    """Observer of a replay, such as a study; this class ignores all events."""

    def reported(self, number: int, step: int, value: float) -> None:
        """Note a report of a trial."""

    def ended(self, number: int, ending: Ending, value: float | None, step: int) -> None:
        """Note the end of a trial with its best value."""


class Replay:
    """One replay.

    Args:
        sweep: Specification with the scheduler, the objective and the number of steps.
        launch: Function that returns the curve of the trial of a number, counted from 0, or None if there is
            no further trial.
        workers: Number of trials that run at a time.
        tail: Behaviour of a trial beyond its last recorded report.
        observer: Observer of reports and ends.
        pace: Function that returns a factor of the time of an interval; it does not change the cost.
    """

    def __init__(
        self,
        sweep: SweepConfig,
        launch: Callable[[int], LearningCurve | None],
        workers: int,
        tail: Tail = "runs",
        observer: ReplayObserver | None = None,
        pace: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self._sweep, self._launch, self._workers, self._tail = sweep, launch, workers, tail
        self._observer, self._pace = observer or ReplayObserver(), pace
        self._sign = 1 if sweep.direction == "maximize" else -1
        self._last_reports = last_reports(sweep.reports)
        self._exempt: set[str] = set()
        self._scheduler = schedulers.build(sweep, (), exempt=self._exempt)
        adapter = SCHEDULERS[sweep.scheduler.name]
        self._milestones = adapter.milestones(sweep, sweep.scheduler.options)
        self._curves: list[LearningCurve] = []
        self._shown: list[list[int]] = []  # indices of the reports on which the scheduler may decide
        self._position: list[int] = []
        self._trained: list[int] = []
        self._best: list[float] = []
        self._running: list[tuple[float, int, int]] = []
        self._events = 0
        self._result = Replayed()

    def run(self) -> Replayed:
        """Run the replay until no trial is left."""
        now, is_open = 0.0, True
        while True:
            while len(self._running) < self._workers:
                number = self._resumed(is_open=is_open)
                if number is None:
                    is_open = is_open and (curve := self._launch(len(self._curves))) is not None
                    if not is_open:
                        number = self._resumed(is_open=False)
                        if number is None:
                            break
                    else:
                        assert curve is not None
                        number = self._enter(curve)
                self._go_on(number, now)
            if not self._running:
                break
            now, _, number = heapq.heappop(self._running)
            self._result.time = now
            self._arrive(number, now)
        for key in self._scheduler.rungs.paused:
            number = _number(key)
            self._end(number, "PRUNED", self._step(number))
        steps, trained = self._sweep.training.steps, zip(self._curves, self._trained, strict=True)
        self._result.cost = math.fsum(curve.cost * done / steps for curve, done in trained)
        return self._result

    def _resumed(self, *, is_open: bool) -> int | None:
        """Return the paused trial to resume now, or None; see `Session`."""
        rungs = self._scheduler.rungs
        if promotable := rungs.promotable:
            return _number(promotable[0])
        if is_open or self._running or self._result.best is not None or rungs.leader is None:
            return None
        return _number(rungs.leader)

    def _enter(self, curve: LearningCurve) -> int:
        self._curves.append(curve)
        self._shown.append(_decisive(curve.steps, self._milestones))
        self._position.append(0)
        self._trained.append(0)
        self._best.append(-math.inf)
        if curve.is_exempt:
            self._exempt.add(_key(len(self._curves) - 1))
        return len(self._curves) - 1

    def _go_on(self, number: int, now: float) -> None:
        """Let a trial train until its next report on which the scheduler may decide, or its end."""
        self._scheduler.rungs.resume(_key(number))
        curve, position = self._curves[number], self._position[number]
        before = self._step(number)
        if position < len(self._shown[number]):
            after = curve.steps[self._shown[number][position]]
        else:
            after = self._end_of(number)
        spent = curve.cost * (after - before) / self._sweep.training.steps
        self._trained[number] += after - before
        self._events += 1
        heapq.heappush(self._running, (now + spent * self._pace(), self._events, number))

    def _end_of(self, number: int) -> int:
        """Return the step until which a trial trains after its last report."""
        curve = self._curves[number]
        if curve.ending == "PRUNED" and not curve.is_stopped:
            self._result.unknown.add(number)
            return self._sweep.training.steps if self._tail == "runs" else self._step(number)
        return self._step(number)

    def _step(self, number: int) -> int:
        """Return the step of the last report of a trial that the replay has passed."""
        position = self._position[number]
        return self._curves[number].steps[self._shown[number][position - 1]] if position else 0

    def _arrive(self, number: int, now: float) -> None:
        curve, position = self._curves[number], self._position[number]
        if position == len(self._shown[number]):  # beyond the last report
            ending: Ending = "FAILED" if curve.ending == "FAILED" else "PRUNED"
            self._end(number, ending, self._step(number))
            if ending == "FAILED":
                self._scheduler.rungs.fail(_key(number))
            return
        at, before = self._shown[number][position], self._shown[number][position - 1] if position else -1
        self._position[number] += 1
        if self._last_reports:
            self._best[number] = self._sign * fmean(curve.values[: at + 1][-self._last_reports :])
        else:
            for value in curve.values[before + 1 : at + 1]:
                self._best[number] = max(self._best[number], self._sign * value)
        step, value = curve.steps[at], curve.values[at]
        self._observer.reported(number, step, value)
        compared = value if curve.compared is None else curve.compared[at]
        decision = _decided(self._scheduler, _key(number), step, compared, self._sweep.compared.metric)
        is_last = at == len(curve.steps) - 1
        if is_last and curve.ending == "COMPLETE":
            self._complete(number, step)
        elif _key(number) in self._scheduler.rungs.paused:
            return
        elif decision == TrialScheduler.STOP:
            self._end(number, "PRUNED", step)
        else:
            self._go_on(number, now)

    def _complete(self, number: int, step: int) -> None:
        best = self._result.best
        if best is None or self._best[number] > self._best[best]:
            self._result.best = number
        self._end(number, "COMPLETE", step)

    def _end(self, number: int, ending: Ending, step: int) -> None:
        self._result.endings[number] = ending, step
        best = self._best[number]
        value = None if ending == "FAILED" or best == -math.inf else self._sign * best
        self._observer.ended(number, ending, value, step)


def _key(number: int) -> str:
    return trial_key("s", number)


def _number(key: str) -> int:
    return int(key.rpartition("-")[2])


def _decided(scheduler: KeyedScheduler, key: str, step: int, value: float, metric: str) -> str:
    result = {"step": step, "queued": False, "training": False, shown_as(metric): value}
    trial: Any = KeyedTrial(f"{key}.1")
    return scheduler.on_trial_result(NO_CONTROLLER, trial, result)


def _decisive(steps: Sequence[int], milestones: Sequence[float] | None) -> list[int]:
    """Return the indices of the reports on which a rule with milestones may decide, and of the last one."""
    if milestones is None:
        return list(range(len(steps)))
    chosen, passed = [], 0
    for index, step in enumerate(steps):
        if (now := bisect_right(milestones, step)) > passed or index == len(steps) - 1:
            chosen.append(index)
            passed = now
    return chosen


def recorded_curves(
    sweep: SweepConfig, trials: Iterable[TrialRecord], reports: Iterable[CurvePoint]
) -> list[LearningCurve]:
    """Return the curves of the ended trials of a search, by number; a whole training costs 1."""
    of_trial = by_trial(reports)
    curves = []
    for trial in sorted(trials, key=lambda trial: trial.number):
        if trial.role != "search" or trial.state not in FINISHED_TRIAL:
            continue
        points = sorted(
            (point.step, point.metrics[sweep.metric], point.metrics[sweep.compared.metric])
            for point in of_trial.get(trial.key, ())
        )
        kept = [point for point in points if all(map(math.isfinite, point[1:]))]
        steps = [step for step, _, _ in kept]
        values, compared = [value for _, value, _ in kept], [value for _, _, value in kept]
        curve = LearningCurve(
            steps,
            values,
            _ENDINGS[trial.state],
            compared=compared,
            is_stopped=_is_stopped(trial),
            is_exempt=trial.decided_by("exempt") is not None,
        )
        curves.append(curve)
    return curves


def _is_stopped(trial: TrialRecord) -> bool:
    """Return True if a user has ended a trial, and no scheduler has."""
    return trial.state == "PRUNED" and trial.decided_by("stop") is not None


@dataclass(frozen=True)
class Repetition:
    """Comparison of a scheduler's recorded decisions with those that it makes for the same reports.

    Attributes:
        decisions: Number of decisions, one for each report before a trial's last step.
        differing: Keys of the trials whose recorded decisions differ.
    """

    decisions: int
    differing: Sequence[str]


def repeated(sweep: SweepConfig, trials: Iterable[TrialRecord], reports: Iterable[CurvePoint]) -> Repetition:
    """Show the scheduler of a sweep its reports in their order of arrival, and compare its decisions.

    A trial that has gone on must not have been stopped, or must have been promoted since. One that is PRUNED
    must have been stopped at its last report, or paused and never promoted. The decisions of users hold: a
    trial that one has stopped is not compared, and one that is exempt goes on.
    """
    searched = [trial for trial in trials if trial.role == "search"]
    exempt = {trial.key for trial in searched if trial.decided_by("exempt")}
    by_hand = {trial.key: trial.finished_at or 0.0 for trial in searched if _is_stopped(trial)}
    scheduler = schedulers.build(sweep, (), exempt=exempt)
    rungs = scheduler.rungs
    stopped, allowed, differing, count = set[str](), set[str](), set[str](), 0
    is_complete = False
    for report in sorted(reports, key=lambda report: report.at):
        key, value = report.trial_key, report.metrics[sweep.compared.metric]
        if is_confirmation(key) or not math.isfinite(value):
            continue
        for other in [other for other, at in by_hand.items() if at <= report.at]:
            rungs.resume(other)  # it has ended, so it was not paused any more
            del by_hand[other]
        is_leader = key == rungs.leader and not is_complete
        if key in stopped and key not in allowed and not is_leader:
            differing.add(key)
        decision = _decided(scheduler, key, report.step, value, sweep.compared.metric)
        is_over = report.step >= sweep.training.steps
        is_complete |= is_over
        count += not is_over
        stopped.discard(key)
        if decision == TrialScheduler.STOP and not is_over:
            stopped.add(key)
        allowed = (allowed - {key}) | set(rungs.promotable)
    ended = [trial for trial in searched if trial.state in ("COMPLETE", "PRUNED") and not _is_stopped(trial)]
    differing |= {trial.key for trial in ended if (trial.state == "PRUNED") != (trial.key in stopped)}
    return Repetition(count, sorted(differing))


@dataclass(frozen=True)
class Worth:
    """Cost and result of a scheduler over several replays.

    Attributes:
        cost: Lower and upper bound of the cost, as a fraction of the cost without early stopping.
        time: Lower and upper bound of the time until the last trial has ended, in durations of a whole
            training.
        found: Mean value of the best complete trial; None if no replay has one.
        regret: Mean difference from `found` to the best trial with a complete curve; None as for `found`.
        same: Share of the replays that have found that trial.
        unfinished: Share of the replays without a complete trial.
        unknown: Mean number of trials that continued beyond their curves, any of which may be better.
    """

    cost: tuple[float, float]
    time: tuple[float, float]
    found: float | None
    regret: float | None
    same: float
    unfinished: float
    unknown: float


def worth(sweep: SweepConfig, draws: Sequence[Sequence[LearningCurve]], workers: int) -> Worth:
    """Replay the scheduler of a sweep on each draw of trials, in their order.

    Each draw is replayed twice: a trial that continues beyond its curve either stops at once or runs to its
    last step. This gives the bounds of `cost` and `time`. Its unknown values enter neither the rungs nor
    `found`.

    Args:
        sweep: Specification with the scheduler.
        draws: Curves of the trials of each replay, in the order in which they begin.
        workers: Number of trials that run at a time.
    """
    sign = 1 if sweep.direction == "maximize" else -1
    steps = sweep.training.steps
    ends: dict[Tail, list[tuple[float, float]]] = {"stops": [], "runs": []}
    found, regrets, unknown, same = list[float](), list[float](), 0, 0
    for curves in draws:
        whole = sum(_whole(curve, steps) for curve in curves)
        launch = partial(_nth, curves)
        replayed = Replay(sweep, launch, workers, "runs").run()
        ends["runs"].append((replayed.cost / whole, replayed.time))
        if replayed.unknown:
            replayed = Replay(sweep, launch, workers, "stops").run()
        ends["stops"].append((replayed.cost / whole, replayed.time))
        unknown += len(replayed.unknown)
        best = [_value(sweep, curve.values) for curve in curves if _is_complete(curve)]
        if replayed.best is not None:
            found.append(_value(sweep, curves[replayed.best].values))
            regrets.append(max(sign * value for value in best) - sign * found[-1])
            same += regrets[-1] <= 0
    low, high = (np.mean(np.array(ends[tail]), axis=0) for tail in ("stops", "runs"))
    return Worth(
        cost=(float(low[0]), float(high[0])),
        time=(float(low[1]), float(high[1])),
        found=fmean(found) if found else None,
        regret=fmean(regrets) if regrets else None,
        same=same / len(draws),
        unfinished=1 - len(found) / len(draws),
        unknown=unknown / len(draws),
    )


def _value(sweep: SweepConfig, values: Sequence[float]) -> float:
    """Return the value of a trial with these reports: the best one, or the mean of the last ones."""
    if reports := last_reports(sweep.reports):
        return fmean(values[-reports:])
    return max(values) if sweep.direction == "maximize" else min(values)


def _nth(curves: Sequence[LearningCurve], number: int) -> LearningCurve | None:
    return curves[number] if number < len(curves) else None


def _is_complete(curve: LearningCurve) -> bool:
    return curve.ending == "COMPLETE"


def _whole(curve: LearningCurve, steps: int) -> float:
    """Return the cost of a trial without early stopping; a failure or a user still ends it."""
    if curve.ending == "FAILED" or curve.is_stopped:
        return curve.cost * (curve.steps[-1] / steps if curve.steps else 0.0)
    return curve.cost
