"""Programs of one's own in the engine: exact, resumable, and compiled once for all learning rates."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

from tests.trainables.digits import OfLinen, Perceptron, digits
from trainables import checkpoint
from trainables.counter import folded, order_of_steps
from trainables.engine import Engine
from trainables.engine.custom import CustomProgram
from trainables.errors import BadData, Refusal
from trainables.importing import imported
from trainables.program import Batch, ProgramData, loaded
from trainables.stretches import Stretch
from trainables.trial import Clock, ProgramSettings

PROGRAMS = ("OfLinen", "OfNnx")
STEPS = 20


def settings(
    name: str = "OfLinen",
    *,
    rate: float = 1e-2,
    seed: int = 0,
    width: int = 16,
    reproducible: str | None = "bits",
    **params: Any,
) -> ProgramSettings:
    return ProgramSettings(
        f"tests.trainables.digits:{name}",
        ".",
        {"learning_rate": rate, "width": width, **params},
        Clock(STEPS, 10, reproducible),
        seed,
        ("learning_rate",),
    )


def engine_of(trial: ProgramSettings, slots: int = 1) -> Engine:
    return Engine(trial, ProgramData.of(loaded(trial), Path()), slots=slots)


def bits(engine: Engine, slot: int) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in engine.snapshot(slot).items()}


@pytest.mark.slow
def test_it_equals_a_loop_of_the_same_steps() -> None:
    """Against a loop that a user would write, over the rows that the engine draws."""
    trial = settings(rate=3e-3, seed=5)
    engine = engine_of(trial)
    engine.admit(0, trial)
    report = engine.advance({0: STEPS})[0]

    words = jnp.array([0, 5], jnp.uint32)
    key = jax.random.wrap_key_data(words, impl="threefry2x32")
    module, optimizer, data = Perceptron(16), optax.adam(3e-3), digits()["train"]
    params = jax.jit(partial(module.init, train=False))(key, data["inputs"][:1])["params"]
    moments = jax.jit(optimizer.init)(params)
    rows = np.asarray(order_of_steps(jnp.int32(0), 512, 32, 1400, words))
    losses = []

    @jax.jit
    def step(params: Any, moments: Any, batch: Batch, number: Any) -> Any:
        def loss(params: Any) -> Any:
            noise = jax.random.wrap_key_data(folded(words, number), impl="threefry2x32")
            logits = module.apply({"params": params}, batch["inputs"], train=True, rngs={"dropout": noise})
            return optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"]).mean()

        value, gradient = jax.value_and_grad(loss)(params)
        updates, moments = optimizer.update(gradient, moments, params)
        return optax.apply_updates(params, updates), moments, value

    for number in range(STEPS):
        batch = {name: part[rows[number]] for name, part in data.items()}
        params, moments, value = step(params, moments, batch, jnp.uint32(number))
        losses.append(float(value))
    assert report.loss == pytest.approx(np.mean(losses), rel=1e-5)
    kernel = engine.snapshot(0)["state/params/Dense_0/kernel"]
    np.testing.assert_allclose(kernel, params["Dense_0"]["kernel"], rtol=1e-4, atol=1e-6)
    scores = engine.evaluate(0)
    evaluated = jax.jit(partial(module.apply, train=False))
    logits = evaluated({"params": params}, digits()["validation"]["inputs"])
    right = np.mean(np.argmax(logits, -1) == digits()["validation"]["targets"])
    assert scores["accuracy"] == pytest.approx(right)
    assert set(report.curve(scores)) == {
        "val/loss",
        "val/accuracy",
        "train/loss",
        "train/accuracy",
        "learning_rate",
    }


@pytest.mark.slow
def test_fewer_trials_use_the_program_that_is_there() -> None:
    """One trial in two slots is not worth compiling a program of its own, until it has gone on for long."""
    trial = settings(reproducible=None)
    engine = engine_of(trial, slots=2)
    for slot in range(2):
        engine.admit(slot, trial)
    engine.advance({0: 10, 1: 10})
    compiled = engine.compiled
    report = engine.advance({0: 10})[0]
    assert engine.compiled == compiled
    assert report.stretches == (Stretch(10, 2, 2),)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", PROGRAMS)
def test_neighbours_and_a_resume_change_no_bit(name: str) -> None:
    alone = engine_of(settings(name))
    alone.admit(0, settings(name))
    alone.advance({0: STEPS})
    shared = engine_of(settings(name), slots=3)
    for slot in range(3):
        shared.admit(slot, settings(name, rate=1e-2 * (1 + slot), seed=slot))
    shared.advance({0: 7, 1: 13})
    saved = shared.snapshot(0)
    shared.evict(0)
    shared.restore(0, settings(name), saved)
    shared.advance({0: STEPS - 7, 2: 5})
    assert bits(shared, 0) == bits(alone, 0)
    assert bits(shared, 1) != bits(alone, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_slots_in_one_program_train_the_same_curves(name: str) -> None:
    """Without `reproducible: bits` one device call advances all slots: equal but for the last bits."""
    trials = [settings(name, rate=1e-2 * (1 + slot), seed=slot, reproducible=None) for slot in range(2)]
    together = engine_of(trials[0], slots=2)
    for slot, trial in enumerate(trials):
        together.admit(slot, trial)
    reports = together.advance({0: STEPS, 1: STEPS})
    for slot, trial in enumerate(trials):
        alone = engine_of(trial)
        alone.admit(0, trial)
        assert alone.advance({0: STEPS})[0].loss == pytest.approx(reports[slot].loss, rel=1e-4)
        assert alone.evaluate(0)["loss"] == pytest.approx(together.evaluate(slot)["loss"], rel=1e-3)


@pytest.mark.slow
def test_a_new_rate_and_a_new_seed_compile_nothing() -> None:
    engine = engine_of(settings())
    for number in range(2):
        engine.admit(0, settings(rate=1e-3 * (1 + number), seed=number))
        engine.advance({0: 10})
        engine.evaluate(0)
        engine.snapshot(0)
        engine.evict(0)
        if number == 0:
            compiled = engine.compiled
    assert engine.compiled == compiled


def test_another_width_is_another_program() -> None:
    assert settings(width=8).static() != settings(width=16).static()
    assert settings(rate=1.0, seed=3).static() == settings(rate=2.0, seed=4).static()
    with pytest.raises(Refusal, match="static choice"):
        engine_of(settings(width=8)).admit(0, settings(width=16))


@pytest.mark.slow
def test_a_trial_that_diverges_is_frozen_and_its_neighbour_goes_on() -> None:
    engine = engine_of(settings(), slots=2)
    engine.admit(0, settings(rate=float("inf")))
    engine.admit(1, settings())
    reports = engine.advance({0: STEPS, 1: STEPS})
    assert not reports[0].finite
    assert reports[1].finite
    assert reports[1].steps == STEPS


def test_every_example_has_a_score() -> None:
    engine = engine_of(settings())
    engine.admit(0, settings())
    metrics, scores = engine.evaluate_each(0, "test")
    assert scores.shape == (197,)
    assert metrics["accuracy"] == pytest.approx(scores.mean())


class Columns(OfLinen):
    """Scores of the wrong shape, which would be compared with every example of the batch."""

    def scores(self, outputs: Any, batch: Batch) -> Any:
        return {name: score[:, None] for name, score in super().scores(outputs, batch).items()}


class Averaged(OfLinen):
    """One score for the whole batch, rows that only fill it included."""

    def scores(self, outputs: Any, batch: Batch) -> Any:
        return {name: score.mean() for name, score in super().scores(outputs, batch).items()}


class Nameless(OfLinen):
    """No score of the name that `metric` has."""

    metric = "f1"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (Columns, r"`evaluate` must return `loss` of shape \(32,\) \(got shape \(32, 1\)\)"),
        (Averaged, r"`evaluate` must return `loss` of shape \(32,\) \(got shape \(\)\)"),
        (Nameless, r"`evaluate` must return `f1` \(got accuracy, loss\)"),
    ],
)
def test_scores_that_are_not_of_each_example_are_refused(program: type[OfLinen], message: str) -> None:
    data = ProgramData.of(OfLinen(), Path())
    with pytest.raises(Refusal, match=message):
        CustomProgram.of(program(), settings(), data)


class OnlyLoss(OfLinen):
    """The loss is its only score."""

    metric = "loss"

    def scores(self, outputs: Any, batch: Batch) -> Any:
        return {"loss": super().scores(outputs, batch)["loss"]}


class HalfPrecision(OnlyLoss):
    """An optimiser whose first moments are bfloat16, and which has not yet found a best value."""

    def optimizer(self, free: Any) -> optax.GradientTransformation:
        adam = optax.adam(free["learning_rate"], mu_dtype=jnp.bfloat16)
        return optax.chain(
            adam, optax.GradientTransformation(_nothing_found, lambda more, state, _: (more, state))
        )


def _nothing_found(params: Any) -> Any:
    return {"best": jnp.float32(jnp.inf)}


@pytest.mark.slow
def test_any_type_and_any_number_may_be_in_the_state(tmp_path: Path) -> None:
    """Files hold bfloat16 as its bits, and a number that is infinite from the start is no divergence."""
    trial = replace(settings(), program="tests.trainables.test_program:HalfPrecision")
    engine = engine_of(trial)
    engine.admit(0, trial)
    report = engine.advance({0: 5})[0]
    assert report.finite
    assert report.curve(engine.evaluate(0)).keys() == {"val/loss", "train/loss", "learning_rate"}
    arrays = engine.snapshot(0)
    saved = checkpoint.save(tmp_path / "step", arrays, {})
    expected = engine.advance({0: 5})[0].loss
    engine.evict(0)
    engine.restore(0, trial, checkpoint.load(saved.folder, saved.digest)[0])
    assert engine.advance({0: 5})[0].loss == expected
    engine.evict(0)
    moment = next(name for name in arrays if "/mu/" in name and name.endswith("kernel"))
    with pytest.raises(Refusal, match=f"{moment} must be bfloat16"):
        engine.restore(0, trial, {**arrays, moment: arrays[moment].astype(np.float32)})


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (lambda saved: saved.pop("state/params/Dense_0/bias"), "only in the program"),
        (lambda saved: saved.update(more=np.zeros(1)), "only in the checkpoint"),
        (lambda saved: saved.update(step=np.float32(1)), "must be int32"),
    ],
)
def test_a_checkpoint_of_another_program_is_refused(arrays: Any, message: str) -> None:
    engine = engine_of(settings())
    engine.admit(0, settings())
    saved = engine.snapshot(0)
    engine.evict(0)
    arrays(saved)
    with pytest.raises(Refusal, match=message):
        engine.restore(0, settings(), saved)


class Halved(OfLinen):
    """Has no validation."""

    def data(self, folder: Path) -> Any:
        return {"train": digits()["train"]}


class Ragged(OfLinen):
    """Has fewer targets than inputs."""

    def data(self, folder: Path) -> Any:
        parts = digits()
        parts["validation"]["targets"] = parts["validation"]["targets"][1:]
        return parts


@pytest.mark.parametrize(("program", "message"), [(Halved, "validation"), (Ragged, "same number")])
def test_data_that_cannot_be_evaluated_are_refused(program: type[OfLinen], message: str) -> None:
    with pytest.raises(BadData, match=message):
        ProgramData.of(program(), Path())


@pytest.mark.parametrize(
    ("reference", "params", "message"),
    [
        ("tests.trainables.digits:Perceptrons", {}, "no attribute 'Perceptrons'"),
        ("tests.trainables.digits:digits", {}, "derives from"),
        ("tests.no_such_module:Net", {}, "No module named"),
        ("missing.py:Net", {}, "No such file"),
        ("tests.trainables.digits:OfLinen", {"depth": 3}, "unexpected keyword argument 'depth'"),
    ],
)
def test_what_cannot_be_constructed_is_refused(reference: str, params: Any, message: str) -> None:
    trial = ProgramSettings(reference, ".", params, Clock(1, 1), 0, ())
    with pytest.raises(Refusal, match=message):
        loaded(trial)


def test_a_file_beside_the_search_space_is_imported_with_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_net.py").write_text("WIDTH = 4\n")
    (tmp_path / "net.py").write_text(
        "from neighbour_of_net import WIDTH\n"
        "from tests.trainables.digits import OfLinen\n"
        "class Net(OfLinen):\n"
        "    def __init__(self):\n"
        "        super().__init__(WIDTH)\n"
    )
    trial = ProgramSettings("net.py:Net", str(tmp_path), {}, Clock(1, 1), 0, ())
    assert loaded(trial).module.width == 4  # type: ignore[attr-defined]
    assert loaded(trial).__class__ is loaded(trial).__class__


def test_a_package_beside_the_search_space_is_imported(tmp_path: Path) -> None:
    for folder, value in (("first", 1), ("second", 2)):
        package = tmp_path / folder / "beside"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "model.py").write_text(f"value = {value}\n")
        assert imported("beside.model:value", tmp_path / folder) == value


@pytest.mark.parametrize("name", ["trainables.py", "orchestrator/__init__.py"])
@pytest.mark.parametrize("reference", ["net.py:value", "net:value"])
def test_a_module_that_could_be_taken_for_one_of_ours_is_refused(
    tmp_path: Path, reference: str, name: str
) -> None:
    """A program is in one process with the service's own modules."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    (tmp_path / "net.py").write_text("value = 1\n")
    with pytest.raises(Refusal, match=rf"modules named like those of this package.*{name}\)\. Rename it"):
        imported(reference, tmp_path)
