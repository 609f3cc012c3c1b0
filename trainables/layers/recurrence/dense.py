"""Recurrences with a dense transition: x_t = A x_{t-1} + b_t, and x_t = rho(A x_{t-1} + b_t).

Both reverse passes are written by hand: they keep nothing but the states, and the gradient by A is one matrix
product over all of time instead of one outer product a step.

Given the true length of a sequence, states and gradients in the padding are 0: there they may overflow, and
infinity times 0 is nan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

import jax
from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence.associative import Advance, prefixes
from trainables.layers.recurrence.padding import until


def linear_recurrence(
    transition: Array,
    inputs: Array,
    *,
    reverse: bool = False,
    algorithm: str = "auto",
    length: Array | None = None,
) -> Array:
    """Return every state of x_t = A x_{t-1} + inputs_t from zero.

    Args:
        transition: A, (N, N).
        inputs: (L, N).
        reverse: Whether time runs from L - 1 down to 0.
        algorithm: "sequential"; "associative", with powers of A by squaring; or "auto".
        length: Length of the true sequence, if padding follows; inputs from there on must be 0.
    """
    return _linear(algorithm, reverse, transition, inputs, length)


def nonlinear_recurrence(rho: str, transition: Array, inputs: Array, *, length: Array | None = None) -> Array:
    """Return every state of x_t = rho(A x_{t-1} + inputs_t) from zero, one step after the other.

    Args:
        rho: A name of `NONLINEARITIES`.
        transition: A, (N, N).
        inputs: (L, N).
        length: Length of the true sequence, if padding follows.
    """
    return _nonlinear(rho, transition, inputs, length)


NONLINEARITIES: Mapping[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = MappingProxyType(
    {
        "tanh": (jnp.tanh, lambda x: 1 - x * x),
        "relu": (jax.nn.relu, lambda x: (x > 0).astype(x.dtype)),
        "elu": (jax.nn.elu, lambda x: jnp.where(x > 0, 1, x + 1)),
    }
)
"""Nonlinearities by name: the function, and its slope as a function of its value."""


Kept: TypeAlias = tuple[Array, Array, Array | None]
"""The transition, the states and the length."""


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _linear(algorithm: str, reverse: bool, transition: Array, inputs: Array, length: Array | None) -> Array:
    return until(length, _directed(algorithm, reverse, transition, inputs))


def _linear_forward(
    algorithm: str, reverse: bool, transition: Array, inputs: Array, length: Array | None
) -> tuple[Array, Kept]:
    states = _linear(algorithm, reverse, transition, inputs, length)
    return states, (transition, states, length)


def _linear_backward(
    algorithm: str, reverse: bool, kept: Kept, cotangent: Array
) -> tuple[Array, Array, None]:
    transition, states, length = kept
    gradient = _directed(algorithm, not reverse, transition.T, until(length, cotangent))
    gradient = until(length, gradient)
    early, late = slice(None, -1), slice(1, None)
    before, after = (late, early) if reverse else (early, late)
    return gradient[after].T @ states[before], gradient, None


_linear.defvjp(_linear_forward, _linear_backward)


def _directed(algorithm: str, reverse: bool, transition: Array, inputs: Array) -> Array:
    return (
        _solve(algorithm, transition, inputs[::-1])[::-1]
        if reverse
        else _solve(algorithm, transition, inputs)
    )


def _solve(algorithm: str, transition: Array, inputs: Array) -> Array:
    if algorithm == "associative":
        return prefixes(_jumps(transition, len(inputs)), inputs)

    def step(state: Array, now: Array) -> tuple[Array, Array]:
        state = transition @ state + now
        return state, state

    return jax.lax.scan(step, jnp.zeros_like(inputs[0]), inputs)[1]


def _jumps(transition: Array, length: int) -> list[Advance]:
    powers = [transition]
    for _ in range((length - 1).bit_length() - 1):
        powers.append(powers[-1] @ powers[-1])
    return [_jump(power) for power in powers]


def _jump(power: Array) -> Advance:
    # A state of 0 stays 0 even where the power of a growing transition is infinite.
    return lambda state, more: (
        jnp.where(jnp.any(state != 0, axis=-1, keepdims=True), state @ power.T, 0) + more
    )


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _nonlinear(rho: str, transition: Array, inputs: Array, length: Array | None) -> Array:
    apply = NONLINEARITIES[rho][0]

    def step(state: Array, now: Array) -> tuple[Array, Array]:
        state = apply(transition @ state + now)
        return state, state

    return until(length, jax.lax.scan(step, jnp.zeros_like(inputs[0]), inputs)[1])


def _nonlinear_forward(
    rho: str, transition: Array, inputs: Array, length: Array | None
) -> tuple[Array, Kept]:
    states = _nonlinear(rho, transition, inputs, length)
    return states, (transition, states, length)


def _nonlinear_backward(rho: str, kept: Kept, cotangent: Array) -> tuple[Array, Array, None]:
    transition, states, length = kept
    cotangent = until(length, cotangent)
    slopes = NONLINEARITIES[rho][1](states)

    def step(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        above, slope = now
        later = slope * (above + transition.T @ later)
        return later, later

    gradient = jax.lax.scan(step, jnp.zeros_like(states[0]), (cotangent, slopes), reverse=True)[1]
    return gradient[1:].T @ states[:-1], gradient, None


_nonlinear.defvjp(_nonlinear_forward, _nonlinear_backward)
