"""The Ray Tune trainable: a thin shell around an engine, its own or one that it shares."""

from __future__ import annotations

import socket
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ray import tune

from orchestrator.assignment import Assignment
from orchestrator.schedule import wish
from orchestrator.schedule.engines import SharedEngine
from orchestrator.training import stop_signal

if TYPE_CHECKING:
    from orchestrator.training.attempt import OwnEngine


class Worker(tune.Trainable):
    """Run attempts one after the other; the engine outlives each of them.

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
        self._place: OwnEngine | SharedEngine | None = None
        self._assignment, self._begun = Assignment.from_config(config), False

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next assignment in place of the one that ended."""
        self._leave()
        self._assignment, self._begun = Assignment.from_config(new_config), False
        return True

    def step(self) -> dict[str, Any]:
        """Train one interval and report.

        Raises:
            RuntimeError: this machine is about to be taken away, and an attempt would begin on it.
        """
        if self._place is None:
            self._place = _place_of(self._assignment)
            stop_signal.watch(partial(wish.wished, self._assignment.sweep_id))
        if stop_signal.told_to_go() and not self._begun:
            raise RuntimeError("this machine is being preempted")
        self._begun = True
        outcome = self._place.advance(self._assignment)
        return replace(outcome, node=socket.gethostname()).to_result()

    def _leave(self) -> None:
        if self._place is not None:
            self._place.leave()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save nothing: every report has made its own checkpoint durable already."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Load nothing: an assignment names the checkpoint it goes on from."""

    def cleanup(self) -> None:
        """Give the slot back before the process ends."""
        self._leave()


def _place_of(assignment: Assignment) -> OwnEngine | SharedEngine:
    if assignment.slots > 1:
        return SharedEngine(assignment.slots)
    # The one lazy door to the science: neither the driver nor a worker that shares an engine imports JAX.
    from orchestrator.training import attempt

    return attempt.OwnEngine()
