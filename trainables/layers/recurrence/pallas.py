"""The recurrence as GPU kernels: in chunks of time, as `chunked`, with the state in registers.

A thread for each channel of each sequence would leave a GPU idle: a batch of 32 with 128 channels is 4,096
threads, 2 % of an H200. Three kernels therefore work on chunks, with a thread for each channel: the first
finds the last state of every chunk from zero, the second carries these from chunk to chunk, and the third
runs every chunk again from its incoming state. The inputs are read twice, the states are written once, and
no other array is as long as the sequence.

Triton compiles the kernels for arrays on a GPU; elsewhere they are interpreted, which is slow and for tests.
Pallas's Triton backend is deprecated since JAX 0.11 and still part of 0.12.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax
from jax import Array
from jax import numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from trainables.layers.recurrence.planar import conjugate, square

AHEAD = 8
"""Steps whose numbers are loaded before the first of them is used; divides the size of a chunk."""

Number: TypeAlias = tuple[Array, Array]
"""Real and imaginary parts of a block of channels, (1, block) each."""

Reference: TypeAlias = Any
"""A program's part of an array in memory; Pallas has no public type for it."""

Shape: TypeAlias = Array | jax.ShapeDtypeStruct


@dataclass(frozen=True)
class Tiles:
    """How arrays are cut: a program works on one row (sequence), one chunk of time and one block of channels.

    Attributes:
        rows: sequences in the batch.
        length: L.
        channels: N.
        size: steps a chunk, a power of two near sqrt(L).
        block: channels a program, a power of two.
    """

    rows: int
    length: int
    channels: int
    size: int
    block: int

    @property
    def chunks(self) -> int:
        """Return how many chunks cover the sequence."""
        return pl.cdiv(self.length, self.size)

    def grid(self, chunks: int) -> tuple[int, int, int]:
        """Return the number of programs, by row, chunk and block."""
        return self.rows, chunks, pl.cdiv(self.channels, self.block)

    def decay(self) -> pl.BlockSpec:
        """Return a program's part of (rows, 2, N)."""
        return pl.BlockSpec((None, 2, self.block), lambda row, _, block: (row, 0, block))

    def state(self) -> pl.BlockSpec:
        """Return a program's part of (rows, chunks, 2, N): that of its chunk."""
        return self.steps(None)

    def steps(self, count: int | None) -> pl.BlockSpec:
        """Return a program's part of (rows, any, 2, N), with `count` steps a chunk."""
        return pl.BlockSpec((None, count, 2, self.block), lambda row, chunk, block: (row, chunk, 0, block))


@dataclass(frozen=True)
class Span:
    """The steps and channels that a program loops over.

    Attributes:
        first: index of its first step.
        size: number of steps, a multiple of `AHEAD`.
        end: index behind the last step of the sequence.
        channels: mask of the channels of its block that exist, (1, block).
        reverse: whether time runs from the last step down.
    """

    first: Array | int
    size: int
    end: int
    channels: Array
    reverse: bool


def solve(decay: Array, inputs: Array, reverse: bool) -> Array:
    """Run x_t = decay * x_{t-1} + inputs_t from zero; shapes as in the sequential algorithm."""
    tiles, (decays, series) = _tiles(inputs), _rows(decay, inputs)
    given = [(tiles.decay(), decays), (tiles.steps(tiles.size), series)]
    given.append((tiles.state(), _incoming(tiles, reverse, given)))
    (states,) = _launch(partial(_solve, tiles, reverse), tiles.grid(tiles.chunks), given, given[1:2])
    return states.reshape(inputs.shape)


def adjoint(decay: Array, states: Array, cotangent: Array, reverse: bool) -> tuple[Array, Array]:
    """Return the gradients by decay and inputs; arguments as in the sequential algorithm."""
    tiles, (decays, series) = _tiles(cotangent), _rows(conjugate(decay), cotangent)
    given = [(tiles.decay(), decays), (tiles.steps(tiles.size), series)]
    given.append((tiles.state(), _incoming(tiles, not reverse, given)))
    also = [(tiles.steps(tiles.size), states.reshape(series.shape))]
    kernel = partial(_adjoint, tiles, not reverse)
    gradients, parts = _launch(kernel, tiles.grid(tiles.chunks), given + also, given[1:])
    of_decay = jnp.sum(parts, axis=1).reshape(*cotangent.shape[:-3], *cotangent.shape[-2:])
    return of_decay, gradients.reshape(cotangent.shape)


def _incoming(tiles: Tiles, reverse: bool, given: Sequence[tuple[pl.BlockSpec, Array]]) -> Array:
    """Return the state that enters each chunk, (rows, chunks, 2, N), given decays and series."""
    decays = given[0][1]
    like = jax.ShapeDtypeStruct((tiles.rows, tiles.chunks, 2, tiles.channels), decays.dtype)
    kernel = partial(_final, tiles, reverse)
    (last,) = _launch(kernel, tiles.grid(tiles.chunks), given, [(tiles.state(), like)])
    whole = tiles.steps(tiles.chunks)
    kernel = partial(_carry, tiles, reverse)
    (incoming,) = _launch(kernel, tiles.grid(1), [given[0], (whole, last)], [(whole, like)])
    return incoming


