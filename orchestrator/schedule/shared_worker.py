"""The shared worker: one process for all trials of a shared engine.

A worker of a shared engine only asks the engine for the next interval and waits. A process of Ray Tune for
that takes 2 s of processor time to start and 100 MB, more than many small trials. The driver therefore keeps
one process for each engine, on its own machine, and gives Tune a `Seat` for each trial: a handle of that
process whose calls carry the id of the worker.

The process runs no code of users. If it dies, each trial of its engine loses its slot and is not charged; see
`Engines.cause_of_lost_worker`.
"""

from __future__ import annotations

import asyncio
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.assignment import Assignment, Outcome
from orchestrator.schedule import ray_private
from orchestrator.schedule.loans import WrongLoan
from orchestrator.training import process
from orchestrator.training.attempt import SIGN_OF_LIFE
from orchestrator.training.engine_server import STOP_POLL

ENGINES = "sweep-engines"
"""Namespace of the actors that are engines."""

REPLACED = 3
"""Number of engines that may die before an attempt enters one; after more deaths the attempt fails."""

CALLS = 10_000
"""Maximum number of concurrent calls of a process: one for each of its trials, and those that end them."""

GIVE_UP_SECONDS = 5.0
"""Time limit for a process to give up an attempt; a slower process hangs and is killed."""


class SharedEngine:
    """Client of the shared engine that the driver has chosen for a worker's current attempt.

    By the id of the worker, an engine recognises the successor of an attempt.
    """

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._actor: Any = None
        self._loan = ""
        self._attempt: str | None = None
        self._held = False
        self._missed = 0

    async def advance(self, assignment: Assignment) -> Outcome:
        """Train towards the next report; the death of the engine is an outcome with a cause.

        The first outcome of an attempt is `queued`, and names the engine once the engine has a device.
        """
        if self._attempt != assignment.attempt_id:
            self._attempt, self._actor, self._held, self._missed = assignment.attempt_id, None, False, 0
        try:
            if self._actor is None:
                return await self._entered(assignment)
            outcome: Outcome = await self._actor.advance.remote(
                self._loan, assignment, self._worker, not self._held
            )
        except (RayActorError, ValueError, WrongLoan) as error:  # the engine has ended or was returned
            return await self._lost(assignment, error)
        if (outcome.attempt_id, outcome.loan) != (assignment.attempt_id, self._loan):
            got = f"of {outcome.attempt_id} by the loan {outcome.loan}"
            message = (
                f"an engine must report {assignment.attempt_id} by the loan {self._loan} (got a report {got})"
            )
            return _ended(assignment, "foreign report", message)
        self._held = self._held or not outcome.queued
        return outcome

    async def _entered(self, assignment: Assignment) -> Outcome:
        """Wait for the engine's device; return a `queued` outcome, with the engine's name once it has one."""
        assert assignment.engine is not None, "the driver seats every attempt that shares a device"
        name, self._loan = ray_private.published_engine(assignment.engine) or ("none", "")
        actor: Any = ray.get_actor(name, namespace=ENGINES)
        ready, began = asyncio.wrap_future(actor.ready.remote(self._loan).future()), time.monotonic()
        waiting = _queued(assignment)
        while not (await asyncio.wait([ready], timeout=STOP_POLL))[0]:
            is_stopped = process.stop_requested(assignment.channel, assignment.attempt_id)
            if time.monotonic() - began > SIGN_OF_LIFE or is_stopped:
                return waiting
        ready.result()
        self._actor = actor
        return replace(waiting, engine=assignment.engine)

    async def _lost(self, assignment: Assignment, error: Exception) -> Outcome:
        """Return the outcome of a dead engine; `queued` if the driver may still replace it."""
        self._actor = None
        if not self._held and self._missed < REPLACED:
            self._missed += 1
            await asyncio.sleep(STOP_POLL)  # the driver also needs time to notice the death
            return _queued(assignment)
        self._attempt = None
        first = str(error).splitlines()[0]
        message = " ".join(filter(None, (first, ray_private.last_words(str(error)))))
        return _ended(assignment, "engine lost", message)

    def release(self) -> None:
        """Free the slot."""
        if self._actor is not None and self._attempt is not None:
            self._actor.release.remote(self._loan, self._attempt)
        self._actor, self._attempt = None, None


def _queued(assignment: Assignment) -> Outcome:
    return Outcome(assignment.attempt_id, 0, queued=True)


def _ended(assignment: Assignment, failure: str, message: str) -> Outcome:
    return Outcome(assignment.attempt_id, 0, done=True, failure=failure, message=message)


