"""Rows of a batch read on where they were: states go from segment to segment and into checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from tests.trainables.toy import task_data
from trainables.counter import order_of_streams
from trainables.data.task import Signature, Split, TaskData
from trainables.engine import Engine
from trainables.engine.network import STREAMS, NetworkProgram
from trainables.engine.state import free_of
from trainables.errors import Refusal
from trainables.model import Model
from trainables.trial import ModelSettings, TrainingSettings, TrialSettings

LENGTH, SYMBOLS, ROWS, SEGMENTS = 8, 5, 4, 27
EPOCH = SEGMENTS // ROWS
Arrays = Mapping[str, np.ndarray]


def segments(count: int, seed: int) -> Split:
    """Return consecutive segments of a text in which a symbol often follows the one seven places before."""
    random = np.random.default_rng(seed)
    text = random.integers(0, SYMBOLS, count * LENGTH + 1)
    for place in range(7, len(text)):
        if random.random() < 0.7:
            text[place] = text[place - 7]
    inputs = (1 + text[:-1]).reshape(count, LENGTH).astype(np.uint8)
    targets = text[1:].reshape(count, LENGTH).astype(np.int32)
    return Split(inputs, np.full(count, LENGTH, np.int32), targets)


def text_data() -> TaskData:
    """Return a text of 27 segments, with 37 of validation and 20 of test."""
    signature = Signature("steps", SYMBOLS, SYMBOLS + 1, 1, LENGTH, metric="bits")
    return task_data(signature, segments(SEGMENTS, 0), segments(37, 1), segments(20, 2))


def trial(seed: int = 0, *, model: Mapping[str, Any] | None = None, **training: Any) -> TrialSettings:
    """Return a small trial that carries states, also those of a convolution."""
    network = ModelSettings(
        "rotrnn", depth=2, d_model=8, d_state=8, norm="layer", short_conv=3, options={"heads": 2}
    )
    recipe = TrainingSettings(100, 50, ROWS, 1e-2, 1e-2, carry_state=True)
    return TrialSettings("text", replace(network, **(model or {})), replace(recipe, **training), seed)


def still(seed: int = 0, **training: Any) -> TrialSettings:
    """Return a trial whose parameters stay as they were drawn."""
    return trial(seed, learning_rate=0.0, recurrent_learning_rate=0.0, weight_decay=0.0, **training)


def model_of(settings: TrialSettings) -> Model:
    """Return the network of a trial as it is drawn."""
    program = program_of(settings)
    return program._trained(jax.jit(program.initialise)(free_of(settings)).trained)


def program_of(settings: TrialSettings) -> NetworkProgram:
    """Return the program of a trial."""
    data = text_data()
    return NetworkProgram.of(settings, data.signature, data.train)


def order(seed: int, steps: int) -> np.ndarray:
    """Return the segments of the first steps, (steps, ROWS)."""
    words = free_of(trial(seed)).seed
    return np.asarray(order_of_streams(jnp.int32(0), steps, ROWS, SEGMENTS, words))


def memory_after(snapshot: Arrays) -> list[np.ndarray]:
    """Return what a checkpoint says that rows carry."""
    return [snapshot[name] for name in snapshot if name.startswith("carried/memory/")]


def after_reading(model: Model, places: np.ndarray) -> list[np.ndarray]:
    """Return the memory of a network after segments (steps, rows) that rows read as one sequence."""
    text = text_data().train.inputs[places.T].reshape(places.shape[1], -1)
    carry = jax.jit(lambda text: model.carry(model.initial_memory(len(text)), text)[1])
    return [np.asarray(leaf) for leaf in jax.tree.leaves(carry(text))]


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Return an engine of two slots, which every test must leave empty."""
    return Engine(trial(), text_data(), slots=2, stacked=False)


def trained(engine: Engine, settings: TrialSettings, steps: int, slot: int = 0) -> dict[str, np.ndarray]:
    """Return the checkpoint of a trial after some steps."""
    engine.admit(slot, settings)
    engine.advance({slot: steps})
    snapshot = engine.snapshot(slot)
    engine.evict(slot)
    return snapshot


