"""A recurrent network of one layer learns a convolution: how fast a linear and a tanh recurrence converge.

    sweep experiment experiments/lru-figure-7.yaml

Source: LRU, Figure 7 and appendix E.2: kernel h_k = 0.1 exp(-0.015 k) cos(0.04 k)^2, 32 sequences of length
100 with inputs sin(0.05 a k) cos(0.05 c k)^2, 100 states, all matrices by Glorot's rule, Adam. The ranges of
a and c, the learning rates and the number of steps are not printed; here a and c are of U[0, 10).
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
from flax import nnx
from jax import numpy as jnp

from trainables.layers import LAYERS

LENGTH, SEQUENCES, STATES, REPORTS = 100, 32, 100, 50
LARGEST = float(np.finfo(np.float32).max)


def trajectories(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and outputs (sequences, length, 1) of the convolution."""
    k = np.arange(LENGTH)
    kernel = 0.1 * np.exp(-0.015 * k) * np.cos(0.04 * k) ** 2
    a, c = np.random.default_rng(seed).uniform(0, 10, size=(2, SEQUENCES, 1))
    inputs = np.sin(0.05 * a * k) * np.cos(0.05 * c * k) ** 2
    outputs = np.array([np.convolve(row, kernel)[:LENGTH] for row in inputs])
    return inputs[..., None].astype(np.float32), outputs[..., None].astype(np.float32)


def error(*, layer: str, rate: float, seed: int, steps: int = 1000) -> dict[str, Any]:
    """Return the mean over all steps of the log10 of the relative squared error, and the curve of the error.

    The error is the mean squared one by the mean square of the outputs. Its logarithm has a lower mean where
    the curve falls earlier, so that no threshold has to be chosen at which a network has converged.

    Args:
        layer: Either `linear_rnn` or `tanh_rnn`.
        rate: Learning rate of Adam.
        seed: Seed of the sequences and of the matrices, the same for both layers.
        steps: Number of training steps, each on all sequences.
    """
    inputs, outputs = trajectories(seed)
    build: Any = LAYERS[layer]
    # The layer's D is a standard normal number: Glorot's rule for a matrix of one row and one column.
    network = build(1, STATES, rngs=nnx.Rngs(seed), transition_init="glorot")
    graph, *parts = nnx.split(network, nnx.Param, ...)
    start, fixed = parts
    optimiser = optax.adam(rate)
    scale = float(np.mean(outputs**2))

    def loss(parameters: Any) -> jax.Array:
        predicted = jax.vmap(nnx.merge(graph, parameters, fixed))(jnp.asarray(inputs))
        return jnp.mean((predicted - outputs) ** 2) / scale

    @jax.jit
    def train(carry: Any, _: Any) -> Any:
        parameters, state = carry
        value, gradient = jax.value_and_grad(loss)(parameters)
        updates, state = optimiser.update(gradient, state)
        return (optax.apply_updates(parameters, updates), state), value

    _, losses = jax.lax.scan(train, (start, optimiser.init(start)), length=steps)
    # Training that diverges overflows; its error is then the largest finite number.
    values = np.nan_to_num(np.asarray(losses, np.float64), nan=LARGEST, posinf=LARGEST)
    every = max(1, steps // REPORTS)
    return {
        "value": float(np.mean(np.log10(values))),
        "steps": list(range(0, steps, every)),
        "values": [float(value) for value in values[::every]],
    }
