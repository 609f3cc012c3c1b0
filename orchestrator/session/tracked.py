"""MLflow runs that users' functions and commands write to."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.ledger import Ledger
from orchestrator.process_secrets import redacted
from orchestrator.storage.paths import Paths
from orchestrator.tracking.address import absolute

LONGEST_WAIT = 30.0
"""Longest wait in seconds for a run; before the first one, MLflow is imported and creates its database."""

LOOK_SECONDS = 0.5
"""Seconds between two looks for a run."""


class TrackedRuns:
    """Finds the MLflow run of a trial's script, for which its first attempt waits.

    The delivery to MLflow creates a trial's run about a second after the trial's row, and stores the run's id
    in the ledger. If one wait times out, MLflow counts as down: later attempts do not wait, and a script
    starts without a run, until a run is found at once again.
    """

    def __init__(self, sweep: SweepConfig, ledger: Ledger, paths: Paths, clock: Callable[[], float]) -> None:
        self._wanted = sweep.trainable is not None and sweep.trainable.mlflow
        self._sweep_id, self._ledger, self._clock = sweep.id, ledger, clock
        self._uri = paths.tracking_uri
        self._since: dict[str, float] = {}
        self._is_away = False

    def is_ready(self, trial_key: str) -> bool:
        """Return True if a trial does not need to wait for its run."""
        if not self._wanted:
            return True
        if self._ledger.mlflow_run(self._sweep_id, trial_key) is not None:
            self._is_away = False
        elif not self._is_away:
            return self._waits_in_vain(trial_key)
        return True

    def _waits_in_vain(self, trial_key: str) -> bool:
        now = self._clock()
        self._is_away = now - self._since.setdefault(trial_key, now) > LONGEST_WAIT
        return self._is_away

    def variables(self, trial_key: str) -> Mapping[str, str]:
        """Return the variables that MLflow's client reads in the script of a trial; none without a run.

        Ray Tune writes them to its files, so user and password of the address are left to the worker.
        """
        run = self._ledger.mlflow_run(self._sweep_id, trial_key) if self._wanted else None
        if run is None:
            return {}
        return {"MLFLOW_TRACKING_URI": redacted(absolute(self._uri), secrets=()), "MLFLOW_RUN_ID": run}
