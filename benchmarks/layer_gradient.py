"""The gradient of one RotRNN layer, against the form printed in the paper and against its matrix products.

    python -m benchmarks.layer_gradient [--processes 5] [--rounds 7]

L 2,048, D 128, N 256, H 32, batch 8: the size used for ListOps. Gradients are by the parameters and the
input. The products are u B' and x C' with their gradients and nothing in between; the exponentials are those
of 32 matrices of 8 x 8 with their gradient, as computed by our layer.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from typing import Any

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from benchmarks.printed import PrintedRotRNN
from benchmarks.timing import circumstances, in_processes, in_turns, milliseconds, ratios, table
from trainables.layers.rotation import rotation
from trainables.layers.rotrnn import RotRNN

D, N, H = 128, 256, 32
IMPLEMENTATIONS = {"ours": RotRNN, "printed": PrintedRotRNN}


def gradient(implementation: str, length: int, batch: int) -> tuple[jax.stages.Wrapped, tuple[Any, ...]]:
    """Return the compiled gradient of a layer by parameters and input, and its arguments."""
    graph, parameters = nnx.split(IMPLEMENTATIONS[implementation](D, N, heads=H, rngs=nnx.Rngs(0)))
    u, towards = jax.random.normal(jax.random.key(1), (2, batch, length, D))

    def loss(parameters: Any, u: Array, towards: Array) -> Array:
        return jnp.vdot(jax.vmap(nnx.merge(graph, parameters))(u), towards)

    return jax.jit(jax.grad(loss, argnums=(0, 1))), (parameters, u, towards)


def products(length: int, batch: int) -> tuple[jax.stages.Wrapped, tuple[Any, ...]]:
    """Return the compiled gradient of the two matrix products, all sequences joined, and its arguments."""
    into, out_of = (jax.random.normal(jax.random.key(k), (N, D)) / 16 for k in range(2))
    u, towards = jax.random.normal(jax.random.key(1), (2, batch * length, D))

    def loss(into: Array, out_of: Array, u: Array, towards: Array) -> Array:
        return jnp.vdot((u @ into.T) @ out_of, towards)

    return jax.jit(jax.grad(loss, argnums=(0, 1, 2))), (into, out_of, u, towards)


def exponentials() -> tuple[jax.stages.Wrapped, tuple[Any, ...]]:
    """Return the compiled gradient of the small rotations of one layer, and its arguments."""
    weights = jax.random.normal(jax.random.key(0), (H, N // H, N // H))
    return jax.jit(jax.grad(lambda m: jnp.sum(rotation(m) ** 3))), (weights,)


def measured(length: int, batch: int, rounds: int) -> dict[str, float]:
    """Return the median seconds of each gradient, by name."""
    cases = {implementation: gradient(implementation, length, batch) for implementation in IMPLEMENTATIONS}
    cases |= {"products": products(length, batch), "exponentials": exponentials()}
    return in_turns({name: partial(f, *a) for name, (f, a) in cases.items()}, rounds)


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(options.length, options.batch, options.rounds)))
        return
    sizes = [f"--{name}={getattr(options, name)}" for name in ("length", "batch", "rounds")]
    runs = in_processes("benchmarks.layer_gradient", options.processes, *sizes)
    rows = [
        ["printed form", milliseconds(runs, "printed"), ratios(runs, "printed", "ours")],
        ["ours", milliseconds(runs, "ours"), "1"],
        ["its matrix products alone", milliseconds(runs, "products"), ratios(runs, "products", "ours")],
        ["its exponentials alone", milliseconds(runs, "exponentials"), ratios(runs, "exponentials", "ours")],
    ]
    print(table(["gradient of", "ms", "against ours: median (range)"], rows))
    print(f"\nOurs against its matrix products: {ratios(runs, 'ours', 'products')}.")
    print(f"Medians over {options.processes} processes. {circumstances()}")


if __name__ == "__main__":
    main()
