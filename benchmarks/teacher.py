"""A recurrent network of one layer learns a convolution: the error of a linear and of a tanh recurrence.

    sweep experiment experiments/lru-figure-7.yaml

Source: LRU, Figure 7 and appendix E.2: kernel h_k = 0.1 exp(-0.015 k) cos(0.04 k)^2, 32 sequences of length
100 with inputs sin(0.05 a k) cos(0.05 c k)^2, Adam. The ranges of a and c are not printed; here U[0, 10).
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
from flax import nnx
from jax import numpy as jnp

from trainables.layers import LAYERS

LENGTH, SEQUENCES, REPORTS = 100, 32, 50
RATES = (3e-4, 1e-3, 3e-3, 1e-2)


def trajectories(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and outputs (sequences, length, 1) of the convolution."""
    k = np.arange(LENGTH)
    kernel = 0.1 * np.exp(-0.015 * k) * np.cos(0.04 * k) ** 2
    a, c = np.random.default_rng(seed).uniform(0, 10, size=(2, SEQUENCES, 1))
    inputs = np.sin(0.05 * a * k) * np.cos(0.05 * c * k) ** 2
    outputs = np.array([np.convolve(row, kernel)[:LENGTH] for row in inputs])
    return inputs[..., None].astype(np.float32), outputs[..., None].astype(np.float32)


def tuned(*, layer: str, seed: int, steps: int = 2000) -> dict[str, Any]:
    """Return `error` at the best of the rates."""
    return min((error(layer, rate, seed, steps) for rate in RATES), key=lambda answer: answer["value"])


def error(layer: str, rate: float, seed: int, steps: int, states: int = 32) -> dict[str, Any]:
    """Return the mean squared error after training, by the mean square of the outputs, and its curve."""
    inputs, outputs = trajectories(seed)
    build: Any = LAYERS[layer]
    graph, *parts = nnx.split(build(1, states, rngs=nnx.Rngs(seed)), nnx.Param, ...)
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

    _, values = jax.lax.scan(train, (start, optimiser.init(start)), length=steps)
    every = max(1, steps // REPORTS)
    curve = np.asarray(values)[::every]
    return {
        "value": float(np.mean(np.asarray(values)[-steps // 20 :])),
        "steps": [int(step) for step in range(0, steps, every)],
        "values": [float(value) for value in curve],
    }
