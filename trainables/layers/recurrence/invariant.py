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
from typing import Any, NamedTuple, TypeAlias

import jax
from jax import Array
from jax import numpy as jnp
from jax.custom_batching import custom_vmap

from trainables.layers.recurrence import associative, chunked, pallas, sequential
from trainables.layers.recurrence.padding import until_if_overflown
from trainables.layers.recurrence.planar import conjugate, times


@dataclass(frozen=True)
class Algorithm:
    """An algorithm that computes the states.

    Attributes:
        solve: Function (decay, inputs, reverse) -> states; see `sequential.solve` for the shapes.
        adjoint: Function (decay, states, cotangent, reverse) -> gradients by decay and by inputs.
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
"""Algorithms by name, which compute the same states."""


class Choice(NamedTuple):
    """The fastest algorithm for at most `channels` parallel channels and at least `length` steps."""

    channels: float
    length: int
    algorithm: str


FASTEST: Mapping[str, tuple[Choice, ...]] = MappingProxyType(
    {
        "cpu": (Choice(16, 2_048, "chunked"), Choice(math.inf, 0, "sequential")),
        "gpu": (Choice(math.inf, 0, "pallas"),),
    }
)
"""Choices by backend, of which the first that fits counts; the channels of all sequences are added.

Source: docs/benchmarks/recurrence.md.
"""

UNMEASURED = (Choice(math.inf, 0, "associative"),)
"""Algorithm for other backends, which consists of XLA operations in O(log L) depth."""


def recurrence(
    decay: Array,
    inputs: Array,
    *,
    initial: Array | None = None,
    reverse: bool = False,
    algorithm: str = "auto",
    length: Array | None = None,
) -> Array:
    """Return every state of x_t = decay * x_{t-1} + inputs_t.

    Args:
        decay: Planes (2, N), the same at every step.
        inputs: Planes (L, 2, N); bfloat16 inputs give bfloat16 states, carried in the type of `decay`.
        initial: Planes (2, N), the state before the first step; zero if None.
        reverse: Whether time runs from L - 1 down to 0.
        algorithm: A name of `ALGORITHMS`, or "auto" for the one measured fastest for this device and size.
        length: True length of the sequence, for decays that may exceed 1 in modulus; inputs, and gradients by
            states, must be 0 in the padding.

    Returns:
        The states, planes (L, 2, N); with a length, those from there on are finite, and may be 0.
    """
    if initial is not None:
        inputs = inputs.at[-1 if reverse else 0].add(times(decay, initial).astype(inputs.dtype))
    return _states(algorithm, reverse, decay, inputs, length)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _states(algorithm: str, reverse: bool, decay: Array, inputs: Array, length: Array | None) -> Array:
    states = _solver(algorithm, reverse)(decay, inputs)
    # Against time, the states come through the padding first, as zeros.
    return states if reverse else until_if_overflown(length, states)


Kept: TypeAlias = tuple[Array, Array, Array | None]
"""The decay, the states and the length."""


def _forward(
    algorithm: str, reverse: bool, decay: Array, inputs: Array, length: Array | None
) -> tuple[Array, Kept]:
    states = _states(algorithm, reverse, decay, inputs, length)
    return states, (decay, states, length)


def _backward(algorithm: str, reverse: bool, kept: Kept, cotangent: Array) -> tuple[Array, Array, None]:
    decay, states, length = kept
    of_decay, gradients = _differentiator(algorithm, reverse)(decay, states, cotangent)
    if length is not None and reverse:
        # The gradients come through the padding last.
        gradients = until_if_overflown(length, gradients)
        of_decay = _mended(of_decay, states, gradients)
    return of_decay, gradients, None


_states.defvjp(_forward, _backward)


def _mended(of_decay: Array, states: Array, gradients: Array) -> Array:
    """Return the gradient by the decay of a run against time, computed again if it is not finite."""

    def again(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        pairs = times(conjugate(states[1:].astype(of_decay.dtype)), gradients[:-1].astype(of_decay.dtype))
        return jnp.zeros_like(carry[0]), jnp.sum(pairs, axis=0)

    broken = jnp.logical_not(jnp.all(jnp.isfinite(of_decay)))
    return jax.lax.while_loop(lambda carry: carry[0], again, (broken, of_decay))[1]


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
    """Make `vmap` add a leading axis to the arguments instead of tracing through `function`.

    Args:
        function: Function of arrays with common leading axes, which its results also have. Axes of size 1 of
            the first argument are broadcast.
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
