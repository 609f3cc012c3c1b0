"""The schedulers, one class each. Their clock is the step, and shares are shares of all steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler

from orchestrator.assignment import shown_as
from orchestrator.config.declarations import COMPARED, Need, SchedulerSettings, Setting
from orchestrator.config.strategy import SCHEDULERS
from orchestrator.config.sweep_config import Scheduler, SweepConfig
from orchestrator.ledger.sweeps.records import CurvePoint, ReportRecord
from orchestrator.schedule import ray_private
from orchestrator.schedule.adapters import session_of
from orchestrator.schedule.keyed import KeyedScheduler, histories
from orchestrator.session.population import Population
from orchestrator.session.promotion import Rungs
from orchestrator.system import without_garbage_collection

KEPT_FROM = 8
"""Trials at a rung from which on the option `keep` of `asha` holds: among fewer, the best ones are luck."""


class SchedulerAdapter(ABC):
    """Builds a scheduler of Ray Tune from the options of a search-space file.

    Attributes:
        settings: Options in a file, read without importing this module; see
            `orchestrator.config.declarations`.
    """

    settings: ClassVar[SchedulerSettings]

    @staticmethod
    @abstractmethod
    def build(sweep: SweepConfig, options: Mapping[str, Any]) -> TrialScheduler:
        """Return Ray Tune's scheduler; its time attribute is `step`."""

    @staticmethod
    def milestones(sweep: SweepConfig, options: Mapping[str, Any]) -> Sequence[float] | None:
        """Return the only steps at which the scheduler decides, ascending, or None if any report may matter.

        The scheduler decides by the first report of a trial at or after each milestone, on which
        `orchestrator.schedule.keyed.decisive` relies.
        """
        return None


class Asha(SchedulerAdapter):
    """Asynchronous successive halving: Hyperband with one bracket."""

    settings = SchedulerSettings(
        summary="Asynchronous successive halving.",
        options={
            "reduction": Setting(
                "number", "One in this many goes on at each rung.", 4.0, above=1, at_most=100
            ),
            "grace": Setting("number", "Share of the steps before the first stop.", 0.1, above=0, at_most=1),
            "mode": Setting(
                "word",
                "`stop` ends a trial that is not among the best of its rung, `promote` pauses it.",
                "stop",
                choices=("stop", "promote"),
            ),
            "keep": Setting(
                "whole",
                "A trial that is among so many best of at least eight at a rung is never stopped.",
                3,
                at_least=0,
                at_most=100,
            ),
            **COMPARED,
        },
        resumes={"mode": "promote"},
    )

    @staticmethod
    def build(sweep: SweepConfig, options: Mapping[str, Any]) -> TrialScheduler:
        if options["mode"] == "stop":
            return _hyperband(sweep, {**options, "brackets": 1}, keep=options["keep"])
        rungs = Rungs(Hyperband.milestones(sweep, options), options["reduction"], _sign(sweep))
        return PromotionRule(shown_as(sweep.compared.metric), sweep.training.steps, rungs)

    @staticmethod
    def milestones(sweep: SweepConfig, options: Mapping[str, Any]) -> Sequence[float]:
        return Hyperband.milestones(sweep, options)


class Hyperband(SchedulerAdapter):
    """Asynchronous Hyperband."""

    settings = SchedulerSettings(
        summary="Asynchronous Hyperband: successive halving with several first rungs.",
        options={
            "reduction": Setting(
                "number", "One in this many goes on at each rung.", 3.0, above=1, at_most=100
            ),
            "grace": Setting("number", "Share of the steps before the first stop.", 0.1, above=0, at_most=1),
            "brackets": Setting("whole", "Different first rungs.", 3, at_least=1, at_most=20),
            **COMPARED,
        },
    )

    @staticmethod
    def build(sweep: SweepConfig, options: Mapping[str, Any]) -> TrialScheduler:
        return _hyperband(sweep, options, keep=0)

    @staticmethod
    def milestones(sweep: SweepConfig, options: Mapping[str, Any]) -> Sequence[float]:
        return Scheduler(sweep.scheduler.name, options).rungs(sweep.training)


class Median(SchedulerAdapter):
    """Median stopping rule."""

    settings = SchedulerSettings(
        summary="Stop what is below the median of the others.",
        options={
            "grace": Setting("number", "Share of the steps before the first stop.", 0.1, above=0, at_most=1),
            "trials": Setting(
                "whole", "Trials to compare with before anything stops.", 3, at_least=1, at_most=10_000
            ),
            **COMPARED,
        },
    )

    @staticmethod
    def build(sweep: SweepConfig, options: Mapping[str, Any]) -> TrialScheduler:
        return MedianRule(
            shown_as(sweep.compared.metric),
            sign=_sign(sweep),
            grace=_grace(sweep, options),
            least=options["trials"],
        )


