"""Gradients of the recurrences on a GPU, against JAX's own scans and the memory bandwidth.

    python -m benchmarks.gpu             # on a GPU: L 2,048 and 16,384 (--lengths, --only)
    python -m benchmarks.gpu --dry-run   # tiny shapes, on any device; the times are meaningless

The time-invariant recurrence has 128 complex channels, the varying one 256 real or 128 complex channels, both
in batches of 32; the delta rule has 4 heads with 64 x 64 numbers, in batches of 8. The floor is the time to
move the fewest possible bytes at the bandwidth of a large copy, which is measured first. "error" is the
largest difference of outputs and gradients from `lax.scan`, relative to the largest value. Needs this
repository, jax, flax, optax and numpy.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from benchmarks.timing import circumstances, in_turns, line, table
from trainables.layers.recurrence import ALGORITHMS, in_chunks, recurrence, times, varying_recurrence
from trainables.layers.recurrence.delta_rule import delta_rule
from trainables.layers.recurrence.wy_form import Steps

CHUNKS = (32, 64, 128)
"""Steps of a chunk of the delta rule where XLA runs it; on a CPU the layers take 32."""


@dataclass(frozen=True)
class Case:
    """One recurrence and its implementations.

    Attributes:
        given: Arrays with a batch in front.
        forms: Implementations by name, from the arrays of one sequence to its outputs; the first is the
            reference.
        moved: Fewest bytes that a gradient moves.
    """

    given: Any
    forms: Mapping[str, Callable[..., Array]]
    moved: int


def scans(product: Callable[[Array, Array], Array]) -> dict[str, Callable[[Array, Array], Array]]:
    """Return JAX's own scans of decays (L, ...) and inputs (L, ...), given the product of two values."""

    def join(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
        return product(second[0], first[0]), product(second[0], first[1]) + second[1]

    def scanned(decays: Array, inputs: Array) -> Array:
        def step(state: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            state = product(now[0], state) + now[1]
            return state, state

        return jax.lax.scan(step, jnp.zeros_like(inputs[0]), (decays, inputs))[1]

    return {
        "lax.scan": scanned,
        "associative_scan": lambda decays, inputs: jax.lax.associative_scan(join, (decays, inputs))[1],
    }


def invariant(batch: int, length: int, channels: int) -> Case:
    """Return the time-invariant recurrence with complex decays between 0.9 and 0.999 in modulus."""
    moduli, angles = np.linspace(0.9, 0.999, channels), np.linspace(0, 3, channels)
    decay = moduli * np.stack([np.cos(angles), np.sin(angles)])
    inputs = np.random.default_rng(0).standard_normal((batch, length, 2, channels))

    def repeated(scan: Callable[..., Array], decay: Array, inputs: Array) -> Array:
        return scan(jnp.broadcast_to(decay, inputs.shape), inputs)

    forms = {name: partial(repeated, scan) for name, scan in scans(times).items()}
    for algorithm in ALGORITHMS:
        if algorithm != "sequential":
            forms[f"ours, {algorithm}"] = partial(recurrence, algorithm=algorithm)
    given = (jnp.broadcast_to(jnp.float32(decay), (batch, 2, channels)), jnp.float32(inputs))
    return Case(given, forms, 5 * 4 * inputs.size)


def varying(batch: int, length: int, channels: int, planes: bool) -> Case:
    """Return the elementwise recurrence with decays in (0.5, 1), turned by any angle if complex."""
    draw = np.random.default_rng(0)
    shape = (batch, length, 2, channels) if planes else (batch, length, channels)
    moduli, inputs = draw.uniform(0.5, 1, shape), draw.standard_normal(shape)
    if planes:
        angles = draw.uniform(0, 2 * np.pi, (batch, length, channels))
        moduli = moduli * np.stack([np.cos(angles), np.sin(angles)], axis=2)

    def ours(algorithm: str, decays: Array, inputs: Array) -> Array:
        return varying_recurrence(
            decays, inputs, jnp.zeros_like(inputs[0]), planes=planes, algorithm=algorithm
        )

    forms = scans(times if planes else jnp.multiply)
    forms |= {f"ours, {algorithm}": partial(ours, algorithm) for algorithm in ("associative", "pallas")}
    return Case(tuple(map(jnp.float32, (moduli, inputs))), forms, 8 * 4 * inputs.size)


def delta(batch: int, length: int, heads: int, side: int) -> Case:
    """Return the delta rule with unit keys, steps of up to 2 and slow decays."""
    draw = np.random.default_rng(0)
    keys = draw.standard_normal((batch, heads, length, side))
    steps = Steps(
        queries=jnp.float32(draw.standard_normal(keys.shape)),
        keys=jnp.float32(keys / np.linalg.norm(keys, axis=-1, keepdims=True)),
        values=jnp.float32(draw.standard_normal(keys.shape)),
        sizes=jnp.float32(draw.uniform(0, 2, keys.shape[:-1])),
        log_decays=jnp.float32(-draw.exponential(0.01, keys.shape[:-1])),
    )
    zeros = jnp.zeros((side, side))

    def whole(algorithm: str, steps: Steps) -> Array:
        return delta_rule(steps, zeros, algorithm)[0]

    def chunked(size: int, steps: Steps) -> Array:
        def chunk(state: Array, rows: Steps) -> tuple[Array, Array]:
            outputs, state = delta_rule(rows, state, "chunked")
            return state, outputs

        outputs: Array = in_chunks(chunk, zeros, steps, size)
        return outputs

    forms: dict[str, Callable[..., Array]] = {
        "lax.scan": partial(whole, "sequential"),
        **{f"ours, chunks of {size}": partial(chunked, size) for size in CHUNKS},
        "ours, pallas": partial(whole, "pallas"),
    }
    count = sum(part.size for part in jax.tree.leaves(steps))
    moved = 4 * (3 * count + 2 * steps.values.size)
    return Case((steps,), {name: jax.vmap(form) for name, form in forms.items()}, moved)


def gradient(form: Callable[..., Array], given: Any) -> Callable[[], Any]:
    """Return a function that computes outputs and gradients of a batch."""

    def both(given: Any) -> Any:
        outputs, pull = jax.vjp(jax.vmap(form), *given)
        return outputs, pull(jnp.cos(outputs))

    return partial(jax.jit(both), given)


def bandwidth(count: int) -> float:
    """Return the bytes per second, read and written, of a copy of `count` floats."""
    numbers = jnp.arange(count, dtype=jnp.float32)
    copy = jax.jit(lambda a: a + 1)
    return 8 * count / in_turns({"copy": lambda: copy(numbers)}, 20)["copy"]


def apart(actual: Any, expected: Any) -> float:
    """Return the largest relative difference between the arrays of two trees."""
    pairs = zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True)
    return max(float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b))) for a, b in pairs)


