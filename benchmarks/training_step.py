"""A training step of a small RotRNN model with our recurrence against the form that the paper prints.

    python -m benchmarks.training_step [--processes 5] [--rounds 30]

2 layers, D 32, N 64, H 8, L 256, batch 16, 100 tokens, 2 classes: forward pass, gradient and Adam. All but
the layer is the same in both. Once on one core, which is a trial's share where a sweep has as many trials as
cores, and once in a process that has every core to itself.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import Any

import jax
import optax
from flax import nnx
from jax import numpy as jnp

from benchmarks.printed import PrintedRotRNN
from benchmarks.timing import circumstances, in_processes, in_turns, milliseconds, ratios, table
from trainables.layers.rotrnn import RotRNN
from trainables.model import Model, Training
from trainables.optim import ADAM
from trainables.tasks.base import Signature
from trainables.trial import ModelSettings

D, N, H, BATCH = 32, 64, 8, 16
FORMS = {"ours": RotRNN, "printed": PrintedRotRNN}
SETTINGS = ModelSettings("rotrnn", 2, D, N, options={"heads": H})


def training_step(form: str, length: int) -> Callable[[], Any]:
    """Return what takes one step; its weights stay where they are."""
    signature = Signature("class", 2, 100, 1, length)
    model = Model(SETTINGS, {}, signature, rngs=nnx.Rngs(0))
    for block in model.blocks:
        block.layer = FORMS[form](D, N, heads=H, rngs=nnx.Rngs(1))
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    params, rest = nnx.to_pure_dict(params), nnx.to_pure_dict(rest)
    tokens = jax.random.randint(jax.random.key(0), (BATCH, length), 0, 100)
    classes, lengths = tokens[:, 0] % 2, jnp.full(BATCH, length)
    training = Training(jnp.float32(0.1), jnp.zeros(2, jnp.uint32), jnp.bool(False))

    def loss(params: Any, rest: Any, tokens: jax.Array) -> jax.Array:
        logits, _ = nnx.merge(graph, nnx.State(params), nnx.State(rest))(tokens, lengths, training)
        return optax.softmax_cross_entropy_with_integer_labels(logits, classes).mean()

    @jax.jit
    def step(params: Any, rest: Any, moments: Any, tokens: jax.Array) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, rest, tokens)
        directions, moments = ADAM.update(gradients, moments)
        return value, jax.tree.map(lambda p, d: p - 1e-3 * d, params, directions), moments

    moments = ADAM.init(params)
    return lambda: step(params, rest, moments, tokens)


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--one-core", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if asked.child:
        steps = {form: training_step(form, asked.length) for form in FORMS}
        print(json.dumps(in_turns(steps, asked.rounds)))
        return
    sizes = [f"--{name}={getattr(asked, name)}" for name in ("length", "rounds")]
    rows = []
    for cores, option in (("one core", ["--one-core"]), ("every core", [])):
        runs = in_processes("benchmarks.training_step", asked.processes, *sizes, *option)
        times = [milliseconds(runs, form) for form in ("printed", "ours")]
        rows.append([cores, *times, ratios(runs, "printed", "ours")])
    print(table(["training step", "printed form, ms", "ours, ms", "printed / ours: median (range)"], rows))
    print(f"\nMedians over {asked.processes} processes. {circumstances()}")


if __name__ == "__main__":
    main()
