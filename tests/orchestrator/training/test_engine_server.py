"""The engine that several trials share: real training in one process, requested from threads."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.assignment import Assignment, Outcome, SavedCheckpoint
from orchestrator.ledger.sweeps.records import channel_of
from orchestrator.training import engine_server, process
from orchestrator.training.attempt import OwnEngine
from orchestrator.training.engine_cache import EngineCache
from orchestrator.training.engine_server import Closed, EngineServer
from tests.attempts import INTERVAL, asked_since_the_last_look, assignment
from trainables import checkpoint
from trainables.engine import Engine
from trainables.engine.engine import Round
from trainables.engine.slots import Call, SeparateSlots

pytestmark = pytest.mark.usefixtures("device")

SWEEPS = ("between calls", "between reports", "alone", "queued")
"""Ids of the sweeps whose stop a test requests."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engine")


@pytest.fixture
def server() -> Iterator[EngineServer]:
    """Run an engine of four slots until it is idle; a trial that a failing test leaves to it is released."""
    running = EngineServer(4, window=0.2, opening=0.5, idle=1.0)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    yield running
    thread.join(timeout=30)
    left = [*running._table.queue, *(slot.request for slot in [*running._table.occupied.values()])]
    for request in left:
        running.release(request.attempt_id)
    thread.join(timeout=60)
    assert not thread.is_alive(), "an idle server ends"
    assert not left, "no trial is left"


@pytest.fixture(scope="module")
def stops() -> Iterator[set[str]]:
    """Return the attempts of `SWEEPS` that are asked to stop; a test adds its own."""
    requested: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "POLL_SECONDS", 0.01)
        for sweep_id in SWEEPS:
            process.watch(channel_of(sweep_id, "l"), lambda _: requested)
        yield requested


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def life(server: EngineServer, trial: Assignment, reports: int = 3, *, first: bool = True) -> list[Outcome]:
    """Request a trial's intervals one after the other, as its worker does."""
    outcomes: list[Outcome] = []
    while len(outcomes) < reports and not (outcomes and outcomes[-1].done):
        asked = server.submit(trial, trial.trial_key, first=first and not outcomes)
        outcome = asked.result(timeout=250)
        outcomes.append(outcome)
    return outcomes


def together(server: EngineServer, trials: list[Assignment]) -> dict[str, list[Outcome]]:
    outcomes: dict[str, list[Outcome]] = {}
    threads = [
        threading.Thread(
            target=lambda trial=trial: outcomes.update({trial.trial_key: life(server, trial)}), daemon=True
        )
        for trial in trials
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def assert_equal_arrays(one: Outcome, other: Outcome) -> None:
    assert one.checkpoint is not None
    assert other.checkpoint is not None
    saved = one.checkpoint, other.checkpoint
    (arrays, _), (others, _) = (checkpoint.load(Path(row.path), row.digest) for row in saved)
    assert one.checkpoint.digest == other.checkpoint.digest
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)


def test_shared_equals_alone_and_slots_are_refilled(folder: Path, server: EngineServer) -> None:
    """Six trials in four slots have the curves and checkpoints that they have in their own engines."""
    trials = [assignment(folder, number) for number in range(6)]
    shared = together(server, trials)
    alone = OwnEngine()
    for trial in trials:
        outcomes = shared[trial.trial_key]
        assert [outcome.step for outcome in outcomes] == [10, 20, 30]
        assert [outcome.done for outcome in outcomes] == [False, False, True]
        for outcome in outcomes:
            expected = alone.advance(replace(trial, checkpoints=str(folder / "alone")))
            for name in ("train/loss", "val/loss"):
                assert outcome.metrics[name] == expected.metrics[name]
            assert_equal_arrays(outcome, expected)
        alone.release()
    assert 0 < server.occupancy.share <= 1
    assert server._table.empty


@pytest.mark.slow
def test_an_errand_has_the_data_of_the_last_attempt_and_frees_what_is_left(
    folder: Path, server: EngineServer
) -> None:
    """The next attempt of the same program trains as before; an error of the errand is the caller's."""
    left, next_one = (assignment(folder, number) for number in (60, 61))
    life(server, left, reports=1)

    def errand(cache: EngineCache) -> tuple[bool, bool, int]:
        known = cache._data is cache.data(left.settings, left.data)
        return known, server._table.empty, cache.engine(left.settings, left.data).slots

    assert server.run_errand(errand).result(timeout=250) == (True, True, 1)
    with pytest.raises(ZeroDivisionError):
        server.run_errand(lambda _: 1 / 0).result(timeout=250)
    assert [outcome.step for outcome in life(server, next_one)] == [10, 20, 30]


