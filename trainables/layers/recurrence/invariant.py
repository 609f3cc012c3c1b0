"""The time-invariant recurrence and its hand-written reverse pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import NamedTuple

import jax
from jax import Array

from trainables.layers.recurrence import associative, chunked, pallas, sequential
from trainables.layers.recurrence.batching import over_leading_axes
from trainables.layers.recurrence.planar import times


@dataclass(frozen=True)
class Form:
    """One way to compute the states.

    Attributes:
        solve: (decay, inputs, reverse) -> states; see `sequential.solve` for the shapes.
        adjoint: (decay, states, cotangent, reverse) -> gradients by decay and by inputs.
    """

    solve: Callable[[Array, Array, bool], Array]
    adjoint: Callable[[Array, Array, Array, bool], tuple[Array, Array]]


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "sequential": Form(sequential.solve, sequential.adjoint),
        "associative": Form(associative.solve, associative.adjoint),
        "chunked": Form(chunked.solve, chunked.adjoint),
        "pallas": Form(pallas.solve, pallas.adjoint),
    }
)
"""Interchangeable ways to compute the same states."""


class Choice(NamedTuple):
    """A form, and up to how many channels beside each other and from which length on it is the fastest."""

    channels: float
    length: int
    form: str


FASTEST: Mapping[str, tuple[Choice, ...]] = MappingProxyType(
    {"cpu": (Choice(16, 2_048, "chunked"), Choice(math.inf, 0, "sequential"))}
)
"""By backend, the first that fits; channels of all sequences count (docs/benchmarks/recurrence.md)."""

UNMEASURED = (Choice(math.inf, 0, "associative"),)
"""Of other backends. XLA's own operations in O(log L) depth: safe on a GPU, which `pallas` has not run on."""


def recurrence(
    decay: Array, inputs: Array, *, initial: Array | None = None, reverse: bool = False, form: str = "auto"
) -> Array:
    """Return every state of x_t = decay * x_{t-1} + inputs_t.

    Args:
        decay: planes (2, N), the same at every step.
        inputs: planes (L, 2, N); bfloat16 inputs give bfloat16 states, carried in the type of `decay`.
        initial: planes (2, N), the state before the first step; zero if None.
        reverse: whether time runs from L - 1 down to 0.
        form: a name of `FORMS`, or "auto" for the one that is fastest here.

    Returns:
        The states, planes (L, 2, N).
    """
    if initial is not None:
        inputs = inputs.at[-1 if reverse else 0].add(times(decay, initial).astype(inputs.dtype))
    return _states(form, reverse, decay, inputs)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _states(form: str, reverse: bool, decay: Array, inputs: Array) -> Array:
    return _solver(form, reverse)(decay, inputs)


def _forward(form: str, reverse: bool, decay: Array, inputs: Array) -> tuple[Array, tuple[Array, Array]]:
    states = _solver(form, reverse)(decay, inputs)
    return states, (decay, states)


def _backward(form: str, reverse: bool, kept: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array]:
    return _differentiator(form, reverse)(*kept, cotangent)


_states.defvjp(_forward, _backward)


@cache
def _solver(form: str, reverse: bool) -> Callable[[Array, Array], Array]:
    return over_leading_axes(lambda decay, inputs: _choose(form, inputs).solve(decay, inputs, reverse))


@cache
def _differentiator(form: str, reverse: bool) -> Callable[[Array, Array, Array], tuple[Array, Array]]:
    return over_leading_axes(
        lambda decay, states, cotangent: _choose(form, states).adjoint(decay, states, cotangent, reverse)
    )


def _choose(form: str, series: Array) -> Form:
    if form != "auto":
        return FORMS[form]
    *rows, length, _, channels = series.shape
    together = math.prod(rows) * channels
    choices = FASTEST.get(jax.default_backend(), UNMEASURED)
    return FORMS[next(each.form for each in choices if together <= each.channels and length >= each.length)]