@pytest.mark.slow
def test_rows_carry_the_states_of_the_whole_text(engine: Engine) -> None:
    """After four segments the memory is that of four segments as one sequence, and not that of the last."""
    places = order(0, 4)
    assert all((places[1:] == places[:-1] + 1).all(axis=0) | (places == 0).any(axis=0))
    carried = memory_after(trained(engine, still(), 4))
    begun = (places == 0).any(axis=0)  # a row that reads the first segment of the text begins there
    model = model_of(still())
    for actual, whole in zip(carried, after_reading(model, places), strict=True):
        np.testing.assert_allclose(actual[~begun], whole[~begun], rtol=1e-4, atol=1e-5)
    last = after_reading(model, places[3:])[-1]
    assert not np.allclose(carried[-1][~begun], last[~begun], rtol=1e-2, atol=1e-3)


@pytest.mark.slow
def test_an_epoch_and_a_text_begin_with_the_initial_state(engine: Engine) -> None:
    """At the end of an epoch no segment goes on; in the next one the memory is that of its own segments."""
    ended = trained(engine, still(), EPOCH)
    assert (ended["carried/following"] == -1).all()
    again = trained(engine, still(), EPOCH + 2)
    places = order(0, EPOCH + 2)[EPOCH:]
    begun = (places == 0).any(axis=0)
    whole = after_reading(model_of(still()), places)
    for actual, expected in zip(memory_after(again), whole, strict=True):
        np.testing.assert_allclose(actual[~begun], expected[~begun], rtol=1e-4, atol=1e-5)
    seed = next(seed for seed in range(100) if (order(seed, EPOCH)[1:-1] == 0).any())
    step, row = np.argwhere(order(seed, EPOCH) == 0)[0]
    crossed = memory_after(trained(engine, still(seed), int(step) + 1))
    begins = after_reading(model_of(still(seed)), order(seed, EPOCH)[step : step + 1])
    for actual, expected in zip(crossed, begins, strict=True):
        np.testing.assert_allclose(actual[row], expected[row], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_resumed_trial_is_an_undisturbed_one_to_the_last_bit(engine: Engine) -> None:
    """Also in another slot beside another trial; without its states it would be another trial."""
    undisturbed = trained(engine, trial(3), 9)
    half = trained(engine, trial(3), 4)
    engine.admit(0, trial(7))
    engine.restore(1, trial(3), half)
    engine.advance({0: 3, 1: 5})
    resumed = engine.snapshot(1)
    lost = {name: np.zeros_like(part) if "memory" in name else part for name, part in half.items()}
    engine.evict(1)
    engine.restore(1, trial(3), lost)
    engine.advance({1: 5})
    without = engine.snapshot(1)
    for slot in (0, 1):
        engine.evict(slot)
    assert undisturbed.keys() == resumed.keys()
    for name, array in undisturbed.items():
        np.testing.assert_array_equal(array, resumed[name], err_msg=name)
    assert any((without[name] != array).any() for name, array in resumed.items() if "params" in name)


@pytest.mark.slow
def test_stacked_neighbours_change_no_bits() -> None:
    """States of slots in one stack do not mix."""
    together = Engine(trial(), text_data(), slots=2, stacked=True)
    found = []
    for neighbour in (5, 6):
        together.admit(0, trial(3))
        together.admit(1, trial(neighbour))
        together.advance({0: 4, 1: 4})
        found.append(together.snapshot(0))
        together.evict(0)
        together.evict(1)
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name], err_msg=name)


