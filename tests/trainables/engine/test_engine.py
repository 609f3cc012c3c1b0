"""The engine's promises: exact resumption, isolated slots, nothing compiled for a new trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from tests.trainables.toy import toy_data, toy_trial
from trainables.engine import Engine
from trainables.errors import Refusal


@pytest.fixture(scope="module")
def single() -> Engine:
    """An engine of one slot, for trials as `toy_trial` makes them."""
    return Engine(toy_trial(), toy_data())


@pytest.fixture(scope="module")
def fused() -> Engine:
    """An engine of four slots for bidirectional trials, which the tests leave empty."""
    return Engine(_two_way(), toy_data(), slots=4)


def _two_way(seed: int = 0, **training: Any) -> Any:
    return toy_trial(seed, model={"bidirectional": True}, **training)


@contextmanager
def _slots(engine: Engine, trials: Mapping[int, Any]) -> Iterator[None]:
    for slot, trial in trials.items():
        engine.admit(slot, trial)
    try:
        yield
    finally:
        for slot in trials:
            engine.evict(slot)


@contextmanager
def _compilations() -> Iterator[list[str]]:
    seen: list[str] = []

    def note(event: str, _: float, **__: Any) -> None:
        if event.endswith("backend_compile_duration"):
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


def _assert_equal(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def test_learns(single: Engine) -> None:
    """A trial learns the toy task far beyond chance, and reports it."""
    with _slots(single, {0: toy_trial()}):
        before = single.evaluate(0)
        report = single.advance({0: 200})[0]
        after = single.evaluate(0)
    assert after["accuracy"] > 0.9 > 0.6 > before["accuracy"]
    assert after["loss"] < report.loss < before["loss"]
    assert (report.step, report.steps, report.finite) == (200, 200, True)
    assert len(report.hidden_norms) == 2
    assert min(report.hidden_norms) > 0
    assert 200 * 8 * 12 <= report.tokens <= 200 * 8 * 24
    assert 0 < report.learning_rate < 1e-6


def test_resumed_equals_undisturbed(single: Engine) -> None:
    """Training that goes on from a snapshot, in a new engine, ends bit-equal to training left alone."""
    with _slots(single, {0: toy_trial(3)}):
        single.advance({0: 7})
        kept, scores = single.snapshot(0), single.evaluate(0)
        single.advance({0: 12})
        undisturbed = single.snapshot(0)
    other = Engine(toy_trial(), toy_data())
    other.restore(0, toy_trial(3), kept)
    assert other.evaluate(0) == scores
    other.advance({0: 5})
    other.advance({0: 7})
    _assert_equal(other.snapshot(0), undisturbed)
