"""Who sits in which slot of a shared engine, and who waits for one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.assignment import Assignment, Outcome

if TYPE_CHECKING:
    from orchestrator.training.attempt import Attempt


@dataclass(frozen=True)
class Ask:
    """A trial's wish for its next interval.

    Attributes:
        assignment: of the attempt.
        worker: who asks; a worker has one attempt at a time.
        first: whether the attempt has no slot yet.
        answer: where its outcome goes.
        since: time of the wish.
    """

    assignment: Assignment
    worker: str
    first: bool
    answer: Future[Outcome]
    since: float

    @property
    def attempt_id(self) -> str:
        """Return the id of the attempt that asks."""
        return self.assignment.attempt_id

    @property
    def choice(self) -> object:
        """Return what two trials of one engine have in common."""
        return self.assignment.settings.static(), self.assignment.data

    def replaces(self, other: Ask) -> bool:
        """Tell whether this wish says that an older attempt is over: its worker or its trial has another."""
        return other.worker == self.worker or other.assignment.trial_key == self.assignment.trial_key


@dataclass
class Seat:
    """An attempt in a slot.

    Attributes:
        attempt: in the slot.
        ask: the last wish of its worker.
        started: whether the engine trains it towards a report.
        told_at: time of its last report, or None while one is wished for.
    """

    attempt: Attempt
    ask: Ask
    started: bool = False
    told_at: float | None = None

    @property
    def asks(self) -> bool:
        """Tell whether its worker waits for a report."""
        return self.told_at is None


class SlotTable:
    """The slots of one engine; all who sit share its static choice, and who comes first is first served.

    Args:
        slots: K.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.seats: dict[int, Seat] = {}
        self.waiting: list[Ask] = []
        self.choice: object = None

    @property
    def asking(self) -> int:
        """Return how many of those who sit wait for a report."""
        return sum(seat.asks for seat in self.seats.values())

    @property
    def empty(self) -> bool:
        """Tell whether nobody sits or waits."""
        return not (self.seats or self.waiting)

    def hear(self, ask: Ask) -> bool:
        """Take a wish; return False if it comes from an attempt whose slot was given away."""
        if ask.first:
            self.drop(lambda seat: ask.replaces(seat.ask))
            self.waiting.append(ask)
            return True
        for seat in self.seats.values():
            if seat.ask.attempt_id == ask.attempt_id:
                seat.ask, seat.told_at = ask, None
                return True
        return False

    def release(self, attempt_id: str) -> None:
        """Free the slot of an attempt, or forget its wish for one."""
        self.drop(lambda seat: seat.ask.attempt_id == attempt_id)
        self.waiting = [ask for ask in self.waiting if ask.attempt_id != attempt_id]

    def drop(self, which: Callable[[Seat], bool]) -> None:
        """Free the slots of some attempts."""
        for slot in [slot for slot, seat in self.seats.items() if which(seat)]:
            self.seats.pop(slot).attempt.leave()

    def drop_silent(self, since: float) -> None:
        """Free the slots of those who were told something before `since`, and have not asked again."""
        self.drop(lambda seat: seat.told_at is not None and seat.told_at < since)

    def next(self) -> tuple[int, Ask] | None:
        """Return who gets a slot now, and which; those of another static choice wait until all have left."""
        if not self.waiting or len(self.seats) >= self.slots:
            return None
        if self.seats and self.waiting[0].choice != self.choice:
            return None
        ask = self.waiting.pop(0)
        self.choice = ask.choice
        return next(slot for slot in range(self.slots) if slot not in self.seats), ask

    def turned_away(self, which: Callable[[Ask], bool]) -> list[Ask]:
        """Return some of the wishes for a slot, and forget them."""
        found = [ask for ask in self.waiting if which(ask)]
        self.waiting = [ask for ask in self.waiting if ask not in found]
        return found
