"""Random bits by hashing counters: what is drawn at every step, for a few integer operations a number.

`jax.random` is sounder and is what parameters are drawn with. But its generator is a loop of its own for
every key, and for the masks of dropout alone that made a fifth of a training program to compile.
"""

from __future__ import annotations

import math

from jax import Array
from jax import numpy as jnp


def mixed(word: Array) -> Array:
    """Return a hash of uint32: every input bit flips every output bit with probability near one half.

    A bijection, so that different words stay different.
    """
    word = (word ^ (word >> 16)) * jnp.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * jnp.uint32(0x846CA68B)
    return word ^ (word >> 16)


def folded(seed: Array, word: Array) -> Array:
    """Return the seed (2,) uint32 of one of many streams, told apart by a uint32."""
    return jnp.stack([mixed(seed[0] ^ mixed(word)), mixed(seed[1] + mixed(word ^ jnp.uint32(0x9E3779B9)))])


def uniform(seed: Array, shape: tuple[int, ...]) -> Array:
    """Return numbers in [0, 1) of a seed (2,) uint32."""
    counters = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    bits = mixed(mixed(counters + seed[0]) ^ seed[1])
    return (bits >> 8).astype(jnp.float32) * jnp.float32(2**-24)
