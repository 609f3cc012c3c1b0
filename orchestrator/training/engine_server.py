"""The one engine that is resident on a device, and the trials in its slots: continuous batching of training.

One thread owns the engine; whoever speaks to it leaves a message. The engine runs whoever has asked as one
program: a strict barrier would hang for ever when a worker dies, and without any wait those whose report is
being judged would miss a whole device call.
"""

from __future__ import annotations

import queue
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from orchestrator.assignment import Assignment, Outcome
from orchestrator.training.attempt import Attempt, failed
from orchestrator.training.engine_cache import EngineCache, configure
from orchestrator.training.occupancy import Occupancy
from orchestrator.training.slot_table import Ask, Seat, SlotTable
from trainables.engine import Engine, TrainReport

WINDOW = 0.5
"""Seconds that those who are ready wait for those whose report is being judged."""

OPENING = 5.0
"""Seconds that an engine's first trial waits for others: another number of them is another compilation."""

IDLE = 30.0
"""Seconds without any trial after which the engine leaves its device."""

SILENT = 60.0
"""Seconds after a report after which a worker counts as dead, where somebody waits for its slot."""

ABANDONED = 600.0
"""The same, where nobody waits."""

SIGN_OF_LIFE = 30.0
"""Seconds after which a trial that waits for a slot is told that it still does."""


