"""Slots of a shared engine: their attempts, the queue and the occupancy."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from orchestrator.assignment import Assignment, Outcome
from orchestrator.training.attempt import Attempt


@dataclass(frozen=True)
class Request:
    """A worker's request for the next interval of its attempt.

    Attributes:
        assignment: Assignment of the attempt.
        worker: Id of the worker, which has one attempt at a time.
        first: Whether the attempt has no slot yet.
        answer: Future of the outcome; it can be cancelled while the request is queued.
        at: Time of the request, by the monotonic clock.
    """

    assignment: Assignment
    worker: str
    first: bool
    answer: Future[Outcome]
    at: float = field(default_factory=time.monotonic)

    @property
    def attempt_id(self) -> str:
        """Return the id of the attempt."""
        return self.assignment.attempt_id

    def failed(self, failure: str, message: str) -> Outcome:
        """Return the outcome of an attempt that ends with a failure."""
        return Outcome(self.attempt_id, 0, done=True, failure=failure, message=message)

    @property
    def program(self) -> object:
        """Return the key of the compiled program, which the trials of one engine share."""
        return self.assignment.settings.static(), self.assignment.data

    def supersedes(self, other: Request) -> bool:
        """Return True if this request shows that another attempt is over: same worker, or same trial."""
        return other.worker == self.worker or other.assignment.trial_key == self.assignment.trial_key


@dataclass
class Slot:
    """A slot with an attempt.

    Attributes:
        attempt: Attempt in the slot.
        request: Last request of its worker.
        training: Whether the engine trains the attempt towards a report.
        answered_at: Time of the last answer, or None while the worker waits for one.
    """

    attempt: Attempt
    request: Request
    training: bool = False
    answered_at: float | None = None

    @property
    def pending(self) -> bool:
        """Return True if the worker waits for an answer."""
        return self.answered_at is None


class SlotTable:
    """The K slots of one engine and the first-come, first-served queue for them.

    Attributes:
        size: Number of slots K.
        occupied: Slots with an attempt, by index.
        program: Key of the program that the occupied slots share.
        tested: Id of the attempt that is trained alone until its next report, or None.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.occupied: dict[int, Slot] = {}
        self.program: object = None
        self.tested: str | None = None
        self._queue: list[Request] = []

    @property
    def queue(self) -> list[Request]:
        """Return the requests for a slot that were not cancelled, the oldest first."""
        return [request for request in self._queue if not request.answer.cancelled()]

    @property
    def pending(self) -> int:
        """Return the number of slots with a waiting worker."""
        return sum(slot.pending for slot in self.occupied.values())

    @property
    def empty(self) -> bool:
        """Return True if no attempt holds a slot or is queued for one."""
        return not (self.occupied or self.queue)

    def receive(self, request: Request) -> bool:
        """Queue a first request, or record the next request of a slot; return False if the slot is lost."""
        if request.first:
            self.free(lambda slot: request.supersedes(slot.request))
            self._queue.append(request)
            return True
        for slot in self.occupied.values():
            if slot.request.attempt_id == request.attempt_id:
                slot.request, slot.answered_at = request, None
                return True
        return False

    def release(self, attempt_id: str) -> None:
        """Free the slot of an attempt, or remove its request from the queue."""
        self.passed(attempt_id)
        self.free(lambda slot: slot.request.attempt_id == attempt_id)
        self._queue = [request for request in self._queue if request.attempt_id != attempt_id]

    def free(self, condition: Callable[[Slot], bool]) -> None:
        """Free every slot that meets a condition."""
        for index in [index for index, slot in self.occupied.items() if condition(slot)]:
            slot = self.occupied.pop(index)
            self.passed(slot.request.attempt_id)
            slot.attempt.release()

    def free_silent(self, since: float) -> None:
        """Free the slots that were answered before `since` and have not been requested again."""
        self.free(lambda slot: slot.answered_at is not None and slot.answered_at < since)

    @property
    def tested_pending(self) -> bool:
        """Return True if the tested attempt has a slot, and its worker waits for an answer."""
        return any(slot.pending and slot.request.attempt_id == self.tested for slot in self.occupied.values())

    def passed(self, attempt_id: str) -> None:
        """Record that an attempt no longer needs to be trained alone."""
        if self.tested == attempt_id:
            self.tested = None

    def may_train(self, slot: Slot) -> bool:
        """Return True if a slot may begin its next interval: no other attempt is tested or about to be."""
        if self.tested is not None:
            return slot.request.attempt_id == self.tested
        queue = self.queue
        return not (queue and queue[0].assignment.alone and self._fits(queue[0]))

    def take(self) -> tuple[int, Request] | None:
        """Return a free slot and the queued request that gets it, or None if all requests must wait.

        A request for another program waits until every slot is free, and later requests do not overtake it.
        An attempt that must be trained alone waits until no slot trains. Its first answer announces this to
        its worker, before the attempt can do harm; it gets a slot with the next request.
        """
        self._queue = self.queue
        while self._queue and (request := self._next()) is not None:
            self._queue.remove(request)
            if not request.answer.set_running_or_notify_cancel():
                continue
            if request.assignment.alone and self.tested is None:
                self.tested = request.attempt_id
                request.answer.set_result(Outcome(request.attempt_id, 0, queued=True, alone=True))
                continue
            self.program = request.program
            return next(index for index in range(self.size) if index not in self.occupied), request
        return None

    def _next(self) -> Request | None:
        if self.tested is not None:
            return next((one for one in self._queue if one.attempt_id == self.tested), None)
        first = self._queue[0]
        training = any(slot.training for slot in self.occupied.values())
        return first if self._fits(first) and not (first.assignment.alone and training) else None

    def _fits(self, request: Request) -> bool:
        """Return True if a slot of a request's program is free."""
        return not self.occupied or (len(self.occupied) < self.size and request.program == self.program)


@dataclass
class Occupancy:
    """Slot-seconds in use and in total since the first trial, without compilation.

    Attributes:
        slots: Number of slots K.
        busy: Slot-seconds in which a trial was trained, evaluated or saved, alone or with its neighbours.
        elapsed: Total time in seconds.
    """

    slots: int
    busy: float = 0.0
    elapsed: float = 0.0

    def add(self, served: int, seconds: float) -> None:
        """Add a period in which `served` slots were busy."""
        self.busy += served * seconds
        self.elapsed += seconds

    @property
    def share(self) -> float:
        """Return the share of slot-seconds that were busy."""
        return self.busy / (self.slots * self.elapsed) if self.elapsed else 0.0
