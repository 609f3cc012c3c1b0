"""The processes that train in the simulation: real warm workers in a simulated host, and Tune's own ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from orchestrator.assignment import Assignment, Outcome
from orchestrator.ledger.sweeps.records import Channel
from orchestrator.schedule.warm_worker import Environment, Host
from tests.simulation.kernel import Kernel
from tests.simulation.lending.actors import Ray, Server
from tests.simulation.lending.rules import Rules

LOOK_SECONDS = 2.0
"""Time between two looks of a worker: that of a real one would fill most of a run."""

PREPARE_SECONDS = 0.02
"""Longest time for which a worker sets its environment, or sets it back."""

END_SECONDS = 0.3
"""Longest time after which a process ends that ends itself."""


class Trainable:
    """Trains nothing, and says which attempt it would have trained: that of its own configuration.

    Args:
        kernel: Kernel of the simulation.
        ray: Ray whose faults strike it.
        rules: What must hold.
        server: Its process.
        interval: Longest time between two reports.
        loan: Id of the loan for which it works, or '' in a process of Tune's.
        config: Carries the first assignment.
    """

    def __init__(
        self,
        kernel: Kernel,
        ray: Ray,
        rules: Rules,
        server: Server,
        interval: float,
        loan: str,
        config: dict[str, Any],
    ) -> None:
        self._kernel, self._ray, self._rules, self._server = kernel, ray, rules, server
        self._interval, self._loan = interval, loan
        self._begin(config)

    def _begin(self, config: dict[str, Any]) -> None:
        self._assignment = Assignment.from_config(config)
        self._step = self._assignment.resume.step if self._assignment.resume else 0
        self._check(f"begins {self.attempt_id}")

    @property
    def channel(self) -> Channel:
        return self._assignment.channel

    @property
    def attempt_id(self) -> str:
        return self._assignment.attempt_id

    def train(self) -> dict[str, Any]:
        self._check(f"trains {self.attempt_id}")
        self._kernel.point()
        self._kernel.sleep(self._kernel.random.random() * self._interval)
        self._check(f"has trained {self.attempt_id}")
        self._step += 1
        execution = self._rules.execute(self._server, self.attempt_id, self._step)
        done = self._step >= self._assignment.settings.params["reports"]  # type: ignore[union-attr]
        shown = {"execution": execution}
        # `to_result` copies deeply, which takes a tenth of a run.
        saved: Any = {"path": "", "step": self._step, "digest": "", "size": 0}
        outcome = Outcome(self.attempt_id, self._step, done, shown, checkpoint=saved, loan=self._loan)
        return {"outcome": vars(outcome)}

    def reset(self, new_config: dict[str, Any], storage: Any = None) -> bool:
        self._kernel.point()
        self._begin(new_config)
        return True

    def stop(self) -> None:
        fault = self._ray.strikes("a stop")
        self._kernel.point()
        self._check("stops")
        self._kernel.sleep(fault.seconds if fault else self._kernel.random.random() * 0.1)
        self._check("has stopped")

    def _check(self, what: str) -> None:
        if self._loan:
            self._rules.check_use(self._server, self._loan, what)


class SimulatedHost(Host):
    """The process of a warm worker.

    Args:
        kernel: Kernel of the simulation.
        ray: Ray that ends it.
        server: The process.
        trainable: Function that returns a trainable, given the id of a loan and a configuration.
    """

    def __init__(
        self, kernel: Kernel, ray: Ray, server: Server, trainable: Callable[[str, dict[str, Any]], Trainable]
    ) -> None:
        self._kernel, self._ray, self._server, self._trainable = kernel, ray, server, trainable

    def adopt(self, environment: Environment) -> None:
        self._kernel.sleep(self._kernel.random.random() * PREPARE_SECONDS)

    def trainable(self, loan: str, environment: Environment, config: dict[str, Any], storage: Any) -> Any:
        return self._trainable(loan, config)

    def restore(self) -> None:
        self._kernel.sleep(self._kernel.random.random() * PREPARE_SECONDS)

    def publish(self, borrower: str) -> None:
        """Publish nothing."""

    def end(self) -> None:
        """End this process soon: Ray is asked to kill it."""
        end = partial(self._ray.end, self._server, "idle")
        self._kernel.after(self._kernel.random.random() * END_SECONDS, end)

    def watch(self, look: Callable[[], None]) -> None:
        """Call a function again and again, unless the process is paused."""
        kernel, process = self._kernel, self._server.process

        def again() -> None:
            if not process.alive:
                return
            if (paused := process.paused_until - kernel.now) > 0:
                kernel.after(paused, again)
                return
            self._ray.looking = self._server
            look()
            kernel.after(LOOK_SECONDS, again)

        kernel.after(kernel.random.random() * LOOK_SECONDS, again)
