"""A Ray Tune scheduler that identifies trials by their key, across attempts and drivers.

To Tune, a retried or resumed trial is a new one. The scheduler must see it as the same trial, and a resumed
sweep must replay the reports of the ledger: an empty ASHA would let the worst trial go on.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from orchestrator.assignment import shown_as
from orchestrator.ledger.sweeps.records import (
    CurvePoint,
    ReportRecord,
    by_trial,
    is_confirmation,
    trial_key_of,
)
from orchestrator.session.promotion import Rungs


@dataclass(frozen=True)
class KeyedTrial:
    """The part of a Tune trial that a stopping rule reads."""

    trial_id: str


class _NoController:
    """Controller without live trials, so that a rule pauses none in favour of another."""

    def get_live_trials(self) -> set[Any]:
        """Return no trial."""
        return set()


NO_CONTROLLER: Any = _NoController()
"""Argument of a stopping rule in place of Tune's controller."""


class TrialReport(NamedTuple):
    """A report of a trial, from the ledger.

    Attributes:
        key: Key of the trial.
        result: Step and metrics, flat and named by `shown_as`.
    """

    key: str
    result: dict[str, Any]


def histories(
    reports: Iterable[ReportRecord | CurvePoint], milestones: Sequence[float] | None = None
) -> Iterator[TrialReport]:
    """Yield the search's reports in order of arrival, on which the decisions of a rule depend.

    Args:
        reports: Reports of the ledger, in any order.
        milestones: Steps of `SchedulerAdapter.milestones`, which leave out reports that decide nothing; None
            for all reports.
    """
    counted = reports if milestones is None else decisive(reports, milestones)
    for report in sorted(counted, key=attrgetter("at")):
        if not is_confirmation(report.trial_key):
            shown = {shown_as(name): value for name, value in report.metrics.items()}
            yield TrialReport(report.trial_key, {"step": report.step, **shown})


def decisive(
    reports: Iterable[ReportRecord | CurvePoint], milestones: Sequence[float]
) -> list[ReportRecord | CurvePoint]:
    """Return the reports on which a rule with milestones can decide, and the last report of each trial.

    Such a rule decides by the first report of a trial at or after each milestone. The milestones are
    ascending; extra ones are harmless.
    """
    chosen: list[ReportRecord | CurvePoint] = []
    for of_trial in by_trial(reports).values():
        arrived = sorted(of_trial, key=attrgetter("at"))
        passed = 0
        for report in arrived[:-1]:
            if (now := bisect_right(milestones, report.step)) > passed:
                chosen.append(report)
                passed = now
        chosen.append(arrived[-1])
    return chosen


class KeyedScheduler(TrialScheduler):
    """Shows every attempt to a stopping rule as its trial, after replaying the reports of earlier runs.

    Args:
        rule: Scheduler that only compares trials, and stops or pauses them. It recognises a replayed
            result by the missing `queued`.
        histories: Reports of earlier runs, the oldest first.
        rungs: Rungs at which the rule pauses trials; none if it pauses none.
        searched: Last step of the search by key of each extended trial; the rule is not shown its later
            reports, and does not stop it.
        exempt: Keys of the trials that users have exempted from early stopping, which may grow. The rule
            compares the others with them, and its decisions about them have no effect.

    Attributes:
        adopt: Function that is called with Tune's controller before it adds the first trial.
        controller: Tune's controller, or None before the first trial.
        stopped: Keys of the trials of earlier runs whose last report the rule answered with STOP.
        reasons: Reason of each stop by trial key, which the rule fills; empty for a rule that gives none.
    """

    def __init__(
        self,
        rule: TrialScheduler,
        histories: Iterable[TrialReport] = (),
        rungs: Rungs | None = None,
        searched: Mapping[str, int] | None = None,
        exempt: Collection[str] = frozenset(),
    ) -> None:
        super().__init__()
        self.reasons: Mapping[str, str] = getattr(rule, "reasons", {})
        self._rule, self.rungs, self._searched = rule, rungs or Rungs(), dict(searched or {})
        self._exempt = exempt
        self.adopt: Callable[[Any], object] = lambda controller: None
        self.controller: Any = None
        self._trials: dict[str, Any] = {}
        self._shown: dict[str, int] = {}  # the newest step of each trial that Tune has shown
        decisions: dict[str, str] = {}
        for key, result in histories:
            if result["step"] > self._searched.get(key, result["step"]):
                continue
            decisions[key] = rule.on_trial_result(NO_CONTROLLER, self._keyed(key), result)
        stopped = {key for key, decision in decisions.items() if decision == TrialScheduler.STOP}
        self.stopped = stopped - self._searched.keys() - set(exempt)
        for key in exempt:
            self.rungs.resume(key)

    def _is_uncompared(self, key: str) -> bool:
        """Return True for a confirmation and an extended trial, which the rule does not compare."""
        return is_confirmation(key) or key in self._searched

    def _keyed(self, key: str) -> Any:
        if key not in self._trials:
            self._trials[key] = KeyedTrial(key)
            self._rule.on_trial_add(NO_CONTROLLER, self._trials[key])
        return self._trials[key]

    @property
    def metric(self) -> str | None:
        """Return the rule's metric."""
        metric: str | None = self._rule.metric
        return metric

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Ignore Tune's properties: the rule was built with its metric and mode."""
        return True

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Introduce a trial of the search to the rule, unless an earlier attempt did."""
        if self.controller is None:
            self.adopt(tune_controller)
        self.controller = tune_controller
        if not is_confirmation(key := trial_key_of(trial.trial_id)):
            self._keyed(key)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Keep the trial: the session may retry it."""

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return CONTINUE or STOP.

        A confirmation, an extended or exempt trial and an attempt without a report always continue.
        """
        key = trial_key_of(trial.trial_id)
        if result["queued"] or result["training"] or self._is_uncompared(key):
            return str(TrialScheduler.CONTINUE)
        self._shown[key] = result["step"]
        decision = str(self._rule.on_trial_result(NO_CONTROLLER, self._keyed(key), result))
        if key in self._exempt:
            self.rungs.resume(key)
            return str(TrialScheduler.CONTINUE)
        # The attempt of a paused trial ends. The session launches the next one.
        return str(TrialScheduler.STOP) if decision == TrialScheduler.PAUSE else decision

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Show the rule the last report of an attempt if Tune has not, because the stopper ended the attempt.

        A preempted trial goes on later and is compared with the others at that step, too. The decision comes
        too late for this attempt.
        """
        key = trial_key_of(trial.trial_id)
        is_report = math.isfinite(result.get(str(self.metric), math.nan))
        if is_report and not self._is_uncompared(key) and self._shown.get(key) != result["step"]:
            self.on_trial_result(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Keep the trial: its reports still count."""

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Return None: Tune's queue keeps its order without a slow search of all trials."""
        return None

    def debug_string(self) -> str:
        """Return the rule's own description."""
        return str(self._rule.debug_string())
