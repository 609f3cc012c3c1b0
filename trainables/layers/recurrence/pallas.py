"""The recurrence as GPU kernels: in chunks of time, as `chunked`, with the state in registers.

A thread for each channel of each sequence would leave a GPU idle: a batch of 32 with 128 channels is 4,096
threads, 2 % of an H200. Three kernels therefore work on chunks, with a thread for each channel: the first
finds the last state of every chunk from zero, the second carries these from chunk to chunk, and the third
runs every chunk again from its incoming state. The inputs are read twice, the states are written once, and
no other array is as long as the sequence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from jax import Array
from jax import numpy as jnp
from jax.experimental import pallas as pl

from trainables.layers.recurrence import kernels
from trainables.layers.recurrence.kernels import (
    Number,
    Reference,
    Span,
    advance,
    channel_block,
    chunk_size,
    existing,
    fold,
    launch,
    read,
    write,
    zero,
)
from trainables.layers.recurrence.planar import conjugate, square


@dataclass(frozen=True)
class Tiles:
    """How arrays are cut: a program works on one row (sequence), one chunk of time and one block of channels.

    Attributes:
        rows: Sequences in the batch.
        length: L.
        channels: N.
        size: Steps a chunk, a power of two near sqrt(L).
        block: Channels a program, a power of two.
    """

    rows: int
    length: int
    channels: int
    size: int
    block: int

    @property
    def warps(self) -> int:
        """Return the groups of 32 threads in a program, which has a thread for each channel."""
        return max(1, self.block // 32)

    @property
    def chunks(self) -> int:
        """Return the number of chunks that cover the sequence."""
        return pl.cdiv(self.length, self.size)

    def grid(self, chunks: int) -> tuple[int, int, int]:
        """Return the number of programs, by row, chunk and block."""
        return self.rows, chunks, pl.cdiv(self.channels, self.block)

    def decay(self) -> pl.BlockSpec:
        """Return a program's part of (rows, 2, N)."""
        return pl.BlockSpec((None, 2, self.block), lambda row, _, block: (row, 0, block))

    def state(self) -> pl.BlockSpec:
        """Return the block specification of (rows, chunks, 2, N): a program sees the entry of its chunk."""
        return self.steps(None)

    def steps(self, count: int | None) -> pl.BlockSpec:
        """Return a program's part of (rows, any, 2, N), with `count` steps a chunk."""
        return pl.BlockSpec((None, count, 2, self.block), lambda row, chunk, block: (row, chunk, 0, block))


def solve(decay: Array, inputs: Array, reverse: bool) -> Array:
    """Run x_t = decay * x_{t-1} + inputs_t from zero; shapes as in the sequential algorithm."""
    tiles, (decays, series) = _tiles(inputs), _rows(decay, inputs)
    given = [(tiles.decay(), decays), (tiles.steps(tiles.size), series)]
    given.append((tiles.state(), _incoming(tiles, reverse, given)))
    kernel = partial(_solve, tiles, reverse)
    (states,) = launch(kernel, tiles.grid(tiles.chunks), given, given[1:2], tiles.warps)
    return states.reshape(inputs.shape)


def adjoint(decay: Array, states: Array, cotangent: Array, reverse: bool) -> tuple[Array, Array]:
    """Return the gradients by decay and inputs; arguments as in the sequential algorithm."""
    tiles, (decays, series) = _tiles(cotangent), _rows(conjugate(decay), cotangent)
    given = [(tiles.decay(), decays), (tiles.steps(tiles.size), series)]
    given.append((tiles.state(), _incoming(tiles, not reverse, given)))
    also = [(tiles.steps(tiles.size), states.reshape(series.shape))]
    kernel = partial(_adjoint, tiles, not reverse)
    gradients, parts = launch(kernel, tiles.grid(tiles.chunks), given + also, given[1:], tiles.warps)
    of_decay = jnp.sum(parts, axis=1).reshape(*cotangent.shape[:-3], *cotangent.shape[-2:])
    return of_decay, gradients.reshape(cotangent.shape)