class SharedWorker:
    """Actor of the shared worker; the seats of its engine call it with the id of their worker."""

    def __init__(self) -> None:
        self._access: dict[str, SharedEngine] = {}
        self._advancing: dict[str, asyncio.Task[Outcome]] = {}

    async def live(self) -> None:
        """Block for ever; the call fails when the process ends, so the driver notices."""
        await asyncio.Event().wait()

    async def train(self, worker: str, assignment: Assignment) -> dict[str, Any]:
        """Train an attempt to its next report or its end; return the result for Ray Tune."""
        process.watch(assignment.channel, ray_private.published_stop)
        access = self._access.setdefault(worker, SharedEngine(worker))
        task = self._advancing[assignment.attempt_id] = asyncio.ensure_future(access.advance(assignment))
        try:
            outcome = await task
        except asyncio.CancelledError:
            message = "the driver has given up an attempt that was silent"
            outcome = _ended(assignment, "engine lost", message)
        finally:
            self._advancing.pop(assignment.attempt_id, None)
        return replace(outcome, node=outcome.node or socket.gethostname()).to_result()

    async def give_up(self, attempt_id: str) -> None:
        """End the wait for an engine's answer: the attempt is lost."""
        if (task := self._advancing.get(attempt_id)) is not None:
            task.cancel()

    async def release(self, worker: str) -> None:
        """Free the slot of a worker that trains nothing more."""
        if (access := self._access.pop(worker, None)) is not None:
            access.release()


@dataclass(frozen=True)
class LivingActor:
    """An actor of this driver, and the reference to its call of `live`, which ends with the process.

    `ray.get_actor` still returns the handle of an actor whose process was killed, and Ray refuses to use its
    name again. So every actor has a unique name, and only its owner knows whether it lives.
    """

    handle: Any
    live: Any

    @property
    def lives(self) -> bool:
        """Return True if the process has not ended."""
        return not ray.wait([self.live], timeout=0)[0]


class SharedWorkers:
    """The shared workers of a driver, one for each engine. They end with the driver."""

    def __init__(self) -> None:
        self._actors: dict[str, LivingActor] = {}
        self._seats: dict[str, Seat] = {}

    def lend(self, assignment: Assignment) -> Any:
        """Return a handle for a trial, which Ray Tune uses like an actor of its own."""
        return Seat(self, assignment).handle

    def give_up(self, attempt_id: str) -> bool:
        """End a silent attempt with the cause `engine lost`; return False if no shared worker has it.

        A worker that does not answer is killed.
        """
        if (seat := self._seats.get(attempt_id)) is None:
            return False
        seat.give_up()
        return True

    def of(self, engine: str) -> Any:
        """Return the handle of the shared worker of an engine; create it unless it lives."""
        if (actor := self._actors.get(engine)) is None or not actor.lives:
            here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
            created = ray.remote(SharedWorker).options(
                num_cpus=0, max_concurrency=CALLS, scheduling_strategy=here
            )
            handle: Any = created.remote()
            actor = self._actors[engine] = LivingActor(handle, handle.live.remote())
        return actor.handle

    def taken(self, attempt_id: str, seat: Seat) -> None:
        """Record the seat of an attempt."""
        self._seats[attempt_id] = seat

    def left(self, attempt_id: str) -> None:
        """Remove an attempt that has ended."""
        self._seats.pop(attempt_id, None)


class Seat:
    """One trial's place in a shared worker: the current attempt, and the handle that Ray Tune calls.

    Attributes:
        handle: Handle that Ray Tune calls in place of an actor.
    """

    def __init__(self, workers: SharedWorkers, assignment: Assignment) -> None:
        self._workers, self._id = workers, uuid.uuid4().hex
        self._sit(assignment)
        answers: dict[str, Callable[..., Any]] = {
            "__ray_ready__": lambda: ray.put(True),
            "__ray_terminate__": self._leave,
            "train": self._train,
            "reset": self._reset,
            "stop": self._leave,
            "get_auto_filled_metrics": lambda **_: ray.put({}),
        }
        self.handle = ray_private.handle_with(self._process, answers)

    def give_up(self) -> None:
        """End the attempt; kill the process if it does not answer."""
        answer = self._process.give_up.remote(self._assignment.attempt_id)
        if not ray.wait([answer], timeout=GIVE_UP_SECONDS)[0]:
            ray.kill(self._process)

    def _sit(self, assignment: Assignment) -> None:
        assert assignment.engine is not None, "the driver seats every attempt that shares a device"
        self._assignment, self._process = assignment, self._workers.of(assignment.engine)
        self._workers.taken(assignment.attempt_id, self)

    def _train(self) -> Any:
        return self._process.train.remote(self._id, self._assignment)

    def _reset(self, new_config: dict[str, Any], storage: object) -> Any:
        self._leave()
        self._sit(Assignment.from_config(new_config))
        return ray.put(True)

    def _leave(self) -> Any:
        return self._process.release.remote(self._id)
