"""Trials wait for their turns."""

from __future__ import annotations

from orchestrator.session.retry_queue import Waiting


def test_those_of_an_earlier_driver_go_first_and_the_others_when_due() -> None:
    waiting = Waiting(["s-1", "s-0"])
    waiting.add("s-3", due=20.0)
    waiting.add("s-2", due=10.0)
    assert waiting.in_turn() == ["s-0", "s-1", "s-2", "s-3"]
    assert [waiting.pop(now=9.0) for _ in range(3)] == ["s-0", "s-1", None]
    assert waiting.pop(now=10.0) == "s-2"
    assert len(waiting) == 1


def test_one_that_is_taken_before_its_turn_is_gone() -> None:
    waiting = Waiting(["s-0", "s-1", "s-2"])
    waiting.remove("s-1")
    assert [waiting.pop(now=0.0) for _ in range(3)] == ["s-0", "s-2", None]
