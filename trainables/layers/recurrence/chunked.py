"""The recurrence in chunks of time that run in parallel, in O(sqrt L) steps.

Each chunk is run from zero to find its last state, decay^S carries these from chunk to chunk, and each chunk
is run again from its incoming state. The inputs are read twice and nothing else is stored, so this algorithm
is faster where one step of the sequential algorithm is too small for its kernel launches.
"""

from __future__ import annotations

from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence import sequential
from trainables.layers.recurrence.planar import conjugate, doublings


def solve(decay: Array, inputs: Array, reverse: bool) -> Array:
    """Run x_t = decay * x_{t-1} + inputs_t from zero; shapes as in the sequential algorithm."""
    length = inputs.shape[-3]
    chunks = _split(inputs)
    incoming = _carry(decay, chunks, reverse)
    return _join(sequential.solve(_per_chunk(decay), chunks, reverse, incoming), length)


def adjoint(decay: Array, states: Array, cotangent: Array, reverse: bool) -> tuple[Array, Array]:
    """Return the gradients by decay and inputs; arguments as in the sequential algorithm."""
    length = states.shape[-3]
    chunks = _split(cotangent)
    incoming = _carry(conjugate(decay), chunks, not reverse)
    of_decay, gradients = sequential.adjoint(_per_chunk(decay), _split(states), chunks, reverse, incoming)
    return jnp.sum(of_decay, axis=-3), _join(gradients, length)


def _carry(decay: Array, chunks: Array, reverse: bool) -> Array:
    """Return the state that enters each chunk, (..., chunks, 2, N)."""
    size = chunks.shape[-3]
    last = sequential.final(_per_chunk(decay), chunks, reverse)
    over_a_chunk = doublings(decay, size.bit_length())[-1]
    leaving = sequential.solve(over_a_chunk, last, reverse)
    nothing = jnp.zeros_like(leaving[..., :1, :, :])
    parts = [leaving[..., 1:, :, :], nothing] if reverse else [nothing, leaving[..., :-1, :, :]]
    return jnp.concatenate(parts, axis=-3)


def _per_chunk(decay: Array) -> Array:
    return decay[..., None, :, :]


def _split(series: Array) -> Array:
    """Cut time into chunks of a power of two near sqrt(L), padded with zeros: (..., chunks, S, 2, N)."""
    length = series.shape[-3]
    size = 1 << ((length - 1).bit_length() // 2)
    missing = -length % size
    padding = [(0, 0)] * (series.ndim - 3) + [(0, missing), (0, 0), (0, 0)]
    whole = jnp.pad(series, padding) if missing else series
    return whole.reshape(*series.shape[:-3], -1, size, *series.shape[-2:])


def _join(chunks: Array, length: int) -> Array:
    return chunks.reshape(*chunks.shape[:-4], -1, *chunks.shape[-2:])[..., :length, :, :]
