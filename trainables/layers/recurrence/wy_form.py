"""Steps of the delta rule in one chunk of matrix products: the WY form.

In a chunk from S_0, with D_ij = a_{j+1} ... a_i, every step is S <- a_i S + k_i u_i^T, and all u_i solve one
triangular system:

    u_i + b_i sum_{j<i} D_ij (k_i . k_j) u_j = b_i (v_i - a_1 ... a_i S_0^T k_i)

Source: Yang et al., Parallelizing linear transformers with the delta rule, 2024, section 3; Yang et al.,
Gated delta networks, 2024, section 3.3 (decays); Siems et al., DeltaProduct, 2025 (several steps a row).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
from jax import Array
from jax import numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from trainables.layers.recurrence.in_chunks import REMEMBERED

SMALLEST = 8
"""Side of the diagonal blocks of a triangular matrix that are inverted first."""


class Steps(NamedTuple):
    """The steps of one head.

    Attributes:
        queries: (R / every, K).
        keys: (R, K).
        values: (R, V).
        sizes: b, (R,).
        log_decays: log a, (R,); None if nothing decays.
    """

    queries: Array
    keys: Array
    values: Array
    sizes: Array
    log_decays: Array | None = None


def run_chunk(steps: Steps, state: Array, inverse: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Return the outputs of one chunk, (R / every, V), and the next state (K, V).

    Args:
        steps: All steps of the chunk.
        state: S before the first step, (K, V).
        inverse: A (R, R), strictly lower triangular -> the inverse of 1 + A.
    """
    return _run(steps, state, inverse)[0]


