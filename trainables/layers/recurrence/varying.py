"""The time-varying recurrence x_t = decay_t * x_{t-1} + inputs_t, diagonal and complex."""

from __future__ import annotations

from functools import partial

import jax
from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence.planar import conjugate, times


def varying_recurrence(
    decays: Array, inputs: Array, *, reverse: bool = False, algorithm: str = "auto"
) -> Array:
    """Return every state of x_t = decays_t * x_{t-1} + inputs_t from zero.

    Args:
        decays: planes (L, 2, N).
        inputs: planes (L, 2, N).
        reverse: whether time runs from L - 1 down to 0.
        algorithm: "sequential", "associative", "chunked", or "auto".

    Returns:
        The states, planes (L, 2, N).
    """
    if reverse:
        return _states(algorithm, decays[::-1], inputs[::-1])[::-1]
    return _states(algorithm, decays, inputs)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _states(algorithm: str, decays: Array, inputs: Array) -> Array:
    return _SOLVERS[algorithm](decays, inputs)


def _forward(algorithm: str, decays: Array, inputs: Array) -> tuple[Array, tuple[Array, Array]]:
    states = _SOLVERS[algorithm](decays, inputs)
    return states, (decays, states)


def _backward(algorithm: str, kept: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array]:
    """Run g_t = cotangent_t + conj(decay_{t+1}) * g_{t+1}, and pair g_t with x_{t-1}."""
    decays, states = kept
    nothing = jnp.zeros_like(states[:1])
    later = jnp.concatenate([conjugate(decays[1:]), nothing])
    gradient = _SOLVERS[algorithm](later[::-1], cotangent[::-1])[::-1]
    before = jnp.concatenate([nothing, states[:-1]])
    return times(conjugate(before), gradient), gradient


_states.defvjp(_forward, _backward)


def _sequential(decays: Array, inputs: Array) -> Array:
    def step(state: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        state = times(now[0], state) + now[1]
        return state, state

    return jax.lax.scan(step, jnp.zeros_like(inputs[0]), (decays, inputs))[1]


def _associative(decays: Array, inputs: Array) -> Array:
    return jax.lax.associative_scan(_join, (decays, inputs))[1]


def _join(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
    return times(first[0], second[0]), times(second[0], first[1]) + second[1]


def _chunked(decays: Array, inputs: Array) -> Array:
    """Scan all chunks in parallel, carry their last states from chunk to chunk, and add the incoming ones."""
    length = len(inputs)
    size = 1 << ((length - 1).bit_length() // 2)
    padding = ((0, -length % size), (0, 0), (0, 0))
    parts = [jnp.pad(part, padding).reshape(-1, size, *part.shape[1:]) for part in (decays, inputs)]
    along, states = jax.lax.scan(
        lambda carry, now: (_join(carry, now),) * 2,
        (_ones(parts[0][:, 0]), jnp.zeros_like(parts[1][:, 0])),
        (jnp.moveaxis(parts[0], 1, 0), jnp.moveaxis(parts[1], 1, 0)),
    )[1]
    leaving = _sequential(along[-1], states[-1])
    entering = jnp.concatenate([jnp.zeros_like(leaving[:1]), leaving[:-1]])
    whole = states + times(along, entering)
    return jnp.moveaxis(whole, 0, 1).reshape(-1, *inputs.shape[1:])[:length]


def _ones(like: Array) -> Array:
    return jnp.zeros_like(like).at[..., 0, :].set(1)


_SOLVERS = {
    "auto": _sequential,
    "sequential": _sequential,
    "associative": _associative,
    "chunked": _chunked,
}
