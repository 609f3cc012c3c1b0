"""The engine that several trials share: real training in one process, its messages sent by hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.assignment import Assignment, Outcome
from orchestrator.training.attempt import OwnEngine
from orchestrator.training.engine_server import EngineServer
from tests.attempts import INTERVAL, assignment


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("resident")


@pytest.fixture
def resident() -> Iterator[EngineServer]:
    """Run an engine of four slots until it is idle."""
    made = EngineServer(4, window=0.2, opening=0.5, idle=1.0)
    thread = threading.Thread(target=made.run)
    thread.start()
    yield made
    thread.join(timeout=60)
    assert not thread.is_alive(), "an idle engine leaves"


def life(resident: EngineServer, told: Assignment, reports: int = 3) -> list[Outcome]:
    """Ask for a trial's intervals one after the other, as its worker does."""
    outcomes: list[Outcome] = []
    while len(outcomes) < reports and not (outcomes and outcomes[-1].done):
        outcome = resident.ask(told, told.trial_key, first=not outcomes).result(timeout=250)
        if not outcome.waiting:
            outcomes.append(outcome)
    return outcomes


def together(resident: EngineServer, trials: list[Assignment]) -> dict[int, list[Outcome]]:
    found: dict[int, list[Outcome]] = {}
    threads = [
        threading.Thread(target=lambda told=told: found.update({told.number: life(resident, told)}))
        for told in trials
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_shared_equals_alone_and_slots_are_refilled(folder: Path, resident: EngineServer) -> None:
    """Six trials in four slots, each with the curve it has in an engine of its own."""
    trials = [assignment(folder, number) for number in range(6)]
    found = together(resident, trials)
    alone = OwnEngine()
    for told in trials:
        outcomes = found[told.number]
        assert [outcome.step for outcome in outcomes] == [10, 20, 30]
        assert [outcome.done for outcome in outcomes] == [False, False, True]
        for shared in outcomes:
            expected = alone.advance(replace(told, checkpoints=str(folder / "alone")))
            for name in ("train/loss", "val/loss"):
                assert shared.metrics[name] == pytest.approx(expected.metrics[name], rel=1e-5)
        alone.leave()
    assert 0 < resident.occupancy.share <= 1
    assert resident.empty


def test_a_wish_to_stop_saves_each_trial_between_two_calls(folder: Path, resident: EngineServer) -> None:
    wish = folder / "wish"
    told = [assignment(folder, 10 + number, stop_wish=str(wish)) for number in range(2)]
    answers = [resident.ask(each, each.trial_key, first=True) for each in told]
    wish.touch()
    for answer in answers:
        outcome = answer.result(timeout=250)
        assert outcome.interrupted
        assert outcome.checkpoint is not None
        assert 0 < outcome.step < INTERVAL


def test_a_wish_to_stop_is_heeded_between_two_reports(folder: Path, resident: EngineServer) -> None:
    """A trial whose interval is one call of the device is nowhere else to be asked."""
    wish = folder / "wish-between"
    told = assignment(folder, 14, stop_wish=str(wish))
    (first,) = life(resident, told, reports=1)
    wish.touch()
    left = resident.ask(told, told.trial_key, first=False).result(timeout=250)
    assert (left.interrupted, left.done, left.step) == (True, True, first.step)
    assert left.checkpoint == first.checkpoint
    alone = OwnEngine()
    told = assignment(folder, 15, stop_wish=str(folder / "wish-alone"))
    first = alone.advance(told)
    Path(told.stop_wish).touch()
    assert alone.advance(told).checkpoint == first.checkpoint
    alone.leave()
    assert resident.empty


def test_a_dead_workers_slot_is_given_away_and_it_is_told(folder: Path, resident: EngineServer) -> None:
    """The retry of a trial frees the slot of the attempt before it; that one cannot come back."""
    old = assignment(folder, 20)
    first = resident.ask(old, "dead", first=True).result(timeout=250)
    assert first.checkpoint is not None
    again = assignment(folder, 20, attempt=2, resume=first.checkpoint.path)
    outcome = resident.ask(again, "new", first=True).result(timeout=250)
    assert outcome.step == 20
    late = resident.ask(old, "dead", first=False).result(timeout=250)
    assert (late.failure, late.done) == ("engine lost", True)
    resident.release(again.attempt_id)


def test_a_failure_of_one_trial_is_its_own(folder: Path, resident: EngineServer) -> None:
    """A damaged checkpoint ends its trial with the cause; its neighbour goes on."""
    bad = assignment(folder, 30, resume=str(folder / "nothing"))
    found = together(resident, [bad, assignment(folder, 31)])
    assert found[30][0].failure == "damaged checkpoint"
    assert [outcome.step for outcome in found[31]] == [10, 20, 30]
