"""The recurrence in chunks of time that run side by side, in O(sqrt L) steps.

Every chunk is run from zero for its last state, the last states are carried from chunk to chunk by
decay^S, and every chunk is run again from what comes in. The inputs are read twice and nothing is kept, so
it wins where a step of the sequential algorithm is too small to be worth its kernels.
"""

from __future__ import annotations

from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence import sequential
from trainables.layers.recurrence.planar import conjugate
from trainables.layers.recurrence.powers import doublings


def solve(decay: Array, inputs: Array, reverse: bool) -> Array:
    """Run x_t = decay * x_{t-1} + inputs_t from zero; shapes as in the sequential algorithm."""
    length = inputs.shape[-3]
    chunks = _split(inputs)
    incoming = _carry(decay, chunks, reverse)
    return _join(sequential.solve(_aside(decay), chunks, reverse, incoming), length)


def adjoint(decay: Array, states: Array, cotangent: Array, reverse: bool) -> tuple[Array, Array]:
    """Return the gradients by decay and inputs; arguments as in the sequential algorithm."""
    length = states.shape[-3]
    chunks = _split(cotangent)
    incoming = _carry(conjugate(decay), chunks, not reverse)
    of_decay, gradients = sequential.adjoint(_aside(decay), _split(states), chunks, reverse, incoming)
    return jnp.sum(of_decay, axis=-3), _join(gradients, length)


def _carry(decay: Array, chunks: Array, reverse: bool) -> Array:
    """Return the state that enters each chunk, (..., chunks, 2, N)."""
    size = chunks.shape[-3]
    last = sequential.final(_aside(decay), chunks, reverse)
    over_a_chunk = doublings(decay, size.bit_length())[-1]
    leaving = sequential.solve(over_a_chunk, last, reverse)
    nothing = jnp.zeros_like(leaving[..., :1, :, :])
    parts = [leaving[..., 1:, :, :], nothing] if reverse else [nothing, leaving[..., :-1, :, :]]
    return jnp.concatenate(parts, axis=-3)


def _aside(decay: Array) -> Array:
    return decay[..., None, :, :]


def _split(series: Array) -> Array:
    """Cut time in chunks of a power of two near sqrt(L), zeros after the end: (..., chunks, S, 2, N)."""
    length = series.shape[-3]
    size = 1 << ((length - 1).bit_length() // 2)
    missing = -length % size
    padding = [(0, 0)] * (series.ndim - 3) + [(0, missing), (0, 0), (0, 0)]
    whole = jnp.pad(series, padding) if missing else series
    return whole.reshape(*series.shape[:-3], -1, size, *series.shape[-2:])


def _join(chunks: Array, length: int) -> Array:
    return chunks.reshape(*chunks.shape[:-4], -1, *chunks.shape[-2:])[..., :length, :, :]