def cases(length: int, tiny: bool) -> dict[str, Case]:
    """Return the recurrences that are measured at one length."""
    batch, heads_batch, channels, side = (2, 1, 4, 4) if tiny else (32, 8, 128, 64)
    return {
        "invariant": invariant(batch, length, channels),
        "varying, real": varying(batch, length, 2 * channels, planes=False),
        "varying, complex": varying(batch, length, channels, planes=True),
        "delta rule": delta(heads_batch, length, 4, side),
    }


def measured(case: Case, speed: float, rounds: int) -> list[list[str]]:
    """Return a row of the table for each form and for the floor; `speed` is in bytes a second."""
    functions = {form: gradient(function, case.given) for form, function in case.forms.items()}
    reference, floor = functions["lax.scan"](), case.moved / speed
    errors = {form: apart(function(), reference) for form, function in functions.items()}
    timed = in_turns(functions, rounds)
    rows = []
    for form, seconds in timed.items():
        faster, share = timed["lax.scan"] / seconds, floor / seconds
        rows.append([form, f"{1000 * seconds:.3f}", f"{faster:.1f}", f"{share:.0%}", f"{errors[form]:.0e}"])
    return [*rows, ["floor", f"{1000 * floor:.3f}", "", "100%", ""]]


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default="", help="prefix of the recurrences to measure: 'delta rule'")
    parser.add_argument("--lengths", type=int, nargs="+", default=None, help="default: 2048 16384")
    options = parser.parse_args()
    lengths = options.lengths or ((12, 40) if options.dry_run else (2_048, 16_384))
    speed = bandwidth(1 << (10 if options.dry_run else 28))
    header = ["L", "recurrence", "outputs and gradients", "ms", "times lax.scan", "of the floor", "error"]
    print(table(header, []), flush=True)
    for length in lengths:
        for name, case in cases(length, options.dry_run).items():
            for cells in measured(case, speed, options.rounds) if name.startswith(options.only) else ():
                print(line([f"{length:,}", name, *cells]), flush=True)
    print(f"\nCopies run at {speed / 1e9:.0f} GB/s. {circumstances()}")


if __name__ == "__main__":
    main()
