"""Ray Tune's schedulers, by the names a search-space file gives them. Their clock is our `step`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ray.tune.schedulers import (
    AsyncHyperBandScheduler,
    FIFOScheduler,
    MedianStoppingRule,
    TrialScheduler,
)

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.schedule.keyed import History, KeyedScheduler
from orchestrator.schedule.population import PopulationRule
from orchestrator.session.population import Population


def _grace(sweep: SweepConfig, options: Mapping[str, Any]) -> int:
    """Return the steps before the first stop: a share of all steps, at least one interval."""
    steps, interval = sweep.training.steps, sweep.training.interval
    return min(max(round(options["grace"] * steps), interval, 1), steps)


def _asha(sweep: SweepConfig, options: Mapping[str, Any]) -> TrialScheduler:
    return _hyperband(sweep, {**options, "brackets": 1})


def _hyperband(sweep: SweepConfig, options: Mapping[str, Any]) -> TrialScheduler:
    return AsyncHyperBandScheduler(
        time_attr="step",
        metric=sweep.metric,
        mode=_mode(sweep),
        max_t=sweep.training.steps,
        grace_period=_grace(sweep, options),
        reduction_factor=options["reduction"],
        brackets=options["brackets"],
    )


def _median(sweep: SweepConfig, options: Mapping[str, Any]) -> TrialScheduler:
    return MedianStoppingRule(
        time_attr="step",
        metric=sweep.metric,
        mode=_mode(sweep),
        grace_period=_grace(sweep, options),
        min_samples_required=options["trials"],
        hard_stop=True,
    )


def _pbt(sweep: SweepConfig, options: Mapping[str, Any]) -> TrialScheduler:
    interval = sweep.training.interval
    period = max(round(options["period"] * sweep.training.steps / interval), 1) * interval
    sign = 1 if sweep.direction == "maximize" else -1
    return PopulationRule(sweep.id, sweep.metric, Population(period, options["quantile"], sign))


def _none(sweep: SweepConfig, options: Mapping[str, Any]) -> TrialScheduler:
    return FIFOScheduler()


SCHEDULERS: dict[str, Callable[[SweepConfig, Mapping[str, Any]], TrialScheduler]] = {
    "asha": _asha,
    "hyperband": _hyperband,
    "median": _median,
    "none": _none,
    "pbt": _pbt,
}


def build(sweep: SweepConfig, histories: Iterable[History]) -> KeyedScheduler:
    """Return the scheduler that the sweep names, told of the trials of earlier runs first."""
    return KeyedScheduler(SCHEDULERS[sweep.scheduler.name](sweep, sweep.scheduler.options), histories)


def _mode(sweep: SweepConfig) -> str:
    return "max" if sweep.direction == "maximize" else "min"
