"""The table decides which attempt gets a slot of a shared engine, and which loses its slot."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from orchestrator.training.slot_table import Occupancy, Request, Slot, SlotTable


class Attempt:
    """Records its release."""

    released = False

    def release(self) -> None:
        self.released = True


def request(
    trial: str,
    *,
    attempt: int = 1,
    worker: str = "",
    width: int = 8,
    first: bool = True,
    alone: bool = False,
) -> Request:
    settings = SimpleNamespace(static=lambda: width)
    assignment: Any = SimpleNamespace(
        attempt_id=f"{trial}.{attempt}", trial_key=trial, settings=settings, data="data", alone=alone
    )
    return Request(assignment, worker or f"worker of {trial}", first, Future())


def admit(table: SlotTable, first: Request) -> Any:
    """Give a request the slot that the table has for it."""
    assert table.receive(first)
    taken = table.take()
    assert taken is not None
    index, seated = taken
    attempt: Any = Attempt()
    table.occupied[index] = Slot(attempt, seated)
    return attempt


def taken(table: SlotTable) -> tuple[int, str] | None:
    """Return the slot and the attempt that the table gives it to."""
    slot = table.take()
    return (slot[0], slot[1].attempt_id) if slot else None


def test_slots_are_filled_in_order_until_all_are_taken() -> None:
    table = SlotTable(2)
    admit(table, request("a"))
    admit(table, request("b"))
    assert table.receive(request("c"))
    assert table.take() is None
    table.release("a.1")
    assert taken(table) == (0, "c.1")


def test_another_program_waits_for_all_slots_and_is_not_overtaken() -> None:
    table = SlotTable(4)
    admit(table, request("a"))
    assert table.receive(request("wide", width=16))
    assert table.receive(request("b"))
    assert table.take() is None
    table.release("a.1")
    assert taken(table) == (0, "wide.1")


def test_a_newer_attempt_or_another_trial_of_the_worker_frees_the_slot() -> None:
    table = SlotTable(4)
    first = admit(table, request("a", worker="one"))
    admit(table, request("b", worker="two"))
    assert table.receive(request("a", attempt=2, worker="three"))
    assert first.released
    assert table.receive(request("c", worker="two"))
    assert table.occupied == {}
    assert len(table.queue) == 2


def test_a_request_of_an_attempt_without_its_slot_is_refused() -> None:
    table = SlotTable(1)
    admit(table, request("a"))
    assert table.receive(request("a", first=False))
    table.release("a.1")
    assert not table.receive(request("a", first=False))


def test_only_an_answered_worker_can_be_silent() -> None:
    table = SlotTable(2)
    waits, dead = admit(table, request("a")), admit(table, request("b"))
    table.occupied[1].answered_at = 10.0
    table.free_silent(since=10.0)
    assert not dead.released
    table.free_silent(since=11.0)
    assert (dead.released, waits.released) == (True, False)


def test_a_cancelled_request_leaves_the_queue_and_one_with_a_slot_cannot_be_cancelled() -> None:
    table = SlotTable(1)
    seated, cancelled, queued = request("a"), request("b"), request("c")
    admit(table, seated)
    assert table.receive(cancelled)
    assert table.receive(queued)
    assert cancelled.answer.cancel()
    assert not seated.answer.cancel()
    assert [waiting.attempt_id for waiting in table.queue] == ["c.1"]
    table.release("a.1")
    assert taken(table) == (0, "c.1")
    assert table.empty


def test_occupancy_is_the_share_of_busy_slot_seconds() -> None:
    occupancy = Occupancy(4)
    assert occupancy.share == 0.0
    occupancy.add(4, 3.0)
    occupancy.add(0, 1.0)
    occupancy.add(2, 4.0)
    assert occupancy.share == (12 + 8) / (4 * 8)


def test_a_suspect_is_notified_and_waits_for_the_intervals_of_others() -> None:
    """No other interval starts from then on until it has reported; then the queue moves again."""
    table = SlotTable(4)
    admit(table, request("a"))
    table.occupied[0].training = True
    suspect = request("b", alone=True)
    assert table.receive(suspect)
    assert taken(table) is None
    assert not suspect.answer.done()
    assert not table.may_train(table.occupied[0]), "intervals of other trials would delay the test for ever"
    table.occupied[0].training = False
    assert taken(table) is None
    assert (suspect.answer.result().queued, suspect.answer.result().alone) == (True, True)
    assert table.receive(request("c"))
    assert taken(table) is None
    assert not table.may_train(table.occupied[0])
    admit(table, request("b", alone=True))
    assert table.may_train(table.occupied[1])
    assert taken(table) is None
    table.passed("b.1")
    assert table.may_train(table.occupied[0])
    assert taken(table) == (2, "c.1")


def test_a_suspect_that_ends_leaves_the_engine_to_the_others() -> None:
    table = SlotTable(4)
    assert table.receive(request("b", alone=True))
    assert taken(table) is None
    assert table.receive(request("c"))
    assert taken(table) is None
    table.release("b.1")
    assert taken(table) == (0, "c.1")
