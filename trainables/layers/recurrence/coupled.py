"""Many recurrences of two coupled real numbers: x_t = M x_{t-1} + b_t, with one 2 x 2 matrix M for each pair.

The reverse pass is written by hand, as for the other recurrences, and keeps nothing but the states. States
may grow: given the true length of a sequence, states and gradients in the padding are 0.
"""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

import jax
from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence.associative import Advance, prefixes
from trainables.layers.recurrence.padding import until


def coupled_recurrence(
    transition: Array, inputs: Array, *, algorithm: str = "auto", length: Array | None = None
) -> Array:
    """Return every state of x_t = M x_{t-1} + inputs_t from zero, (L, 2, N).

    Args:
        transition: M of each of N pairs, (2, 2, N): row, column, pair.
        inputs: (L, 2, N).
        algorithm: "sequential"; "associative", with powers of M by squaring; or "auto", which is the first
            on a CPU and the second elsewhere.
        length: Length of the true sequence, if padding follows; inputs from there on must be 0.
    """
    if algorithm == "auto":
        algorithm = "sequential" if jax.default_backend() == "cpu" else "associative"
    return _coupled(algorithm, transition, inputs, length)


def apply(transition: Array, state: Array) -> Array:
    """Return M x for each pair; M (2, 2, N), x (..., 2, N)."""
    first, second = state[..., 0, :], state[..., 1, :]
    (a, b), (c, d) = transition
    return jnp.stack([a * first + b * second, c * first + d * second], axis=-2)


Kept: TypeAlias = tuple[Array, Array, Array | None]
"""The transition, the states and the length."""


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _coupled(algorithm: str, transition: Array, inputs: Array, length: Array | None) -> Array:
    return until(length, _solve(algorithm, transition, inputs))


def _forward(algorithm: str, transition: Array, inputs: Array, length: Array | None) -> tuple[Array, Kept]:
    states = _coupled(algorithm, transition, inputs, length)
    return states, (transition, states, length)


def _backward(algorithm: str, kept: Kept, cotangent: Array) -> tuple[Array, Array, None]:
    transition, states, length = kept
    turned = jnp.swapaxes(transition, 0, 1)
    gradient = until(length, _solve(algorithm, turned, until(length, cotangent)[::-1])[::-1])
    return jnp.einsum("tin,tjn->ijn", gradient[1:], states[:-1]), gradient, None


_coupled.defvjp(_forward, _backward)


def _solve(algorithm: str, transition: Array, inputs: Array) -> Array:
    if algorithm == "associative":
        return prefixes(_jumps(transition, len(inputs)), inputs)

    def step(state: Array, now: Array) -> tuple[Array, Array]:
        state = apply(transition, state) + now
        return state, state

    return jax.lax.scan(step, jnp.zeros_like(inputs[0]), inputs)[1]


def _jumps(transition: Array, length: int) -> list[Advance]:
    powers = [transition]
    for _ in range((length - 1).bit_length() - 1):
        powers.append(jnp.einsum("ijn,jkn->ikn", powers[-1], powers[-1]))
    return [_jump(power) for power in powers]


def _jump(power: Array) -> Advance:
    # A state of 0 stays 0 even where the power of a growing transition is infinite.
    return lambda state, more: (
        jnp.where(jnp.any(state != 0, axis=-2, keepdims=True), apply(power, state), 0) + more
    )
