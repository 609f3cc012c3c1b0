"""The time-varying recurrence x_t = decay_t * x_{t-1} + inputs_t, elementwise, in chunks of time.

A layer computes decays and inputs of such a recurrence from its own inputs, so a sequence has three arrays of
the size of its states. In `in_chunks` they are computed for a few steps at a time, and again in the reverse
pass. Only the inputs of the layer and one state a chunk are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import jax
from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence import pallas_varying
from trainables.layers.recurrence.planar import conjugate, planar, times


def varying_recurrence(
    decays: Array, inputs: Array, initial: Array, *, planes: bool = False, algorithm: str = "sequential"
) -> Array:
    """Return every state of x_t = decays_t * x_{t-1} + inputs_t.

    Args:
        decays: (L, ...), or planes (L, 2, N).
        inputs: Array of the same shape.
        initial: The state before the first step, of the shape of one row.
        planes: Whether numbers are complex, as planes.
        algorithm: A name of `SOLVERS`.

    Returns:
        The states, of the shape of `inputs`.
    """
    return _states(algorithm, planes, decays, inputs, initial)


@dataclass(frozen=True)
class Pace:
    """The algorithm and the chunks with which a layer runs a varying recurrence.

    Attributes:
        algorithm: Algorithm within a chunk, a name of `SOLVERS`.
        size: Steps in a chunk.
    """

    algorithm: str
    size: int


PACES: Mapping[str, Pace] = MappingProxyType(
    {
        "sequential": Pace("sequential", 32),
        "associative": Pace("associative", 1024),
        "pallas": Pace("pallas", 1024),
    }
)
"""Paces by the option of a layer; chunks of 32 steps fit into the cache of a processor."""


FASTEST: Mapping[str, str] = MappingProxyType({"cpu": "sequential", "gpu": "pallas"})
"""Names of the fastest paces by JAX platform. Source: docs/benchmarks/gated.md."""


ROWS, LONGEST = 1024, 128
"""Largest numbers of rows of a longer chunk, in all sequences of a batch and in one.

Source: docs/benchmarks/gated.md.
"""


def pace(algorithm: str, together: int = 32) -> Pace:
    """Return the pace of a layer.

    Args:
        algorithm: Option of the layer; "auto" is the one of `FASTEST`, or associative.
        together: Sequences that run at the same time; with fewer than 32, chunks of a loop are longer.
    """
    chosen = PACES[FASTEST.get(jax.default_backend(), "associative") if algorithm == "auto" else algorithm]
    size = chosen.size
    while size < LONGEST and 2 * size * together <= ROWS:
        size *= 2
    return replace(chosen, size=size)


Operands = tuple[Array, Array]
Solve = Callable[[Array, Array, Array, bool], Array]


@dataclass(frozen=True)
class Solver:
    """An algorithm that computes the states.

    Attributes:
        solve: Function (decays, inputs, initial, planes) -> states.
        adjoint: Function (decays, states, initial, cotangent, planes) -> gradients by decays, inputs and
            initial.
    """

    solve: Solve
    adjoint: Callable[[Array, Array, Array, Array, bool], tuple[Array, Array, Array]]


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _states(algorithm: str, planes: bool, decays: Array, inputs: Array, initial: Array) -> Array:
    return SOLVERS[algorithm].solve(decays, inputs, initial, planes)


def _forward(
    algorithm: str, planes: bool, decays: Array, inputs: Array, initial: Array
) -> tuple[Array, tuple[Array, Array, Array]]:
    states = _states(algorithm, planes, decays, inputs, initial)
    return states, (decays, states, initial)


def _backward(
    algorithm: str, planes: bool, kept: tuple[Array, Array, Array], cotangent: Array
) -> tuple[Array, Array, Array]:
    decays, states, initial = kept
    return SOLVERS[algorithm].adjoint(decays, states, initial, cotangent, planes)


_states.defvjp(_forward, _backward)


def _sequential(decays: Array, inputs: Array, initial: Array, planes: bool) -> Array:
    def step(state: Parts, now: tuple[Parts, Parts]) -> tuple[Parts, Parts]:
        state = _sum(_times(now[0], state), now[1])
        return state, state

    series = _apart(decays, planes), _apart(inputs, planes)
    return _together(jax.lax.scan(step, _apart(initial, planes), series)[1])


def _associative(decays: Array, inputs: Array, initial: Array, planes: bool) -> Array:
    product = _product(planes)

    def join(first: Operands, second: Operands) -> Operands:
        return product(second[0], first[0]), product(second[0], first[1]) + second[1]

    started = inputs.at[0].add(product(decays[0], initial))
    return jax.lax.associative_scan(join, (decays, started))[1]


def _mirrored(
    solve: Solve, decays: Array, states: Array, initial: Array, cotangent: Array, planes: bool
) -> tuple[Array, Array, Array]:
    """Run g_t = cotangent_t + conj(decay_{t+1}) * g_{t+1}, and pair g_t with x_{t-1}."""
    if planes:
        decays, states, initial = conjugate(decays), conjugate(states), conjugate(initial)
    nothing = jnp.zeros_like(initial)
    later = jnp.concatenate([decays[1:], nothing[None]])
    gradient = solve(later[::-1], cotangent[::-1], nothing, planes)[::-1]
    before = jnp.concatenate([initial[None], states[:-1]])
    product = _product(planes)
    return product(before, gradient), gradient, product(decays[0], gradient[0])


def _against_time(
    decays: Array, states: Array, initial: Array, cotangent: Array, planes: bool
) -> tuple[Array, Array, Array]:
    """Compute the same gradients with a loop that runs backwards, so that no array is reversed."""

    def step(arriving: Parts, now: tuple[Parts, Parts]) -> tuple[Parts, Parts]:
        gradient = _sum(now[1], arriving)
        return _times(_conjugate(now[0]), gradient), gradient

    nothing = jax.tree.map(jnp.zeros_like, _apart(initial, planes))
    series = _apart(decays, planes), _apart(cotangent, planes)
    leaving, gradient = jax.lax.scan(step, nothing, series, reverse=True)
    before = _apart(jnp.concatenate([initial[None], states[:-1]]), planes)
    of_decays = _times(_conjugate(before), gradient)
    return _together(of_decays), _together(gradient), _together(leaving)


Parts = tuple[Array, ...]
"""A real array, or the real and the imaginary one. A loop that kept both in one array would join them at each
step, which XLA for CPU does slowly."""


def _apart(rows: Array, planes: bool) -> Parts:
    return (rows[..., 0, :], rows[..., 1, :]) if planes else (rows,)


def _together(parts: Parts) -> Array:
    return planar(*parts) if len(parts) == 2 else parts[0]


def _sum(a: Parts, b: Parts) -> Parts:
    return tuple(map(jnp.add, a, b))


def _times(a: Parts, b: Parts) -> Parts:
    if len(a) == 1:
        return (a[0] * b[0],)
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _conjugate(a: Parts) -> Parts:
    return (a[0], -a[1]) if len(a) == 2 else a


def _product(planes: bool) -> Callable[[Array, Array], Array]:
    return times if planes else jnp.multiply


SOLVERS: Mapping[str, Solver] = MappingProxyType(
    {
        "sequential": Solver(_sequential, _against_time),
        "associative": Solver(_associative, partial(_mirrored, _associative)),
        "pallas": Solver(pallas_varying.solve, pallas_varying.adjoint),
    }
)
"""Algorithms by name, which compute the same states."""
