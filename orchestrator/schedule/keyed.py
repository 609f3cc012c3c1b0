"""A Ray Tune scheduler that knows trials by their key, whatever the attempt.

To Tune a retried or resumed trial is a new one. A rule that compares trials must see the same trial again,
and on a resumed sweep it must see what the ledger remembers, or an empty ASHA lets the worst trial go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from orchestrator.ledger.keys import is_confirmation, trial_key_of
from orchestrator.ledger.records import ReportRecord


@dataclass(frozen=True)
class _Known:
    """What a rule that only compares may know of a trial."""

    trial_id: str


class _NoController:
    """Stands for Tune's controller: a rule that sees no other trial waiting pauses none for its sake."""

    def get_live_trials(self) -> set[Any]:
        """Return no trial."""
        return set()


_NOBODY: Any = _NoController()


@dataclass(frozen=True)
class History:
    """Reports of a trial that follow each other, as the ledger has them.

    Attributes:
        key: the trial's key.
        results: flat results in the order they came, `step` and the objective in each.
    """

    key: str
    results: tuple[Mapping[str, Any], ...]


def histories(reports: Iterable[ReportRecord]) -> list[History]:
    """Return what earlier runs of a sweep reported, in the order it was: what a rule says depends on that."""
    return [
        History(report.trial_key, ({"step": report.step, **report.metrics},))
        for report in sorted(reports, key=lambda report: report.at)
        if not is_confirmation(report.trial_key)
    ]


class KeyedScheduler(TrialScheduler):
    """Show each attempt to `rule` as its trial, and tell `rule` first what happened in earlier runs.

    Args:
        rule: a scheduler that stops trials by comparison alone.
        histories: reports of earlier runs, oldest first.

    Attributes:
        stopped: keys of the trials of earlier runs whose last report was answered with an end.
    """

    def __init__(self, rule: TrialScheduler, histories: Iterable[History] = ()) -> None:
        super().__init__()
        self._rule = rule
        self._seen: set[str] = set()
        self.stopped: set[str] = set()
        for history in histories:
            self._replay(history)

    def _replay(self, history: History) -> None:
        trial = self._known(history.key)
        for result in history.results:
            decision = self._rule.on_trial_result(_NOBODY, trial, dict(result))
            (self.stopped.add if decision == TrialScheduler.STOP else self.stopped.discard)(history.key)

    def _known(self, key: str) -> Any:
        trial: Any = _Known(key)
        if key not in self._seen:
            self._seen.add(key)
            self._rule.on_trial_add(_NOBODY, trial)
        return trial

    def _of(self, trial: Trial) -> Any:
        return self._known(trial_key_of(trial.trial_id))

    @property
    def metric(self) -> str | None:
        """Return the rule's metric."""
        return self._rule.metric

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Accept nothing: the rule was built with its metric and mode."""
        return True

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Introduce a trial of the search, unless an earlier attempt did."""
        if not is_confirmation(trial_key_of(trial.trial_id)):
            self._of(trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Keep the trial: the session may retry it."""

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Ask the rule whether the trial goes on; a confirmation always does, and one that only waits."""
        if is_confirmation(trial_key_of(trial.trial_id)) or result["waiting"]:
            return str(TrialScheduler.CONTINUE)
        return str(self._rule.on_trial_result(_NOBODY, self._of(trial), result))

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Keep the trial's results in the comparison."""

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Keep the trial: what it reported still counts."""

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Leave the order to Tune's queue: searching all trials at each event would slow long sweeps."""
        return None

    def debug_string(self) -> str:
        """Return the rule's own description."""
        return str(self._rule.debug_string())
