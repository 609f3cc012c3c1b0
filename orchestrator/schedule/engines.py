"""Shared engines: one Ray actor a device, the workers' side of it, and the driver's.

The actor is detached, because an actor ends with its creator, which is a trial's worker. It is bound to the
trial's node by a scheduling strategy of its own, because it would otherwise end with the trial's placement
group. It reserves no share of the device: the trials' own shares keep Ray's accounts. It ends itself when
idle.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.assignment import Assignment, Outcome
from orchestrator.schedule.ray_private import stop_published
from orchestrator.training import process
from orchestrator.training.engine_server import EngineServer

NAMESPACE = "engines"


class EngineActor:
    """The process of a device's shared engine.

    Args:
        slots: K.
        environment: variables that JAX and XLA read when they are imported, with the server's engine cache.
    """

    def __init__(self, slots: int, environment: Mapping[str, str]) -> None:
        os.environ.update(environment)
        self._server = EngineServer(slots)
        self._self = ray.get_runtime_context().current_actor
        threading.Thread(target=self._run, name="engine", daemon=True).start()

    def _run(self) -> None:
        try:
            self._server.run()
        finally:
            ray.kill(self._self)

    async def advance(self, assignment: Assignment, worker: str, first: bool) -> Outcome:
        """Train an attempt to its next report; see `EngineServer.advance`."""
        process.watch(assignment.sweep_id, stop_published)
        return await self._server.advance(assignment, worker, first=first)

    async def release(self, attempt_id: str) -> None:
        """Free the slot of an attempt, if it has one."""
        self._server.release(attempt_id)

    async def retire(self) -> None:
        """End this process unless an attempt still holds a slot or is queued for one."""
        if self._server.empty:
            ray.kill(self._self)


def engine_actor(name: str, node: str, device: str, slots: int) -> Any:
    """Return the handle of a device's engine; start the engine if there is none.

    Args:
        name: of the actor, the same for every worker of the device.
        node: Ray's id of the node.
        device: id of the device on its node.
        slots: K.
    """
    # A trial has a share of the device's memory; their engine has all of it.
    environment = {**process.worker_environment(1.0), "CUDA_VISIBLE_DEVICES": device}
    actor = ray.remote(EngineActor).options(
        name=name,
        namespace=NAMESPACE,
        get_if_exists=True,
        lifetime="detached",
        num_cpus=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
    )
    return actor.remote(slots, environment)


class SharedEngine:
    """A worker's access to the shared engine of its device.

    Args:
        slots: K.
    """

    def __init__(self, slots: int) -> None:
        context = ray.get_runtime_context()
        self._slots, self._node, self._worker = slots, context.get_node_id(), context.get_actor_id()
        (self._device,) = context.get_accelerator_ids()["GPU"]
        self._name = f"{self._node}-{self._device}-{slots}"
        self._actor: Any = None
        self._attempt: str | None = None

    def advance(self, assignment: Assignment) -> Outcome:
        """Train to the next report; the death of the engine is an outcome with a cause."""
        first = self._attempt != assignment.attempt_id
        try:
            outcome = self._request(assignment, first=first)
        except RayActorError as error:
            self._actor, self._attempt = None, None
            message = str(error).splitlines()[0]
            return Outcome(0, done=True, metrics={}, failure="engine lost", message=message)
        self._attempt = None if outcome.queued else assignment.attempt_id
        return replace(outcome, engine=self._name)

    def _request(self, assignment: Assignment, *, first: bool) -> Outcome:
        if self._actor is None:
            self._actor = engine_actor(self._name, self._node, self._device, self._slots)
        call = self._actor.advance.remote
        outcome: Outcome = ray.get(call(assignment, self._worker, first))
        return outcome

    def release(self) -> None:
        """Free the slot."""
        if self._actor is not None and self._attempt is not None:
            self._actor.release.remote(self._attempt)
            self._attempt = None


class Engines:
    """The driver's record of shared engines; it frees the slots of attempts that have ended.

    The worker of a stopped trial is not called again before it gets the next trial, and a dead worker frees
    nothing.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._handles: dict[str, Any] = {}

    def note(self, attempt_id: str, name: str) -> None:
        """Note in which engine an attempt runs."""
        self._names[attempt_id] = name
        if name not in self._handles:
            try:
                self._handles[name] = ray.get_actor(name, namespace=NAMESPACE)
            except ValueError:
                self._names.pop(attempt_id)  # the engine has died since

    def release(self, attempt_id: str) -> None:
        """Free the slot of an attempt; if its engine is not known, ask every engine to."""
        for handle in self._handles_of(attempt_id):
            handle.release.remote(attempt_id)
        self._names.pop(attempt_id, None)

    def kill(self, attempt_id: str) -> None:
        """Kill the engine in which an attempt hangs; its other trials resume from their checkpoints."""
        if name := self._names.get(attempt_id):
            ray.kill(self._handles.pop(name))

    def retire(self) -> None:
        """Ask every engine without trials to end."""
        for handle in self._handles.values():
            handle.retire.remote()

    def _handles_of(self, attempt_id: str) -> Iterable[Any]:
        name = self._names.get(attempt_id)
        return [self._handles[name]] if name in self._handles else list(self._handles.values())
