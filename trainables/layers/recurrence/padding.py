"""Rows of a sequence without its padding.

A state with a decay above 1 in modulus continues to grow in the padding, where it may overflow. The gradient
there is 0, and infinity times 0 is nan. A gradient that runs through the padding may overflow as well.
"""

from __future__ import annotations

import jax
from jax import Array
from jax import numpy as jnp


def until(length: Array | None, rows: Array) -> Array:
    """Return rows (L, ...) with zeros from row `length` on; None changes nothing."""
    if length is None:
        return rows
    time = jnp.expand_dims(jnp.arange(len(rows)), tuple(range(1, rows.ndim)))
    return jnp.where(time < length, rows, 0)


def until_if_overflown(length: Array | None, rows: Array) -> Array:
    """Return rows (L, ...) that grow to the last one, with zeros from row `length` on if that is not finite.

    It is a loop because, under `vmap`, a `cond` always computes both sides and writes all rows. That makes a
    training step of a layer a fifth slower, whereas a loop that does not run costs nothing.
    """
    if length is None:
        return rows
    overflown = jnp.logical_not(jnp.all(jnp.isfinite(rows[-1])))

    def once(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        return jnp.zeros_like(carry[0]), until(length, carry[1])

    return jax.lax.while_loop(lambda carry: carry[0], once, (overflown, rows))[1]