class RunToTheEnd(SchedulerAdapter):
    """No early stopping."""

    settings = SchedulerSettings(summary="Every trial runs to its end: nothing to set.", stops_trials=False)

    @staticmethod
    def build(sweep: SweepConfig, options: Mapping[str, Any]) -> TrialScheduler:
        return FIFOScheduler()

    @staticmethod
    def milestones(sweep: SweepConfig, options: Mapping[str, Any]) -> Sequence[float]:
        """Return no step, because nothing is decided."""
        return ()


class PopulationBasedTraining(SchedulerAdapter):
    """Population based training."""

    settings = SchedulerSettings(
        summary="Population based training: the worst trials continue from the best ones, with other values.",
        options={
            "mutations": Setting(
                "words",
                "Searched hyperparameters that change.",
                example=["learning_rate"],
                at_least=1,
                at_most=20,
            ),
            "period": Setting("number", "Share of the steps between two exploits.", 0.1, above=0, below=1),
            "quantile": Setting(
                "number", "Share that is replaced, and that is copied.", 0.25, above=0, at_most=0.5
            ),
            "resample": Setting(
                "number", "Chance of a fresh draw instead of a step.", 0.25, at_least=0, at_most=1
            ),
            "factors": Setting("pair", "What a step multiplies by.", (0.8, 1.2)),
            **COMPARED,
        },
        needs=(
            Need(
                ("factors",),
                lambda factors: 0 < factors[0] < 1 < factors[1],
                "factors must be [below 1, above 1]",
            ),
        ),
        mutations="mutations",
        resumes={},
    )

    @staticmethod
    def build(sweep: SweepConfig, options: Mapping[str, Any]) -> TrialScheduler:
        interval = sweep.training.interval
        period = max(round(options["period"] * sweep.training.steps / interval), 1) * interval
        population = Population(period, options["quantile"], _sign(sweep))
        return PopulationRule(sweep.id, shown_as(sweep.compared.metric), population)


@without_garbage_collection()
def build(
    sweep: SweepConfig,
    reports: Iterable[ReportRecord | CurvePoint],
    searched: Mapping[str, int] | None = None,
    exempt: Collection[str] = frozenset(),
) -> KeyedScheduler:
    """Return the scheduler of a sweep, after it has seen the reports of earlier runs.

    Args:
        sweep: Specification of the sweep.
        reports: Reports of earlier runs.
        searched: Last step of the search by key of each extended trial.
        exempt: Keys of the trials that users have exempted from early stopping, which may grow.
    """
    adapter: type[SchedulerAdapter] = SCHEDULERS[sweep.scheduler.name]
    options = sweep.scheduler.options
    seen = histories(reports, adapter.milestones(sweep, options))
    rule = adapter.build(sweep, options)
    rungs = rule.rungs if isinstance(rule, PromotionRule) else Rungs()
    return KeyedScheduler(rule, seen, rungs, searched, exempt)


def _hyperband(sweep: SweepConfig, options: Mapping[str, Any], *, keep: int) -> HyperbandRule:
    return HyperbandRule(
        Hyperband.milestones(sweep, options),
        keep,
        time_attr="step",
        metric=shown_as(sweep.compared.metric),
        mode="max" if sweep.compared.direction == "maximize" else "min",
        max_t=sweep.training.steps,
        grace_period=_grace(sweep, options),
        reduction_factor=options["reduction"],
        brackets=options["brackets"],
    )


def _sign(sweep: SweepConfig) -> int:
    return 1 if sweep.compared.direction == "maximize" else -1


def _grace(sweep: SweepConfig, options: Mapping[str, Any]) -> int:
    """Return the steps before the first stop."""
    grace = Scheduler(sweep.scheduler.name, options).grace(sweep.training)
    assert grace is not None, f"{sweep.scheduler.name} has a grace"
    return grace


