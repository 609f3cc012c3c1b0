"""The varying recurrence as GPU kernels: in chunks of time, as `pallas` does it for a constant decay.

Three kernels have a thread for each channel of each chunk: the first finds the product of a chunk's decays
and its last state from zero, the second carries states from chunk to chunk, and the third runs every chunk
again from its incoming state. Decays and inputs are read twice and the states are written once. The reverse
pass is the same with a recurrence that runs backwards, h_t = conj(a_t) g_t with g_t = cotangent_t + h_{t+1};
its third kernel writes the gradients by the inputs, g_t, and by the decays, conj(x_{t-1}) g_t.

Batches and slots are further axes of the grid, which `vmap` adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

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
    conjugate,
    existing,
    fold,
    launch,
    product,
    read,
    write,
    zero,
)

Affine = tuple[Number, Number]
"""A map x -> a * x + b, as (a, b)."""


@dataclass(frozen=True)
class PlaneTiles:
    """Tiling of arrays: a program works on one chunk of time and one block of channels.

    Attributes:
        length: L.
        planes: 1 for real numbers, 2 for complex ones.
        channels: N.
        size: Steps per chunk, a power of two near sqrt(L).
        block: Channels per program, a power of two.
    """

    length: int
    planes: int
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

    def grid(self, chunks: int) -> tuple[int, int]:
        """Return the number of programs, by chunk and block."""
        return chunks, pl.cdiv(self.channels, self.block)

    def state(self) -> pl.BlockSpec:
        """Return a program's part of (chunks, planes, N): that of its chunk."""
        return self.steps(None)

    def first(self) -> pl.BlockSpec:
        """Return a program's part of (planes, N)."""
        return pl.BlockSpec((self.planes, self.block), lambda _, block: (0, block))

    def steps(self, count: int | None) -> pl.BlockSpec:
        """Return a program's part of (any, planes, N), with `count` steps a chunk."""
        return pl.BlockSpec((count, self.planes, self.block), lambda chunk, block: (chunk, 0, block))


def solve(decays: Array, inputs: Array, initial: Array, planes: bool) -> Array:
    """Run x_t = decays_t * x_{t-1} + inputs_t; shapes as in `varying_recurrence`."""
    a, b, start = _series(decays, planes), _series(inputs, planes), _series(initial[None], planes)[0]
    tiles = _tiles(b)
    given = [(tiles.steps(tiles.size), a), (tiles.steps(tiles.size), b)]
    given.append((tiles.state(), _incoming(tiles, False, given, start)))
    (states,) = launch(partial(_solve, tiles), tiles.grid(tiles.chunks), given, given[1:2], tiles.warps)
    return states.reshape(inputs.shape)


def adjoint(
    decays: Array, states: Array, initial: Array, cotangent: Array, planes: bool
) -> tuple[Array, Array, Array]:
    """Return the gradients by decays, inputs and the initial state; shapes as in `varying_recurrence`."""
    a, x, c = (_series(array, planes) for array in (decays, states, cotangent))
    start = _series(initial[None], planes)
    tiles = _tiles(x)
    given = [(tiles.steps(tiles.size), a), (tiles.steps(tiles.size), c)]
    incoming = _incoming(tiles, True, given, jnp.zeros_like(start[0]))
    # The state before a chunk is the last one of the chunk before, where a program cannot look.
    before = jnp.concatenate([start, x[tiles.size - 1 : -1 : tiles.size]])
    more = [(tiles.state(), incoming), (tiles.steps(tiles.size), x), (tiles.state(), before)]
    shapes = [*given, (tiles.state(), before)]
    kernel = partial(_adjoint, tiles)
    gradients = launch(kernel, tiles.grid(tiles.chunks), given + more, shapes, tiles.warps)
    of_decays, of_inputs, leaving = gradients
    return of_decays.reshape(decays.shape), of_inputs.reshape(states.shape), leaving[0].reshape(initial.shape)


def _series(array: Array, planes: bool) -> Array:
    """Return the array with its channels in one axis, (L, planes, N)."""
    return array if planes else array.reshape(len(array), 1, -1)


def _tiles(series: Array) -> PlaneTiles:
    length, planes, channels = series.shape
    return PlaneTiles(length, planes, channels, chunk_size(length), channel_block(channels))


