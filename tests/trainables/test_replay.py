"""A replay repeats the programs that trained a trial, interval by interval."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import pytest

from tests.trainables.toy import toy_data, toy_trial
from trainables import replay
from trainables.engine import Engine
from trainables.stretches import Stretch, Stretches, continued, merged

TRIAL = toy_trial(3, interval=20, steps=60)


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "data_of", lambda settings, folder: toy_data())


def course(stretches: Stretches, tmp_path: Path) -> dict[int, dict[str, float]]:
    return dict(replay.replayed(TRIAL, "", tmp_path, stretches))


@pytest.mark.parametrize(
    ("slots", "beside", "sizes"),
    [
        pytest.param(2, ({}, {1: 20}, {1: 5}), {1, 2}, marks=pytest.mark.slow),
        pytest.param(4, ({}, {1: 20}, {1: 5, 2: 20, 3: 20}), {1, 2, 4}, marks=pytest.mark.slow),
    ],
)
def test_a_shared_program_is_repeated_at_its_recorded_sizes(
    tmp_path: Path, slots: int, beside: Sequence[Mapping[int, int]], sizes: set[int]
) -> None:
    """Alone, beside one neighbour, then some, one of which leaves: replayed alone, it has the same bits."""
    engine, curve, recorded = Engine(TRIAL, toy_data(), slots=slots, stacked=True), {}, []
    for slot in range(slots):
        engine.admit(slot, TRIAL if slot == 0 else toy_trial(slot, steps=300))
    for neighbours in beside:
        report = engine.advance({0: 20, **neighbours})[0]
        recorded += report.stretches
        curve[report.step] = report.curve(engine.evaluate(0), engine.hidden_norms(0))
    assert {stretch.size for stretch in recorded} == sizes
    assert sum(stretch.steps for stretch in recorded) == 60
    assert course([recorded], tmp_path) == curve
    if jax.default_backend() == "cpu":  # On a GPU, programs of other sizes give equal bits in some processes.
        assert course([[Stretch(60, slots, slots)]], tmp_path) != curve, (
            "a program of another size must give other bits, or the test would show nothing"
        )


@pytest.mark.slow
def test_an_evaluation_does_not_depend_on_the_sizes(tmp_path: Path) -> None:
    """An evaluation serves one slot at a time: one state has one score, to the last bit, in any engine."""
    trained = Engine(TRIAL, toy_data())
    trained.admit(0, TRIAL)
    trained.advance({0: 20})
    shared = Engine(TRIAL, toy_data(), slots=4, stacked=True)
    shared.restore(3, TRIAL, trained.snapshot(0))
    assert shared.evaluate(3) == trained.evaluate(0)


@pytest.mark.slow
@pytest.mark.parametrize("handed_on", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_report_after_an_attempt_that_stopped_is_repeated(tmp_path: Path, handed_on: bool) -> None:
    """The first attempt stopped at step 27; the next one, with other slots, reported steps 21 to 40.

    In an earlier version, it did not know of the steps before it, and reported steps 28 to 40.
    """
    first, recorded = Engine(TRIAL, toy_data()), continued([])
    first.admit(0, TRIAL)
    one = first.advance({0: 20})[0]
    curve = {20: one.curve(first.evaluate(0), first.hidden_norms(0))}
    two = first.advance({0: 7})[0]
    recorded[-1] += [*one.stretches, *two.stretches]
    recorded = continued(recorded, left_out=not handed_on)
    second = Engine(TRIAL, toy_data(), slots=2, stacked=True)
    second.restore(0, TRIAL, first.snapshot(0))
    for steps in (13, 20):
        report = second.advance({0: steps})[0]
        recorded[-1] += report.stretches
        if handed_on and steps == 13:
            report = report.after(two.per_step)
        curve[report.step] = report.curve(second.evaluate(0), second.hidden_norms(0))
    assert course(recorded, tmp_path) == curve


def test_stretches_of_one_program_are_one() -> None:
    calls = [Stretch(3, 4, 2), Stretch(5, 4, 2), Stretch(1, 4, 4)]
    assert merged(calls) == (Stretch(8, 4, 2), Stretch(1, 4, 4))
    assert continued([[[8, 4, 2]]]) == [[Stretch(8, 4, 2)]]
    assert continued([[[8, 4, 2]]], left_out=True) == [[Stretch(8, 4, 2)], []]
    assert continued([]) == [[]]


@pytest.mark.slow
@pytest.mark.parametrize("stretches", [[[Stretch(60, 1, 1)]], [[Stretch(7, 1, 1)], [Stretch(53, 2, 2)]]])
def test_a_replay_that_diverges_inside_an_interval_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stretches: Stretches
) -> None:
    """The trial did not diverge where it was trained; the caller misses the steps that were not reached."""
    diverging = toy_trial(3, interval=20, steps=60, learning_rate=1e30)
    monkeypatch.setattr(sys.modules[__name__], "TRIAL", diverging)
    assert course(stretches, tmp_path) == {}
