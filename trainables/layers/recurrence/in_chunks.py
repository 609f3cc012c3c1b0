"""A function that is applied to chunks of rows one after the other, with little memory.

`lax.scan` over chunks needs the chunk axis outermost. Under `vmap` the batch axis is outermost, so XLA copies
what goes in, what comes out, and the gradients of both. Here every chunk is cut from its sequence and written
to its place.

The derivative of cutting out a chunk is, to JAX, a sum of sequences that are zero elsewhere, one a chunk.
As no two chunks share a row, the functions below write each gradient to its place instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax import Array, lax
from jax import numpy as jnp

REMEMBERED = "remembered"
"""Name (`checkpoint_name`) of further values that are kept of every chunk; others are computed again."""


def in_chunks(body: Callable[[Any, Any], tuple[Any, Any]], state: Any, rows: Any, size: int) -> Any:
    """Return the joined results of `body` for each chunk of rows; only states between chunks are kept.

    Args:
        body: (state, rows of a chunk) -> (next state, rows of answers); a row must not depend on later ones.
        state: State before the first row.
        rows: A tree of arrays (L, ...) of real numbers.
        size: Rows in a chunk; the last one is padded with zeros.
    """
    return _scanned(body, state, rows, size)[0]


def in_chunks_from(
    body: Callable[[Any, Any], tuple[Any, Any]], state: Any, rows: Any, size: int
) -> tuple[Any, Any]:
    """Return the result of `in_chunks`, and the state after the last row; the last chunk may be shorter."""
    length = len(jax.tree.leaves(rows)[0])
    whole = length - length % min(size, length)
    answers, state = _scanned(body, state, jax.tree.map(lambda series: series[:whole], rows), size)
    if whole == length:
        return answers, state
    state, last = body(state, jax.tree.map(lambda series: series[whole:], rows))
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), answers, last), state


def _scanned(
    body: Callable[[Any, Any], tuple[Any, Any]], state: Any, rows: Any, size: int
) -> tuple[Any, Any]:
    """Return the joined answers, and the state after the last chunk."""
    length = len(jax.tree.leaves(rows)[0])
    size = min(size, length)
    count, missing = -(-length // size), -length % size
    rows = jax.tree.map(lambda series: _extended(series, missing), rows)
    fixed = lax.stop_gradient(rows)
    first = jax.tree.map(lambda series: series[:size], fixed)
    like = jax.eval_shape(body, state, first)[1]
    answers = jax.tree.map(lambda part: jnp.zeros((count * len(part), *part.shape[1:]), part.dtype), like)

    @partial(
        jax.checkpoint, prevent_cse=False, policy=jax.checkpoint_policies.save_only_these_names(REMEMBERED)
    )
    def again(state: Any, rows: Any, index: Array) -> tuple[Any, Any, Any]:
        chunk, rows = _cut(fixed, rows, index, size)
        state, part = body(state, chunk)
        return state, rows, part

    def step(carry: tuple[Any, Any, Any], index: Array) -> tuple[tuple[Any, Any, Any], None]:
        state, rows, answers = carry
        state, rows, part = again(state, rows, index)
        return (state, rows, jax.tree.map(partial(_written, index), answers, part)), None

    (state, _, answers), _ = lax.scan(step, (state, rows, answers), jnp.arange(count))
    return jax.tree.map(lambda series: series[:length], answers), state


def _extended(series: Array, missing: int) -> Array:
    return jnp.pad(series, [(0, missing)] + [(0, 0)] * (series.ndim - 1)) if missing else series


def _at(index: Array, size: int, series: Array) -> Array:
    return lax.dynamic_slice_in_dim(series, index * size, size)


def _placed(index: Array, series: Array, part: Array) -> Array:
    return lax.dynamic_update_slice_in_dim(series, part, index * len(part), 0)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _cut(fixed: Any, rows: Any, index: Array, size: int) -> tuple[Any, Any]:
    """Return a chunk of `fixed`, and `rows`; both hold the same values, and the gradient goes to `rows`."""
    return jax.tree.map(partial(_at, index, size), fixed), rows


def _cut_forward(fixed: Any, rows: Any, index: Array, size: int) -> tuple[tuple[Any, Any], Array]:
    return _cut(fixed, rows, index, size), index


def _cut_backward(size: int, index: Array, cotangents: tuple[Any, Any]) -> tuple[None, Any, None]:
    of_chunk, of_rows = cotangents
    return None, jax.tree.map(partial(_placed, index), of_rows, of_chunk), None


_cut.defvjp(_cut_forward, _cut_backward)


@jax.custom_vjp
def _written(index: Array, answers: Array, part: Array) -> Array:
    """Return `answers` with a chunk written to its place, which held zeros."""
    return _placed(index, answers, part)


def _written_forward(index: Array, answers: Array, part: Array) -> tuple[Array, tuple[Array, Array]]:
    # An empty array tells how many rows there are.
    return _placed(index, answers, part), (index, jnp.zeros((len(part), 0)))


def _written_backward(kept: tuple[Array, Array], cotangent: Array) -> tuple[None, Array, Array]:
    index, empty = kept
    return None, cotangent, _at(index, len(empty), cotangent)


_written.defvjp(_written_forward, _written_backward)
