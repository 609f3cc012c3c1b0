"""Counter-based random numbers and permutations: hashes of counters, with no state.

They cost a few integer operations a number, and serve what is drawn at every step. Parameters are drawn with
`jax.random`, which is statistically sounder; but it compiles a loop for every key, and the masks of dropout
alone would take a fifth of a training program's compilation.

The order of an epoch is a keyed permutation of [0, n), evaluated on the device at any positions: a Feistel
network over pairs (left, right) with `rows * columns >= n`, which is a bijection for any round function.
Values outside [0, n) follow their cycle until they fall inside. Nothing is sorted or stored, so that a batch
costs the same at the first and at the last of 160,000 examples, and a step's batch follows from (seed, epoch,
position) alone: a resumed trial reads what an undisturbed one would have read.

Source: Black and Rogaway, "Ciphers with arbitrary finite domains" (2002), sections 4 and 5 (permutations).
"""

from __future__ import annotations

import math

import jax
from jax import Array
from jax import numpy as jnp

ROUNDS = 8
"""Number of Feistel rounds. Six rounds would be visibly uneven for fewer than 16 examples."""


def mixed(word: Array) -> Array:
    """Return a hash of uint32: every input bit flips every output bit with probability near one half.

    A bijection, so that different words stay different.
    """
    word = (word ^ (word >> 16)) * jnp.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * jnp.uint32(0x846CA68B)
    return word ^ (word >> 16)


def folded(seed: Array, word: Array) -> Array:
    """Fold a uint32 into a seed (2,) uint32, as `jax.random.fold_in` does with a key."""
    return jnp.stack([mixed(seed[0] ^ mixed(word)), mixed(seed[1] + mixed(word ^ jnp.uint32(0x9E3779B9)))])


def uniform(seed: Array, shape: tuple[int, ...]) -> Array:
    """Return numbers in [0, 1) of a seed (2,) uint32."""
    counters = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    bits = mixed(mixed(counters + seed[0]) ^ seed[1])
    return (bits >> 8).astype(jnp.float32) * jnp.float32(2**-24)


def permuted(positions: Array, size: int, seed: Array, epoch: Array) -> Array:
    """Return the examples at `positions` of an epoch.

    Args:
        positions: Uint32 of any shape, each below `size`.
        size: Number of examples n; at least 1.
        seed: (2,) uint32.
        epoch: Uint32, of the shape of `positions` or a scalar.

    Returns:
        int32 of the shape of `positions`: over all positions of one epoch, every example once.
    """
    rows = math.isqrt(size - 1) + 1
    columns = -(-size // rows)
    key = mixed(mixed(seed[0] ^ mixed(epoch.astype(jnp.uint32))) ^ seed[1])

    def walk(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        values, outside = carry
        values = jnp.where(outside, _feistel(values, rows, columns, key), values)
        return values, values >= size

    start = positions.astype(jnp.uint32), jnp.ones(positions.shape, bool)
    return jax.lax.while_loop(lambda carry: jnp.any(carry[1]), walk, start)[0].astype(jnp.int32)


def order_of_steps(step: Array, steps: int, batch: int, size: int, seed: Array) -> Array:
    """Return the examples of consecutive steps, int32 (steps, batch); a batch may span two epochs.

    Args:
        step: Int32, steps done before the first of these; `(step + steps) * batch` must stay below 2**32.
        steps: Number of steps.
        batch: Examples a step.
        size: Number of examples n.
        seed: (2,) uint32.
    """
    first = step.astype(jnp.uint32) * jnp.uint32(batch)
    positions = first + jnp.arange(steps * batch, dtype=jnp.uint32)
    order = permuted(positions % jnp.uint32(size), size, seed, positions // jnp.uint32(size))
    return order.reshape(steps, batch)


def order_of_streams(step: Array, steps: int, batch: int, size: int, seed: Array) -> Array:
    """Return the examples of consecutive steps, int32 (steps, batch), where each row reads consecutive ones.

    An epoch has size // batch steps. Row b begins it at example o + b * (size // batch), where o depends on
    seed and epoch, and reads the next example at each step; the first example follows the last. No example is
    read twice in an epoch. Fewer than `batch` examples are left out, different ones in each epoch.

    Args:
        step: Int32, steps done before the first of these.
        steps: Number of steps.
        batch: Examples a step, at most `size`.
        size: Number of examples n, consecutive in their order.
        seed: (2,) uint32.
    """
    length = jnp.uint32(size // batch)
    done = step.astype(jnp.uint32) + jnp.arange(steps, dtype=jnp.uint32)
    epoch, time = done // length, done % length
    offset = mixed(mixed(seed[0] ^ mixed(epoch)) ^ seed[1]) % jnp.uint32(size)
    starts = jnp.arange(batch, dtype=jnp.uint32) * length
    return (((offset + time)[:, None] + starts) % jnp.uint32(size)).astype(jnp.int32)


def _feistel(values: Array, rows: int, columns: int, key: Array) -> Array:
    """Permute [0, rows * columns): rounds add a keyed hash of one half to the other, modulo its size."""

    def two_rounds(turn: Array, halves: tuple[Array, Array]) -> tuple[Array, Array]:
        left, right = halves
        left = (left + _hash(right, key, 2 * turn) % jnp.uint32(rows)) % jnp.uint32(rows)
        right = (right + _hash(left, key, 2 * turn + 1) % jnp.uint32(columns)) % jnp.uint32(columns)
        return left, right

    halves = values // jnp.uint32(columns), values % jnp.uint32(columns)
    left, right = jax.lax.fori_loop(0, ROUNDS // 2, two_rounds, halves)
    return left * jnp.uint32(columns) + right


def _hash(half: Array, key: Array, turn: Array) -> Array:
    return mixed(half ^ mixed(key + jnp.uint32(0x9E3779B9) * (turn.astype(jnp.uint32) + 1)))
