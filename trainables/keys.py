"""A source of random keys that is cheap to trace."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx
from jax import Array


def source_of_keys(key: Array) -> nnx.Rngs:
    """Return a source that gives the same keys as `nnx.Rngs(key)`.

    Flax counts the keys in an array. Where a function is traced, each count asks a tracer for its sharding,
    which it does not have: JAX then composes an error message that nobody reads, and prints equations for it,
    which is much of the time of tracing. This source counts in Python. A module may not keep it: its count is
    no state.
    """
    source: Any = nnx.Rngs()
    source.default = _Counting(key, tag="default")
    return source


class _Counting(nnx.RngStream):
    given = 0

    def __call__(self) -> Array:
        key = jax.random.fold_in(self.key[...], self.given)
        self.given += 1
        return key
