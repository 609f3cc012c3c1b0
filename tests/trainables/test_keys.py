"""Keys are those of Flax, whether they are drawn at once or traced."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from trainables.keys import source_of_keys


def drawn(source: nnx.Rngs) -> Array:
    """Return (4, 2) keys as `params` and other streams give them."""
    keys = [source.params(), source.params(), source.dropout(), source()]
    return jnp.stack([jax.random.key_data(key) for key in keys])


def test_keys_are_those_of_flax() -> None:
    key = jax.random.key(3)
    assert (drawn(source_of_keys(key)) == drawn(nnx.Rngs(key))).all()


def test_traced_keys_are_those_of_flax() -> None:
    keys = jax.random.split(jax.random.key(4), 3)
    ours = jax.jit(jax.vmap(lambda key: drawn(source_of_keys(key))))(keys)
    assert (ours == jnp.stack([drawn(nnx.Rngs(key)) for key in keys])).all()
