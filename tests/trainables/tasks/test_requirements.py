"""What tasks say that an answer requires, against controls that lack it.

A control answers by a table of the training split: the most frequent target of each key, and of all sequences
where a key was never seen. With the input of the answering step alone as the key, no network without a memory
can do better; with the bag of all inputs up to this step, none that ignores their order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from jax import numpy as jnp

from trainables.data.task import IGNORED, Split, TaskData, completed
from trainables.engine import Engine
from trainables.model import Model
from trainables.tasks import TASKS
from trainables.trial import ModelSettings, TrainingSettings, TrialSettings

Key = Callable[[np.ndarray], Hashable]
"""(inputs up to the answering step) -> what a control knows of them."""

MANY = {"examples": 4000, "held_out": 300}
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("copy", {"delay": 5, "examples": 400, "held_out": 100}),
    ("parity", {"length": 10, "reach": 1, **MANY}),
    ("modular", {"length": 8, "reach": 1, "modulus": 3, "operators": "+", **MANY}),
    ("modular", {"length": 8, "reach": 1, "modulus": 3, "operators": "+-*", **MANY}),
    ("modular", {"length": 10, "reach": 1, "modulus": 3, "brackets": True, **MANY}),
    *(
        ("group_words", {"length": 6, "reach": 1, "min_length": 6, "answer": "end", **group, **MANY})
        for group in (
            {"group": "S3"},
            {"group": "A4xZ5"},
            {"group": "A5"},
            {"group": "S5"},
            {"group": "S5", "swaps": True},
        )
    ),
    ("mqar", {"length": 12, "pairs": 3, "vocabulary": 16, **MANY}),
    ("selective_copy", {"length": 8, "tokens": 4, "symbols": 5, **MANY}),
    ("induction", {"length": 10, "reach": 1, "symbols": 5, **MANY}),
)
of_cases = pytest.mark.parametrize(
    ("name", "options"), CASES, ids=lambda part: part if isinstance(part, str) else ""
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


def _last(inputs: np.ndarray) -> Hashable:
    return int(inputs[-1])


def _bag(inputs: np.ndarray) -> Hashable:
    return int(inputs[-1]), tuple(np.sort(inputs).tolist())


def _answers(split: Split, key: Key) -> Iterator[tuple[Hashable, int]]:
    """Yield the key and the target of every answer of a split."""
    for inputs, length, target in zip(split.inputs, split.lengths, split.targets, strict=True):
        steps = [length - 1] if target.ndim == 0 else np.flatnonzero(target[:length] != IGNORED)
        for step in steps:
            yield key(inputs[: step + 1]), int(target if target.ndim == 0 else target[step])


def _decides(data: TaskData, key: Key) -> bool:
    """Return True if no two answers with equal keys differ."""
    table: dict[Hashable, int] = {}
    splits = (data.train, data.validation)
    return all(
        table.setdefault(seen, target) == target for split in splits for seen, target in _answers(split, key)
    )


def _errors(data: TaskData, key: Key) -> float:
    """Return the share of wrong answers on validation."""
    table: defaultdict[Hashable, Counter[int]] = defaultdict(Counter)
    everything: Counter[int] = Counter()
    for seen, target in _answers(data.train, key):
        table[seen][target] += 1
        everything[target] += 1
    constant = everything.most_common(1)[0][0]
    best = {seen: counts.most_common(1)[0][0] for seen, counts in table.items()}
    return float(
        np.mean([best.get(seen, constant) != target for seen, target in _answers(data.validation, key)])
    )


@pytest.mark.slow
@of_cases
def test_what_lacks_the_requirement_does_not_solve_the_task(
    name: str, options: dict[str, Any], folder: Path
) -> None:
    """It makes at least half as many errors as the best constant; without an order, the bag decides."""
    task, data = TASKS[name], TASKS[name].load(options, folder)
    required = task.requires(completed(name, task.options, options))
    assert required is not None
    assert required.memory > 0
    constant = 1 - data.chance["validation"]
    assert _errors(data, _last) > constant / 2
    if required.order:
        assert _errors(data, _bag) > constant / 2
    else:
        assert _decides(data, _bag)


def test_a_group_that_commutes_needs_no_order(folder: Path) -> None:
    """The product of a word of Z60 follows from its elements in any order."""
    task = TASKS["group_words"]
    options = {"length": 12, "reach": 1, "group": "Z60", "examples": 30, "held_out": 10}
    required = task.requires(completed("group_words", task.options, options))
    assert required is not None
    assert not required.order
    data = task.load(options, folder)
    sums = (data.validation.inputs.astype(int) - 1).sum(axis=1) % 60
    np.testing.assert_array_equal(sums, data.validation.targets[:, -1])


def test_adding_needs_a_memory_only_where_the_last_step_answers(folder: Path) -> None:
    """The pooled sum of number times marker is the answer; the last step knows a marked number at most."""
    options = {"length": 20, "examples": 5000, "held_out": 1000}
    data = TASKS["adding"].load(options, folder)
    required = TASKS["adding"].requires(completed("adding", TASKS["adding"].options, options))
    assert required is not None
    assert (required.memory, required.order) == (19, False)
    pooled = np.sum(data.validation.inputs[..., 0] * data.validation.inputs[..., 1], axis=1)
    np.testing.assert_allclose(pooled, data.validation.targets, rtol=1e-5)
    # The best linear answer from the last number, its marker and their product.
    known = [_of_last_step(split) for split in (data.train, data.validation)]
    weights = np.linalg.lstsq(known[0], data.train.targets, rcond=None)[0]
    error = np.mean((known[1] @ weights - data.validation.targets) ** 2)
    assert error > 0.8 * data.chance["validation"]


def _of_last_step(split: Split) -> np.ndarray:
    number, marker = split.inputs[:, -1].T
    return np.stack([np.ones_like(number), number, marker, number * marker], axis=1)


@pytest.mark.slow
def test_a_network_without_recurrence_knows_the_answering_step_alone() -> None:
    """Read at the last step, the layer `none` answers the same whatever came before; pooled, it does not."""
    signature = TASKS["adding"].outline({"length": 12})
    assert signature is not None
    inputs = np.random.default_rng(0).random((2, 12, 2), np.float32)
    inputs[1, -1] = inputs[0, -1]
    for pooling, is_blind in (("last", True), ("mean", False)):
        settings = ModelSettings("none", 2, 8, 4, pooling=pooling)  # type: ignore[arg-type]
        answers = jax.jit(partial(_answered, settings, signature))(jnp.asarray(inputs))
        assert bool(jnp.allclose(answers[0], answers[1], atol=1e-6)) == is_blind


def _answered(settings: ModelSettings, signature: Any, inputs: Any) -> Any:
    return Model(settings, {}, signature, rngs=nnx.Rngs(0))(inputs, None)


@pytest.mark.slow
def test_training_without_recurrence_solves_adding_only_where_steps_are_pooled(folder: Path) -> None:
    """The layer `none` learns the task from the mean of its steps, and nothing of it from the last one."""
    options = {"length": 20, "examples": 5000, "held_out": 1000}
    data = TASKS["adding"].load(options, folder)
    training = TrainingSettings(2000, 500, 32, 1e-2, 1e-2, weight_decay=0.0)
    for pooling, is_solved in (("mean", True), ("last", False)):
        model = ModelSettings("none", 1, 16, 1, pooling=pooling)  # type: ignore[arg-type]
        settings = TrialSettings("adding", model, training, 0, options)
        engine = Engine(settings, data)
        engine.admit(0, settings)
        losses = [engine.advance({0: training.interval})[0].loss for _ in range(4)]
        assert (losses[-1] < 0.1 * data.trivial_loss["validation"]) == is_solved, losses
        assert is_solved or losses[-1] > 0.8 * data.trivial_loss["validation"], losses