def _incoming(
    tiles: PlaneTiles, reverse: bool, given: Sequence[tuple[pl.BlockSpec, Array]], start: Array
) -> Array:
    """Return the state that enters each chunk, (chunks, planes, N), from a state before all of them."""
    like = jax.ShapeDtypeStruct((tiles.chunks, tiles.planes, tiles.channels), start.dtype)
    shapes = [(tiles.state(), like), (tiles.state(), like)]
    decays, last = launch(
        partial(_summarise, tiles, reverse), tiles.grid(tiles.chunks), given, shapes, tiles.warps
    )
    whole = tiles.steps(tiles.chunks)
    carried = [(whole, decays), (whole, last), (tiles.first(), start)]
    (incoming,) = launch(
        partial(_carry, tiles, reverse), tiles.grid(1), carried, [(whole, like)], tiles.warps
    )
    return incoming


def _summarise(
    tiles: PlaneTiles, reverse: bool, decays: Reference, series: Reference, whole: Reference, last: Reference
) -> None:
    """Find the product of a chunk's decays, and its last state from zero."""
    span = _chunk(tiles, reverse)

    def step(
        carry: tuple[Number, Number], _: Array, __: Array, a: Number, b: Number
    ) -> tuple[Number, Number]:
        if reverse:
            a = conjugate(a)
            b = product(a, b)
        return product(a, carry[0]), advance(a, carry[1], b)

    nothing = tuple(jnp.zeros((1, tiles.block), whole.dtype) for _ in range(tiles.planes))
    one = (nothing[0] + 1, *nothing[1:])
    of_chunk, state = fold(span, step, (one, nothing), decays, series)
    write(whole, of_chunk, span.channels)
    write(last, state, span.channels)


def _carry(
    tiles: PlaneTiles,
    reverse: bool,
    decays: Reference,
    last: Reference,
    start: Reference,
    incoming: Reference,
) -> None:
    """Carry the state from chunk to chunk, and write the state that enters each."""
    size = pl.cdiv(tiles.chunks, kernels.AHEAD) * kernels.AHEAD
    span = Span(0, size, tiles.chunks, _channels(tiles), reverse)

    def step(x: Number, t: Array, mask: Array, a: Number, b: Number) -> Number:
        write(incoming, x, mask, t)
        return advance(a, x, b)

    fold(span, step, read(start, span.channels), decays, last)


def _solve(
    tiles: PlaneTiles, decays: Reference, inputs: Reference, incoming: Reference, states: Reference
) -> None:
    """Find every state of a chunk."""
    span = _chunk(tiles, False)

    def step(x: Number, t: Array, mask: Array, a: Number, b: Number) -> Number:
        x = advance(a, x, b)
        write(states, x, mask, t)
        return x

    fold(span, step, read(incoming, span.channels), decays, inputs)


def _adjoint(
    tiles: PlaneTiles,
    decays: Reference,
    cotangent: Reference,
    incoming: Reference,
    states: Reference,
    before: Reference,
    of_decays: Reference,
    of_inputs: Reference,
    leaving: Reference,
) -> None:
    """Find the gradients by the decays and inputs of a chunk, and h before its first step."""
    span = _chunk(tiles, True)

    def step(
        carry: tuple[Number, Number], t: Array, mask: Array, a: Number, c: Number, x: Number
    ) -> tuple[Number, Number]:
        later, h = carry
        # The gradient by the next step's decay needs this step's state, which is read only now.
        exists = mask & (t + 1 < span.size) & (span.first + t + 1 < span.end)
        write(of_decays, product(conjugate(x), later), exists, t + 1)
        g = tuple(one + other for one, other in zip(c, h, strict=True))
        write(of_inputs, g, mask, t)
        return g, product(conjugate(a), g)

    arriving = read(incoming, span.channels)
    g, h = fold(span, step, (zero(arriving), arriving), decays, cotangent, states)
    write(of_decays, product(conjugate(read(before, span.channels)), g), span.channels, jnp.int32(0))
    write(leaving, h, span.channels)


def _chunk(tiles: PlaneTiles, reverse: bool) -> Span:
    return Span(pl.program_id(0) * tiles.size, tiles.size, tiles.length, _channels(tiles), reverse)


def _channels(tiles: PlaneTiles) -> Array:
    return existing(1, tiles.block, tiles.channels)
