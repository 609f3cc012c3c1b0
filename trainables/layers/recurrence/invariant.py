"""The time-invariant recurrence and its hand-written reverse pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import jax
from jax import numpy as jnp

from trainables.layers.recurrence.associative import associative
from trainables.layers.recurrence.complex import Pair, conjugate, times
from trainables.layers.recurrence.sequential import sequential

FORMS: Mapping[str, Callable[[Pair, Pair, bool], Pair]] = MappingProxyType(
    {"sequential": sequential, "associative": associative}
)
"""Interchangeable ways to compute the same states."""


def recurrence(
    decay: Pair, inputs: Pair, *, initial: Pair | None = None, reverse: bool = False, form: str | None = None
) -> Pair:
    """Return every state of x_t = decay * x_{t-1} + inputs_t.

    Args:
        decay: (N,), the same at every step.
        inputs: (L, N).
        initial: (N,), the state before the first step; zero if None.
        reverse: whether time runs from L - 1 down to 0.
        form: a name of `FORMS`, or None for the one that is fastest here.

    Returns:
        The states, (L, N).
    """
    if initial is not None:
        first = -1 if reverse else 0
        carried = times(decay, initial)
        inputs = inputs[0].at[first].add(carried[0]), inputs[1].at[first].add(carried[1])
    return _states(form or "sequential", reverse, decay, inputs)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _states(form: str, reverse: bool, decay: Pair, inputs: Pair) -> Pair:
    return FORMS[form](decay, inputs, reverse)


def _forward(form: str, reverse: bool, decay: Pair, inputs: Pair) -> tuple[Pair, tuple[Pair, Pair]]:
    states = FORMS[form](decay, inputs, reverse)
    return states, (decay, states)


def _backward(form: str, reverse: bool, kept: tuple[Pair, Pair], cotangent: Pair) -> tuple[Pair, Pair]:
    """Run the conjugate recurrence against time: g_t = cotangent_t + conj(decay) * g_{t+1}."""
    decay, states = kept
    gradient = FORMS[form](conjugate(decay), cotangent, not reverse)
    before, after = (slice(1, None), slice(None, -1)) if reverse else (slice(None, -1), slice(1, None))
    re, im = times(
        conjugate((states[0][before], states[1][before])), (gradient[0][after], gradient[1][after])
    )
    return (jnp.sum(re, axis=0), jnp.sum(im, axis=0)), gradient


_states.defvjp(_forward, _backward)
