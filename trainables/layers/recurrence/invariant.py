"""The time-invariant recurrence and its hand-written reverse pass.

The recurrence is batched by hand: it sees all sequences of a batch at once. Otherwise `vmap` would batch each
step of a loop by itself and move time to the front of the arrays and back, which costs more than the
recurrence. It also allows the algorithm to be chosen by the true size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
from jax import Array
from jax import numpy as jnp
from jax.custom_batching import custom_vmap

from trainables.layers.recurrence import associative, chunked, pallas, sequential
from trainables.layers.recurrence.planar import times


@dataclass(frozen=True)
class Algorithm:
    """One way to compute the states.

    Attributes:
        solve: (decay, inputs, reverse) -> states; see `sequential.solve` for the shapes.
        adjoint: (decay, states, cotangent, reverse) -> gradients by decay and by inputs.
    """

    solve: Callable[[Array, Array, bool], Array]
    adjoint: Callable[[Array, Array, Array, bool], tuple[Array, Array]]


ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(
    {
        "sequential": Algorithm(sequential.solve, sequential.adjoint),
        "associative": Algorithm(associative.solve, associative.adjoint),
        "chunked": Algorithm(chunked.solve, chunked.adjoint),
        "pallas": Algorithm(pallas.solve, pallas.adjoint),
    }
)
"""Interchangeable ways to compute the same states."""


class Choice(NamedTuple):
    """The algorithm that is fastest for at most `channels` parallel channels and at least `length` steps."""

    channels: float
    length: int
    algorithm: str


FASTEST: Mapping[str, tuple[Choice, ...]] = MappingProxyType(
    {
        "cpu": (Choice(16, 2_048, "chunked"), Choice(math.inf, 0, "sequential")),
        "gpu": (Choice(math.inf, 0, "pallas"),),
    }
)
"""By backend: the first choice that fits, where channels of all sequences count.

Source: docs/benchmarks/recurrence.md.
"""

UNMEASURED = (Choice(math.inf, 0, "associative"),)
"""For other backends: XLA's own operations in O(log L) depth."""


def recurrence(
    decay: Array,
    inputs: Array,
    *,
    initial: Array | None = None,
    reverse: bool = False,
    algorithm: str = "auto",
) -> Array:
    """Return every state of x_t = decay * x_{t-1} + inputs_t.

    Args:
        decay: planes (2, N), the same at every step.
        inputs: planes (L, 2, N); bfloat16 inputs give bfloat16 states, carried in the type of `decay`.
        initial: planes (2, N), the state before the first step; zero if None.
        reverse: whether time runs from L - 1 down to 0.
        algorithm: a name of `ALGORITHMS`, or "auto" for the one measured fastest for this device and size.

    Returns:
        The states, planes (L, 2, N).
    """
    if initial is not None:
        inputs = inputs.at[-1 if reverse else 0].add(times(decay, initial).astype(inputs.dtype))
    return _states(algorithm, reverse, decay, inputs)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _states(algorithm: str, reverse: bool, decay: Array, inputs: Array) -> Array:
    return _solver(algorithm, reverse)(decay, inputs)


def _forward(algorithm: str, reverse: bool, decay: Array, inputs: Array) -> tuple[Array, tuple[Array, Array]]:
    states = _solver(algorithm, reverse)(decay, inputs)
    return states, (decay, states)


def _backward(
    algorithm: str, reverse: bool, kept: tuple[Array, Array], cotangent: Array
) -> tuple[Array, Array]:
    return _differentiator(algorithm, reverse)(*kept, cotangent)


_states.defvjp(_forward, _backward)


@cache
def _solver(algorithm: str, reverse: bool) -> Callable[[Array, Array], Array]:
    return _over_leading_axes(lambda decay, inputs: _choose(algorithm, inputs).solve(decay, inputs, reverse))


@cache
def _differentiator(algorithm: str, reverse: bool) -> Callable[[Array, Array, Array], tuple[Array, Array]]:
    return _over_leading_axes(
        lambda decay, states, cotangent: _choose(algorithm, states).adjoint(decay, states, cotangent, reverse)
    )


def _choose(algorithm: str, series: Array) -> Algorithm:
    if algorithm != "auto":
        return ALGORITHMS[algorithm]
    *rows, length, _, channels = series.shape
    together = math.prod(rows) * channels
    choices = FASTEST.get(jax.default_backend(), UNMEASURED)
    fitting = (choice for choice in choices if together <= choice.channels and length >= choice.length)
    return ALGORITHMS[next(fitting).algorithm]


def _over_leading_axes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make `vmap` put its axis in front of the arguments instead of tracing through `function`.

    Args:
        function: takes arrays with common leading axes, of which those of the first argument may be 1 and are
            then broadcast; returns arrays that have these leading axes too.
    """
    lifted = custom_vmap(function)

    @lifted.def_vmap
    def rule(size: int, batched: Sequence[bool], first: Array, *others: Array) -> tuple[Any, Any]:
        first = first if batched[0] else first[None]
        whole = [
            other if has_axis else jnp.broadcast_to(other, (size, *other.shape))
            for other, has_axis in zip(others, batched[1:], strict=True)
        ]
        answer = lifted(first, *whole)
        return answer, tuple(True for _ in answer) if isinstance(answer, tuple) else True

    return lifted