@pytest.mark.slow
def test_a_stop_request_saves_the_trials_that_it_names_between_two_calls(
    folder: Path, server: EngineServer, stops: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes before the first call that serves all of them."""
    sweep, call = SWEEPS[0], Engine.round
    trials = [assignment(folder, 10 + number, trial_key=f"{sweep}-{number}") for number in range(3)]

    def asked(engine: Engine) -> Round:
        if len(server._table.occupied) == len(trials):
            stops.update(trial.attempt_id for trial in trials[:2])
            wait_until(lambda: process.stop_requested(trials[0].channel, trials[0].attempt_id))
        return call(engine)

    monkeypatch.setattr(Engine, "round", asked)
    answers = [server.submit(trial, trial.trial_key, first=True) for trial in trials]
    for answer in answers[:2]:
        outcome = answer.result(timeout=250)
        assert outcome.interrupted
        assert outcome.checkpoint is not None
        assert 0 < outcome.step < INTERVAL
    other = answers[2].result(timeout=250)
    assert (other.interrupted, other.step) == (False, INTERVAL)
    server.release(trials[2].attempt_id)


@pytest.mark.slow
def test_a_stop_request_is_heeded_between_two_reports(
    folder: Path, server: EngineServer, stops: set[str]
) -> None:
    """An interval that is a single device call can check for a request only afterwards."""
    sweep = SWEEPS[1]
    trial = assignment(folder, 14, trial_key=f"{sweep}-14")
    (first,) = life(server, trial, reports=1)
    stops.add(trial.attempt_id)
    wait_until(lambda: process.stop_requested(trial.channel, trial.attempt_id))
    last = server.submit(trial, trial.trial_key, first=False).result(timeout=250)
    assert (last.interrupted, last.done, last.step) == (True, True, first.step)
    assert last.checkpoint == first.checkpoint
    assert server._table.empty


@pytest.mark.slow
def test_an_engine_of_one_trial_heeds_a_stop_request_too(folder: Path, stops: set[str]) -> None:
    sweep = SWEEPS[2]
    own, trial = OwnEngine(), assignment(folder, 15, trial_key=f"{sweep}-15")
    first = own.advance(trial)
    stops.add(trial.attempt_id)
    wait_until(lambda: process.stop_requested(trial.channel, trial.attempt_id))
    last = own.advance(trial)
    assert (last.interrupted, last.checkpoint) == (True, first.checkpoint)
    own.release()


def test_a_trial_that_was_asked_to_stop_before_it_began_gets_no_slot(
    folder: Path, server: EngineServer
) -> None:
    """Its driver may have dropped it: a checkpoint would have no row in the ledger."""
    trial = assignment(folder, 16, trial_key="before-16", attempt_id="before-16.1")
    with asked_since_the_last_look(trial):
        outcome = server.submit(trial, trial.trial_key, first=True).result(timeout=250)
    server.release(trial.attempt_id)
    assert (outcome.interrupted, outcome.done, outcome.checkpoint) == (True, True, None)
    assert not Path(trial.checkpoints).exists()


@pytest.mark.slow
def test_a_dead_workers_slot_goes_to_the_next_attempt_of_its_trial(
    folder: Path, server: EngineServer
) -> None:
    """A late request of the previous attempt is refused."""
    old = assignment(folder, 20)
    first = server.submit(old, "dead", first=True).result(timeout=250)
    assert first.checkpoint is not None
    again = assignment(folder, 20, attempt=2, resume=first.checkpoint)
    outcome = server.submit(again, "new", first=True).result(timeout=250)
    assert outcome.step == 20
    late = server.submit(old, "dead", first=False).result(timeout=250)
    assert (late.failure, late.done) == ("slot lost", True)
    server.release(again.attempt_id)


def test_a_failure_of_one_trial_is_its_own(folder: Path, server: EngineServer) -> None:
    """A damaged checkpoint ends its trial with the cause; its neighbour continues."""
    bad = assignment(folder, 30, resume=SavedCheckpoint(str(folder / "nothing"), 10, "0" * 64, 1))
    outcomes = together(server, [bad, assignment(folder, 31)])
    assert outcomes["s-30"][0].failure == "damaged checkpoint"
    assert [outcome.step for outcome in outcomes["s-31"]] == [10, 20, 30]


@pytest.mark.slow
def test_a_call_that_raises_fails_its_own_trial_alone(
    folder: Path, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others in the engine reach their end; the slot serves the next trial."""
    call, wild = SeparateSlots._call, 5e-3

    def broken(slots: SeparateSlots, slot: int, steps: int) -> Call:
        if float(slots._states[slot].free.values["learning_rate"]) == np.float32(wild):
            raise RuntimeError("the call failed")
        return call(slots, slot, steps)

    monkeypatch.setattr(SeparateSlots, "_call", broken)
    trials = [assignment(folder, number) for number in (80, 4, 81)]
    outcomes = together(server, trials)
    (failed,) = outcomes[trials[1].trial_key]
    assert (failed.failure, failed.message) == ("error", "RuntimeError: the call failed")
    for trial in (trials[0], trials[2]):
        assert [outcome.step for outcome in outcomes[trial.trial_key]] == [10, 20, 30]
    assert server._table.empty


@pytest.mark.slow
def test_a_suspect_is_trained_alone_until_its_first_report(folder: Path, server: EngineServer) -> None:
    """Its worker is notified first; a neighbour in a slot waits with signs of life; then both continue."""
    rounds: list[set[str]] = []
    neighbour = assignment(folder, 90)
    suspect = assignment(folder, 91, attempt=2, alone=True)
    assert server.submit(neighbour, "one", first=True).result(timeout=250).step == 10
    start = EngineServer._start_requested

    def recorded(served: EngineServer, engine: Engine) -> None:
        start(served, engine)
        rounds.append({slot.request.attempt_id for slot in served._table.occupied.values() if slot.training})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EngineServer, "_start_requested", recorded)
        patch.setattr(engine_server, "SIGN_OF_LIFE", 0.5)
        notice = server.submit(suspect, suspect.trial_key, first=True).result(timeout=250)
        assert (notice.queued, notice.alone) == (True, True)
        waiting = server.submit(neighbour, "one", first=False)
        tested = server.submit(suspect, suspect.trial_key, first=True)
        assert tested.result(timeout=250).step == 10
        sign = waiting.result(timeout=250)
    assert {suspect.attempt_id} in rounds
    if sign.queued:
        sign = server.submit(neighbour, "one", first=False).result(timeout=250)
    assert sign.step == 20
    assert not any(names == {neighbour.attempt_id, suspect.attempt_id} for names in rounds)
    assert life(server, suspect, first=False)[-1].done
    assert server.submit(neighbour, "one", first=False).result(timeout=250).done
    assert server._table.empty


