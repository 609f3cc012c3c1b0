"""Parts of the kernels of all recurrences: loops over time, masked numbers of planes, and the launch.

A number is a block of channels, with one plane if it is real and two if it is complex. Arrays in memory have
the shape (..., planes, N).

Triton compiles the kernels for arrays on a GPU; elsewhere they are interpreted, which is slow and for tests.
Pallas's Triton backend is deprecated since JAX 0.11 and still part of 0.12.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax
from jax import Array
from jax import numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

AHEAD = 8
"""Steps whose numbers are loaded before the first of them is used; divides the size of a chunk."""

Number: TypeAlias = tuple[Array, ...]
"""The planes of a block of channels, (1, block) each."""

Reference: TypeAlias = Any
"""A program's part of an array in memory; Pallas has no public type for it."""

Shape: TypeAlias = Array | jax.ShapeDtypeStruct


@dataclass(frozen=True)
class Span:
    """The steps and channels that a program loops over.

    Attributes:
        first: Index of its first step.
        size: Number of steps, a multiple of `AHEAD`.
        end: Index after the last step of the sequence.
        channels: Mask of the channels of its block that exist, (1, block).
        reverse: Whether time runs from the last step down.
    """

    first: Array | int
    size: int
    end: int
    channels: Array
    reverse: bool


def chunk_size(length: int) -> int:
    """Return the steps of a chunk of a sequence: a power of two near sqrt(length), at least `AHEAD`."""
    return max(AHEAD, 1 << ((length - 1).bit_length() // 2))


def channel_block(channels: int) -> int:
    """Return the number of channels of one program, a power of two."""
    return min(128, pl.next_power_of_2(channels))


def existing(axis: int, block: int, channels: int) -> Array:
    """Return the mask (1, block) of the channels of a program's block; `axis` of the grid counts blocks."""
    return pl.program_id(axis) * block + jnp.arange(block)[None] < channels


def launch(
    kernel: Callable[..., None],
    grid: tuple[int, ...],
    inputs: Sequence[tuple[pl.BlockSpec, Array]],
    outputs: Sequence[tuple[pl.BlockSpec, Shape]],
    warps: int,
) -> list[Array]:
    """Run a kernel once for each point of the grid: compiled on a GPU, interpreted elsewhere.

    Args:
        kernel: Function of the parts of all inputs and then of all outputs that belong to a program.
        grid: The number of programs along each axis.
        inputs: Block specification of each array, and the array.
        outputs: Block specification of each output, and an array of its shape and type.
        warps: Number of groups of 32 threads in a program.
    """
    specs, arrays = zip(*inputs, strict=True)
    call = partial(
        pl.pallas_call,
        kernel,
        out_shape=[jax.ShapeDtypeStruct(like.shape, like.dtype) for _, like in outputs],
        grid=grid,
        in_specs=specs,
        out_specs=[spec for spec, _ in outputs],
        compiler_params=triton.CompilerParams(num_warps=warps),
    )
    compiled, interpreted = call(), call(interpret=True)
    return jax.lax.platform_dependent(*arrays, cuda=compiled, rocm=compiled, default=interpreted)


def fold(span: Span, advance: Callable[..., Any], carry: Any, *series: Reference) -> Any:
    """Fold (carry, time, mask of channels, numbers of each series) -> carry over a span.

    Steps outside the sequence read as zero; they precede the first state or follow the last.
    """

    def ahead(group: Array, carry: Any) -> Any:
        steps = [group * AHEAD + i for i in range(AHEAD)]
        times = [span.size - 1 - step if span.reverse else step for step in steps]
        masks = [span.channels & (span.first + t < span.end) for t in times]
        numbers = [[read(array, mask, t) for array in series] for t, mask in zip(times, masks, strict=True)]
        for t, mask, now in zip(times, masks, numbers, strict=True):
            carry = advance(carry, t, mask, *now)
        return carry

    return jax.lax.fori_loop(0, span.size // AHEAD, ahead, carry)


def read(array: Reference, mask: Array, *index: Array) -> Number:
    """Load a number from an index of an array; narrow types are widened to float32."""
    wide = jnp.promote_types(array.dtype, jnp.float32)
    planes = range(array.shape[-2])
    loaded = [triton.load(array.at[_at(plane, index)], mask=mask, other=0) for plane in planes]
    return tuple(part.astype(wide) for part in loaded)


def write(array: Reference, number: Number, mask: Array, *index: Array) -> None:
    """Store a number at an index of an array, cast to the array's type."""
    for plane, part in enumerate(number):
        triton.store(array.at[_at(plane, index)], part.astype(array.dtype), mask=mask)


def product(a: Number, b: Number) -> Number:
    """Return a * b."""
    if len(a) == 1:
        return (a[0] * b[0],)
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def advance(a: Number, x: Number, b: Number) -> Number:
    """Return a * x + b."""
    if len(a) == 1:
        return (a[0] * x[0] + b[0],)
    return a[0] * x[0] - a[1] * x[1] + b[0], a[0] * x[1] + a[1] * x[0] + b[1]


def conjugate(a: Number) -> Number:
    """Return the complex conjugate."""
    return (a[0], *(-part for part in a[1:]))


def zero(like: Number) -> Number:
    """Return the number 0."""
    return tuple(jnp.zeros_like(part) for part in like)


def _at(plane: int, index: tuple[Array, ...]) -> tuple[Any, ...]:
    return (*index, pl.ds(plane, 1), slice(None))
