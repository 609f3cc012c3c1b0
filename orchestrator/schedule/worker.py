"""The Ray Tune trainable: a thin shell around `orchestrator.training`."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from ray import tune

from orchestrator.assignment import Assignment, Outcome
from orchestrator.triallog import TrialLog


class Worker(tune.Trainable):
    """Run attempts one after the other in one process; the engine outlives each of them.

    Admission waits for the first `step`: with reused actors `setup` may run on a second actor for a trial
    that has already finished elsewhere.
    """

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        """Ask for what the assignment says."""
        told = Assignment.from_config(config)
        bundle = {"CPU": told.cpu, "GPU": told.gpu}
        return tune.PlacementGroupFactory([{name: share for name, share in bundle.items() if share}])

    def setup(self, config: dict[str, Any]) -> None:
        """Note the first assignment."""
        self._bench: Any = None
        self._attempt: Any = None
        self._assignment = Assignment.from_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next assignment in place of the one that ended."""
        self._leave()
        self._assignment = Assignment.from_config(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Train one interval and report; a failure is a result too, with its cause."""
        # The one lazy door to the science: the driver imports this module, and must not import JAX.
        from orchestrator import training

        try:
            if self._bench is None:
                training.configure(self._assignment.compilations)
                self._bench = training.Bench()
            if self._attempt is None:
                self._attempt = training.Attempt(self._bench, self._assignment)
            outcome = self._attempt.advance()
        except Exception as error:  # noqa: BLE001 - whatever a trial raises is told to the driver, with its cause
            cause, message = training.failure_of(error)
            TrialLog(Path(self._assignment.log), self._assignment.attempt_id).write(traceback.format_exc())
            outcome = Outcome(step=0, done=True, metrics={}, failure=cause, message=message)
        return outcome.to_result()

    def _leave(self) -> None:
        if self._attempt is not None:
            self._attempt.leave()
            self._attempt = None

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save nothing: every report has made its own checkpoint durable already."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Load nothing: an assignment names the checkpoint it goes on from."""

    def cleanup(self) -> None:
        """Give the slot back before the process ends."""
        self._leave()
