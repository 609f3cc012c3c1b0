"""How well LDStack's approximations agree with the systems that they stand for.

    sweep experiment experiments/ldstack-figure-2.yaml    (4 and 7 likewise)

Source: LDStack, Figures 2, 4 and 7.
"""

from __future__ import annotations

from typing import Any

import numpy as np

STATES, INPUTS = 16, 32
DRIVE = 0.1
"""Size of the inputs of a nonlinear system; with large ones additive corrections diverge."""


def _system(rng: np.random.Generator, states: int, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a transition of spectral radius 0.95 (n, n), and an input matrix (n, d)."""
    transition = rng.normal(size=(states, states))
    transition *= 0.95 / np.max(np.abs(np.linalg.eigvals(transition)))
    return transition, rng.normal(size=(states, inputs)) / np.sqrt(inputs)


def _linear(transition: np.ndarray, driven: np.ndarray) -> np.ndarray:
    """Return the states (T, n) of a linear system from zero; `driven` is B x_t (T, n)."""
    states = np.zeros_like(driven)
    state = np.zeros(driven.shape[1])
    for step, drive in enumerate(driven):
        state = transition @ state + drive
        states[step] = state
    return states


def projected(*, projections: int, seed: int, length: int = 1024) -> dict[str, Any]:
    """Return the relative squared error of the mean of randomly projected systems with one input each.

    The mean of g g' over standard normal g is the identity, so the mean of B g_j (g_j' x) tends to B x.
    """
    rng = np.random.default_rng(seed)
    transition, inputs = _system(rng, STATES, INPUTS)
    x = rng.normal(size=(length, INPUTS))
    exact = _linear(transition, x @ inputs.T)
    g = rng.normal(size=(projections, INPUTS))
    averaged = _linear(transition, (x @ g.T) @ (g @ inputs.T) / projections)
    return {"value": float(np.sum((averaged - exact) ** 2) / np.sum(exact**2))}


def _nonlinear(transition: np.ndarray, driven: np.ndarray) -> np.ndarray:
    states, state = np.zeros_like(driven), np.zeros(driven.shape[1])
    for step, drive in enumerate(driven):
        state = np.tanh(transition @ state + drive)
        states[step] = state
    return states


def _additive(transition: np.ndarray, driven: np.ndarray, depth: int) -> np.ndarray:
    """Return the last layer's states: each layer adds the local corrections of the one before."""
    states = _linear(transition, driven)
    for _ in range(depth - 1):
        before = np.vstack([np.zeros(driven.shape[1]), states[:-1]])
        linear = before @ transition.T + driven
        states = _linear(transition, driven + np.tanh(linear) - linear)
    return states


def _multiplicative(transition: np.ndarray, driven: np.ndarray, depth: int) -> np.ndarray:
    """Return the last layer's states: each layer scales its transition by the slopes of the one before."""
    states = _linear(transition, driven)
    for _ in range(depth - 1):
        before = np.vstack([np.zeros(driven.shape[1]), states[:-1]])
        linear = before @ transition.T + driven
        slopes = np.where(linear == 0, 1.0, np.tanh(linear) / np.where(linear == 0, 1.0, linear))
        state, new = np.zeros(driven.shape[1]), np.zeros_like(driven)
        for step, drive in enumerate(driven):
            state = slopes[step] * (transition @ state + drive)
            new[step] = state
        states = new
    return states


KINDS = {"additive": _additive, "multiplicative": _multiplicative}


def stacked(*, depth: int, seed: int, kind: str = "additive", length: int = 64) -> dict[str, Any]:
    """Return the log10 of the relative squared error of a stack of linear systems against a nonlinear RNN.

    The curve is the relative squared error at each time step.
    """
    rng = np.random.default_rng(seed)
    transition, inputs = _system(rng, STATES, INPUTS)
    driven = DRIVE * rng.normal(size=(length, INPUTS)) @ inputs.T
    exact = _nonlinear(transition, driven)
    squared = np.sum((KINDS[kind](transition, driven, depth) - exact) ** 2, axis=1)
    relative = squared / np.mean(np.sum(exact**2, axis=1))
    return {
        "value": float(np.log10(np.mean(relative))),
        "steps": list(range(length)),
        "values": [float(value) for value in relative],
    }


def start(*, depth: int, seed: int, length: int = 64, skip: int = 0) -> dict[str, Any]:
    """Return the relative squared error of an additive stack over its first `depth` - 1 steps (or one).

    `skip` seeds, whose results have been seen, are left out: seed k draws what k + `skip` would.
    """
    curve = stacked(depth=depth, seed=seed + skip, length=length)["values"]
    return {"value": float(np.mean(curve[: max(1, depth - 1)]))}
