"""The engine that several trials of one device share: continuous batching of training.

One thread owns the engine, and other threads send it messages. The engine trains all requested slots as one
program. It does not wait for every slot, because a strict barrier would hang when a worker dies. It waits a
moment for the slots that it served last, because late ones would otherwise miss a whole device call.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from orchestrator.assignment import Assignment, Outcome
from orchestrator.training import process
from orchestrator.training.attempt import SIGN_OF_LIFE, Attempt, failure_outcome, unbegun
from orchestrator.training.engine_cache import EngineCache, configure
from orchestrator.training.slot_table import Occupancy, Request, Slot, SlotTable

if TYPE_CHECKING:
    from trainables.engine import Engine, TrainReport

WINDOW = 0.5
"""Time in seconds that requested slots wait for slots whose last report the driver still processes."""

OPENING = 5.0
"""Time in seconds that the first trial of a new engine waits for others, because each number of trials needs
a compilation. An engine that has served a sweep before has compiled most of them."""

IDLE = 30.0
"""Idle timeout of the server in seconds."""

TERMINATED = 5.0
"""Idle timeout of the server in seconds after SIGTERM, so that its last answer can arrive."""

SILENT = 60.0
"""Time in seconds without a request after which a worker counts as dead, while another trial is queued."""

ABANDONED = 600.0
"""Time in seconds without a request after which a worker counts as dead, while no trial is queued."""

STOP_POLL = 0.5
"""Interval in seconds of the checks for a stop request while a request is queued."""


class Closed(ValueError):
    """The server is closed: its engine was returned, or serves another sweep."""


class _Wake:
    """A message that wakes the engine's thread."""


@dataclass(frozen=True)
class Errand:
    """Work for the engine's thread besides attempts.

    Attributes:
        work: Function that is called with the cache of the process.
        answer: Future of the result.
    """

    work: Callable[[EngineCache], Any]
    answer: Future[Any]


