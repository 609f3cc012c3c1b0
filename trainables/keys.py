"""A source of random keys that is cheap to trace."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx
from jax import Array


def source_of_keys(key: Array) -> nnx.Rngs:
    """Return a source that gives the same keys as `nnx.Rngs(key)`.

    Flax counts the keys in an array. In a traced function, each count asks a tracer for its sharding. JAX
    then formats an error message that is never shown, which takes a large part of the time of tracing. This
    source counts in Python. A module must not keep it, because its count is not part of the state.
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