class HyperbandRule(AsyncHyperBandScheduler):
    """Asynchronous Hyperband whose choice of a trial's bracket depends only on the trial's key.

    Ray Tune draws the bracket from NumPy's global generator, so a resumed sweep would put its trials into
    other brackets and stop some that the interrupted sweep had let continue.

    A report that passes several rungs at once counts only at the last of them. Ray Tune would count later
    reports at the earlier rungs, where they cannot be compared with other trials.

    Args:
        milestones: Rungs of all brackets, rising.
        keep: Number of best trials of a rung that are never stopped, if at least `KEPT_FROM` trials have
            reached it.
        settings: Settings of Ray Tune's scheduler.

    Attributes:
        reasons: Reason of each stop by trial key.
    """

    def __init__(self, milestones: Sequence[float], keep: int, **settings: Any) -> None:
        super().__init__(**settings)
        self._milestones, self._keep = milestones, keep
        self._sign, self._reduction = 1 if settings["mode"] == "max" else -1, settings["reduction_factor"]
        self._passed: dict[str, int] = {}
        self._best: list[list[tuple[float, str]]] = [[] for _ in milestones]
        self._kept: set[str] = set()
        self.reasons: dict[str, str] = {}

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Compare a report if it is the first one at or after a rung."""
        passed = bisect_right(self._milestones, result[self._time_attr])
        if passed <= self._passed.get(trial.trial_id, 0) and result[self._time_attr] < self._max_t:
            return str(TrialScheduler.CONTINUE)
        self._passed[trial.trial_id] = passed
        decision = str(super().on_trial_result(tune_controller, trial, result))
        if passed and result[self._time_attr] < self._max_t and self._keep:
            insort(self._best[passed - 1], (-self._sign * result[str(self.metric)], trial.trial_id))
            if self._is_kept(trial.trial_id):
                return str(TrialScheduler.CONTINUE)
        if decision == TrialScheduler.STOP and result[self._time_attr] < self._max_t:
            self.reasons[trial.trial_id] = self._reason(trial, result)
        return decision

    def _reason(self, trial: Any, result: Mapping[str, Any]) -> str:
        """Return the reason of a stop at a report: the rung, the rank there and the value that goes on."""
        step, values = result[self._time_attr], ray_private.rung_of(self, trial, result[self._time_attr])
        own, others = values[trial.trial_id], [values[key] for key in values if key != trial.trial_id]
        # Ray Tune's cutoff, which does not contain the trial itself.
        threshold = float(np.nanpercentile(others, 100 * (1 - 1 / self._reduction)))
        rank = 1 + sum(other > own for other in others)
        name = str(self.metric).removeprefix(shown_as(""))
        return (
            f"stopped at step {step}: {name} {self._sign * own:.4g} is rank {rank} of {len(values)} at this "
            f"rung; one in {self._reduction:g} goes on ({self._sign * threshold:.4g} or better)"
        )

    def _is_kept(self, key: str) -> bool:
        """Return True if a trial is among the best at one of its rungs, now or when it was last compared."""
        rungs = [rung[: self._keep] for rung in self._best if len(rung) >= KEPT_FROM]
        if any(key == other for rung in rungs for _, other in rung):
            self._kept.add(key)
        return key in self._kept

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Choose the bracket of a trial; restore the state of NumPy's global generator."""
        state = np.random.get_state()
        np.random.seed(crc32(trial.trial_id.encode()))
        try:
            super().on_trial_add(tune_controller, trial)
        finally:
            np.random.set_state(state)


class PromotionRule(FIFOScheduler):
    """Asynchronous successive halving by promotion: a trial pauses at its rung, and may go on later.

    Tune's own pausing keeps the trial and its checkpoint in Tune, which a killed driver loses. Here a pause
    ends the attempt, and the session launches the trial's next one when `rungs` promotes it.

    Args:
        metric: Metric that is compared.
        steps: Steps of a trial.
        rungs: Rungs of the sweep.

    Attributes:
        reasons: Reason of each pause by trial key.
    """

    def __init__(self, metric: str, steps: int, rungs: Rungs) -> None:
        super().__init__()
        self.reasons: dict[str, str] = {}
        self._metric, self._steps, self.rungs = metric, steps, rungs

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Return PAUSE for a report at which a trial is not among the best of its rung."""
        if result["step"] >= self._steps:
            self.rungs.resume(trial.trial_id)
            return str(TrialScheduler.CONTINUE)
        value = result[str(self.metric)]
        goes_on = self.rungs.goes_on(trial.trial_id, result["step"], value)
        if not goes_on:
            name = str(self.metric).removeprefix(shown_as(""))
            self.reasons[trial.trial_id] = (
                f"paused at step {result['step']} with {name} {value:.4g} and not promoted before the search "
                "ended"
            )
        return str(TrialScheduler.CONTINUE if goes_on else TrialScheduler.PAUSE)


class PopulationRule(FIFOScheduler):
    """Population based training: stops an attempt when its trial must copy a better one.

    Tune's own scheduler copies checkpoints between live trials and changes their configuration. Here the
    attempt ends: the session records the exploit, copies the donor's checkpoint, and launches the trial's
    next attempt with new hyperparameters.
    """

    def __init__(self, sweep_id: str, metric: str, population: Population) -> None:
        super().__init__()
        self._sweep_id, self._compared, self.population = sweep_id, metric, population

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Compare a report; a replayed report of an earlier run is only recorded."""
        donors = self.population.donors(trial.trial_id, result["step"], result[self._compared])
        live = "queued" in result
        if donors and live and session_of(self._sweep_id).exploit(trial.trial_id, result["step"], donors):
            return str(TrialScheduler.STOP)
        return str(TrialScheduler.CONTINUE)


