"""The layers as their papers write them: dense matrices, float64, one numpy loop over time each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from tests.trainables.layers.cases import Floats

Series = NDArray[np.complex128] | Floats
Arrays = Mapping[str, Floats]


def run(transition: Series, weights: Series, u: Floats) -> Series:
    """Return all states of x_t = A x_{t-1} + B u_t from zero."""
    state = np.zeros(len(transition), np.result_type(transition, weights))
    states = []
    for now in u:
        state = transition @ state + weights @ now
        states.append(state)
    return np.array(states)


def rotrnn(p: Arrays, u: Floats, normalisation: str = "input") -> tuple[Floats, Floats]:
    """Return outputs and states; source: RotRNN, equations 6 (state) and 11-13, and lemma 2."""
    heads, size, _ = p["B"].shape
    transition = np.zeros((heads * size,) * 2)
    weights = []
    for h in range(heads):
        rows = slice(h * size, (h + 1) * size)
        basis = scipy.linalg.expm(p["M"][h] - p["M"][h].T) if "M" in p else np.eye(size)
        turn = np.eye(size)
        for i, angle in enumerate(p["theta"][h]):
            cos, sin = np.cos(angle), np.sin(angle)
            turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[cos, -sin], [sin, cos]]
        gamma, power = np.exp(-np.exp(p["gamma_log"][h])), np.trace(p["B"][h].T @ p["B"][h])
        alpha = 1 / np.sqrt(gamma**2 + power) if normalisation == "state" else 1
        scale = np.full(size, np.sqrt((1 - gamma**2) / power) if normalisation == "input" else alpha)
        if normalisation == "learned":
            scale = np.repeat(np.exp(p["scale_log"][h]), 2)[:size]
        transition[rows, rows] = alpha * gamma * basis @ turn @ basis.T
        weights.append(basis @ np.diag(scale) @ basis.T @ p["B"][h])
    states = run(transition, np.concatenate(weights), u)
    return states @ p["C"].T + u * p["D"], states


def lru(p: Arrays, u: Floats) -> tuple[Floats, Series]:
    """Return outputs and states of the layer with every part of it; source: LRU, appendix A."""
    decay = np.exp(-np.exp(p["nu_log"]) + 1j * np.exp(p["theta_log"]))
    weights = np.exp(p["gamma_log"])[:, None] * (p["B_re"] + 1j * p["B_im"])
    states = run(np.diag(decay), weights, u)
    return (states @ (p["C_re"] + 1j * p["C_im"]).T).real + u * p["D"], states


def s5(p: Arrays, u: Floats, discretisation: str) -> tuple[Floats, Series]:
    """Return outputs and stored states; source: S5, section 2.1."""
    eigenvalues, step = p["Lambda_re"] + 1j * p["Lambda_im"], np.exp(p["log_step"])
    decay, factor = _discrete(eigenvalues, step, discretisation)
    states = run(np.diag(decay), factor[:, None] * (p["B_re"] + 1j * p["B_im"]), u)
    return 2 * (states @ (p["C_re"] + 1j * p["C_im"]).T).real + u * p["D"], states


def s4d(p: Arrays, u: Floats, discretisation: str) -> tuple[Floats, Series]:
    """Return outputs and stored states, channel by channel; source: S4D, section 3."""
    eigenvalues = -np.exp(p["log_A_re"]) + 1j * p["A_im"]
    decay, factor = _discrete(eigenvalues, np.exp(p["log_step"])[:, None], discretisation)
    outputs, states = [], []
    for d in range(len(eigenvalues)):
        states.append(run(np.diag(decay[d]), factor[d][:, None], u[:, d : d + 1]))
        outputs.append(2 * (states[-1] @ (p["C_re"][d] + 1j * p["C_im"][d])).real + u[:, d] * p["D"][d])
    return np.stack(outputs, axis=1), np.concatenate(states, axis=1)


def dense(p: Arrays, u: Floats, rho: str) -> tuple[Floats, Floats]:
    """Return outputs and states of x_t = rho(A x_{t-1} + B u_t)."""
    apply = {"linear": lambda a: a, "tanh": np.tanh, "relu": lambda a: np.maximum(a, 0)}[rho]
    state, states = np.zeros(len(p["A"])), []
    for now in u:
        state = apply(p["A"] @ state + p["B"] @ now)
        states.append(state)
    return np.array(states) @ p["C"].T + u * p["D"], np.array(states)


def lstm(p: Arrays, u: Floats) -> tuple[Floats, Floats]:
    """Return outputs and hidden states."""
    size = p["U"].shape[1]
    hidden, cell, states = np.zeros(size), np.zeros(size), []
    for now in u:
        take, keep, give, candidate = np.split(p["W"] @ now + p["U"] @ hidden + p["b"], 4)
        cell = _sigmoid(keep) * cell + _sigmoid(take) * np.tanh(candidate)
        hidden = _sigmoid(give) * np.tanh(cell)
        states.append(hidden)
    return np.array(states) @ p["C"].T + u * p["D"], np.array(states)


def companion(eigenvalues: Series) -> Floats:
    """Return the Frobenius companion matrix; source: LDStack, equation 2."""
    rising = np.poly(eigenvalues)[:0:-1].real
    matrix = np.diag(np.ones(len(rising) - 1), -1)
    matrix[:, -1] = -rising
    return matrix


def rnn_states(transition: Floats, weights: Floats, u: Floats) -> Floats:
    """Return the states of h_t = tanh(A h_{t-1} + B u_t) from zero."""
    state, states = np.zeros(len(transition)), []
    for now in u:
        state = np.tanh(transition @ state + weights @ now)
        states.append(state)
    return np.array(states)


def _discrete(eigenvalues: Series, step: Floats, method: str) -> tuple[Series, Series]:
    if method == "zoh":
        return np.exp(eigenvalues * step), (np.exp(eigenvalues * step) - 1) / eigenvalues
    half = eigenvalues * step / 2
    return (1 + half) / (1 - half), step / (1 - half)


def _sigmoid(a: Floats) -> Floats:
    return 1 / (1 + np.exp(-a))
