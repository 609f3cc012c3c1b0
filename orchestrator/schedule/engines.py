"""Shared engines: one Ray actor a device, and the driver's side of it; for the workers' see `shared_worker`.

The driver creates the actors, so an engine belongs to one sweep, ledger, user and code version, and ends with
its driver at the latest. An engine holds a whole device in Ray's accounts as long as its process lives; the
workers of its trials hold processors only.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from itertools import count, islice
from typing import Any

import ray

from orchestrator.assignment import Assignment, Outcome
from orchestrator.schedule import environment, placement, ray_private, sent_code
from orchestrator.schedule.shared_worker import LivingActor, SharedWorkers
from orchestrator.training import process
from orchestrator.training.engine_server import EngineServer


class EngineActor:
    """The process of a device's shared engine.

    Args:
        slots: K.
        environment: of `orchestrator.schedule.environment.of_workers`; JAX and XLA read it when they are
            imported, with the server's engine cache.
    """

    def __init__(self, slots: int, environment: Mapping[str, str | None]) -> None:
        process.adopt(environment)
        process.handle_sigterm()
        self._server = EngineServer(slots)
        self._self = ray.get_runtime_context().current_actor
        threading.Thread(target=self._run, name="engine", daemon=True).start()

    def _run(self) -> None:
        try:
            self._server.run()
        finally:
            ray.kill(self._self)

    async def ready(self) -> None:
        """Return once the process has its device."""

    async def live(self) -> None:
        """Return never; the call fails when the process ends, which tells the driver that it has ended."""
        await asyncio.Event().wait()

    async def advance(self, assignment: Assignment, worker: str, first: bool) -> Outcome:
        """Train an attempt to its next report; see `EngineServer.advance`."""
        process.watch(assignment.channel, ray_private.published_stop)
        here = sent_code.on_this_machine(assignment)
        outcome = await self._server.advance(here, worker, first=first)
        return replace(outcome, node=socket.gethostname(), engine=assignment.engine)

    async def run_errand(self, work: Callable[..., Any], *arguments: object) -> Any:
        """Return what `work` returns; it gets the cache of this process as `cache`. See `EngineServer`."""
        return await asyncio.wrap_future(self._server.run_errand(lambda cache: work(*arguments, cache=cache)))

    async def release(self, attempt_id: str) -> None:
        """Free the slot of an attempt, if it has one."""
        self._server.release(attempt_id)

    async def retire(self) -> None:
        """End this process as soon as no attempt holds a slot or is queued for one."""
        self._server.retire()


class Engines:
    """The driver's shared engines: it chooses one for every attempt, creates it, frees slots and kills.

    The worker of a stopped trial is not called again before it gets the next trial, and a dead worker frees
    nothing.

    Args:
        devices: returns how many devices the sweep may use.

    Attributes:
        workers: the processes of their trials' workers.
        closing: ids of the nodes on which engines give up their devices: no attempt gets a slot there.
    """

    def __init__(self, devices: Callable[[], int]) -> None:
        self._devices = devices
        self.workers = SharedWorkers()
        self.closing: frozenset[str] = frozenset()
        self._seats: dict[str, Assignment] = {}
        self._entered: set[str] = set()
        self._tested: set[str] = set()
        self._victims: set[str] = set()
        self._actors: dict[str, LivingActor] = {}
        self._located: dict[str, tuple[Any, str]] = {}
        self._created = 0

    def seat(self, assignment: Assignment) -> Assignment:
        """Return the assignment with the name of the engine that its attempt is to share, if it shares one.

        Engines that run the attempt's program are filled first, then devices without an engine; an attempt of
        another program waits in the queue of the engine with the fewest attempts. An engine that is to give
        up its device gets none: its trials start again on another device.
        """
        if assignment.slots == 1:
            return assignment
        seated = replace(assignment, engine=self._choose(assignment))
        self._seats[assignment.attempt_id] = seated
        return seated

    def _choose(self, assignment: Assignment) -> str:
        leaving = {name for name, (_, node) in self._located.items() if node in self.closing}
        seated = (one.engine for one in self._seats.values())
        used = Counter(name for name in seated if name and name not in leaving)
        names = (f"{assignment.channel}-engine-{index}" for index in count())
        unused = (name for name in names if name not in used and name not in leaving)
        engines = [*sorted(used), *islice(unused, max(0, max(1, self._devices()) - len(used)))]
        program = assignment.settings.static()
        same = {one.engine for one in self._seats.values() if one.settings.static() == program}
        free = [name for name in engines if used[name] < assignment.slots] or engines

        def preference(name: str) -> tuple[bool, bool, int]:
            return name not in same, used[name] > 0, used[name]

        return min(free, key=preference)

    def ensure(self, attempt_id: str) -> bool:
        """Create the engine of an attempt unless it lives; return False if the attempt shares none."""
        if (seated := self._seats.get(attempt_id)) is None:
            return False
        assert seated.engine is not None, "a seated attempt has an engine"
        if self._living(seated.engine) is None:
            self._create(seated.engine, seated)
        return True

    def _create(self, engine: str, first: Assignment) -> None:
        """Create the actor of an engine for its first attempt; it starts once a node has a whole GPU free."""
        self._created += 1
        name = f"{engine}-{self._created}"
        labels = placement.selector(first.avoided)
        actor = ray.remote(EngineActor).options(name=name, num_cpus=0, num_gpus=1, label_selector=labels)
        # A trial has a share of the device's memory; their engine has all of it.
        handle: Any = actor.remote(first.slots, environment.of_workers(1.0))
        self._actors[engine] = LivingActor(handle, handle.live.remote())
        ray_private.publish_engine(engine, name)

    def entered(self, attempt_id: str) -> None:
        """Note that an attempt's engine has a device, and that its next interval runs there."""
        self._entered.add(attempt_id)

    def tested(self, attempt_id: str, *, alone: bool) -> None:
        """Note whether an attempt's engine trains nothing else now."""
        (self._tested.add if alone else self._tested.discard)(attempt_id)

    def cause_of(self, attempt_id: str, failure: str | None) -> str | None:
        """Return the cause of a failure: `engine crash` if it is this attempt that an engine has died of.

        That is known if no other attempt was in the engine, or the attempt was the one that it trained.
        """
        return self._cause_of_lost_engine(attempt_id) if failure == "engine lost" else failure

    def _cause_of_lost_engine(self, attempt_id: str) -> str:
        others = self._others(attempt_id)
        self._victims |= others - self._tested
        innocent = attempt_id not in self._tested and (others or attempt_id in self._victims)
        return "engine lost" if innocent else "engine crash"

    def cause_of_lost_worker(self, attempt_id: str, *, again: bool) -> str:
        """Return the cause of an attempt's end after the death of the worker process of its engine's trials.

        That process runs no code of any of them, so each has only lost its slot. If it dies again and again
        without progress of the trial, that counts as the death of the engine, so that the trial ends at last.

        Args:
            attempt_id: of the attempt.
            again: whether the trial has lost its slot before, and made no progress since.
        """
        return self._cause_of_lost_engine(attempt_id) if again else "slot lost"

    def kill(self, attempt_id: str) -> str:
        """Kill the engine in which an attempt is silent; return the cause of that attempt's end.

        It is `hung` if no other attempt is in the engine. Otherwise any of them may hang: the cause of all is
        `engine lost`, and each resumes from its checkpoint.
        """
        seated = self._seats.get(attempt_id)
        if seated is not None and (actor := self._living(seated.engine)) is not None:
            ray.kill(actor)
        return "hung" if self._cause_of_lost_engine(attempt_id) == "engine crash" else "engine lost"

    def release(self, attempt_id: str) -> None:
        """Free the slot of an attempt, if it shares an engine.

        An engine that still waits for a device, and that no trial waits for any more, ends: it would wait on
        for the nodes that its first attempt did not avoid.
        """
        seated = self._seats.pop(attempt_id, None)
        self.workers.left(attempt_id)
        for attempts in (self._entered, self._tested, self._victims):
            attempts.discard(attempt_id)
        if seated is not None and (actor := self._living(seated.engine)) is not None:
            actor.release.remote(attempt_id)
            if (engine := seated.engine) and engine not in self.in_use and not ray_private.node_of(actor):
                self._end(engine)

    def _others(self, attempt_id: str) -> set[str]:
        """Return the other attempts that have entered the engine of an attempt."""
        engine = self._seats[attempt_id].engine if attempt_id in self._seats else None
        sharing = {name for name, seated in self._seats.items() if seated.engine == engine}
        return (sharing & self._entered) - {attempt_id}

    @property
    def in_use(self) -> Set[str]:
        """The engines in which an attempt has a slot or waits for one."""
        return {seated.engine for seated in self._seats.values() if seated.engine}

    def engine_of(self, attempt_id: str) -> str | None:
        """Return the engine that an attempt shares, or None if it shares none."""
        seated = self._seats.get(attempt_id)
        return seated.engine if seated else None

    def nodes(self) -> Mapping[str, str]:
        """Return the ids of the nodes on which the engines have a device, by engine."""
        living = {name: handle for name in self._actors if (handle := self._living(name)) is not None}
        for name, handle in living.items():
            known, _ = self._located.get(name, (None, None))
            if known is not handle and (node := ray_private.node_of(handle)) is not None:
                self._located[name] = handle, node
        return {name: node for name, (handle, node) in self._located.items() if living.get(name) is handle}

    def retire_idle(self) -> None:
        """Let the engines end that no attempt uses, so that another sweep gets their devices."""
        self._retire(self._actors.keys() - self.in_use)

    @property
    def idle(self) -> Any:
        """The handle of an engine that has a device and no attempt, or None."""
        for name in self.nodes().keys() - self.in_use:
            return self._living(name)
        return None

    def retire(self) -> None:
        """Ask every engine to end as soon as it has no attempt."""
        self._retire(self._actors)

    def retire_but_one(self) -> None:
        """Ask all engines but an idle one to end as soon as they have no attempt: it can evaluate."""
        kept = self.idle
        self._retire(name for name in self._actors if kept is None or self._living(name) is not kept)

    def _retire(self, engines: Iterable[str]) -> None:
        for engine in engines:
            if (handle := self._living(engine)) is not None:
                handle.retire.remote()
            ray_private.withdraw_engine(engine)

    def _end(self, engine: str) -> None:
        ray.kill(self._actors.pop(engine).handle)
        ray_private.withdraw_engine(engine)

    def _living(self, engine: str | None) -> Any:
        """Return the handle of an engine's actor, or None if none has been created or it has ended."""
        actor = self._actors.get(engine) if engine else None
        return actor.handle if actor is not None and actor.lives else None