class _Course:
    """The reports of one trial, with their largest value `best` and the mean from the step `grace` on."""

    def __init__(self, grace: int) -> None:
        self._grace = grace
        self._steps, self._totals = array("q"), array("d")
        self._last, self._total = -1, 0.0
        self.best = float("-inf")

    @property
    def last(self) -> int:
        """Return the step of the last report; -1 without a report."""
        return self._last

    def add(self, step: int, value: float) -> None:
        """Add a report of a later step."""
        self._last, self.best = step, max(self.best, value)
        if step >= self._grace:
            self._total += value
            self._steps.append(step)
            self._totals.append(self._total)

    def mean(self, step: int) -> float | None:
        """Return the mean of the reports from the grace period up to a step, or None without a report."""
        at_end = not self._steps or self._steps[-1] <= step
        count = len(self._steps) if at_end else bisect_right(self._steps, step)
        return self._totals[count - 1] / count if count else None


class MedianRule(FIFOScheduler):
    """Stops a trial whose best value is below the median of the other trials' means up to its step.

    The other trials are those that have reached the step. A sorted list for each step holds the means of all
    trials at that step: a trial's mean up to a step never changes after the trial has passed the step.

    Source: Golovin et al., Google Vizier: A Service for Black-Box Optimization (2017), section 3.2.

    Args:
        metric: Metric that is compared.
        sign: 1 if more is better, else -1.
        grace: Step from which on trials are compared and averaged.
        least: Minimum number of other trials for a comparison.

    Attributes:
        reasons: Reason of each stop by trial key.
    """

    def __init__(self, metric: str, *, sign: int, grace: int, least: int) -> None:
        super().__init__()
        self._compared, self._sign, self._grace, self._least = metric, sign, grace, least
        self._courses: dict[str, _Course] = {}
        self._steps: list[int] = []
        self._means: dict[int, list[float]] = {}
        self.reasons: dict[str, str] = {}

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Compare a report; a repeated report of a step is compared again but counted once."""
        step, value = int(result["step"]), self._sign * float(result[self._compared])
        course = self._courses.setdefault(trial.trial_id, _Course(self._grace))
        if step > course.last:
            self._open(step)
            passed = self._steps[bisect_right(self._steps, course.last) : bisect_right(self._steps, step)]
            course.add(step, value)
            for at in passed:
                if (mean := course.mean(at)) is not None:
                    insort(self._means[at], mean)
        median, others = self._median(course, step)
        if median is None or course.best >= median:
            return str(TrialScheduler.CONTINUE)
        name = self._compared.removeprefix(shown_as(""))
        self.reasons[trial.trial_id] = (
            f"stopped at step {step}: its best {name} {self._sign * course.best:.4g} is behind the median "
            f"{self._sign * median:.4g} of the means of {others} other trials up to this step"
        )
        return str(TrialScheduler.STOP)

    def _open(self, step: int) -> None:
        """Collect the means at a new step, over the trials that have passed it."""
        if step < self._grace or step in self._means:
            return
        insort(self._steps, step)
        means = (course.mean(step) for course in self._courses.values() if course.last >= step)
        self._means[step] = sorted(mean for mean in means if mean is not None)

    def _median(self, course: _Course, step: int) -> tuple[float | None, int]:
        """Return the median of the other trials' means up to a step, or None, and their number."""
        if step < self._grace:
            return None, 0
        means, own = self._means[step], course.mean(step)
        others = len(means) - 1
        assert own is not None, "it has reported this step"
        if others < max(self._least, 1):
            return None, others
        hole = bisect_left(means, own)
        lower, upper = (means[at + (at >= hole)] for at in ((others - 1) // 2, others // 2))
        return (lower + upper) / 2, others
