"""The schedulers by the names a search-space file gives them. Their clock is the trial's `step`."""

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
from orchestrator.schedule.adapters import session_of
from orchestrator.schedule.keyed import History, KeyedScheduler
from orchestrator.session.population import Population

Builder = Callable[[SweepConfig, Mapping[str, Any]], TrialScheduler]


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


def _asha(sweep: SweepConfig, options: Mapping[str, Any]) -> TrialScheduler:
    return _hyperband(sweep, {**options, "brackets": 1})


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


SCHEDULERS: dict[str, Builder] = {
    "asha": _asha,
    "hyperband": _hyperband,
    "median": _median,
    "none": _none,
    "pbt": _pbt,
}


def build(sweep: SweepConfig, histories: Iterable[History]) -> KeyedScheduler:
    """Return the scheduler that a sweep names, after it has seen the reports of earlier runs."""
    return KeyedScheduler(SCHEDULERS[sweep.scheduler.name](sweep, sweep.scheduler.options), histories)


def _mode(sweep: SweepConfig) -> str:
    return "max" if sweep.direction == "maximize" else "min"


def _grace(sweep: SweepConfig, options: Mapping[str, Any]) -> int:
    """Return the steps before the first stop: a share of all steps, and at least one interval."""
    steps, interval = sweep.training.steps, sweep.training.interval
    return min(max(round(options["grace"] * steps), interval, 1), steps)


class PopulationRule(FIFOScheduler):
    """Population based training: stops an attempt whose trial is to exploit a better one.

    Tune's own scheduler copies checkpoints between live trials and changes their configuration. Here an
    exploit ends the attempt: the session records it, copies the donor's checkpoint, and launches the trial's
    next attempt with new hyperparameters.

    Args:
        sweep_id: of the session that chooses the donor.
        metric: that is compared.
        population: of the sweep.
    """

    def __init__(self, sweep_id: str, metric: str, population: Population) -> None:
        super().__init__()
        self._sweep_id, self._compared, self._population = sweep_id, metric, population

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Compare a report; a replayed one of an earlier run is only remembered."""
        donors = self._population.donors(trial.trial_id, result["step"], result[self._compared])
        live = "queued" in result
        if donors and live and session_of(self._sweep_id).exploit(trial.trial_id, result["step"], donors):
            return str(TrialScheduler.STOP)
        return str(TrialScheduler.CONTINUE)