class EngineServer:
    """Serves one program at a time; a request for another program waits until the slots are empty.

    Args:
        slots: Number of slots K.
        cache: Cache whose engine and data are used and kept; None for a new one.
        window: See `WINDOW`.
        opening: See `OPENING`.
        idle: See `IDLE`.

    Attributes:
        occupancy: Slot-seconds in use and in total.
        failed: Whether an engine has failed, so that the process must not serve another sweep.
    """

    def __init__(
        self,
        slots: int,
        *,
        cache: EngineCache | None = None,
        window: float = WINDOW,
        opening: float = OPENING,
        idle: float = IDLE,
    ) -> None:
        self.occupancy, self.failed = Occupancy(slots), False
        self._window, self._opening, self._idle = window, opening, idle
        self._inbox: queue.SimpleQueue[Request | Errand | _Wake | str] = queue.SimpleQueue()
        self._closing, self._closed = threading.Lock(), False
        self._table = SlotTable(slots)
        self._cache = EngineCache() if cache is None else cache
        self._engine: Engine | None = None
        self._program: object = None
        self._seated_at: dict[str, float] = {}
        self._unanswered: dict[str, Future[Outcome]] = {}
        self._expected, self._ready_at, self._active_at = slots, 0.0, time.monotonic()
        self._trained_at = 0.0

    # ---------------------------------------------------------------- called from any thread

    async def advance(self, assignment: Assignment, worker: str, *, first: bool) -> Outcome:
        """Train an attempt to its next report and return the outcome.

        While the attempt is queued for a slot, return a `queued` outcome after `SIGN_OF_LIFE` seconds or
        after a stop request; the worker then asks again, unless the driver stops it. When the attempt has got
        a slot, return a `training` outcome, because its time is charged from then on. Return another one
        whenever the report takes longer than `SIGN_OF_LIFE` and the engine has trained meanwhile.

        Args:
            assignment: Assignment of the attempt.
            worker: Id of the worker that asks.
            first: Whether this is the attempt's first request, or the last outcome was `queued`.

        Raises:
            Closed: The server has been closed.
        """
        waiting = Outcome(assignment.attempt_id, 0, queued=True)
        answer = self._unanswered.pop(assignment.attempt_id, None)
        if answer is None:
            answer = self.submit(assignment, worker, first=first)
        outcome = asyncio.wrap_future(answer)
        began = time.monotonic()
        while not (await asyncio.wait([outcome], timeout=STOP_POLL))[0]:
            late = time.monotonic() - began > SIGN_OF_LIFE
            is_stopped = process.stop_requested(assignment.channel, assignment.attempt_id)
            if (late or is_stopped) and answer.cancel():
                return waiting
            held = self._held(assignment.attempt_id)
            is_due = first or (late and self._trained_at > began)
            if held is not None and is_due and not answer.done():
                self._unanswered[assignment.attempt_id] = answer
                return replace(waiting, queued=False, training=True, held=held)
        return await outcome

    def submit(self, assignment: Assignment, worker: str, *, first: bool) -> Future[Outcome]:
        """Request an attempt's next interval; return the future of its outcome.

        Raises:
            Closed: The server has been closed.
        """
        request = Request(assignment, worker, first, Future())
        if not first:
            # The attempt holds a slot; only a queued request can be cancelled.
            request.answer.set_running_or_notify_cancel()
        self._send(request)
        return request.answer

    def release(self, attempt_id: str) -> None:
        """Free the slot of an attempt, if it has one, or remove its request from the queue."""
        self._unanswered.pop(attempt_id, None)
        self._inbox.put(attempt_id)

    def run_errand(self, work: Callable[[EngineCache], Any]) -> Future[Any]:
        """Let the engine's thread call `work` with its cache, which holds the data of the last attempt.

        Only a driver without attempts may call this: remaining slots belong to ended attempts and are freed.

        Raises:
            Closed: The server has been closed.
        """
        errand = Errand(work, Future())
        self._send(errand)
        return errand.answer

    def retire(self) -> None:
        """End the server when no attempt holds a slot or is queued for one."""
        self._idle = 0.0
        self._inbox.put(_Wake())

    def close(self) -> None:
        """Refuse all requests since the end of `run`, and all later ones."""
        with self._closing:
            self._closed = True
        self._engine = self._program = None
        while not self._inbox.empty():
            message = self._inbox.get()
            if isinstance(message, Request | Errand):
                answer = message.answer
                if answer.running() or answer.set_running_or_notify_cancel():
                    answer.set_exception(_closed())

    def _send(self, message: Request | Errand) -> None:
        with self._closing:
            if self._closed:
                raise _closed()
            self._inbox.put(message)

    # ---------------------------------------------------------------- called from the engine's thread

    def run(self) -> None:
        """Serve until there has been no trial for `idle` seconds, or after SIGTERM until all are saved."""
        while self._gather():
            self._advance()

    def _gather(self) -> bool:
        """Wait for a request, then a moment for others; return False if the server must end."""
        began, compiled = time.monotonic(), self._compiled()
        self._free_silent()
        self._fill()
        while (left := self._seconds_to_wait()) > 0:
            try:
                self._receive(self._inbox.get(timeout=min(left, 1.0)))
            except queue.Empty:
                self._free_silent()
            self._fill()
        while not self._inbox.empty():
            self._receive(self._inbox.get())
        self._fill()
        if self.occupancy.elapsed:
            self.occupancy.add(0, time.monotonic() - began - (self._compiled() - compiled))
        return self._table.pending > 0

    def _seconds_to_wait(self) -> float:
        """Return the seconds to wait for more messages; 0 when all slots served last are requested."""
        now, pending = time.monotonic(), self._table.pending
        if self._table.tested is not None and not self._table.tested_pending:
            return 1.0
        if pending:
            return 0.0 if pending >= self._expected else self._ready_at - now
        idle = min(TERMINATED, self._idle) if process.terminating() else self._idle
        return 1.0 if not self._table.empty else self._active_at + idle - now

    def _compiled(self) -> float:
        return self._engine.compiled if self._engine else 0.0

    def _receive(self, message: Request | Errand | _Wake | str) -> None:
        if isinstance(message, _Wake):
            return
        self._active_at = time.monotonic()
        if isinstance(message, Errand):
            self._do(message)
            return
        if isinstance(message, str):
            self._seated_at.pop(message, None)
            self._table.release(message)
        elif not self._table.receive(message):
            reason = "the engine has assigned its slot to another attempt"
            message.answer.set_result(message.failed("slot lost", reason))

    def _do(self, errand: Errand) -> None:
        """Run an errand. The engine's device memory is free meanwhile."""
        try:
            self._table.free(lambda _: True)
            self._engine = self._program = None
            errand.answer.set_result(errand.work(self._cache))
        except Exception as error:  # noqa: BLE001 - raised again in the caller
            errand.answer.set_exception(error)
        self._active_at = time.monotonic()

    def _fill(self) -> None:
        while taken := self._table.take():
            self._admit(*taken)

    def _admit(self, index: int, request: Request) -> None:
        assignment = request.assignment
        if process.terminating():
            reason = "this machine is being preempted"
            request.answer.set_result(request.failed("node lost", reason))
            return
        if outcome := unbegun(assignment):
            request.answer.set_result(outcome)
            return
        self._seated_at[request.attempt_id] = time.monotonic()
        if request.program != self._program:
            # Drop the references to the old engine, so that its device memory is free before the new engine
            # allocates.
            self._engine, self._program = None, request.program
        try:
            configure(assignment.compilations, assignment.gpu)
            created = self._cache.created
            engine = self._cache.engine(assignment.settings, assignment.data, slots=self._table.size)
            if engine is not self._engine:
                self._engine, self._expected = engine, self._table.size
                is_new = self._cache.created > created
                self._ready_at = time.monotonic() + (self._opening if is_new else self._window)
            self._table.occupied[index] = Slot(Attempt(engine, index, assignment), request)
        except Exception as error:  # noqa: BLE001 - a failure inside a trial is an outcome with a cause
            self._settle(request, failure_outcome(assignment, error))

    def _free_silent(self) -> None:
        """Free the slots of workers that are presumed dead."""
        self._table.free_silent(time.monotonic() - (SILENT if self._table.queue else ABANDONED))

    def _advance(self) -> None:
        """Run one round for all requested slots, and answer those that have reached their report."""
        engine, occupied = self._engine, self._table.occupied
        assert engine is not None
        self._start_requested(engine)
        serving = [index for index, slot in occupied.items() if slot.training]
        self._expected = len(serving)
        if not serving:
            return
        began, compiled = time.monotonic(), engine.compiled
        try:
            ended = engine.round()
        except Exception as error:  # noqa: BLE001 - a failure inside a trial is an outcome with a cause
            self._fail(error)
            return
        self._trained_at = time.monotonic()
        for index, failure in ended.failures.items():
            self._answer(occupied[index], failure_outcome(occupied[index].request.assignment, failure))
        done = {*ended.reports, *ended.failures}
        stopped = [index for index in serving if index not in done and occupied[index].attempt.must_stop()]
        for index, report in {**ended.reports, **{index: engine.cut(index) for index in stopped}}.items():
            self._report(index, report)
        self.occupancy.add(len(serving), time.monotonic() - began - (engine.compiled - compiled))
        if done:
            self._ready_at = time.monotonic() + self._window

    def _start_requested(self, engine: Engine) -> None:
        """Add slots with a new request to the rounds, unless they must stop or wait."""
        for index, slot in list(self._table.occupied.items()):
            if slot.training or not slot.pending:
                continue
            if interruption := slot.attempt.interruption():
                self._answer(slot, interruption)
                continue
            if not self._table.may_train(slot):
                if time.monotonic() - slot.request.at > SIGN_OF_LIFE:
                    waiting = Outcome(slot.attempt.attempt_id, 0, queued=True)
                    self._answer(slot, waiting)
                continue
            engine.ask(index, slot.attempt.wanted)
            slot.training = True

    def _report(self, index: int, report: TrainReport) -> None:
        slot = self._table.occupied[index]
        try:
            outcome = slot.attempt.outcome(report)
        except Exception as error:  # noqa: BLE001 - a failure inside a trial is an outcome with a cause
            outcome = failure_outcome(slot.request.assignment, error)
        if outcome.metrics:
            busy = {"slots/busy": self.occupancy.share}
            outcome = replace(outcome, metrics={**outcome.metrics, **busy})
        self._table.passed(slot.request.attempt_id)
        self._answer(slot, outcome)

    def _answer(self, slot: Slot, outcome: Outcome) -> None:
        """Answer the worker of a slot; an attempt that is done frees the slot."""
        slot.training, slot.answered_at = False, time.monotonic()
        self._active_at = slot.answered_at
        if outcome.done:
            self._table.release(slot.request.attempt_id)
        self._settle(slot.request, outcome)

    def _settle(self, request: Request, outcome: Outcome) -> None:
        """Answer a request of an attempt that has, or just had, a slot."""
        held = self._held(request.attempt_id)
        if outcome.done:
            self._seated_at.pop(request.attempt_id, None)
        request.answer.set_result(replace(outcome, held=held))

    def _held(self, attempt_id: str) -> float | None:
        """Return the seconds since an attempt got its slot, or None if it never had one."""
        seated_at = self._seated_at.get(attempt_id)
        return None if seated_at is None else time.monotonic() - seated_at

    def _fail(self, error: Exception) -> None:
        """End every attempt and start over with a new engine: the state of all slots is lost.

        With several attempts in the engine, any of them may be the cause.
        """
        self.failed = True
        pending = [slot for slot in self._table.occupied.values() if slot.pending]
        for slot in pending:
            outcome = failure_outcome(slot.request.assignment, error)
            alone = len(self._table.occupied) == 1 or self._table.tested == slot.request.attempt_id
            self._settle(slot.request, outcome if alone else replace(outcome, failure="engine lost"))
        self._table.free(lambda _: True)
        self._cache, self._engine, self._program = EngineCache(), None, None


def _closed() -> Closed:
    return Closed("the engine must serve the sweep of the attempt (got an engine that was released)")
