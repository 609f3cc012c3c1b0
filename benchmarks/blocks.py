"""The gradient of LDStack's linear systems: blocks of steps, all states, and Fourier convolution.

    python -m benchmarks.blocks [--rounds 5]

By the parameters and the input. `states` is the recurrence of `algorithm: sequential`; `blocks of S` are
`algorithm: blocks` with S steps a block, 32 of which it takes; `convolution` is what one would write for a
system of few inputs: its response over all L steps, and Fourier transforms of 2 L.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from benchmarks.timing import circumstances, in_turns, line, table
from trainables.layers.lds import LDS
from trainables.layers.recurrence import blocks, conjugate, times
from trainables.layers.recurrence.planar import table as powers_of

SYSTEMS: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "copy memory, T = 500": ((256, 520), {"d_model": 10, "d_state": 160}),
    "copy memory, T = 2,000": ((64, 2_020), {"d_model": 10, "d_state": 160}),
    "psMNIST": ((128, 784), {"d_model": 10, "d_state": 784, "eigenvalues": "hinge", "projections": 1}),
    "D 32, 4 projections": (
        (32, 784),
        {"d_model": 32, "d_state": 32, "eigenvalues": "hinge", "projections": 4},
    ),
    "D 32, N 256": ((32, 784), {"d_model": 32, "d_state": 256}),
    "D 32, N 64": ((32, 784), {"d_model": 32, "d_state": 64}),
}
"""By name: sequences and steps, and the options of the layer."""

SIZES = (8, 16, 32, 64)


def convolved(layer: LDS, u: Array) -> Array:
    """Return the outputs (L, D) by Fourier transforms of responses over the whole sequence."""
    coefficients = layer.coefficients()
    inputs = layer.inputs(coefficients, u)
    drives = layer.driven(jnp.eye(inputs.shape[1]))
    powers = powers_of(coefficients.decay, len(u))
    reads = times(conjugate(powers)[:, None], coefficients.out.T.reshape(u.shape[1], 2, -1))
    responses = reads[:, :, 0] @ drives.T
    size = 1 << (2 * len(u) - 1).bit_length()
    spectra = jnp.fft.rfft(responses.T, size), jnp.fft.rfft(inputs.T, size)
    outputs = jnp.fft.irfft(jnp.sum(spectra[0] * spectra[1][:, None], axis=0), size)
    return outputs[:, : len(u)].T + layer.skip(u)


def gradient(
    shape: tuple[int, int], options: dict[str, Any], algorithm: str, run: Callable[[LDS, Array], Array]
) -> Callable[[], Any]:
    """Return a call of the compiled gradient by parameters and input."""
    layer = LDS(**options, algorithm=algorithm, rngs=nnx.Rngs(0))
    graph, parameters, *rest = nnx.split(layer, nnx.Param, ...)
    u, towards = jax.random.normal(jax.random.key(1), (2, *shape, options["d_model"]))

    def loss(parameters: nnx.State, u: Array) -> Array:
        layer = nnx.merge(graph, parameters, *rest)
        return jnp.vdot(jax.vmap(partial(run, layer))(u), towards)

    return partial(jax.jit(jax.grad(loss, argnums=(0, 1))).lower(parameters, u).compile(), parameters, u)


def forms(shape: tuple[int, int], options: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return the gradient of a system by form."""
    answers = {"states": gradient(shape, options, "sequential", LDS.__call__)}
    kept = blocks.STEPS
    for size in SIZES:
        blocks.STEPS = size
        answers[f"blocks of {size}"] = gradient(shape, options, "blocks", LDS.__call__)
    blocks.STEPS = kept
    return {**answers, "convolution": gradient(shape, options, "blocks", convolved)}


def main() -> None:
    """Print one row for each system."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print(
        table(["system", "states, ms", *(f"blocks of {size}" for size in SIZES), "convolution", "auto"], [])
    )
    for name, (shape, options) in SYSTEMS.items():
        taken = in_turns(forms(shape, options), rounds)
        chosen = "states" if LDS(**options, rngs=nnx.Rngs(0)).states_at_hand else "blocks"
        cells = [name, *(f"{1000 * seconds:.0f}" for seconds in taken.values()), chosen]
        print(line(cells), flush=True)
    print(f"\n{circumstances()}")


if __name__ == "__main__":
    main()
