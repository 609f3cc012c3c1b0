"""The Ray Tune trainable: a thin shell around an engine or a process of a user's code.

Trials of a shared engine do not use it; see `shared_worker`.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ray import tune

from orchestrator.assignment import Assignment
from orchestrator.schedule import placement, sent_code
from orchestrator.schedule.other_nodes import RankActors
from orchestrator.schedule.ray_private import adopt, published_stop
from orchestrator.scripts.script_attempt import OwnProcess
from orchestrator.training import process
from orchestrator.training.attempt import OwnAttempts, OwnEngine
from trainables.trial import ScriptSettings


class Worker(tune.Trainable):
    """Runs attempts one after the other; the engine outlives each of them.

    An attempt enters the engine in its first `step`: with reused actors, Tune may call `setup` on a second
    actor for a trial that has already finished elsewhere.

    Attributes:
        asks_for_gpu: Whether Tune requests a GPU for the trial; not if a warm worker holds it.
        loan: Id of the worker's loan, or '' if the process is Tune's.
    """

    asks_for_gpu = True
    loan = ""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        """Return the resources of the assignment, without a device that another process holds."""
        assignment = Assignment.from_config(config)
        own = assignment.slots == 1 and cls.asks_for_gpu
        resources = {"CPU": assignment.cpu, "GPU": assignment.gpu if own else 0}
        bundle = {name: share for name, share in resources.items() if share}
        nodes = assignment.nodes
        return tune.PlacementGroupFactory([bundle] * nodes, **placement.of_bundles(assignment.avoided, nodes))

    def setup(  # type: ignore[override] # `tune.with_parameters` passes the environment
        self, config: dict[str, Any], environment: Mapping[str, str | None]
    ) -> None:
        """Set the environment of this process, and store the first assignment.

        Args:
            config: Assignment, as `Assignment.to_config` returns it.
            environment: Environment, as `orchestrator.schedule.ray_private.handed` returns it.
        """
        adopt(environment)
        self._environment = environment
        self._own: OwnAttempts | None = None
        self._assignment, self._begun = Assignment.from_config(config), False

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Replace the ended assignment by the next one."""
        self._release()
        self._assignment, self._begun = Assignment.from_config(new_config), False
        return True

    def step(self) -> dict[str, Any]:
        """Train one interval and report.

        Raises:
            RuntimeError: A machine of the placement group is preempted before the attempt begins. Tune then
                ends this process, and the next attempt has another placement group.
        """
        if self._own is None:
            is_script = isinstance(self._assignment.settings, ScriptSettings)
            self._own = OwnProcess(self._others) if is_script else OwnEngine()
            process.handle_sigterm()
            process.watch(self._assignment.channel, published_stop)
        if (process.terminating() or self._own.loses_node) and not self._begun:
            raise RuntimeError("this machine is being preempted")
        self._begun = True
        outcome = self._own.advance(sent_code.on_this_machine(self._assignment))
        node = outcome.node or socket.gethostname()
        return replace(outcome, node=node, loan=self.loan).to_result()

    def get_auto_filled_metrics(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Return what Tune adds to a report, without the assignment, which is larger than the report."""
        filled = super().get_auto_filled_metrics(*arguments, **options)
        return {name: value for name, value in filled.items() if name != "config"}

    def _others(self) -> RankActors | None:
        several = self._assignment.nodes > 1
        return RankActors(self._assignment, self._environment) if several else None

    def _release(self) -> None:
        if self._own is not None:
            self._own.release()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save nothing, because every report follows a durable checkpoint."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Load nothing, because an assignment names the checkpoint to resume."""

    def cleanup(self) -> None:
        """Free the slot before the process ends."""
        self._release()
