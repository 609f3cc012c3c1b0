"""The gradient of LDStack's layers: blocks of steps, all states, and Fourier convolution.

    python -m benchmarks.blocks [--rounds 5]

By the parameters and the input. `states` is the recurrence of `algorithm: sequential`; `blocks of S` are
`algorithm: blocks` with S steps a block; `convolution` is what one would write for a linear system of few
inputs: its response over all L steps, and Fourier transforms of 2 L.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from benchmarks.timing import circumstances, in_turns, line, table
from trainables.layers.layer import Layer
from trainables.layers.lds import LDS
from trainables.layers.ldstack import LDStack
from trainables.layers.recurrence import blocks, conjugate, times
from trainables.layers.recurrence.planar import table as powers_of

SYSTEMS: dict[str, tuple[tuple[int, int], type[LDS] | type[LDStack], dict[str, Any]]] = {
    "copy memory, T = 500": ((256, 520), LDS, {"d_model": 10, "d_state": 160}),
    "copy memory, T = 2,000": ((64, 2_020), LDS, {"d_model": 10, "d_state": 160}),
    "psMNIST": (
        (128, 784),
        LDS,
        {"d_model": 10, "d_state": 784, "eigenvalues": "hinge", "projections": 1},
    ),
    "D 32, 4 projections": (
        (32, 784),
        LDS,
        {"d_model": 32, "d_state": 32, "eigenvalues": "hinge", "projections": 4},
    ),
    "D 32, N 256": ((32, 784), LDS, {"d_model": 32, "d_state": 256}),
    "D 32, N 64": ((32, 784), LDS, {"d_model": 32, "d_state": 64}),
    "adding, T = 750, LDStack": ((32, 750), LDStack, {"d_model": 2, "d_state": 32}),
    "the same with 2 projections": ((32, 750), LDStack, {"d_model": 2, "d_state": 32, "projections": 2}),
    "the same with n 128": ((32, 750), LDStack, {"d_model": 2, "d_state": 128, "projections": 2}),
}
"""By name: sequences and steps, the layer, and its options."""

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
    shape: tuple[int, int],
    build: Callable[..., Layer],
    options: dict[str, Any],
    run: Callable[[Any, Array], Array] = Layer.__call__,
) -> Callable[[], Any]:
    """Return a call of the compiled gradient by parameters and input."""
    layer = build(**options, rngs=nnx.Rngs(0))
    graph, parameters, *rest = nnx.split(layer, nnx.Param, ...)
    u, towards = jax.random.normal(jax.random.key(1), (2, *shape, options["d_model"]))

    def loss(parameters: nnx.State, u: Array) -> Array:
        layer = nnx.merge(graph, parameters, *rest)
        return jnp.vdot(jax.vmap(partial(run, layer))(u), towards)

    return partial(jax.jit(jax.grad(loss, argnums=(0, 1))).lower(parameters, u).compile(), parameters, u)


def forms(
    shape: tuple[int, int], build: Callable[..., Layer], options: dict[str, Any]
) -> dict[str, Callable[[], Any]]:
    """Return the gradient of a layer by form."""
    answers = {"states": gradient(shape, build, {**options, "algorithm": "sequential"})}
    for size in SIZES:
        with mock.patch.object(blocks, "block_size", lambda *_, size=size: size):
            answers[f"blocks of {size}"] = gradient(shape, build, {**options, "algorithm": "blocks"})
    if build is LDS:
        answers["convolution"] = gradient(shape, build, options, convolved)
    return answers


def main() -> None:
    """Print one row for each layer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    sizes = (f"blocks of {size}" for size in SIZES)
    print(table(["layer", "states, ms", *sizes, "convolution", "auto"], []))
    for name, (shape, build, options) in SYSTEMS.items():
        taken = in_turns(forms(shape, build, options), rounds)
        chosen = "blocks" if build(**options, rngs=nnx.Rngs(0)).by_blocks else "states"
        times = [f"{1000 * seconds:.0f}" for seconds in taken.values()]
        print(line([name, *times, *[""] * (build is LDStack), chosen]), flush=True)
    print(f"\n{circumstances()}")


if __name__ == "__main__":
    main()
