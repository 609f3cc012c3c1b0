"""Prefixes of a linear, time-invariant recurrence by halving: O(log L) depth, any L.

Neighbours lie on an axis of their own, so that cutting and joining are reshapes. With strided slices and
interleaving, XLA for CPU fuses the levels into one another and compiles for minutes at L 1,024.
"""

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
    length, rest = len(series), series.shape[1:]
    if length == 1:
        return series
    even_length = jnp.concatenate([series, jnp.zeros_like(series[:1])]) if length % 2 else series
    pairs = even_length.reshape(-1, 2, *rest)
    second = prefixes(advances[1:], advances[0](pairs[:, 0], pairs[:, 1]))
    before = jnp.concatenate([jnp.zeros_like(second[:1]), second[:-1]])
    first = advances[0](before, pairs[:, 0])
    return jnp.stack([first, second], axis=1).reshape(-1, *rest)[:length]
