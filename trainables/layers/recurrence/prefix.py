"""Prefixes of a linear, time-invariant recurrence by halving: O(log L) depth, any L."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jax import Array
from jax import numpy as jnp

Advance = Callable[[Array, Array], Array]
"""(state, input) -> the state some fixed number of steps later, plus the input."""


def prefixes(advances: Sequence[Advance], series: Array) -> Array:
    """Return all states of x_t = advances[0](x_{t-1}, series_t) from zero, (L, ...).

    Neighbours are joined, the series of half the length is solved, and the gaps are filled.

    Args:
        advances: number k advances by 2^k steps; ceil(log2 L) of them or more.
        series: (L, ...).
    """
    length = series.shape[0]
    if length == 1:
        return series
    even, odd = series[0::2], series[1::2]
    at_odd = prefixes(advances[1:], advances[0](even[: length // 2], odd))
    gaps = advances[0](at_odd[: (length - 1) // 2], even[1:])
    return _interleave(jnp.concatenate([even[:1], gaps]), at_odd)


def _interleave(even: Array, odd: Array) -> Array:
    length = len(even) + len(odd)
    filled = odd if len(odd) == len(even) else jnp.concatenate([odd, odd[:1]])
    return jnp.stack([even, filled], axis=1).reshape(-1, *even.shape[1:])[:length]
