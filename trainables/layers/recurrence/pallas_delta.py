"""The delta rule as a GPU kernel: a program runs all steps of a head, with its matrix S (K, V) in registers.

The steps are cut into chunks of `SIZE`, each of which is the few matrix products of the WY form. A program
has up to `BLOCK` columns of S, because columns do not depend on each other. For the reverse pass
the matrices before all chunks are kept; a second kernel runs the chunks backwards, computes each again and
applies its derivative, which JAX derives.

Products are computed in full float32: in TF32, the default of GPUs, the triangular system loses three digits.
Triton multiplies matrices of at least 16 x 16 numbers whose sides are powers of two; smaller ones are padded
with zeros. Batches, slots and heads are further axes of the grid, which `vmap` adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import jax
from jax import Array
from jax import numpy as jnp
from jax.experimental import pallas as pl

from trainables.layers.recurrence.kernels import Reference, Shape, launch
from trainables.layers.recurrence.wy_form import AT_ONCE, Steps, at_once, run_chunk

SIZE = 32
"""Number of steps in a chunk."""

BLOCK = 64
"""Largest number of columns of S in a program."""

SMALLEST = 16
"""Shortest side of a matrix in a product."""

WARPS = 4
"""Number of groups of 32 threads in a program."""


def solve(steps: Steps, state: Array) -> tuple[Array, Array]:
    """Return the outputs of one head and its next state, as `delta_rule` does."""
    (answers, keys), (count, values) = steps.queries.shape, steps.values.shape
    together, block = count // answers, min(BLOCK, _side(values))
    # Steps that answer nothing have queries of zero, for a program cannot take some of the rows of a matrix.
    queries = jnp.zeros((answers, together, keys)).at[:, -1].set(steps.queries).reshape(count, keys)
    rows, columns, width = (0, -count % SIZE), (0, -values % block), (0, _side(keys) - keys)
    whole = Steps(
        jnp.pad(queries, (rows, width)),
        jnp.pad(steps.keys, (rows, width)),
        _blocks(jnp.pad(steps.values, (rows, columns)), block),
        jnp.pad(steps.sizes, rows),
        jnp.zeros(count + rows[1]) if steps.log_decays is None else jnp.pad(steps.log_decays, rows),
    )
    blocks = jax.vmap(lambda values, state: _solve(whole._replace(values=values), state))
    parts = blocks(whole.values, _blocks(jnp.pad(state, (width, columns)), block))
    outputs, final = map(_joined, parts)
    return outputs[together - 1 : count : together, :values], final[:keys, :values]


def _side(length: int) -> int:
    return max(SMALLEST, pl.next_power_of_2(length))


def _blocks(matrix: Array, width: int) -> Array:
    """Cut columns (R, V) to blocks (V / width, R, width)."""
    return matrix.reshape(len(matrix), -1, width).swapaxes(0, 1)


def _joined(blocks: Array) -> Array:
    """Undo `_blocks`."""
    return blocks.swapaxes(0, 1).reshape(blocks.shape[1], -1)


@jax.custom_vjp
def _solve(steps: Steps, state: Array) -> tuple[Array, Array]:
    """Return the outputs (R, V) and the next state of whole chunks, for one block of columns."""
    outputs, final = _launch(_run, [*jax.tree.leaves(steps), state], [steps.values, state])
    return outputs, final


def _forward(steps: Steps, state: Array) -> tuple[tuple[Array, Array], tuple[Steps, Array]]:
    before = jax.ShapeDtypeStruct((len(steps.keys) // SIZE, *state.shape), state.dtype)
    outputs, final, states = _launch(_run, [*jax.tree.leaves(steps), state], [steps.values, state, before])
    return (outputs, final), (steps, states)


def _backward(kept: tuple[Steps, Array], cotangents: tuple[Array, Array]) -> tuple[Steps, Array]:
    steps, before = kept
    *of_steps, of_state = _launch(
        _run_back, [*jax.tree.leaves(steps), before, *cotangents], [*jax.tree.leaves(steps), cotangents[1]]
    )
    return Steps(*of_steps), of_state


_solve.defvjp(_forward, _backward)


def _launch(kernel: Callable[..., None], inputs: Sequence[Array], outputs: Sequence[Shape]) -> list[Array]:
    """Run a kernel in a single program, which reads whole arrays."""

    def whole(like: Shape) -> pl.BlockSpec:
        return pl.BlockSpec(like.shape, lambda _: (0,) * len(like.shape))

    exact = jax.default_matmul_precision("highest")(kernel)
    given, written = [(whole(array), array) for array in inputs], [(whole(like), like) for like in outputs]
    return launch(exact, (1,), given, written, WARPS)


def _run(*arrays: Reference) -> None:
    """Run all chunks: write the outputs, the last state and, on request, the state before each chunk."""
    steps, (start, outputs, final, *before) = Steps(*arrays[:5]), arrays[5:]

    def chunk(index: Array, state: Array) -> Array:
        for states in before:
            states[index] = state
        rows = _rows(index)
        outputs[rows], state = run_chunk(_read(steps, rows), state, at_once)
        return state

    final[...] = jax.lax.fori_loop(0, len(outputs) // SIZE, chunk, start[...])


def _run_back(*arrays: Reference) -> None:
    """Run all chunks backwards: write the gradients of steps and states from the cotangents."""
    steps, (before, of_outputs, of_final), of_steps = Steps(*arrays[:5]), arrays[5:8], arrays[8:13]
    count = len(before)

    def chunk(index: Array, of_state: Array) -> Array:
        index = count - 1 - index
        rows = _rows(index)
        given = _read(steps, rows), before[index]
        _, pull = jax.vjp(partial(run_chunk, inverse=AT_ONCE), *given)
        gradients, of_state = pull((of_outputs[rows], of_state))
        for part, gradient in zip(of_steps, gradients, strict=True):
            part[rows] = gradient
        return of_state

    arrays[13][...] = jax.lax.fori_loop(0, count, chunk, of_final[...])


def _rows(index: Array) -> slice | pl.Slice:
    return pl.ds(index * SIZE, SIZE)


def _read(steps: Steps, rows: slice | pl.Slice) -> Steps:
    read: Steps = jax.tree.map(lambda part: part[rows], steps)
    return read
