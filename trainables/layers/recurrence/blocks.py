"""Outputs of diagonal systems by blocks of steps, whose states inside a block are never formed.

A block of S steps is three matrix products: its inputs times their responses within the block, the incoming
state times its response at each step, and the inputs times their contributions to the next state. Only one
state a block is kept. For G inputs, N states and W outputs this takes (S G + 2 N) W + 2 N G multiplications a
step and moves S times fewer numbers than all states, so it pays off where few inputs drive many states.

Source: Dao and Gu, Transformers are SSMs, 2024, section 6, with the same transition at every step.
"""

from __future__ import annotations

import jax
from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence.invariant import recurrence
from trainables.layers.recurrence.padding import until
from trainables.layers.recurrence.planar import conjugate, table, times

SIZES = (8, 16, 32, 64)
"""Numbers of steps that a block may have."""

MOVED = 150
"""Multiplications that take a CPU as long as moving one number. Source: docs/benchmarks/recurrence.md."""


def block_size(inputs: int, states: int, outputs: int) -> int:
    """Return the steps of a block that are fastest on a CPU, for G inputs, N states and W outputs."""
    return min(SIZES, key=lambda size: _cost(size, inputs, states, outputs))


def pays_off(inputs: int, states: int, outputs: int) -> bool:
    """Return True if blocks are faster than states on a CPU, for G inputs, N states and W outputs."""
    by_states = 2 * states * (outputs + MOVED)
    return _cost(block_size(inputs, states, outputs), inputs, states, outputs) < by_states


def outputs_by_blocks(
    decay: Array, out: Array, drives: Array, inputs: Array, last: Array | None = None
) -> Array:
    """Return Re(C x_t), (L, W), where x_t = decay * x_{t-1} + inputs_t @ drives from zero.

    Args:
        decay: Planes (2, N).
        out: Columns of C, (2 N, W), the imaginary ones negated.
        drives: Weight of each input in each state, planes (G, 2, N).
        inputs: (L, G).
        last: True length of the sequence, for decays that may exceed 1 in modulus; inputs in the padding must
            be 0, and so are outputs.
    """
    (length, count), width = inputs.shape, out.shape[1]
    size = block_size(count, decay.shape[1], width)
    powers = table(decay, size + 1)
    reads = times(conjugate(powers)[:, None], out.T.reshape(width, 2, -1)).reshape(size + 1, width, -1)
    after = reads[1:].reshape(size * width, -1).T
    leaves = times(powers[size - 1 :: -1, None], drives).reshape(-1, decay.size)
    with jax.default_matmul_precision("highest"):
        within = _from_step_to_step(reads[:size] @ drives.reshape(count, -1).T)
        blocks = jnp.pad(inputs, ((0, -length % size), (0, 0))).reshape(-1, len(within))
        left = (blocks @ leaves).reshape(-1, *decay.shape)
        states = recurrence(powers[size], left, length=None if last is None else -(-last // size))
        before = jnp.concatenate([jnp.zeros_like(states[:1]), states[:-1]]).reshape(-1, decay.size)
        outputs = blocks @ within + before @ after
    return until(last, outputs.reshape(-1, width)[:length])


def _cost(size: int, inputs: int, states: int, outputs: int) -> float:
    """Return the time of a step in multiplications."""
    return (size * inputs + 2 * states) * outputs + 2 * states * inputs + MOVED * 2 * states / size


def _from_step_to_step(responses: Array) -> Array:
    """Return the responses of step t to step s <= t, (S G, S W), from responses (S, W, G) by t - s."""
    size, _, count = responses.shape
    steps = jnp.arange(size)
    lag = steps - steps[:, None]
    apart = jnp.where(lag[..., None, None] >= 0, responses[lag], 0)
    return apart.transpose(0, 3, 1, 2).reshape(size * count, -1)
