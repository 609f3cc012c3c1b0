"""The engine resumes exactly, isolates its slots, and compiles nothing for a new trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from tests.trainables.layers.cases import NAMES, OPTIONS
from tests.trainables.toy import CLASSES, LENGTH, VOCABULARY, task_data, toy_data, toy_trial
from trainables.data.task import IGNORED, Signature
from trainables.engine import Engine
from trainables.engine.report import MOST_STEPS
from trainables.errors import Refusal
from trainables.layers.recurrence import newton
from trainables.trial import TrialSettings


@contextmanager
def _trials(engine: Engine, trials: Mapping[int, TrialSettings]) -> Iterator[None]:
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


def _unlike(seed: int) -> TrialSettings:
    """Return a trial whose free hyperparameters all depend on the seed."""
    ranges = {"gamma_init": (0.1 + 0.1 * seed, 0.9 + 0.01 * seed), "theta_init": (0.0, 1.0 + 0.5 * seed)}
    return toy_trial(
        seed,
        model={"dropout": 0.05 * seed, "ranges": ranges},
        steps=150 + 50 * seed,
        learning_rate=1e-3 * (1 + seed),
        recurrent_learning_rate=2e-4 * (1 + seed),
        weight_decay=0.02 * seed,
        warmup=0.05 * (1 + seed),
    )


@pytest.mark.slow
def test_learns(single: Engine) -> None:
    """A trial learns the toy task far beyond chance; its report agrees with the evaluation."""
    with _trials(single, {0: toy_trial()}):
        before = single.evaluate(0)
        report = single.advance({0: 200})[0]
        after, norms = single.evaluate(0), single.hidden_norms(0)
        initial = single.hidden_norms(0, initial=toy_trial())
    assert after["accuracy"] > 0.9 > 0.6 > before["accuracy"]
    assert after["loss"] < report.loss < before["loss"]
    assert (report.step, report.steps, report.finite) == (200, 200, True)
    assert norms.keys() == initial.keys() == {"head/layer_0", "state/layer_0", "expected/layer_0"}
    assert all(norms[name] != initial[name] > 0 for name in norms)
    assert 200 * 8 * 12 <= report.tokens <= 200 * 8 * 24
    assert 0 < report.learning_rate < 1e-6


def test_resumed_equals_undisturbed(single: Engine, fused: Engine) -> None:
    """Training resumed from a snapshot in a new engine ends bit-equal to undisturbed training."""
    with _trials(single, {0: _unlike(3)}):
        single.advance({0: 7})
        kept, scores = single.snapshot(0), single.evaluate(0)
        whole = single.advance({0: 12})[0]
        undisturbed, norms = single.snapshot(0), single.hidden_norms(0)
    other = Engine(toy_trial(), toy_data())
    other.restore(0, _unlike(3), kept)
    assert other.evaluate(0) == scores
    fused.restore(2, _unlike(3), kept)
    assert fused.evaluate(2) == scores
    fused.evict(2)
    first, second = other.advance({0: 5})[0], other.advance({0: 7})[0]
    _assert_equal(other.snapshot(0), undisturbed)
    assert (5 * first.loss + 7 * second.loss) / 12 == pytest.approx(whole.loss, rel=1e-12)
    assert other.hidden_norms(0) == norms


@pytest.mark.slow
def test_fused_trials_equal_the_same_trials_alone(single: Engine, fused: Engine) -> None:
    """Four different trials in one program have the curves they have alone; one of them stops earlier."""
    trials = {slot: _unlike(slot) for slot in range(4)}
    curves: dict[int, list[float]] = {slot: [] for slot in trials}
    with _trials(fused, trials):
        for step in range(0, 200, 20):
            asked = {slot: 20 for slot in trials if slot != 1 or step < 100}
            for slot, report in fused.advance(asked).items():
                curves[slot].append(report.loss)
        scores = {slot: fused.evaluate(slot) for slot in trials}
    for slot, trial in trials.items():
        with _trials(single, {0: trial}):
            alone = [single.advance({0: 20})[0].loss for _ in curves[slot]]
            score = single.evaluate(0)
        np.testing.assert_allclose(curves[slot], alone, rtol=1e-5)
        assert scores[slot]["loss"] == pytest.approx(score["loss"], rel=1e-4)
    assert len(curves[1]) == 5


@pytest.mark.slow
def test_slots_at_different_steps(fused: Engine) -> None:
    """Each slot trains its own number of steps, and an idle slot does not change."""
    with _trials(fused, {slot: toy_trial(slot) for slot in range(3)}):
        idle = fused.snapshot(2)
        first = fused.advance({0: 3, 1: 10})
        second = fused.advance({0: 4, 1: 1})
        assert [(report.step, report.steps) for report in first.values()] == [(3, 3), (10, 10)]
        assert [(report.step, report.steps) for report in second.values()] == [(7, 4), (11, 1)]
        _assert_equal(fused.snapshot(2), idle)


def test_a_slot_that_diverges_is_frozen_alone(fused: Engine) -> None:
    """A trial whose loss becomes NaN is frozen and reported; its neighbours stay bit-equal."""
    healthy = {0: toy_trial(0), 2: toy_trial(2)}
    with _trials(fused, {**healthy, 1: toy_trial(1), 3: toy_trial(3)}):
        fused.advance(dict.fromkeys(range(4), 20))
        expected = {slot: fused.snapshot(slot) for slot in healthy}
    diverging = toy_trial(1, learning_rate=1e30)
    with _trials(fused, {**healthy, 1: diverging, 3: toy_trial(3)}):
        reports = fused.advance(dict.fromkeys(range(4), 20))
        for slot, snapshot in expected.items():
            _assert_equal(fused.snapshot(slot), snapshot)
        frozen = fused.snapshot(1)
        again = fused.advance({1: 5})[1]
        _assert_equal(fused.snapshot(1), frozen)
    assert [reports[slot].finite for slot in range(4)] == [True, False, True, True]
    assert reports[1].step == reports[1].steps < 20
    assert np.isnan(reports[1].loss)
    assert not again.finite
    assert again.step == reports[1].step


def test_a_new_trial_compiles_nothing(fused: Engine) -> None:
    """Trials of one static choice share their programs, whatever their free hyperparameters."""

    def life(trials: Mapping[int, TrialSettings]) -> None:
        with _trials(fused, trials):
            fused.advance(dict.fromkeys(trials, 3))
            kept = {slot: fused.snapshot(slot) for slot in trials}
            for slot in trials:
                fused.evaluate(slot)
        for slot, trial in trials.items():
            fused.restore(slot, trial, kept[slot])
            fused.evict(slot)

    life({slot: _unlike(slot) for slot in range(4)})
    with _compilations() as seen:
        life({slot: _unlike(3 - slot) for slot in range(4)})
    assert not seen
    with _compilations() as seen:
        jax.jit(lambda x: x + 3)(np.float32(1))
    assert seen


@pytest.mark.slow
@pytest.mark.parametrize("layer", [name for name in NAMES if name != "rotrnn"])
def test_a_new_learning_rate_compiles_nothing_for_any_layer(layer: str) -> None:
    """Every layer trains in a slot, its norms are measured, and rates are free."""
    options = OPTIONS.get(layer, {})
    network = {"layer": layer, "d_state": 16, "options": options, "bidirectional": False}
    one, other = (toy_trial(0, model=network, learning_rate=rate, steps=40) for rate in (1e-3, 2e-3))
    engine = Engine(one, toy_data(), slots=2, stacked=True)
    with _trials(engine, {0: one}):
        first, norms = engine.advance({0: 20})[0], engine.hidden_norms(0)
    with _compilations() as seen, _trials(engine, {1: other}):
        second = engine.advance({1: 20})[1]
        engine.hidden_norms(1)
    assert not seen
    assert (norms["head/layer_0"] > 0) == (layer != "none")
    assert np.isfinite(second.loss)
    assert second.loss != first.loss


NEWTON = {"layer": "gru", "bidirectional": True, "options": {"algorithm": "newton"}}
LOOP = {**NEWTON, "options": {"algorithm": "sequential"}}


@pytest.mark.slow
def test_layers_solved_by_newton_train_as_those_of_the_loop() -> None:
    """Newton's method trains as the loop does, reports how, and a new learning rate compiles nothing."""
    one, other = (toy_trial(0, model=NEWTON, learning_rate=rate) for rate in (1e-3, 2e-3))
    engine, loop = (
        Engine(one, toy_data(), slots=2, stacked=True),
        Engine(toy_trial(0, model=LOOP), toy_data()),
    )
    with _trials(engine, {0: one}), _trials(loop, {0: toy_trial(0, model=LOOP, learning_rate=1e-3)}):
        first, expected = engine.advance({0: 20})[0], loop.advance({0: 20})[0]
        curve = first.curve({}, None, engine.solutions(0))
        assert not loop.solutions(0)
    np.testing.assert_allclose(first.per_step.loss, expected.per_step.loss, rtol=1e-4)
    assert curve["newton/fallbacks/layer_0"] == 0
    assert 0 < curve["newton/residual/layer_0"] <= newton.TOLERANCE
    with _compilations() as seen, _trials(engine, {1: other}):
        assert engine.advance({1: 20})[1].loss != first.loss
        engine.solutions(1)
    assert not seen


