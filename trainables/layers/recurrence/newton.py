"""A nonlinear recurrence x_t = f(x_{t-1}, inputs_t), solved in parallel over time by Newton's method.

Time is cut into chunks that run at the same time, each from a guess of the state before it. The guesses are
right where each equals the last state of the chunk before. Newton's method solves these equations: a sweep
runs all chunks, with the derivative P_c of the last state of chunk c by its first one, and the corrections
follow from chunk to chunk,

    d_{c+1} = P_c d_c + r_c    with r_c the last state of chunk c minus the guess after it,

which is linear. In chunks of one step this is DEER, where every state is a guess. Longer chunks have fewer
guesses, so fewer sweeps and no array of L matrices; the states within a chunk are those of the loop.

Sweeps without P come first, because they cost S times less for S numbers in a state, and suffice where a
state is forgotten within a few chunks. A correction far beyond the size of the states is not trusted: the
next guess is then the last state of the chunk before, as in a sweep without P. In DEER, a product of L
derivatives can overflow; ELK bounds its corrections by a Kalman filter, whose gain attenuates derivatives.
Here their products are as long as a chunk, and attenuating them by a common factor, which was halved after
each sweep that did not help, solved no more of 48 recurrences (docs/benchmarks/recurrence.md). In any case
the first k chunks are right after k sweeps.

Gradients are those of the implicit function: one adjoint recurrence, linear, against time, at the states
found. It runs through the same chunks, or step by step on a CPU. No derivative passes through the sweeps.

Source: Lim et al., Parallelizing non-linear sequential models over the sequence length, 2024 (DEER); Gonzalez
et al., Towards scalable and stable parallelization of nonlinear RNNs, 2024, arXiv 2407.19115 (ELK). The
chunks are those of multiple shooting: Bock and Plitt, 1984.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
from jax import Array
from jax import numpy as jnp

Cell: TypeAlias = Callable[[Any, Array, Array], Array]
"""(weights, state (S,), inputs of one step) -> next state (S,); hashable, and equal for equal programs."""

TOLERANCE = 1e-6
"""Largest residual of solved equations, relative to max(1, |state|)."""

PLAIN = 8
"""Most sweeps without derivatives."""

GAIN = 0.1
"""Share of its residual that a sweep without derivatives must reach to be followed by another one."""

MOST = 24
"""Most sweeps with derivatives, before the loop over time takes over."""

TRUST = 4.0
"""Largest correction of a guess, relative to max(1, |state|); beyond it the sweep gives the next guess."""


class Solved(NamedTuple):
    """The answer of Newton's method.

    Attributes:
        states: (L, S).
        residual: Largest difference between a guess and the state that it stands for, relative to max(1,
            |state|), when the sweeps ended; infinite if it is not a number.
        fell_back: Whether it was above the tolerance, so that the states are those of the loop over time.
    """

    states: Array
    residual: Array
    fell_back: Array


def newton_recurrence(cell: Cell, weights: Any, initial: Array, inputs: Array) -> Solved:
    """Return every state of x_t = cell(weights, x_{t-1}, inputs_t), within rounding of the loop over time.

    Args:
        cell: The recurrence.
        weights: Arrays of the cell, a tree.
        initial: State before the first step, (S,).
        inputs: (L, ...).
    """
    return _solved(cell, weights, initial, inputs)


class _Sweeps(NamedTuple):
    """The sweeps so far.

    Attributes:
        guesses: States before each chunk, (C, S).
        states: States from them, (C, size, S).
        residual: As in `Solved`.
        before: The residual one sweep earlier.
        number: Number of sweeps.
    """

    guesses: Array
    states: Array
    residual: Array
    before: Array
    number: Array


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _solved(cell: Cell, weights: Any, initial: Array, inputs: Array) -> Solved:
    length = len(inputs)
    chunks = _split(inputs, chunk_size(length))

    def swept(guesses: Array, before: Array, number: Array) -> _Sweeps:
        states = _run(cell, weights, guesses, chunks)
        missing = jnp.abs(states[:-1, -1] - guesses[1:])
        share = missing / jnp.maximum(1, jnp.abs(states[:-1, -1]))
        residual = jnp.max(jnp.where(jnp.isfinite(share), share, jnp.inf), initial=0.0)
        return _Sweeps(guesses, states, residual, before, number)

    def unsolved(now: _Sweeps) -> Array:
        return now.residual > TOLERANCE

    def plain(now: _Sweeps) -> _Sweeps:
        return swept(_shifted(initial, now.states[:, -1]), now.residual, now.number + 1)

    def corrected(now: _Sweeps) -> _Sweeps:
        before = jnp.concatenate([now.guesses[:, None], now.states[:, :-1]], axis=1)
        derivatives, ends = _derivatives(cell, weights, before, chunks), now.states[:, -1]

        def follow(change: Array, chunk: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            derivative, end, guess = chunk
            change = derivative @ change + end - guess
            return change, change

        series = derivatives[:-1], ends[:-1], now.guesses[1:]
        changes = jax.lax.scan(follow, jnp.zeros_like(initial), series)[1]
        trusted = jnp.abs(changes) <= TRUST * jnp.maximum(1, jnp.abs(ends[:-1]))
        guesses = jnp.where(trusted, now.guesses[1:] + changes, ends[:-1])
        return swept(jnp.concatenate([initial[None], guesses]), now.residual, now.number + 1)

    first = jnp.broadcast_to(initial, (len(chunks), *initial.shape))
    start = swept(first, jnp.float32(jnp.inf), jnp.int32(0))
    now = jax.lax.while_loop(
        lambda now: unsolved(now) & (now.residual <= GAIN * now.before) & (now.number < PLAIN), plain, start
    )
    now = now._replace(number=jnp.int32(0))
    now = jax.lax.while_loop(lambda now: unsolved(now) & (now.number < MOST), corrected, now)
    fell_back = unsolved(now)
    states = now.states.reshape(-1, *initial.shape)[:length]
    states = _unless(fell_back, states, partial(_loop, cell), (weights, initial, inputs))
    return Solved(states, now.residual, fell_back)


def _unless(failed: Array, states: Array, loop: Callable[..., Array], arguments: tuple[Any, ...]) -> Array:
    """Return states, or those of the loop over time if they failed.

    This is a loop that runs once or never: under `vmap`, a `cond` always computes both sides.
    """

    def once(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        return jnp.zeros_like(carry[0]), loop(*arguments)

    return jax.lax.while_loop(lambda carry: carry[0], once, (failed, states))[1]


def _loop(cell: Cell, weights: Any, initial: Array, inputs: Array) -> Array:
    """Return the states (L, S), one step after the other."""

    def step(state: Array, now: Array) -> tuple[Array, Array]:
        state = cell(weights, state, now)
        return state, state

    return jax.lax.scan(step, initial, inputs)[1]


def _run(cell: Cell, weights: Any, guesses: Array, chunks: Array) -> Array:
    """Return the states (C, size, S) of all chunks, each from its guess (C, S)."""
    return jax.vmap(partial(_loop, cell, weights))(guesses, chunks)


def _derivatives(cell: Cell, weights: Any, before: Array, chunks: Array) -> Array:
    """Return the derivative of the last state of each chunk by the state before it, (C, S, S).

    Args:
        cell: The recurrence.
        weights: Its arrays.
        before: State before each step, (C, size, S).
        chunks: Inputs of each step, (C, size, ...).
    """

    def step(columns: Array, now: tuple[Array, Array]) -> tuple[Array, None]:
        state, row = now
        along = jax.linearize(lambda state: cell(weights, state, row), state)[1]
        return jax.vmap(along)(columns), None

    def of_chunk(before: Array, rows: Array) -> Array:
        return jax.lax.scan(step, jnp.eye(before.shape[-1]), (before, rows))[0].T

    return jax.vmap(of_chunk)(before, chunks)


def _solved_forward(
    cell: Cell, weights: Any, initial: Array, inputs: Array
) -> tuple[Solved, tuple[Any, Array, Array, Array]]:
    solved = _solved(cell, weights, initial, inputs)
    return solved, (weights, initial, inputs, solved.states)


def _solved_backward(
    cell: Cell, kept: tuple[Any, Array, Array, Array], cotangents: Solved
) -> tuple[Any, Array, Array]:
    weights, initial, inputs, states = kept
    size = len(inputs) if jax.default_backend() == "cpu" else chunk_size(len(inputs))
    return adjoint(cell, weights, initial, inputs, states, cotangents.states, size)


def adjoint(
    cell: Cell, weights: Any, initial: Array, inputs: Array, states: Array, cotangent: Array, size: int
) -> tuple[Any, Array, Array]:
    """Return the gradients by the weights, the initial state and the inputs.

    They follow from g_t = c_t + J_{t+1}^T g_{t+1}, with J_t the derivative of step t by the state before it.

    Args:
        cell: The recurrence.
        weights: Its arrays.
        initial: State before the first step, (S,).
        inputs: (L, ...).
        states: Solution, (L, S).
        cotangent: c, (L, S).
        size: Steps in a chunk; L is a loop over time, which a CPU runs faster than N sweeps of chunks.
    """
    before = jnp.concatenate([initial[None], states[:-1]])
    chunks = _split(before, size), _split(inputs, size), _split(cotangent, size)

    def through(later: Array, chunk: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        """Return the gradient by the state before a chunk, and g of its steps, given what enters its end."""

        def step(later: Array, now: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            state, row, above = now
            gradient = above + later
            back = jax.vjp(lambda state: cell(weights, state, row), state)[1]
            return back(gradient)[0], gradient

        return jax.lax.scan(step, later, chunk, reverse=True)

    entering = jnp.zeros((len(chunks[0]), initial.size))
    if len(entering) > 1:
        own = jax.vmap(through)(entering, chunks)[0]
        entering = _entering(_derivatives(cell, weights, *chunks[:2]), own)
    of_initial, gradients = jax.vmap(through)(entering, chunks)

    def steps(weights: Any, inputs: Array) -> Array:
        return jax.vmap(partial(cell, weights))(before, inputs)

    gradients = gradients.reshape(-1, initial.size)[: len(inputs)]
    of_weights, of_inputs = jax.vjp(steps, weights, inputs)[1](gradients)
    return of_weights, of_initial[0], of_inputs


def _entering(derivatives: Array, own: Array) -> Array:
    """Return the gradient that enters the end of each chunk (C, S), given what comes from its own steps."""

    def follow(later: Array, chunk: tuple[Array, Array]) -> tuple[Array, Array]:
        derivative, from_steps = chunk
        return derivative.T @ later + from_steps, later

    return jax.lax.scan(follow, jnp.zeros_like(own[0]), (derivatives, own), reverse=True)[1]


_solved.defvjp(_solved_forward, _solved_backward)


def chunk_size(length: int) -> int:
    """Return the steps in a chunk: a power of two near the root of the length."""
    return 1 << ((length - 1).bit_length() // 2)


def _split(rows: Array, size: int) -> Array:
    """Cut time into chunks, padded with zeros: (C, size, ...)."""
    missing = -len(rows) % size
    whole = jnp.pad(rows, [(0, missing)] + [(0, 0)] * (rows.ndim - 1)) if missing else rows
    return whole.reshape(-1, size, *rows.shape[1:])


def _shifted(initial: Array, ends: Array) -> Array:
    """Return the last states of the chunks (C, S) as the guesses of the chunks after them."""
    return jnp.concatenate([initial[None], ends[:-1]])
