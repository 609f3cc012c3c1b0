"""Population based training as a Ray Tune scheduler: an attempt stops where its trial takes another's state.

Tune's own scheduler copies checkpoints between live trials and changes their configuration. Here an exploit
is the end of an attempt: the session records it, keeps the donor's checkpoint for the trial, and issues the
next attempt with the new hyperparameters.
"""

from __future__ import annotations

from typing import Any

from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from orchestrator.schedule.searcher import session_of
from orchestrator.session.population import Population


class PopulationRule(FIFOScheduler):
    """Stop an attempt whose trial is to go on from a better one.

    Args:
        sweep_id: whose session decides whether a donor can be had.
        metric: that is compared.
        population: of the sweep.
    """

    def __init__(self, sweep_id: str, metric: str, population: Population) -> None:
        super().__init__()
        self._sweep_id, self._compared, self._population = sweep_id, metric, population

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Compare a report; one of an earlier run is only remembered."""
        donors = self._population.better(trial.trial_id, result["step"], result[self._compared])
        found = donors and "waiting" in result
        if found and session_of(self._sweep_id).exploit(trial.trial_id, result["step"], donors):
            return str(TrialScheduler.STOP)
        return str(TrialScheduler.CONTINUE)
