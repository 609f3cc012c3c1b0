"""A user's training loop: NumPy batches, one jitted step, and checkpoints as archives of arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from benchmarks.plain.rotrnn import Model, loss_of

STEPS, INTERVAL, BATCH = 200, 50, 16
Report = Callable[[int, dict[str, float], Any], None]


ADAM = optax.scale_by_adam()
SCHEDULE = optax.warmup_cosine_decay_schedule(0.0, 1.0, 20, STEPS)
RECURRENT = {"theta", "gamma_log", "M", "B"}


@partial(jax.jit, static_argnums=0)
def train_step(graph: Any, params: Any, rest: Any, moments: Any, step: Any, rates: Any, batch: Any) -> Any:
    """Take one step; learning rates are arguments, so that all trials of a process share one program."""

    def loss(params: Any) -> Any:
        model = nnx.merge(graph, nnx.State(params), nnx.State(rest))
        value, _ = loss_of(model, *batch)
        _, *states = nnx.split(model, nnx.Param, ...)
        return value, nnx.to_pure_dict(states[1])

    (value, rest), gradients = jax.value_and_grad(loss, has_aux=True)(params)
    updates, moments = ADAM.update(gradients, moments)

    def moved(path: Any, old: Any, update: Any) -> Any:
        recurrent = any(getattr(part, "key", None) in RECURRENT for part in path)
        decay = 0.0 if recurrent else 0.01
        return old - rates["recurrent" if recurrent else "other"] * SCHEDULE(step) * (update + decay * old)

    return jax.tree_util.tree_map_with_path(moved, params, updates), rest, moments, value


@partial(jax.jit, static_argnums=0)
def evaluate_step(graph: Any, params: Any, rest: Any, batch: Any) -> Any:
    """Return loss and accuracy of a batch."""
    model = nnx.merge(graph, nnx.State(params), nnx.State(rest))
    model.eval()
    return loss_of(model, *batch)


def train(params: dict[str, float], seed: int, data: Path, report: Report) -> None:
    """Train one trial and report after every interval."""
    arrays = np.load(data)
    graph, *parts = nnx.split(Model(params["gamma_min"], 0.999, rngs=nnx.Rngs(seed)), nnx.Param, ...)
    weights, rest = map(nnx.to_pure_dict, parts)
    moments = ADAM.init(weights)
    rates = {"other": params["learning_rate"], "recurrent": params["recurrent_learning_rate"]}
    random = np.random.default_rng(seed)
    train_set = [arrays[f"train_{name}"] for name in ("inputs", "lengths", "targets")]
    held_out = [arrays[f"validation_{name}"] for name in ("inputs", "lengths", "targets")]
    losses = []
    for step in range(1, STEPS + 1):
        rows = random.integers(0, len(train_set[2]), BATCH)
        batch = [array[rows] for array in train_set]
        weights, rest, moments, loss = train_step(graph, weights, rest, moments, step - 1, rates, batch)
        losses.append(loss)
        if step % INTERVAL:
            continue
        starts = range(0, len(held_out[2]), BATCH)
        scores = [
            evaluate_step(graph, weights, rest, [array[start : start + BATCH] for array in held_out])
            for start in starts
        ]
        val_loss, accuracy = np.mean(np.array(scores), axis=0)
        metrics = {
            "train_loss": float(np.mean(losses)),
            "val_loss": float(val_loss),
            "val_accuracy": float(accuracy),
        }
        report(step, metrics, jax.device_get((weights, moments)))
        losses = []


def save(folder: Path, state: Any) -> None:
    """Write a checkpoint."""
    np.savez(folder / "model.npz", *jax.tree.leaves(state))
