"""Times of the time-invariant recurrence's algorithms by size, from which `algorithm: auto` is derived.

    python -m benchmarks.algorithms [--algorithms sequential chunked associative] [--rounds 5]

States and gradients by decay and inputs, for R parallel sequences of N complex channels.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax import Array
from jax import numpy as jnp

from benchmarks.timing import circumstances, in_turns, table
from trainables.layers.recurrence import ALGORITHMS, polar, recurrence

SIZES = [
    (rows, channels, length)
    for rows, channels in ((1, 8), (1, 32), (8, 32), (8, 128))
    for length in (256, 2_048, 16_384)
]
"""R, N, L."""


def gradient(algorithm: str, rows: int, channels: int, length: int) -> Callable[[], Any]:
    """Return a function that computes the states and both gradients."""
    decay = polar(jnp.full(channels, 0.99), jnp.linspace(0, 1, channels))
    inputs, towards = jax.random.normal(jax.random.key(0), (2, rows, length, 2, channels))

    def both(decay: Array, inputs: Array, towards: Array) -> Any:
        states, pull = jax.vjp(jax.vmap(partial(recurrence, algorithm=algorithm), (None, 0)), decay, inputs)
        return pull(states + towards)

    return partial(jax.jit(both), decay, inputs, towards)


def main() -> None:
    """Print one row per size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--algorithms", nargs="+", choices=tuple(ALGORITHMS), default=["sequential", "chunked", "associative"]
    )
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rows = []
    for size in SIZES:
        timed = in_turns(
            {algorithm: gradient(algorithm, *size) for algorithm in options.algorithms}, options.rounds
        )
        best = min(timed, key=timed.__getitem__)
        rows.append(
            [
                *(f"{n:,}" for n in size),
                *(f"{1000 * timed[algorithm]:.2f}" for algorithm in options.algorithms),
                best,
            ]
        )
    print(table(["R", "N", "L", *(f"{algorithm}, ms" for algorithm in options.algorithms), "fastest"], rows))
    print(f"\n{circumstances()}")


if __name__ == "__main__":
    main()