class EngineServer:
    """Holds the engine of one static choice at a time; the next choice waits until its slots are empty.

    Attributes:
        occupancy: how busy its slots were.
    """

    def __init__(
        self, slots: int, *, window: float = WINDOW, opening: float = OPENING, idle: float = IDLE
    ) -> None:
        """Wait for the first trial; nothing is compiled yet.

        Args:
            slots: K.
            window: see `WINDOW`.
            opening: see `OPENING`.
            idle: see `IDLE`.
        """
        self.occupancy = Occupancy(slots)
        self._window, self._opening, self._idle = window, opening, idle
        self._inbox: queue.SimpleQueue[Ask | str] = queue.SimpleQueue()
        self._seating = SlotTable(slots)
        self._bench = EngineCache()
        self._engine: Engine | None = None
        self._expected, self._ready_at, self._heard_at = slots, 0.0, time.monotonic()

    # ---------------------------------------------------------------- for any thread

    def ask(self, assignment: Assignment, worker: str, *, first: bool) -> Future[Outcome]:
        """Ask for an attempt's next interval; its outcome comes when the device has done it."""
        ask = Ask(assignment, worker, first, Future(), time.monotonic())
        ask.answer.set_running_or_notify_cancel()  # a worker that dies cancels nothing
        self._inbox.put(ask)
        return ask.answer

    def release(self, attempt_id: str) -> None:
        """Free an attempt's slot, if it has one."""
        self._inbox.put(attempt_id)

    @property
    def empty(self) -> bool:
        """Tell whether nobody sits or waits."""
        return self._seating.empty and self._inbox.empty()

    # ---------------------------------------------------------------- for the engine's thread

    def run(self) -> None:
        """Serve until there has been no trial for `idle` seconds."""
        while self._gather():
            self._advance()

    def _gather(self) -> bool:
        """Wait until somebody asks, and then a little for the others; tell whether anybody did."""
        began, compiled = time.monotonic(), self._compiled()
        self._tidy()
        self._fill()
        while (left := self._patience()) > 0:
            try:
                self._hear(self._inbox.get(timeout=min(left, 1.0)))
            except queue.Empty:
                self._tidy()
            self._fill()
        while not self._inbox.empty():
            self._hear(self._inbox.get())
        self._fill()
        if self.occupancy.passed:
            self.occupancy.note(0, time.monotonic() - began - (self._compiled() - compiled))
        return self._seating.asking > 0

    def _patience(self) -> float:
        """Return the seconds to wait for more messages; none once everybody has asked who was served last."""
        now, asking = time.monotonic(), self._seating.asking
        if asking:
            return 0.0 if asking >= self._expected else self._ready_at - now
        return 1.0 if not self._seating.empty else self._heard_at + self._idle - now

    def _compiled(self) -> float:
        return self._engine.compiled if self._engine else 0.0

    def _hear(self, message: Ask | str) -> None:
        self._heard_at = time.monotonic()
        if isinstance(message, str):
            self._seating.release(message)
        elif not self._seating.hear(message):
            told = "the engine has given its slot away"
            message.answer.set_result(Outcome(0, done=True, metrics={}, failure="engine lost", message=told))

    def _fill(self) -> None:
        while found := self._seating.next():
            self._admit(*found)

    def _admit(self, slot: int, ask: Ask) -> None:
        told = ask.assignment
        try:
            configure(told.compilations)
            engine = self._bench.engine(told.settings, told.data, slots=self._seating.slots)
            if engine is not self._engine:
                self._engine, self._expected = engine, self._seating.slots
                self._ready_at = time.monotonic() + self._opening
            self._seating.seats[slot] = Seat(Attempt(engine, slot, told), ask)
        except Exception as error:  # noqa: BLE001 - whatever a trial raises is told to the driver, with its cause
            ask.answer.set_result(failed(told, error))

    def _tidy(self) -> None:
        """Drop dead workers, and give those who wait long a sign of life."""
        now = time.monotonic()
        self._seating.drop_silent(now - (SILENT if self._seating.waiting else ABANDONED))

        def due(ask: Ask) -> bool:
            return now - ask.since > SIGN_OF_LIFE or Path(ask.assignment.stop_wish).exists()

        for ask in self._seating.turned_away(due):
            ask.answer.set_result(Outcome(0, done=False, metrics={}, waiting=True))

    def _advance(self) -> None:
        """Run one round for whoever has asked, and answer those who have reached their report."""
        engine, seats = self._engine, self._seating.seats
        assert engine is not None
        for slot, seat in list(seats.items()):
            if seat.started or not seat.asks:
                continue
            if farewell := seat.attempt.farewell():
                self._tell(seat, farewell)
                continue
            engine.ask(slot, seat.attempt.wanted)
            seat.started = True
        serving = [slot for slot, seat in seats.items() if seat.started]
        self._expected = len(serving)
        if not serving:
            return
        began, compiled = time.monotonic(), engine.compiled
        try:
            done = engine.round()
        except Exception as error:  # noqa: BLE001
            self._fail(error)
            return
        wishes = [slot for slot in serving if slot not in done and seats[slot].attempt.stop_wished()]
        for slot, report in {**done, **{slot: engine.cut(slot) for slot in wishes}}.items():
            self._answer(slot, report)
        self.occupancy.note(len(serving), time.monotonic() - began - (engine.compiled - compiled))
        if done:
            self._ready_at = time.monotonic() + self._window

    def _answer(self, slot: int, report: TrainReport) -> None:
        seat = self._seating.seats[slot]
        try:
            outcome = seat.attempt.outcome(report)
        except Exception as error:  # noqa: BLE001
            outcome = failed(seat.ask.assignment, error)
        if outcome.metrics:
            busy = {"slots/busy": self.occupancy.share}
            outcome = replace(outcome, metrics={**outcome.metrics, **busy})
        self._tell(seat, outcome)

    def _tell(self, seat: Seat, outcome: Outcome) -> None:
        """Answer a trial's worker; a trial that is done gives its slot back."""
        seat.started, seat.told_at = False, time.monotonic()
        if outcome.done:
            self._seating.release(seat.ask.attempt_id)
        seat.ask.answer.set_result(outcome)

    def _fail(self, error: Exception) -> None:
        """Tell everybody that the program has failed, and begin anew: the state of all slots is lost."""
        for seat in self._seating.seats.values():
            if seat.asks:
                seat.ask.answer.set_result(failed(seat.ask.assignment, error))
        self._seating.drop(lambda _: True)
        self._bench, self._engine = EngineCache(), None
