"""Who gets a slot of a shared engine, and who loses one."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from orchestrator.training.slot_table import Ask, Seat, SlotTable


class Attempt:
    """Notes that it has left."""

    left = False

    def leave(self) -> None:
        self.left = True


def ask(trial: str, *, attempt: int = 1, worker: str = "", width: int = 8, first: bool = True) -> Ask:
    settings = SimpleNamespace(static=lambda: width)
    told: Any = SimpleNamespace(
        attempt_id=f"{trial}.{attempt}", trial_key=trial, settings=settings, data="data"
    )
    return Ask(told, worker or f"worker of {trial}", first, Future(), since=0.0)


def seated(seating: SlotTable, wish: Ask) -> Any:
    assert seating.hear(wish)
    found = seating.next()
    assert found is not None
    slot, who = found
    attempt: Any = Attempt()
    seating.seats[slot] = Seat(attempt, who)
    return attempt


def test_slots_are_filled_in_order_and_no_more_than_there_are() -> None:
    seating = SlotTable(2)
    seated(seating, ask("a"))
    seated(seating, ask("b"))
    assert seating.hear(ask("c"))
    assert seating.next() is None
    seating.release("a.1")
    slot, who = seating.next() or (None, None)
    assert (slot, who and who.attempt_id) == (0, "c.1")


def test_another_static_choice_waits_until_all_have_left_and_nobody_overtakes_it() -> None:
    seating = SlotTable(4)
    seated(seating, ask("a"))
    assert seating.hear(ask("wide", width=16))
    assert seating.hear(ask("b"))
    assert seating.next() is None
    seating.release("a.1")
    slot, who = seating.next() or (None, None)
    assert (slot, who and who.attempt_id) == (0, "wide.1")


def test_a_newer_attempt_or_another_trial_of_the_worker_frees_the_slot() -> None:
    seating = SlotTable(4)
    first = seated(seating, ask("a", worker="one"))
    seated(seating, ask("b", worker="two"))
    assert seating.hear(ask("a", attempt=2, worker="three"))
    assert first.left
    assert seating.hear(ask("c", worker="two"))
    assert seating.seats == {}
    assert len(seating.waiting) == 2


def test_who_lost_its_slot_is_told() -> None:
    seating = SlotTable(1)
    seated(seating, ask("a"))
    assert seating.hear(ask("a", first=False))
    seating.release("a.1")
    assert not seating.hear(ask("a", first=False))


def test_only_who_was_told_something_can_be_silent() -> None:
    seating = SlotTable(2)
    waits, dead = seated(seating, ask("a")), seated(seating, ask("b"))
    seating.seats[1].told_at = 10.0
    seating.drop_silent(since=10.0)
    assert not dead.left
    seating.drop_silent(since=11.0)
    assert (dead.left, waits.left) == (True, False)


def test_wishes_that_are_turned_away_are_forgotten() -> None:
    seating = SlotTable(1)
    seated(seating, ask("a"))
    seating.hear(ask("b"))
    seating.hear(ask("c"))
    found = seating.turned_away(lambda wish: wish.attempt_id == "b.1")
    assert [wish.attempt_id for wish in found] == ["b.1"]
    assert [wish.attempt_id for wish in seating.waiting] == ["c.1"]