@pytest.mark.slow
def test_another_trials_states_are_not_read_on(engine: Engine) -> None:
    """A checkpoint of another seed, as population training hands on, stands elsewhere: rows begin anew."""
    given = trained(engine, still(3), 2)
    engine.restore(0, still(4), given)
    engine.advance({0: 1})
    snapshot = engine.snapshot(0)
    engine.evict(0)
    places = order(4, 3)[2:]
    moved = places[0] != given["carried/following"]
    assert moved.any()
    expected = after_reading(program_of(still(4))._trained(program_of(still(3)).together(given)), places)
    for actual, alone in zip(memory_after(snapshot), expected, strict=True):
        np.testing.assert_allclose(actual[moved], alone[moved], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_every_part_of_a_step_has_its_own_rows(engine: Engine) -> None:
    """Two batches of two rows for one update carry what one batch of four does."""
    settings = still(batch_size=ROWS // 2, accumulate=2)
    parts = memory_after(trained(Engine(settings, text_data()), settings, 3))
    for one, other in zip(parts, memory_after(trained(engine, still(), 3)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_evaluation_reads_streams(engine: Engine) -> None:
    """Bits are those of sixteen long texts, whatever the batch, and each segment has its own score."""
    settings, split = trial(), text_data().validation
    engine.admit(0, settings)
    metrics, each = engine.evaluate_each(0, "validation")
    whole, some = engine.evaluate(0), engine.evaluate(0, examples=20)
    engine.evict(0)
    assert metrics["bits"] == pytest.approx(whole["bits"], rel=1e-5)
    assert each.mean() == pytest.approx(whole["bits"], rel=1e-5)
    length = -(-len(split) // STREAMS)
    model = model_of(settings)
    read = jax.jit(lambda text: model(text[None], None)[0])
    for start in range(0, len(split), length):
        text = split.inputs[start : start + length].reshape(-1)
        logits = np.asarray(jax.nn.log_softmax(read(text)), np.float64)
        right = logits[np.arange(len(text)), split.targets[start : start + length].reshape(-1)]
        bits = -right.reshape(-1, LENGTH).mean(axis=1) / np.log(2)
        np.testing.assert_allclose(each[start : start + length], bits, rtol=1e-4)
    assert some["bits"] != whole["bits"]
    apart = replace(settings, training=replace(settings.training, carry_state=False))
    alone = Engine(apart, text_data())
    alone.admit(0, apart)
    begun = alone.evaluate_each(0, "validation")[1]
    np.testing.assert_allclose(begun[::length], each[::length], rtol=1e-4)
    assert np.abs(begun - each).max() > 1e-3
    assert not any("carried" in name for name in alone.snapshot(0))


@pytest.mark.slow
def test_a_trained_first_state_is_trained_where_rows_begin() -> None:
    """A gradient reaches it in the first step of an epoch, and none where a state is carried."""
    model = {"layer": "rot_gated", "options": {"heads": 2, "start": "learned"}, "depth": 1, "short_conv": 0}
    engine = Engine(trial(model=model), text_data())
    seed = next(seed for seed in range(100) if not (order(seed, 2) == 0).any())
    engine.admit(0, trial(seed, model=model))
    found = []
    for _ in range(2):
        engine.advance({0: 1})
        found.append(engine.snapshot(0)["moments/mu/blocks/0/layer/x0"])
    assert (found[0] != 0).all()
    np.testing.assert_allclose(found[1], 0.9 * found[0], rtol=1e-6)


@pytest.mark.slow
def test_another_trial_compiles_nothing(engine: Engine) -> None:
    """Other rates and another seed are numbers; validation and test share a program."""
    compiled = []
    for settings in (trial(), trial(1, learning_rate=1e-3, weight_decay=0.1, steps=70)):
        engine.admit(0, settings)
        engine.advance({0: 2})
        engine.evaluate(0)
        compiled.append(engine.compiled)
        engine.evaluate(0, "test")
        engine.restore(1, settings, engine.snapshot(0))
        engine.advance({0: 1, 1: 1})
        compiled.append(engine.compiled)
        engine.evict(0)
        engine.evict(1)
    assert len(set(compiled)) == 1


def test_a_text_with_fewer_segments_than_rows_is_refused() -> None:
    with pytest.raises(Refusal, match="27 segments for 28 rows"):
        Engine(trial(batch_size=28), text_data())
