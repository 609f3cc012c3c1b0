"""A network read one step at a time: the RNN form, its state carried from step to step.

What `trainables.model.Model` makes of a whole sequence, for networks that only look back and read one
sequence: normalisation has its running statistics, the mean over time is a sum and a count.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax import Array
from jax import numpy as jnp

from trainables.errors import Refusal
from trainables.layers.layer import only_looks_back
from trainables.model import Model


class Carried(NamedTuple):
    """All that a network remembers of the steps so far.

    Attributes:
        layers: the state of each block's layer.
        total: (D,), sum of the last block's outputs.
        steps: number of steps, a float scalar.
    """

    layers: tuple[Any, ...]
    total: Array
    steps: Array


def initial_state(model: Model) -> Carried:
    """Return what is carried before the first step.

    Raises:
        Refusal: if the network reads the sequence backwards too, or compares two sequences.
    """
    if model.signature.towers != 1:
        must, remedy = "the network must read one sequence", "Give both documents whole, to `predict`."
        raise Refusal("streaming", must, f"{model.signature.towers} of them", remedy)
    for block in model.blocks:
        only_looks_back(block.layer)
    layers = tuple(block.layer.initial_state() for block in model.blocks)
    return Carried(layers, jnp.zeros(model.encoder.bias.shape), jnp.float32(0))


def step(model: Model, carried: Carried, now: Array) -> tuple[Carried, Array]:
    """Advance by one step.

    Args:
        model: the network.
        carried: what `initial_state` or the step before returned.
        now: the step's token, a scalar, or its numbers (F,), as stored.

    Returns:
        What is carried on, and logits (C,): of the sequence so far, or of this step for an output by step.
    """
    x = model.encoder(now[None, None])
    states = []
    for block, state in zip(model.blocks, carried.layers, strict=True):
        normal = block.norm(x, None, jnp.float32(1), training=False)
        state, out = block.layer.step(state, normal[0, 0])
        x = x + block.mixed(jax.nn.gelu(out))
        states.append(state)
    moved = Carried(tuple(states), carried.total + x[0, 0], carried.steps + 1)
    pooled = x[0, 0] if model.signature.output == "steps" else moved.total / moved.steps
    return moved, model.head(pooled)
