"""Outputs of diagonal systems by blocks of steps, whose states inside a block are never formed.

A block of S steps is three matrix products: of its inputs with the response to each within the block, of the
state before it with what each step reads of that, and of its inputs with what each leaves in the next state.
Only one state a block is kept. For G inputs, N states and W outputs this takes (S G + 2 N) W + 2 N G
multiplications a step and moves S times fewer numbers than all states, so it pays off where few inputs drive
many states.

Source: Dao and Gu, Transformers are SSMs, 2024, section 6, with the same transition at every step.
"""

from __future__ import annotations

import jax
from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence.invariant import recurrence
from trainables.layers.recurrence.planar import conjugate, table, times

STEPS = 32
"""Steps of a block; docs/benchmarks/recurrence.md compares others."""


def pays_off(inputs: int, states: int, outputs: int) -> bool:
    """Tell whether blocks were faster than states on a CPU, for G inputs, N states and W outputs."""
    return STEPS * inputs * outputs <= 4 * states * (inputs + outputs)


def outputs_by_blocks(decay: Array, out: Array, drives: Array, inputs: Array) -> Array:
    """Return Re(C x_t), (L, W), where x_t = decay * x_{t-1} + inputs_t @ drives from zero.

    Args:
        decay: planes (2, N).
        out: columns of C, (2 N, W), the imaginary ones negated.
        drives: what each state takes of each input, real, (G, N).
        inputs: (L, G).
    """
    length, width = len(inputs), out.shape[1]
    powers = table(decay, STEPS + 1)
    reads = times(conjugate(powers)[:, None], out.T.reshape(width, 2, -1))
    after = reads[1:].reshape(STEPS * width, -1).T
    leaves = (powers[STEPS - 1 :: -1, None] * drives[:, None]).reshape(-1, decay.size)
    with jax.default_matmul_precision("highest"):
        within = _from_step_to_step(reads[:STEPS, :, 0] @ drives.T)
        blocks = jnp.pad(inputs, ((0, -length % STEPS), (0, 0))).reshape(-1, len(within))
        states = recurrence(powers[STEPS], (blocks @ leaves).reshape(-1, *decay.shape))
        before = jnp.concatenate([jnp.zeros_like(states[:1]), states[:-1]]).reshape(-1, decay.size)
        outputs = blocks @ within + before @ after
    return outputs.reshape(-1, width)[:length]


def _from_step_to_step(responses: Array) -> Array:
    """Return what step t answers to step s <= t, (S G, S W), for responses (S, W, G) by t - s."""
    steps = jnp.arange(STEPS)
    lag = steps - steps[:, None]
    apart = jnp.where(lag[..., None, None] >= 0, responses[lag], 0)
    return apart.transpose(0, 3, 1, 2).reshape(STEPS * responses.shape[2], -1)
