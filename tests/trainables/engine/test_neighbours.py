"""On a CPU, or with `reproducible: bits`, a trial's numbers depend on no neighbour and no number of slots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from tests.trainables.toy import toy_data, toy_trial
from trainables.engine import Engine
from trainables.engine.engine import DETERMINISTIC
from trainables.trial import TrialSettings

STEPS, INTERVAL = 100, 20
BITS = None if jax.default_backend() == "cpu" else "bits"
"""With `JAX_PLATFORMS=cuda` these tests show what `reproducible: bits` promises on a GPU."""

TRIAL = toy_trial(3, learning_rate=2e-3, weight_decay=0.02, reproducible=BITS)


@dataclass
class Course:
    """The points of a trial's curve, and the arrays of its last checkpoint."""

    curve: list[dict[str, float]] = field(default_factory=list)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    def assert_equal(self, other: Course) -> None:
        """Compare to the last bit."""
        assert self.curve == other.curve
        assert self.arrays.keys() == other.arrays.keys()
        for name, array in self.arrays.items():
            assert array.dtype == other.arrays[name].dtype
            np.testing.assert_array_equal(array, other.arrays[name], err_msg=name)


def neighbour(slot: int) -> TrialSettings:
    """Return a trial whose free hyperparameters differ from those of `TRIAL`."""
    free = {"learning_rate": 1e-3 * (1 + slot), "steps": 300}
    return toy_trial(10 + slot, model={"dropout": 0.02 * slot}, reproducible=BITS, **free)


def interval(engine: Engine, slot: int, course: Course, neighbours: Mapping[int, int]) -> None:
    """Train one interval beside neighbours with their own numbers of steps; add to the trial's course."""
    report = engine.advance({slot: INTERVAL, **neighbours})[slot]
    course.curve.append(report.curve(engine.evaluate(slot)))
    course.arrays = engine.snapshot(slot)


@pytest.fixture(scope="module")
def alone() -> Course:
    """Return the course of the trial in an engine of one slot."""
    course, engine = Course(), Engine(TRIAL, toy_data())
    engine.admit(0, TRIAL)
    for _ in range(STEPS // INTERVAL):
        interval(engine, 0, course, {})
    return course


@pytest.mark.slow
@pytest.mark.parametrize("slots", [2, 4, 8])
def test_equal_with_any_number_of_slots(alone: Course, slots: int) -> None:
    """The curve and every array of the checkpoint are equal to the last bit beside 1, 3 and 7 neighbours."""
    course, engine = Course(), Engine(TRIAL, toy_data(), slots=slots)
    for slot in range(slots - 1):
        engine.admit(slot, neighbour(slot))
    engine.admit(slots - 1, TRIAL)
    for _ in range(STEPS // INTERVAL):
        interval(engine, slots - 1, course, dict.fromkeys(range(slots - 1), INTERVAL))
    course.assert_equal(alone)


def test_equal_while_neighbours_join_leave_and_diverge(alone: Course) -> None:
    """Neighbours join and leave between reports, train other numbers of steps, and one reaches NaN."""
    course, engine = Course(), Engine(TRIAL, toy_data(), slots=4)
    engine.admit(1, TRIAL)
    interval(engine, 1, course, {})
    engine.admit(0, neighbour(0))
    engine.admit(2, toy_trial(12, learning_rate=1e30, reproducible=BITS))
    interval(engine, 1, course, {0: 7, 2: 50})
    assert np.isfinite(engine.evaluate(0)["loss"])
    engine.evict(0)
    interval(engine, 1, course, {2: 3})
    engine.evict(2)
    for slot in (0, 2, 3):
        engine.admit(slot, neighbour(slot))
    interval(engine, 1, course, {0: 1, 2: 33, 3: 100})
    engine.evict(3)
    interval(engine, 1, course, {0: 20})
    course.assert_equal(alone)


@pytest.mark.slow
def test_equal_after_a_resume_under_another_number_of_slots(alone: Course) -> None:
    """Each interval runs in a new engine of 1, 2, 4 or 8 slots, from the arrays of the previous one."""
    course = Course()
    for index, slots in enumerate([2, 8, 1, 4, 2]):
        engine = Engine(TRIAL, toy_data(), slots=slots)
        if index:
            engine.restore(0, TRIAL, course.arrays)
        else:
            engine.admit(0, TRIAL)
        for slot in range(1, slots):
            engine.admit(slot, neighbour(slot))
        interval(engine, 0, course, dict.fromkeys(range(1, slots), 5))
    course.assert_equal(alone)


@pytest.mark.slow
def test_equal_beside_a_neighbour_that_raises(alone: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in one slot's call is that slot's failure; its neighbours lose nothing."""
    course, engine = Course(), Engine(TRIAL, toy_data(), slots=2)
    engine.admit(0, neighbour(0))
    engine.admit(1, TRIAL)
    interval(engine, 1, course, {0: INTERVAL})
    advance = engine._slots._call

    def broken(slot: int, steps: int) -> Any:
        if slot == 0:
            raise RuntimeError("the call of slot 0 failed")
        return advance(slot, steps)

    monkeypatch.setattr(engine._slots, "_call", broken)
    engine.ask(0, INTERVAL)
    engine.ask(1, INTERVAL)
    failures, reports = {}, {}
    while 1 not in reports:
        done = engine.round()
        failures |= done.failures
        reports |= done.reports
    course.curve.append(reports[1].curve(engine.evaluate(1)))
    assert list(reports) == [1]
    assert {slot: str(error) for slot, error in failures.items()} == {0: "the call of slot 0 failed"}
    engine.evict(0)
    engine.admit(0, neighbour(0))
    for _ in range(STEPS // INTERVAL - 2):
        interval(engine, 1, course, {})
    course.assert_equal(alone)


@pytest.fixture
def empty_cache(tmp_path: Path) -> Iterator[None]:
    """Let JAX keep compiled programs in an empty folder, instead of that which all tests share."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    compilation_cache.reset_cache()
    yield
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


@pytest.mark.slow
def test_nothing_is_compiled_for_another_number_of_slots_or_interval(empty_cache: None) -> None:
    """Engines of other numbers of slots read every program from the compilation cache; so do new trials."""
    width = {"d_model": 4}
    trials = [
        toy_trial(seed, model=width, learning_rate=1e-3 * (1 + seed), reproducible=BITS) for seed in range(4)
    ]
    _life(2, trials[0], INTERVAL)
    misses: list[str] = []

    def note(event: str, **_: Any) -> None:
        if event == "/jax/compilation_cache/cache_misses":
            misses.append(event)

    jax.monitoring.register_event_listener(note)
    try:
        for slots, trial, steps in ((1, trials[1], INTERVAL), (8, trials[2], 7), (4, trials[3], 31)):
            _life(slots, trial, steps)
    finally:
        jax.monitoring.unregister_event_listener(note)
    assert not misses


def test_the_options_for_reproducible_bits_are_known_to_xla() -> None:
    """XLA refuses a misspelt option, on a CPU too."""
    lowered = jax.jit(lambda x: x + 1).lower(np.float32(1))
    assert lowered.compile(compiler_options=DETERMINISTIC)(np.float32(1)) == 2
    with pytest.raises(jax.errors.JaxRuntimeError):
        lowered.compile(compiler_options={"xla_gpu_deterministic_opz": True})


def _life(slots: int, trial: TrialSettings, steps: int) -> None:
    engine = Engine(trial, toy_data(), slots=slots)
    for slot in range(slots):
        engine.admit(slot, trial)
    engine.advance(dict.fromkeys(range(slots), steps))
    engine.evaluate(0)
    engine.snapshot(0)