def _incoming(tiles: Tiles, reverse: bool, given: Sequence[tuple[pl.BlockSpec, Array]]) -> Array:
    """Return the state that enters each chunk, (rows, chunks, 2, N), given decays and series."""
    decays = given[0][1]
    like = jax.ShapeDtypeStruct((tiles.rows, tiles.chunks, 2, tiles.channels), decays.dtype)
    kernel = partial(_final, tiles, reverse)
    (last,) = launch(kernel, tiles.grid(tiles.chunks), given, [(tiles.state(), like)], tiles.warps)
    whole = tiles.steps(tiles.chunks)
    kernel = partial(_carry, tiles, reverse)
    (incoming,) = launch(kernel, tiles.grid(1), [given[0], (whole, last)], [(whole, like)], tiles.warps)
    return incoming


def _tiles(series: Array) -> Tiles:
    *leading, length, _, channels = series.shape
    return Tiles(math.prod(leading), length, channels, chunk_size(length), channel_block(channels))


def _rows(decay: Array, series: Array) -> tuple[Array, Array]:
    """Join all leading axes: decays (rows, 2, N), and the series (rows, L, 2, N)."""
    leading, planes = series.shape[:-3], series.shape[-2:]
    decays = jnp.broadcast_to(decay, (*leading, *planes))
    return decays.reshape(-1, *planes), series.reshape(-1, *series.shape[-3:])


def _final(tiles: Tiles, reverse: bool, decay: Reference, inputs: Reference, last: Reference) -> None:
    """Find the last state of a chunk from zero."""
    span = _chunk(tiles, reverse)
    a = read(decay, span.channels)
    write(last, fold(span, lambda x, _, __, b: advance(a, x, b), zero(a), inputs), span.channels)


def _carry(tiles: Tiles, reverse: bool, decay: Reference, last: Reference, incoming: Reference) -> None:
    """Carry the state from chunk to chunk by decay^size, and write the state that enters each."""
    size = pl.cdiv(tiles.chunks, kernels.AHEAD) * kernels.AHEAD
    span = Span(0, size, tiles.chunks, _channels(tiles), reverse)
    a = _power(read(decay, span.channels), tiles.size)

    def step(x: Number, t: Array, mask: Array, b: Number) -> Number:
        write(incoming, x, mask, t)
        return advance(a, x, b)

    fold(span, step, zero(a), last)


def _solve(
    tiles: Tiles, reverse: bool, decay: Reference, inputs: Reference, incoming: Reference, states: Reference
) -> None:
    """Find every state of a chunk."""
    span = _chunk(tiles, reverse)
    a = read(decay, span.channels)

    def step(x: Number, t: Array, mask: Array, b: Number) -> Number:
        x = advance(a, x, b)
        write(states, x, mask, t)
        return x

    fold(span, step, read(incoming, span.channels), inputs)


def _adjoint(
    tiles: Tiles,
    reverse: bool,
    decay: Reference,
    cotangent: Reference,
    incoming: Reference,
    states: Reference,
    gradients: Reference,
    of_decay: Reference,
) -> None:
    """Find the gradients by a chunk's inputs, and its part of the decay's, sum_t conj(x_t) * g_{t+1}."""
    span = _chunk(tiles, reverse)
    a = read(decay, span.channels)

    def step(carry: tuple[Number, Number], t: Array, mask: Array, b: Number, x: Number) -> Any:
        g, total = carry
        total = advance((x[0], -x[1]), g, total)
        g = advance(a, g, b)
        write(gradients, g, mask, t)
        return g, total

    start = read(incoming, span.channels), zero(a)
    write(of_decay, fold(span, step, start, cotangent, states)[1], span.channels)


def _chunk(tiles: Tiles, reverse: bool) -> Span:
    return Span(pl.program_id(1) * tiles.size, tiles.size, tiles.length, _channels(tiles), reverse)


def _channels(tiles: Tiles) -> Array:
    return existing(2, tiles.block, tiles.channels)


def _power(a: Number, size: int) -> Number:
    """Return a^size for a power of two."""
    start = tuple((part, jnp.zeros_like(part)) for part in a)
    re, im = jax.lax.fori_loop(0, size.bit_length() - 1, lambda _, power: square(*power), start)
    return re[0], im[0]