def _tiles(series: Array) -> Tiles:
    *leading, length, _, channels = series.shape
    size = max(AHEAD, 1 << ((length - 1).bit_length() // 2))
    return Tiles(math.prod(leading), length, channels, size, min(128, pl.next_power_of_2(channels)))


def _rows(decay: Array, series: Array) -> tuple[Array, Array]:
    """Join all leading axes: decays (rows, 2, N), and the series (rows, L, 2, N)."""
    leading, planes = series.shape[:-3], series.shape[-2:]
    decays = jnp.broadcast_to(decay, (*leading, *planes))
    return decays.reshape(-1, *planes), series.reshape(-1, *series.shape[-3:])


def _launch(
    kernel: Callable[..., None],
    grid: tuple[int, int, int],
    inputs: Sequence[tuple[pl.BlockSpec, Array]],
    outputs: Sequence[tuple[pl.BlockSpec, Shape]],
) -> list[Array]:
    specs, arrays = zip(*inputs, strict=True)
    block = specs[0].block_shape[-1]
    call = partial(
        pl.pallas_call,
        kernel,
        out_shape=[jax.ShapeDtypeStruct(like.shape, like.dtype) for _, like in outputs],
        grid=grid,
        in_specs=specs,
        out_specs=[spec for spec, _ in outputs],
        compiler_params=triton.CompilerParams(num_warps=max(1, block // 32)),
    )
    compiled, interpreted = call(), call(interpret=True)
    return jax.lax.platform_dependent(*arrays, cuda=compiled, rocm=compiled, default=interpreted)


def _final(tiles: Tiles, reverse: bool, decay: Reference, inputs: Reference, last: Reference) -> None:
    """Find the last state of a chunk from zero."""
    span = _chunk(tiles, reverse)
    a = _read(decay, span.channels)
    _write(last, _run(span, lambda x, _, __, b: _advance(a, x, b), _zero(a), inputs), span.channels)


def _carry(tiles: Tiles, reverse: bool, decay: Reference, last: Reference, incoming: Reference) -> None:
    """Carry the state from chunk to chunk by decay^size, and write the state that enters each."""
    size = pl.cdiv(tiles.chunks, AHEAD) * AHEAD
    span = Span(0, size, tiles.chunks, _channels(tiles), reverse)
    a = _power(_read(decay, span.channels), tiles.size)

    def step(x: Number, t: Array, mask: Array, b: Number) -> Number:
        _write(incoming, x, mask, t)
        return _advance(a, x, b)

    _run(span, step, _zero(a), last)


def _solve(
    tiles: Tiles, reverse: bool, decay: Reference, inputs: Reference, incoming: Reference, states: Reference
) -> None:
    """Find every state of a chunk."""
    span = _chunk(tiles, reverse)
    a = _read(decay, span.channels)

    def step(x: Number, t: Array, mask: Array, b: Number) -> Number:
        x = _advance(a, x, b)
        _write(states, x, mask, t)
        return x

    _run(span, step, _read(incoming, span.channels), inputs)


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
    a = _read(decay, span.channels)

    def step(carry: tuple[Number, Number], t: Array, mask: Array, b: Number, x: Number) -> Any:
        g, total = carry
        total = _advance((x[0], -x[1]), g, total)
        g = _advance(a, g, b)
        _write(gradients, g, mask, t)
        return g, total

    start = _read(incoming, span.channels), _zero(a)
    _write(of_decay, _run(span, step, start, cotangent, states)[1], span.channels)


def _chunk(tiles: Tiles, reverse: bool) -> Span:
    return Span(pl.program_id(1) * tiles.size, tiles.size, tiles.length, _channels(tiles), reverse)


def _channels(tiles: Tiles) -> Array:
    return pl.program_id(2) * tiles.block + jnp.arange(tiles.block)[None] < tiles.channels


def _run(span: Span, advance: Callable[..., Any], carry: Any, *series: Reference) -> Any:
    """Fold (carry, time, mask of channels, numbers of each series) -> carry over a span.

    Steps outside the sequence read as zero; they precede the first state or follow the last.
    """

    def ahead(group: Array, carry: Any) -> Any:
        steps = [group * AHEAD + i for i in range(AHEAD)]
        times = [span.size - 1 - step if span.reverse else step for step in steps]
        masks = [span.channels & (span.first + t < span.end) for t in times]
        numbers = [[_read(array, mask, t) for array in series] for t, mask in zip(times, masks, strict=True)]
        for t, mask, read in zip(times, masks, numbers, strict=True):
            carry = advance(carry, t, mask, *read)
        return carry

    return jax.lax.fori_loop(0, span.size // AHEAD, ahead, carry)


def _read(array: Reference, mask: Array, *index: Array) -> Number:
    """Read a number, at an index of a series; narrow types are widened to float32."""
    wide = jnp.promote_types(array.dtype, jnp.float32)
    re, im = (triton.load(array.at[_at(plane, index)], mask=mask, other=0) for plane in (0, 1))
    return re.astype(wide), im.astype(wide)


def _write(array: Reference, number: Number, mask: Array, *index: Array) -> None:
    for plane in (0, 1):
        triton.store(array.at[_at(plane, index)], number[plane].astype(array.dtype), mask=mask)


def _at(plane: int, index: tuple[Array, ...]) -> tuple[Any, ...]:
    return (*index, pl.ds(plane, 1), slice(None))


def _power(a: Number, size: int) -> Number:
    """Return a^size for a power of two."""
    start = tuple((part, jnp.zeros_like(part)) for part in a)
    re, im = jax.lax.fori_loop(0, size.bit_length() - 1, lambda _, power: square(*power), start)
    return re[0], im[0]


def _advance(a: Number, x: Number, b: Number) -> Number:
    """Return a * x + b."""
    return a[0] * x[0] - a[1] * x[1] + b[0], a[0] * x[1] + a[1] * x[0] + b[1]


def _zero(like: Number) -> Number:
    return jnp.zeros_like(like[0]), jnp.zeros_like(like[1])
