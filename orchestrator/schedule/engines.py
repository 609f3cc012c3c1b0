"""One engine a device as a Ray actor, where several trials share it: its side, the workers', the driver's.

The actor is detached, for an actor dies with its creator, a trial's worker; it is bound to the trial's node
by a strategy of its own, for it would die with the trial's placement group otherwise; and it ends itself when
idle. It takes no share of the device: the trials' own shares keep Ray's accounts.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.assignment import Assignment, Outcome
from orchestrator.schedule import wish
from orchestrator.schedule.environment import worker_environment
from orchestrator.training import stop_signal

NAMESPACE = "engines"


class EngineActor:
    """The process that holds a device's engine.

    Args:
        slots: K.
        environment: variables that JAX and XLA read when they are imported.
    """

    def __init__(self, slots: int, environment: Mapping[str, str]) -> None:
        os.environ.update(environment)
        # Only now: JAX must find the environment above.
        from orchestrator.training.engine_server import EngineServer

        self._resident = EngineServer(slots)
        self._watched = False
        self._self = ray.get_runtime_context().current_actor
        threading.Thread(target=self._live, name="engine", daemon=True).start()

    def _live(self) -> None:
        try:
            self._resident.run()
        finally:
            ray.kill(self._self)

    async def advance(self, assignment: Assignment, worker: str, first: bool) -> Outcome:
        """Train an attempt to its next report."""
        if not self._watched:
            stop_signal.watch(partial(wish.wished, assignment.sweep_id))
            self._watched = True
        return await asyncio.wrap_future(self._resident.ask(assignment, worker, first=first))

    async def release(self, attempt_id: str) -> None:
        """Free an attempt's slot, if it has one."""
        self._resident.release(attempt_id)

    async def retire(self) -> None:
        """Leave the device, unless somebody still trains."""
        if self._resident.empty:
            ray.kill(self._self)


def _engine(name: str, node: str, device: str, slots: int) -> Any:
    """Return the engine of a device, started if there is none."""
    # Trials have shares of the device's memory; their engine has all of them.
    environment = {**worker_environment(1.0), "CUDA_VISIBLE_DEVICES": device}
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    actor = ray.remote(EngineActor).options(
        name=name,
        namespace=NAMESPACE,
        get_if_exists=True,
        lifetime="detached",
        num_cpus=0,
        scheduling_strategy=there,
    )
    return actor.remote(slots, environment)


class SharedEngine:
    """The place of a worker that shares a device: a slot of the engine that is resident there."""

    def __init__(self, slots: int) -> None:
        context = ray.get_runtime_context()
        self._slots, self._node, self._worker = slots, context.get_node_id(), context.get_actor_id()
        (self._device,) = context.get_accelerator_ids()["GPU"]
        self._name = f"{self._node}-{self._device}-{slots}"
        self._actor: Any = None
        self._attempt: str | None = None

    def advance(self, assignment: Assignment) -> Outcome:
        """Train to the next report; the engine's death is an outcome too."""
        first = self._attempt != assignment.attempt_id
        try:
            outcome = self._asked(assignment, first=first)
        except RayActorError as gone:
            self._actor, self._attempt = None, None
            told = str(gone).splitlines()[0]
            return Outcome(0, done=True, metrics={}, failure="engine lost", message=told)
        self._attempt = None if outcome.waiting else assignment.attempt_id
        return replace(outcome, engine=self._name)

    def _asked(self, assignment: Assignment, *, first: bool) -> Outcome:
        if self._actor is None:
            self._actor = _engine(self._name, self._node, self._device, self._slots)
        call = self._actor.advance.remote
        outcome: Outcome = ray.get(call(assignment, self._worker, first))
        return outcome

    def leave(self) -> None:
        """Give the slot back."""
        if self._actor is not None and self._attempt is not None:
            self._actor.release.remote(self._attempt)
            self._attempt = None


class Engines:
    """What the driver knows of the engines: it gives back the slots of attempts that have ended.

    A worker whose trial was stopped hears nothing of it until it gets another, and a dead one says nothing.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._known: dict[str, Any] = {}

    def note(self, attempt_id: str, name: str) -> None:
        """Note which engine has reported an attempt."""
        self._names[attempt_id] = name
        if name not in self._known:
            try:
                self._known[name] = ray.get_actor(name, namespace=NAMESPACE)
            except ValueError:
                self._names.pop(attempt_id)  # it has died since

    def release(self, attempt_id: str) -> None:
        """Free an attempt's slot; of one that never reported, wherever it may be."""
        for actor in self._of(attempt_id):
            actor.release.remote(attempt_id)
        self._names.pop(attempt_id, None)

    def kill(self, attempt_id: str) -> None:
        """End the engine that an attempt hangs in: each of its trials goes on from its checkpoint."""
        if name := self._names.get(attempt_id):
            ray.kill(self._known.pop(name))

    def retire(self) -> None:
        """Let every engine leave that nobody trains in."""
        for actor in self._known.values():
            actor.retire.remote()

    def _of(self, attempt_id: str) -> Iterable[Any]:
        name = self._names.get(attempt_id)
        return [self._known[name]] if name in self._known else list(self._known.values())
