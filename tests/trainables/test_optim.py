"""The schedules' shapes, groups under every optimiser, and losses as sums that leave padding out."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

from trainables.data.task import IGNORED
from trainables.optim import (
    SCHEDULES,
    Groups,
    Rates,
    classification,
    clipped,
    first_plateau,
    layer_path,
    margin,
    next_plateau,
    regression,
    schedule,
    step_mask,
    transformation,
    updated,
    weights_of,
)
from trainables.settings import Schedule
from trainables.trial import OPTIMIZERS, TrainingSettings

TRAINING = TrainingSettings(100, 4, 8, 1e-3, 1e-3, schedule="plateau")


def _shape(steps: int, warmup: float, shape: Schedule = "cosine") -> np.ndarray:
    traced = jax.jit(jax.vmap(partial(schedule, shape=shape), in_axes=(0, None, None)))
    return np.asarray(traced(jnp.arange(steps), jnp.float32(steps), jnp.float32(warmup)))


def test_schedule_rises_then_falls() -> None:
    """A tenth of the steps rises linearly to the peak; a cosine falls from there to nearly 0."""
    shares = _shape(200, 0.1)
    np.testing.assert_allclose(shares[:20], np.arange(1, 21) / 20, rtol=1e-6)
    np.testing.assert_allclose(shares[20:], (1 + np.cos(np.pi * np.arange(180) / 180)) / 2, atol=1e-6)
    assert 0 < shares[-1] < 1e-4


def test_other_schedules_rise_alike() -> None:
    """After the warm-up, `linear` falls to 0 in a straight line, as Optax's does, and `constant` stays."""
    assert set(SCHEDULES) == set(get_args(Schedule))
    rise = np.arange(1, 21) / 20
    line = [float(optax.linear_schedule(1.0, 0.0, 180)(step)) for step in range(180)]
    np.testing.assert_allclose(_shape(200, 0.1, "linear"), [*rise, *line], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(_shape(200, 0.1, "constant"), [*rise, *np.ones(180)], rtol=1e-6)


def _released(steps: int, rise: int) -> np.ndarray:
    """Return the rates of S5's released loop at a peak of 1, which writes a rate after each step."""
    rates, rate = [], 1.0
    for step in range(steps):
        rates.append(rate)
        if step < rise:
            rate = (step + 1) / rise
        else:
            horizon = max(steps - rise, 1)
            rate = 0.5 * (1 + np.cos(np.pi * min(step, horizon) / horizon))
    return np.array(rates)


@pytest.mark.parametrize(("steps", "rise"), [(200, 0), (200, 5), (200, 20), (7, 3), (3, 1), (1, 0)])
def test_the_schedule_of_s5_is_that_of_its_program(steps: int, rise: int) -> None:
    """The first step has the whole rate, the cosine begins below the peak, and the last epochs have none."""
    shares = _shape(steps, rise / steps, "s5")
    np.testing.assert_allclose(shares, _released(steps, rise), atol=1e-6)
    assert shares[0] == 1
    if steps == 200:
        assert np.count_nonzero(shares < 1e-7) == max(rise - 1, 0)


@pytest.mark.parametrize("shape", sorted(SCHEDULES.keys() - {"s5"}))
@pytest.mark.parametrize(("steps", "warmup"), [(1, 0.0), (1, 1.0), (3, 0.5), (10, 0.0), (10, 1.0)])
def test_schedule_at_its_edges(steps: int, warmup: float, shape: Schedule) -> None:
    """Every share lies in (0, 1], and the peak is reached, however short the trial."""
    shares = _shape(steps, warmup, shape)
    assert np.all((shares > 0) & (shares <= 1))
    assert shares.max() == pytest.approx(1)


def test_schedule_stays_at_zero_after_its_end() -> None:
    """Steps beyond the schedule do not move."""
    assert float(schedule(jnp.int32(12), jnp.float32(10), jnp.float32(0.1))) == 0


def test_names_are_those_of_a_layer() -> None:
    """A name counts as recurrent, or as undecayed, inside a layer only."""
    recurrent = layer_path({"B", "theta"})
    assert recurrent(("blocks", "0", "layer", "B"))
    assert not recurrent(("blocks", "0", "layer", "C"))
    assert not recurrent(("head", "B"))


def _keras(losses: np.ndarray, factor: float, patience: int, interval: int) -> list[float]:
    """Return the scale of each step under Keras's `ReduceLROnPlateau`, an epoch being an interval."""
    scale, best, waited, scales = 1.0, np.inf, 0, []
    for epoch in losses.reshape(-1, interval):
        scales += [scale] * interval
        if epoch.mean() < best - 1e-4:
            best, waited = epoch.mean(), 0
            continue
        waited += 1
        if waited >= patience:
            scale, waited = scale * factor, 0
    return scales


@pytest.mark.parametrize("patience", [1, 2, 3])
def test_rates_are_reduced_on_a_plateau_as_by_keras(patience: int) -> None:
    """LDStack's schedule: the mean loss of an epoch decides on the rate of the next one."""
    random = np.random.default_rng(3)
    losses = 1 / (1 + np.arange(120) // 4 / 5) + random.normal(0, 0.1, 120)
    training = replace(TRAINING, plateau_factor=0.5, plateau_patience=patience)
    first = first_plateau(training)
    assert first is not None
    after = jax.jit(lambda plateau, loss: (next_plateau(training, plateau, loss), plateau.scale))
    scales = np.asarray(jax.lax.scan(after, first, jnp.asarray(losses, jnp.float32))[1])
    np.testing.assert_array_equal(scales, _keras(losses, 0.5, patience, 4))
    assert scales[-1] < 1
    assert first_plateau(replace(training, schedule="constant")) is None


@pytest.mark.slow
def test_a_loss_that_falls_by_less_than_a_ten_thousandth_is_a_plateau() -> None:
    """The bound is Keras's, in the loss's own unit."""
    for fall, scale in ((0.9e-4, 0.5), (1.2e-4, 1.0)):
        plateau = first_plateau(TRAINING)
        assert plateau is not None
        for loss in np.repeat([1, 1 - fall, 1 - fall], TRAINING.interval):
            plateau = next_plateau(TRAINING, plateau, jnp.float32(loss))
        assert float(plateau.scale) == scale


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_groups_follow_optax(optimizer: str) -> None:
    """Each group moves as the optimiser of this name in Optax does, with the group's rate and decay."""
    random = np.random.default_rng(0)
    params = jnp.asarray(random.normal(size=9), jnp.float32)
    rates = Rates(jnp.float32(1e-2), jnp.float32(3e-3), jnp.float32(0.1))
    build: Any = getattr(optax, optimizer)
    decays = OPTIMIZERS[optimizer].decays
    assert decays == ("weight_decay" in inspect.signature(build).parameters)
    none, some = ({"weight_decay": decay} if decays else {} for decay in (0.0, 0.1))
    rules = build(1e-2, **some), build(1e-2, **none), build(3e-3, **none), build(3e-3, **some)
    expected = [params[:3], params[3:5], params[5:7], params[7:]]
    states = [rule.init(part) for rule, part in zip(rules, expected, strict=True)]
    moments = transformation(optimizer).init(params)
    for _ in range(4):
        gradients = jnp.asarray(random.normal(size=9), jnp.float32)
        params, moments = updated(params, gradients, moments, Groups(3, 5, 7), rates, optimizer)
        for group, part in enumerate((gradients[:3], gradients[3:5], gradients[5:7], gradients[7:])):
            moves, states[group] = rules[group].update(part, states[group], expected[group])
            expected[group] = optax.apply_updates(expected[group], moves)
    np.testing.assert_allclose(params, np.concatenate(expected), rtol=1e-6)


@pytest.mark.parametrize("largest", [0.5, 5.0])
def test_gradients_are_clipped_by_their_norm(largest: float) -> None:
    """A norm of 2.3 is shrunk to 0.5, and left as it is below 5: as Optax does it, and as float64 has it."""
    gradients = jnp.asarray(np.random.default_rng(1).normal(size=6), jnp.float32)
    exact = np.asarray(gradients, np.float64)
    norm = np.linalg.norm(exact)
    assert 0.5 < norm < 5
    actual = jax.jit(clipped)(gradients, jnp.float32(largest))
    np.testing.assert_allclose(actual, exact * min(1, largest / norm), rtol=1e-6)
    rule = optax.clip_by_global_norm(largest)
    np.testing.assert_allclose(actual, rule.update(gradients, rule.init(gradients))[0], rtol=1e-6)


def test_cross_entropy_and_accuracy() -> None:
    """The sums equal the definition, over the examples that count."""
    logits = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    targets = np.array([0, 1, 2, 1, 0])
    weights = np.array([1, 1, 1, 0, 0], np.float32)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    sums = classification(jnp.asarray(logits), jnp.asarray(targets), jnp.asarray(weights))
    assert float(sums.loss) == pytest.approx(
        -np.log(probabilities[np.arange(3), targets[:3]]).sum(), rel=1e-6
    )
    assert float(sums.metric) == np.sum(logits[:3].argmax(axis=1) == targets[:3])
    assert float(sums.counted) == 3


@pytest.mark.slow
def test_a_margin_smooths_labels() -> None:
    """Cross-entropy and 0.3 margins are the cross-entropy of targets that give 0.3 to all classes alike."""
    logits = np.random.default_rng(0).normal(size=(5, 3))
    targets = np.array([0, 1, 2, 1, 0])
    weights = np.array([1, 1, 1, 0, 0])
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    smooth = 0.7 * np.eye(3)[targets] + 0.3 / 3
    expected = -np.sum(smooth * log_probabilities * weights[:, None])
    given = jnp.asarray(logits, jnp.float32).at[4].set(jnp.nan), jnp.asarray(targets), jnp.asarray(weights)
    assert float(classification(*given).loss + 0.3 * margin(*given)) == pytest.approx(expected, rel=1e-6)
    gradient = jax.grad(lambda values: margin(values, *given[1:]))(given[0])
    np.testing.assert_array_equal(jnp.any(gradient != 0, axis=-1), weights > 0)


def test_rows_that_do_not_count_may_hold_anything() -> None:
    """Even a NaN in a row that fills a batch does not reach a sum."""
    logits = jnp.array([[1.0, 2.0], [jnp.nan, jnp.nan]])
    sums = classification(logits, jnp.array([1, 1]), jnp.array([1.0, 0.0]))
    assert np.isfinite(float(sums.loss))
    squares = regression(jnp.array([[1.0], [jnp.nan]]), jnp.zeros(2), jnp.array([1.0, 0.0]))
    assert float(squares.loss) == 1


def test_an_output_by_step_counts_true_steps() -> None:
    """Of three examples of lengths 2, 3 and 1, the last one not counting, five steps count."""
    lengths = jnp.array([2, 3, 1])
    weights = weights_of("steps", jnp.array([1.0, 1.0, 0.0]), lengths, jnp.zeros((3, 3), jnp.int32))
    np.testing.assert_array_equal(weights, [[1, 1, 0], [1, 1, 1], [0, 0, 0]])
    random = np.random.default_rng(0)
    logits = jnp.asarray(random.normal(size=(3, 3, 4)), jnp.float32)
    targets = jnp.asarray(random.integers(0, 4, (3, 3)))
    sums = jax.jit(classification)(logits, targets, weights)
    flat = np.asarray(weights, bool)
    assert float(sums.counted) == 5
    assert float(sums.metric) == np.sum((np.argmax(logits, -1) == targets)[flat])


def test_other_outputs_count_examples() -> None:
    """A class or a value counts once for each example."""
    examples = jnp.array([1.0, 0.0])
    for output in ("class", "value"):
        weights = weights_of(output, examples, jnp.array([2, 3]), jnp.zeros(2))
        np.testing.assert_array_equal(weights, examples)


def test_steps_without_a_target_do_not_count() -> None:
    """Neither the loss, nor its gradient, nor the metric depends on the logits at ignored steps."""
    targets = jnp.array([[IGNORED, 1, IGNORED, 2], [3, IGNORED, 0, 1]])
    weights = weights_of("steps", jnp.ones(2), jnp.array([4, 3]), targets)
    np.testing.assert_array_equal(weights, [[0, 1, 0, 1], [1, 0, 1, 0]])
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(2, 4, 5)), jnp.float32)
    other = jnp.where(weights[..., None] > 0, logits, 7.0)
    summed = jax.jit(classification)
    sums = [summed(values, targets, weights) for values in (logits, other)]
    assert jax.tree.map(float, sums[0]) == jax.tree.map(float, sums[1])
    assert float(sums[0].counted) == 4
    gradient = jax.jit(jax.grad(lambda values: classification(values, targets, weights).loss))(logits)
    np.testing.assert_array_equal(jnp.any(gradient != 0, axis=-1), weights > 0)


def test_squared_error() -> None:
    """Loss and metric are both the squared error."""
    sums = regression(jnp.array([[1.0], [4.0]]), jnp.array([0.0, 1.0]), jnp.ones(2))
    assert (float(sums.loss), float(sums.metric), float(sums.counted)) == (10, 10, 2)


def test_step_mask() -> None:
    """A length of L or more masks nothing, 0 masks all."""
    np.testing.assert_array_equal(step_mask(jnp.array([0, 2, 3]), 3), [[0, 0, 0], [1, 1, 0], [1, 1, 1]])
