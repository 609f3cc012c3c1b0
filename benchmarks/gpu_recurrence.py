"""The recurrence on a GPU: states and gradients, against the printed form, JAX's scans and a lower bound.

    python -m benchmarks.gpu_recurrence             # on a GPU: L 2,048 and 16,384, batch 32, N 256
    python -m benchmarks.gpu_recurrence --dry-run   # tiny shapes, on any device; the times are meaningless

The floor is the time to move the fewest possible bytes at the bandwidth of a large copy, measured first: the
forward pass reads inputs and writes states; the reverse pass reads states and cotangents, and writes
gradients. "error" is the largest difference of states and gradients from `lax.scan`, relative to the largest
value. Needs this repository, jax, flax, optax and numpy.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax import Array
from jax import numpy as jnp

from benchmarks.printed import printed_recurrence
from benchmarks.timing import circumstances, in_turns, table
from trainables.layers.recurrence import ALGORITHMS, planar, recurrence

PASSES = 5
"""Minimum number of arrays of the sequence's size that are read or written."""

States = Callable[[Array, Array, Array], Array]
"""(decays (C,), angles (C,), inputs (B, L, 2, C)) -> states, for C complex channels."""


def ours(algorithm: str) -> States:
    """Return the states function of one of our algorithms."""

    def states(gamma: Array, theta: Array, inputs: Array) -> Array:
        decay = planar(gamma * jnp.cos(theta), gamma * jnp.sin(theta))
        return jax.vmap(lambda sequence: recurrence(decay, sequence, algorithm=algorithm))(inputs)

    return states


def printed(gamma: Array, theta: Array, inputs: Array) -> Array:
    """Compute the states in the paper's printed form, with heads of two channels."""
    pairs = jnp.moveaxis(inputs, -2, -1)
    states = jax.vmap(lambda sequence: printed_recurrence(gamma, theta[:, None], sequence))(pairs)
    return jnp.moveaxis(states, -1, -2)


def scanned(gamma: Array, theta: Array, inputs: Array) -> Array:
    """Compute the states by `lax.scan` over complex numbers."""
    decay, series = gamma * jnp.exp(1j * theta), jnp.moveaxis(_complex(inputs), 1, 0)

    def step(state: Array, now: Array) -> tuple[Array, Array]:
        state = decay * state + now
        return state, state

    return _planes(jnp.moveaxis(jax.lax.scan(step, jnp.zeros_like(series[0]), series)[1], 0, 1))


def associated(gamma: Array, theta: Array, inputs: Array) -> Array:
    """Compute the states by `lax.associative_scan` over complex numbers."""
    series = _complex(inputs)
    decays = jnp.broadcast_to(gamma * jnp.exp(1j * theta), series.shape)

    def join(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
        return first[0] * second[0], second[0] * first[1] + second[1]

    return _planes(jax.lax.associative_scan(join, (decays, series), axis=1)[1])


def _complex(planes: Array) -> Array:
    return jax.lax.complex(planes[..., 0, :], planes[..., 1, :])


def _planes(series: Array) -> Array:
    return planar(series.real, series.imag)


def gradient(states: States, batch: int, length: int, channels: int) -> Callable[[], Any]:
    """Return a function that computes states and their gradients by decays, angles and inputs."""
    gamma, theta = jnp.linspace(0.9, 0.999, channels), jnp.linspace(0, 3, channels)
    inputs, towards = jax.random.normal(jax.random.key(0), (2, batch, length, 2, channels))

    def both(gamma: Array, theta: Array, inputs: Array, towards: Array) -> Any:
        outputs, pull = jax.vjp(states, gamma, theta, inputs)
        return outputs, pull(towards)

    return partial(jax.jit(both), gamma, theta, inputs, towards)


def bandwidth(count: int) -> float:
    """Return the bytes per second, read and written, of a copy of `count` floats."""
    numbers = jnp.arange(count, dtype=jnp.float32)
    copy = jax.jit(lambda a: a + 1)
    return 8 * count / in_turns({"copy": lambda: copy(numbers)}, 20)["copy"]


def apart(actual: Any, expected: Any) -> float:
    """Return the largest relative difference between the arrays of two trees."""
    pairs = zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True)
    return max(float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b))) for a, b in pairs)


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    batch, channels, lengths = (2, 4, (12, 40)) if options.dry_run else (32, 128, (2_048, 16_384))
    speed = bandwidth(1 << (10 if options.dry_run else 28))
    cases: dict[str, States] = {"lax.scan": scanned, "printed form": printed, "associative_scan": associated}
    cases |= {f"ours, {algorithm}": ours(algorithm) for algorithm in ALGORITHMS if algorithm != "sequential"}
    rows = []
    for length in lengths:
        functions = {name: gradient(states, batch, length, channels) for name, states in cases.items()}
        reference = functions["lax.scan"]()
        errors = {name: apart(function(), reference) for name, function in functions.items()}
        timed = in_turns(functions, options.rounds)
        floor = PASSES * 8 * batch * length * channels / speed
        for name, seconds in timed.items():
            faster, share = timed["printed form"] / seconds, floor / seconds
            cells = f"{1000 * seconds:.3f}", f"{faster:.1f}", f"{100 * share:.0f} %", f"{errors[name]:.0e}"
            rows.append([f"{length:,}", name, *cells])
        rows.append([f"{length:,}", "floor", f"{1000 * floor:.3f}", "", "100 %", ""])
    print(table(["L", "states and gradients", "ms", "times the printed form", "of the floor", "error"], rows))
    print(f"\nCopies run at {speed / 1e9:.0f} GB/s. {circumstances()}")


if __name__ == "__main__":
    main()