@pytest.mark.slow
def test_fallbacks_are_counted_in_both_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sequence of every step counts, once a direction, also after the trial has moved to an engine."""
    monkeypatch.setattr(newton, "TOLERANCE", -1.0)  # No residual is that small.
    trial = toy_trial(0, model=NEWTON, remat=True)
    engine, other = Engine(trial, toy_data()), Engine(trial, toy_data())
    with _trials(engine, {0: trial}):
        engine.advance({0: 3})
        assert engine.solutions(0)["fallbacks/layer_0"] == 3 * 8 * 2
        kept = engine.snapshot(0)
    other.restore(0, trial, kept)
    other.advance({0: 2})
    assert other.solutions(0)["fallbacks/layer_0"] == 5 * 8 * 2


@pytest.mark.slow
def test_out_of_memory_halves_the_width(fused: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """If four slots do not fit into memory, two are trained at a time, with the same results."""
    engine = Engine(toy_trial(), toy_data(), slots=4, stacked=True)
    whole = engine._slots._together

    def tight(group: list[int], size: int, steps: int) -> Any:
        if len(group) > 2:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return whole(group, size, steps)

    monkeypatch.setattr(engine._slots, "_together", tight)
    with _trials(fused, {slot: toy_trial(slot) for slot in range(4)}):
        expected = fused.advance(dict.fromkeys(range(4), 10))
    with _trials(engine, {slot: toy_trial(slot) for slot in range(4)}):
        reports = engine.advance(dict.fromkeys(range(4), 10))
    assert engine.width == 2
    for slot, report in reports.items():
        assert report.step == 10
        assert report.loss == pytest.approx(expected[slot].loss, rel=1e-5)


def test_evaluation_counts_every_example_once(single: Engine) -> None:
    """An evaluation of the first examples is that of its parts, and the test split is served too."""
    with _trials(single, {0: toy_trial()}):
        part, whole = single.evaluate(0, examples=20), single.evaluate(0)
        rest = single.evaluate(0, "train", 150), single.evaluate(0, "test")
    assert part["accuracy"] * 20 == pytest.approx(round(part["accuracy"] * 20))
    assert whole["accuracy"] * 50 == pytest.approx(round(whole["accuracy"] * 50))
    assert part != whole
    assert rest[1]["accuracy"] * 150 == pytest.approx(round(rest[1]["accuracy"] * 150))


def test_the_scores_of_the_examples_add_up_to_the_metric(single: Engine) -> None:
    """The test split does not fill its last block."""
    with _trials(single, {0: toy_trial()}):
        metrics, scores = single.evaluate_each(0)
        together = single.evaluate(0, "test")
    assert set(scores) == {0.0, 1.0}
    assert len(scores) == len(single.data.test)
    assert scores.mean() == metrics["accuracy"] == together["accuracy"]
    assert metrics["loss"] == pytest.approx(together["loss"], rel=1e-6)


def test_weights_that_are_no_numbers_score_nothing(single: Engine) -> None:
    with _trials(single, {0: toy_trial()}):
        arrays = single.snapshot(0)
    broken = {name: np.full_like(array, np.nan) if array.ndim else array for name, array in arrays.items()}
    single.restore(0, toy_trial(), broken)
    metrics, scores = single.evaluate_each(0)
    single.evict(0)
    assert np.isnan(metrics["accuracy"])
    assert np.isnan(scores).all()


def test_stop_returns_what_was_done(single: Engine) -> None:
    """The engine checks for a stop request between device calls."""
    with _trials(single, {0: toy_trial()}):
        report = single.advance({0: 2000}, stop=lambda: True)[0]
        assert 1 <= report.steps <= MOST_STEPS < 2000
        assert single.advance({0: 1})[0].step == report.step + 1


def test_refuses_what_does_not_fit(single: Engine) -> None:
    """Another static choice, a trial with too many steps and foreign arrays are refused by name."""
    with pytest.raises(Refusal, match="static choice"):
        single.admit(0, toy_trial(model={"d_model": 16}))
    with pytest.raises(Refusal, match=r"below 2\*\*32"):
        single.admit(0, toy_trial(steps=2**30))
    with _trials(single, {0: toy_trial()}):
        arrays = single.snapshot(0)
    with pytest.raises(Refusal, match=r"params/head/bias only in the model"):
        single.restore(0, toy_trial(), {name: a for name, a in arrays.items() if name != "params/head/bias"})
    wrong = arrays | {"params/head/bias": np.zeros(4, np.float32)}
    with pytest.raises(Refusal, match=r"params/head/bias must be float32 \(3,\) \(got float32 \(4,\)\)"):
        single.restore(0, toy_trial(), wrong)


@pytest.mark.parametrize(
    "optimizer",
    ["lion", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sgd", "rmsprop", "amsgrad"))],
)
@pytest.mark.slow
def test_other_optimisers_resume_exactly(optimizer: str) -> None:
    """A snapshot holds whatever an optimiser and a schedule remember, and need not hold running statistics.

    The rate is far too high, so that the schedule halves it again and again.
    """
    schedule: dict[str, Any] = {"schedule": "plateau", "interval": 2, "plateau_patience": 1}
    network = {"norm": "layer"}
    trial = toy_trial(model=network, optimizer=optimizer, clip=1.0, learning_rate=1.0, warmup=0.0, **schedule)
    one, other = Engine(trial, toy_data()), Engine(trial, toy_data())
    one.admit(0, trial)
    one.advance({0: 3})
    kept = one.snapshot(0)
    rate = one.advance({0: 8})[0].learning_rate
    other.restore(0, trial, kept)
    other.advance({0: 8})
    after = one.snapshot(0)
    _assert_equal(other.snapshot(0), after)
    assert np.any(kept["params/head/kernel"] != after["params/head/kernel"])
    assert kept["plateau/count"] == 1
    assert rate == after["plateau/scale"] <= 0.5
    for odd in ({"optimizer": "adamw", **schedule}, {"optimizer": optimizer, "schedule": "linear"}):
        unlike = toy_trial(model=network, **odd)
        with pytest.raises(Refusal, match=r"moments/|plateau/"):
            Engine(unlike, toy_data()).restore(0, unlike, kept)


@pytest.mark.slow
def test_the_size_of_a_clip_compiles_nothing() -> None:
    """Trials with different clips share a program, and differ."""
    trials = [toy_trial(clip=clip) for clip in (0.01, 0.02)]
    engine = Engine(trials[0], toy_data())

    def trained(trial: TrialSettings) -> np.ndarray:
        with _trials(engine, {0: trial}):
            engine.advance({0: 3})
            return engine.snapshot(0)["moments/mu/head/kernel"]

    first = trained(trials[0])
    with _compilations() as seen:
        second = trained(trials[1])
    assert not seen
    np.testing.assert_allclose(second, 2 * first, rtol=0.2)
    assert np.any(first != second)


@pytest.mark.slow
def test_a_warm_up_in_epochs_is_that_share_of_the_steps(single: Engine) -> None:
    """An epoch of 203 examples has 25 batches of 8, so two epochs are a quarter of 200 steps.

    Other numbers of epochs and other rates compile nothing.
    """
    engine = Engine(toy_trial(warmup_epochs=1.0), toy_data())
    with _trials(engine, {0: toy_trial(warmup_epochs=2.0)}), _trials(single, {0: toy_trial(warmup=0.25)}):
        for _ in range(2):
            rising, share = engine.advance({0: 30})[0], single.advance({0: 30})[0]
            np.testing.assert_allclose(rising.per_step.loss, share.per_step.loss, rtol=1e-6)
        assert np.any(share.per_step.loss[1:] != share.per_step.loss[:-1])
    with _compilations() as seen, _trials(engine, {0: toy_trial(warmup_epochs=0.5, learning_rate=1e-4)}):
        engine.advance({0: 1})
    assert not seen


@pytest.mark.slow
def test_label_smoothing_compiles_nothing_and_is_not_evaluated(single: Engine) -> None:
    """Trials that smooth labels share a program; an evaluation and the loss of a report know nothing of it.

    None and a share of 0 minimise the same.
    """
    plain = toy_trial()
    trials = [toy_trial(label_smoothing=share) for share in (0.0, 0.5)]
    engine = Engine(trials[0], toy_data())
    with _trials(single, {0: plain}):
        report, kept = single.advance({0: 3})[0], single.snapshot(0)
    with _trials(engine, {0: trials[0]}):
        assert engine.advance({0: 3})[0].loss == pytest.approx(report.loss, rel=1e-5)
        arrays = engine.snapshot(0)
    for name, array in kept.items():
        np.testing.assert_allclose(arrays[name], array, rtol=1e-3, atol=1e-6)
    with _compilations() as seen, _trials(engine, {0: trials[1]}):
        first = engine.advance({0: 1})[0]
        smooth = engine.snapshot(0)
        assert not seen
        score = engine.evaluate(0)
    with _trials(single, {0: plain}):
        assert single.advance({0: 1})[0].loss == pytest.approx(first.loss, rel=1e-6)
        assert np.any(single.snapshot(0)["params/head/kernel"] != smooth["params/head/kernel"])
    single.restore(0, plain, smooth)
    again = single.evaluate(0)
    single.evict(0)
    assert again == score


@pytest.mark.slow
def test_accumulated_batches_make_one_step(single: Engine) -> None:
    """Two batches of four count as one step, with the same examples as one batch of eight."""
    engine = Engine(toy_trial(batch_size=4, accumulate=2), toy_data())
    with _trials(engine, {0: toy_trial(batch_size=4, accumulate=2)}), _trials(single, {0: toy_trial()}):
        halves, whole = engine.advance({0: 5})[0], single.advance({0: 5})[0]
    assert (halves.step, halves.tokens) == (whole.step, whole.tokens)
    assert halves.loss == pytest.approx(whole.loss, rel=0.2)
    assert halves.loss != whole.loss


@pytest.mark.slow
def test_accumulation_and_recomputation_equal_the_plain_step() -> None:
    """If all batches have the same statistics, three batches of four equal one of twelve."""
    data, model = toy_data(), {"dropout": 0.0}
    first = np.zeros(len(data.train), np.int64)
    same = replace(data.train, inputs=data.train.inputs[first], lengths=data.train.lengths[first])
    data = replace(data, train=same)
    frugal = toy_trial(model=model, batch_size=4, accumulate=3, remat=True)
    plain = toy_trial(model=model, batch_size=12)
    snapshots = []
    for trial in (frugal, plain):
        engine = Engine(trial, data)
        with _trials(engine, {0: trial}):
            losses = engine.advance({0: 20})[0].loss
            snapshots.append((losses, engine.snapshot(0)))
    (loss, parts), (whole_loss, whole) = snapshots
    assert loss == pytest.approx(whole_loss, rel=1e-5)
    for name, array in whole.items():
        if name.startswith("params/"):
            np.testing.assert_allclose(parts[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_batches_of_one_step_count_by_their_targets() -> None:
    """Sequences with a target at one to twelve of their steps: two batches of four equal one of eight."""
    rng, whole = np.random.default_rng(0), toy_data().train
    targets = np.full(whole.inputs.shape, IGNORED, np.int32)
    for row, count in zip(targets, rng.integers(1, LENGTH // 2 + 1, len(targets)), strict=True):
        row[:count] = rng.integers(0, CLASSES, count)
    train = replace(whole, targets=targets)
    data = task_data(Signature("steps", CLASSES, VOCABULARY, 1, LENGTH), train, train, train)
    model = {"dropout": 0.0, "norm": "layer"}
    snapshots = []
    for trial in (toy_trial(model=model, batch_size=4, accumulate=2), toy_trial(model=model)):
        engine = Engine(trial, data)
        with _trials(engine, {0: trial}):
            losses = engine.advance({0: 3})[0].loss
            snapshots.append((losses, engine.snapshot(0)))
    (loss, parts), (whole_loss, together) = snapshots
    assert loss == pytest.approx(whole_loss, rel=1e-5)
    for name in [name for name in together if name.startswith("params/")]:
        np.testing.assert_allclose(parts[name], together[name], rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_remat_trains_the_same(single: Engine) -> None:
    """Recomputing activations changes neither the loss nor what is learned."""
    trial = toy_trial()
    frugal = replace(trial, training=replace(trial.training, remat=True))
    engine = Engine(frugal, toy_data())
    with _trials(engine, {0: frugal}), _trials(single, {0: trial}):
        one, other = engine.advance({0: 10})[0], single.advance({0: 10})[0]
        scores = [each.evaluate(0)["loss"] for each in (engine, single)]
    assert one.loss == pytest.approx(other.loss, rel=1e-5)
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)