@pytest.mark.slow
def test_a_call_for_several_that_raises_is_charged_to_none_of_them(
    folder: Path, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same exception is charged to a trial that is alone in the engine."""

    def broken(_: Engine) -> None:
        raise RuntimeError("the call failed")

    monkeypatch.setattr(Engine, "round", broken)
    both = [assignment(folder, number) for number in (95, 96)]
    for (outcome,) in together(server, both).values():
        assert (outcome.failure, outcome.message) == ("engine lost", "RuntimeError: the call failed")
    (outcome,) = life(server, both[0])
    assert outcome.failure == "error"


def queued(server: EngineServer, folder: Path, sweep: str) -> tuple[Assignment, Assignment]:
    """Return a trial in a slot, and one of another program that has to wait for it."""
    seated = assignment(folder, 40, trial_key=f"{sweep}-40")
    model = replace(seated.settings.model, d_model=16)
    other = assignment(folder, 41, trial_key=f"{sweep}-41", settings=replace(seated.settings, model=model))
    life(server, seated, reports=1)
    return seated, other


@pytest.mark.slow
def test_a_queued_trial_is_answered_as_soon_as_a_stop_is_requested(
    folder: Path, server: EngineServer, stops: set[str]
) -> None:
    sweep = SWEEPS[3]
    seated, other = queued(server, folder, sweep)
    began = time.monotonic()
    threading.Timer(1.0, stops.add, (other.attempt_id,)).start()
    outcome = asyncio.run(server.advance(other, "another worker", first=True))
    assert (outcome.queued, outcome.done) == (True, False)
    assert 1.0 <= time.monotonic() - began < 3.0
    server.release(seated.attempt_id)


@pytest.mark.slow
def test_a_queued_trial_gives_a_sign_of_life_and_then_gets_its_slot(
    folder: Path, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_server, "SIGN_OF_LIFE", 0.5)
    neighbour, other = queued(server, folder, "patient")
    in_queue = asyncio.run(server.advance(other, "another worker", first=True))
    assert (in_queue.queued, in_queue.held) == (True, None)
    server.release(neighbour.attempt_id)
    monkeypatch.setattr(engine_server, "SIGN_OF_LIFE", 60)
    asked = time.monotonic()
    seated = asyncio.run(server.advance(other, "another worker", first=True))
    assert (seated.training, seated.step) == (True, 0), "another program takes longer to compile"
    assert seated.held is not None
    assert seated.held < time.monotonic() - asked
    outcome = asyncio.run(server.advance(other, "another worker", first=False))
    assert (outcome.training, outcome.step) == (False, 10)
    assert outcome.held is not None
    assert seated.held < outcome.held < time.monotonic() - asked
    server.release(other.attempt_id)


@pytest.mark.slow
def test_a_trial_gives_signs_of_life_as_long_as_its_engine_trains(
    folder: Path, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds of one step, slower than `SIGN_OF_LIFE`; then one that does not end."""
    trial, round_of = assignment(folder, 97), Engine.round
    hangs, goes_on = threading.Event(), threading.Event()
    signs: list[Outcome] = []

    def slow(engine: Engine) -> Round:
        time.sleep(0.3)
        if len(signs) == 3:
            hangs.set()
            goes_on.wait(60)
        return round_of(engine, most=1)

    async def asked(seconds: float, *, first: bool = False) -> Outcome:
        return await asyncio.wait_for(server.advance(trial, "worker", first=first), seconds)

    monkeypatch.setattr(Engine, "round", slow)
    monkeypatch.setattr(engine_server, "SIGN_OF_LIFE", 0.5)
    monkeypatch.setattr(engine_server, "STOP_POLL", 0.05)
    while len(signs) < 3:
        signs.append(asyncio.run(asked(250, first=not signs)))
    assert [(sign.training, sign.queued, sign.step) for sign in signs] == [(True, False, 0)] * 3
    wait_until(hangs.is_set)
    with pytest.raises(TimeoutError):
        asyncio.run(asked(3))
    goes_on.set()
    server.release(trial.attempt_id)


@pytest.mark.slow
def test_an_engine_is_gone_before_the_next_one_is_constructed(
    folder: Path, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The examples of both would otherwise be in the device's memory at once."""
    construct = Engine.__init__
    engines: list[weakref.ref[Engine]] = []
    living: list[int] = []

    def counted(engine: Engine, *arguments: Any, **options: Any) -> None:
        living.append(sum(reference() is not None for reference in engines))
        engines.append(weakref.ref(engine))
        construct(engine, *arguments, **options)

    monkeypatch.setattr(Engine, "__init__", counted)
    seated, other = queued(server, folder, "replaced")
    server.release(seated.attempt_id)
    life(server, other, reports=1)
    server.release(other.attempt_id)
    assert living == [0, 0]


@pytest.mark.slow
def test_a_full_disk_fails_one_trial_and_leaves_the_engine(folder: Path, server: EngineServer) -> None:
    """Its log cannot hold the traceback, and its neighbour goes on."""
    outcomes = together(server, [assignment(folder, 100, log="/dev/full"), assignment(folder, 101)])
    assert [outcome.failure for outcome in outcomes["s-100"]] == ["disk full"]
    assert [outcome.step for outcome in outcomes["s-101"]] == [10, 20, 30]


def test_a_closed_server_refuses_what_comes_late(tmp_path: Path) -> None:
    """Nobody would answer it: the engine serves another sweep by then."""
    server, trial = EngineServer(2), assignment(tmp_path, 1)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    server.retire()
    thread.join(timeout=60)
    assert not thread.is_alive()
    late: list[Future[Any]] = [
        server.submit(trial, "worker", first=True),
        server.submit(trial, "worker", first=False),
        server.run_errand(lambda cache: cache),
    ]
    server.close()
    for answer in late:
        with pytest.raises(Closed, match="was released"):
            answer.result(timeout=0)
    with pytest.raises(Closed):
        server.submit(trial, "worker", first=True)
    with pytest.raises(Closed):
        server.run_errand(lambda cache: cache)


@pytest.mark.slow
def test_a_server_leaves_its_program_to_the_next_one(tmp_path: Path) -> None:
    """The second one compiles nothing, and its trial has the metrics of a new process."""
    cache, data = EngineCache(), str(tmp_path / "data")
    metrics, compiled = [], []
    for number in range(2):
        server = EngineServer(1, cache=cache)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        [outcome] = life(server, assignment(tmp_path / str(number), 1, data=data), reports=1)
        server.release("s-1.1")
        server.retire()
        thread.join(timeout=60)
        server.close()
        metrics.append(outcome.metrics["val/loss"])
        compiled.append(outcome.metrics["seconds/compile"])
    assert metrics[0] == metrics[1]
    assert compiled[0] > compiled[1] == 0
