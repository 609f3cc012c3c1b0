"""Ways to share a pool, as a driver follows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.sharing import shedding
from orchestrator.sharing.shedding import Demand, RunningTrial
from orchestrator.sharing.view import View


@dataclass(frozen=True)
class Decision:
    """What a driver does in one second.

    Attributes:
        starts: whether it starts one more trial.
        leaving: keys of the trials that end at their next report.
    """

    starts: bool
    leaving: frozenset[str]


Policy = Callable[[View, str, Sequence[RunningTrial], float], Decision]
"""(pool, sweep, its running trials, seconds of a restart) -> what its driver does."""


def fair(view: View, sweep: str, trials: Sequence[RunningTrial], restart: float) -> Decision:
    """Do what a driver of the service does."""
    demand = shedding.demands(view).get(sweep)
    min_run = shedding.minimum_run(view.claims[sweep], restart, view.rules)
    leaving = shedding.chosen(trials, demand, view.now, min_run) if demand else frozenset()
    return Decision(view.may_start(sweep), leaving)


def naive(view: View, sweep: str, trials: Sequence[RunningTrial], restart: float) -> Decision:
    """Take what is free; give up what is above the share, at once."""
    return _naive(view, sweep, trials, 0.0)


def naive_with_minimum(view: View, sweep: str, trials: Sequence[RunningTrial], restart: float) -> Decision:
    """Take what is free; give up what is above the share, but no trial before its minimum run time."""
    return _naive(view, sweep, trials, shedding.minimum_run(view.claims[sweep], restart, view.rules))


def _naive(view: View, sweep: str, trials: Sequence[RunningTrial], min_run: float) -> Decision:
    use, share = view.uses[sweep], view.shares[sweep]
    devices = max(0, use.devices - share.devices)
    per_device = use.trials // max(1, use.devices)
    above = Demand(devices, max(0, use.trials - share.trials - devices * per_device))
    starts = use.trials < view.claims[sweep].want and view.fits(sweep)
    return Decision(starts, shedding.chosen(trials, above, view.now, min_run))


POLICIES: Mapping[str, Policy] = {"naive": naive, "naive, minimum run": naive_with_minimum, "fair": fair}
"""By name, in the order of the table."""