# Not left to the caller: JAX traces `_forward` when it differentiates, which may be after the call has ended.
@jax.default_matmul_precision("highest")
def _run(
    steps: Steps, state: Array, inverse: Callable[[Array], Array]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return the outputs, the next state, the inverse (R, R) and the updates u (R, V)."""
    queries, keys, values, sizes, _ = steps
    fading = _fading(steps)
    inverted = inverse(jnp.tril(sizes[:, None] * (keys @ keys.T) * fading.between, -1))
    updates = inverted @ (sizes[:, None] * (values - fading.kept[:, None] * (keys @ state)))
    answering = _answering(fading, len(queries))
    outputs = answering.kept[:, None] * (queries @ state)
    outputs += ((queries @ keys.T) * answering.between) @ updates
    new = fading.whole * state + (keys * fading.rest[:, None]).T @ updates
    return (outputs, new), (inverted, updates)


class _Fading(NamedTuple):
    """Products of the decays of a chunk.

    Attributes:
        between: D_ij from step j to step i >= j, zeros elsewhere, (R, R).
        kept: Product from the start to step i, (R,).
        rest: Product from step i to the end, (R,).
        whole: From the start to the end.
    """

    between: Array
    kept: Array
    rest: Array
    whole: Array


def _fading(steps: Steps) -> _Fading:
    count = len(steps.keys)
    earlier = jnp.tril(jnp.ones((count, count), bool))
    if steps.log_decays is None:
        return _Fading(earlier.astype(steps.keys.dtype), jnp.ones(count), jnp.ones(count), jnp.ones(()))
    # A masked sum, for kernels have no sum that runs backwards, which is the derivative of a running sum.
    along = jnp.sum(jnp.where(earlier, steps.log_decays, 0), axis=1)
    # Above the diagonal decays would be growth, which may overflow before it is masked.
    between = jnp.where(earlier, jnp.exp(jnp.where(earlier, along[:, None] - along, 0)), 0)
    whole = jnp.sum(steps.log_decays)
    return _Fading(between, jnp.exp(along), jnp.exp(whole - along), jnp.exp(whole))


def _answering(fading: _Fading, count: int) -> _Fading:
    """Return the rows of those steps that answer a query: the last of each group."""
    together = len(fading.kept) // count
    if together == 1:
        return fading
    last = slice(together - 1, None, together)
    return fading._replace(between=fading.between[last], kept=fading.kept[last])


@jax.custom_vjp
def run_chunk_by_hand(steps: Steps, state: Array) -> tuple[Array, Array]:
    """Return the results of `run_chunk`; the hand-written derivative has two thirds of the products."""
    return run_chunk(steps, state, in_blocks)


def _forward(steps: Steps, state: Array) -> tuple[tuple[Array, Array], tuple[Steps, Array, Array, Array]]:
    answers, solution = _run(steps, state, in_blocks)
    inverted, updates = (checkpoint_name(part, REMEMBERED) for part in solution)
    return answers, (steps, state, inverted, updates)


@jax.default_matmul_precision("highest")
def _backward(
    kept: tuple[Steps, Array, Array, Array], cotangents: tuple[Array, Array]
) -> tuple[Steps, Array]:
    steps, state, inverted, updates = kept
    of_outputs, of_new = cotangents
    queries, keys, values, sizes, _ = steps
    fading = _fading(steps)
    answering = _answering(fading, len(queries))
    ahead, among = queries @ keys.T, keys @ keys.T
    answered = keys @ state

    of_updates = (ahead * answering.between).T @ of_outputs + fading.rest[:, None] * (keys @ of_new)
    of_right = inverted.T @ of_updates
    of_values = sizes[:, None] * of_right
    of_system = -jnp.tril(of_right @ updates.T, -1)
    of_ahead, of_among = (of_outputs @ updates.T) * answering.between, of_system * fading.between
    of_read = answering.kept[:, None] * of_outputs
    of_answered = -fading.kept[:, None] * of_values
    scaled = sizes[:, None] * of_among
    at_the_end = fading.rest[:, None] * (updates @ of_new.T)
    missing = values - fading.kept[:, None] * answered

    of_steps = Steps(
        queries=of_read @ state.T + of_ahead @ keys,
        keys=of_answered @ state.T + (scaled + scaled.T) @ keys + of_ahead.T @ queries + at_the_end,
        values=of_values,
        sizes=jnp.sum(of_right * missing, axis=1) + jnp.sum(of_among * among, axis=1),
    )
    if steps.log_decays is not None:
        of_log_decays = _of_log_decays(
            of_ahead * ahead,
            scaled * among,
            jnp.sum(of_read * (queries @ state), axis=1),
            jnp.sum(of_answered * answered, axis=1),
            jnp.sum(at_the_end * keys, axis=1),
            fading.whole * jnp.sum(of_new * state),
        )
        of_steps = of_steps._replace(log_decays=of_log_decays)
    return of_steps, fading.whole * of_new + queries.T @ of_read + keys.T @ of_answered


def _of_log_decays(
    ahead: Array, among: Array, read: Array, answered: Array, at_the_end: Array, whole: Array
) -> Array:
    """Return the gradient by log a, (R,), summed over the products of decays that contain each step.

    Args:
        ahead: Gradients by the log decays between answering steps and all steps, (R / every, R).
        among: Gradients by the log decays between all steps, (R, R).
        read: Gradients by the log decays from the start to answering steps, (R / every,).
        answered: Gradients by the log decays from the start to each step, (R,).
        at_the_end: Gradients by the log decays from each step to the end, (R,).
        whole: Gradient by the log decay from the start to the end.
    """
    rows, together = len(among), len(among) // len(ahead)
    of_answering = jnp.zeros((len(ahead), together)).at[:, -1].set(jnp.sum(ahead, axis=1) + read)
    along = of_answering.reshape(rows) - jnp.sum(ahead, axis=0) - at_the_end
    along += jnp.sum(among, axis=1) - jnp.sum(among, axis=0) + answered
    later = jnp.triu(jnp.ones((rows, rows), bool))
    return jnp.sum(jnp.where(later, along, 0), axis=1) + jnp.sum(at_the_end) + whole


run_chunk_by_hand.defvjp(_forward, _backward)


def _with_rule(inverse: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return a function with the derivative of an inverse, which depends only on the inverse."""
    differentiable = jax.custom_vjp(inverse)

    def forward(lower: Array) -> tuple[Array, Array]:
        answer = inverse(lower)
        return answer, answer

    def backward(answer: Array, cotangent: Array) -> tuple[Array]:
        return (-(answer.T @ cotangent @ answer.T),)

    differentiable.defvjp(forward, backward)
    return differentiable


def in_blocks(lower: Array) -> Array:
    """Return (1 + A)^-1 for a strictly lower triangular A (n, n), from the inverses of its diagonal blocks.

    LAPACK's triangular solve is called once a matrix and takes 50 times as long.
    """
    size = len(lower)
    side = 1 << (size - 1).bit_length()
    if side <= SMALLEST:
        return at_once(jnp.pad(lower, (0, side - size)))[:size, :size]
    count = side // SMALLEST
    whole = jnp.pad(lower, (0, side - size))
    # Sums and products with masks: joining pieces is slow on a CPU.
    own = jnp.eye(count)[:, None, :, None]
    diagonal = jnp.sum(whole.reshape(count, SMALLEST, count, SMALLEST) * own, axis=2)
    inverses = jax.vmap(at_once)(diagonal)
    return _joined((inverses[:, :, None] * own).reshape(side, side), whole, SMALLEST)[:size, :size]


def at_once(lower: Array) -> Array:
    """Return the inverse of a small (n, n) matrix by block doubling from size 1; n is a power of two."""
    return _joined(jnp.eye(len(lower)), lower, 1)


def _joined(inverse: Array, lower: Array, block: int) -> Array:
    """Join the inverses of diagonal blocks to those of blocks twice as large, until one is left.

    The products stay as small as the answer, unlike the powers of A.
    """
    index = jnp.arange(len(lower))
    while block < len(lower):
        own = index // block
        below = lower * ((own[:, None] == own + 1) & (own[:, None] % 2 == 1))
        inverse = inverse - (below if block == 1 else inverse @ below @ inverse)
        block *= 2
    return inverse


AT_ONCE = _with_rule(at_once)
"""With the derivative of an inverse."""
