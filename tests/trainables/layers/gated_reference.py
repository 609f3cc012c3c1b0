"""The layers that look at their input as their papers write them: float64, one numpy loop over time each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.linalg

from tests.trainables.layers.cases import Floats

Arrays = Mapping[str, Floats]
Answer = tuple[Any, Any]
"""Outputs (L, D), and states (L, ...)."""


def gru(p: Arrays, u: Floats) -> Answer:
    """Return outputs and states."""
    state, states = np.zeros(len(p["b"][0])), []
    for now in u:
        reset, update = (_sigmoid(p["W"][k] @ now + p["U"][k] @ state + p["b"][k]) for k in (0, 1))
        candidate = np.tanh(p["W"][2] @ now + p["U"][2] @ (reset * state) + p["b"][2])
        state = (1 - update) * candidate + update * state
        states.append(state)
    return np.array(states) @ p["C"].T + u * p["D"], np.array(states)


def min_gru(p: Arrays, u: Floats) -> Answer:
    """Return outputs and states; source: Were RNNs all we needed, section 3.1 and appendix B."""
    state, states = np.zeros(len(p["W_z"])), []
    for now in u:
        update, candidate = _sigmoid(p["W_z"] @ now), p["W_h"] @ now
        positive = np.where(candidate >= 0, candidate + 0.5, _sigmoid(candidate))
        state = (1 - update) * state + update * positive
        states.append(state)
    return np.array(states) @ p["C"].T + u * p["D"], np.array(states)


def rot_gated(p: Arrays, u: Floats) -> Answer:
    """Return outputs and states, in the coordinates of the input: P Theta_t P^T, head by head."""
    heads, size, _ = p["B"].shape
    bases = [scipy.linalg.expm(p["M"][h] - p["M"][h].T) for h in range(heads)]
    state = np.einsum("hij,hj->hi", bases, p.get("x0", np.zeros((heads, size))))
    states = []
    for now in u:
        rates = p["gamma_log"] + p["W_gamma"] @ now + p["b_gamma"]
        gamma, theta = np.exp(-np.exp(rates)), p["theta"] + p["W_theta"] @ now
        for h in range(heads):
            turn = np.eye(size)
            for i, angle in enumerate(theta[h]):
                cos, sin = np.cos(angle), np.sin(angle)
                turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[cos, -sin], [sin, cos]]
            xi = np.sqrt((1 - gamma[h] ** 2) / np.trace(p["B"][h].T @ p["B"][h]))
            state[h] = gamma[h] * bases[h] @ turn @ bases[h].T @ state[h] + xi * p["B"][h] @ now
        states.append(state.ravel().copy())
    return np.array(states) @ p["C"].T + u * p["D"], np.array(states)


def rg_lru(p: Arrays, u: Floats) -> Answer:
    """Return outputs and states; source: Griffin, section 2.4."""
    heads, size, _ = p["W_a"].shape
    turning = "theta" in p
    state, states = np.zeros(heads * size, complex if turning else float), []
    for now in u:
        x = p["B"] @ now
        blocks = x.reshape(heads, size)
        forget = _sigmoid(np.concatenate([w @ b for w, b in zip(p["W_a"], blocks, strict=True)]) + p["b_a"])
        take = _sigmoid(np.concatenate([w @ b for w, b in zip(p["W_x"], blocks, strict=True)]) + p["b_x"])
        decay = np.exp(-8 * forget * np.log1p(np.exp(p["Lambda"])))
        turn = np.exp(1j * forget * p["theta"]) if turning else 1
        state = decay * turn * state + np.sqrt(1 - decay**2) * take * x
        states.append(state)
    out = p["C"] + 1j * p["C_im"] if turning else p["C"]
    return (np.array(states) @ out.T).real + u * p["D"], np.array(states)


def delta_net(p: Arrays, u: Floats, *, signed: bool = False, J: int = 1) -> Answer:
    """Return outputs and matrices, for one or J steps of the delta rule a row; with a decay if there is one.

    Source: Parallelizing linear transformers with the delta rule, section 2; DeltaProduct, equation 2.
    """
    heads, width = p["W_beta"].shape[-2], len(p["W_q"][0])
    many = {
        name: p[name].reshape(J, -1, p[name].shape[-1])
        for name in ("W_k", "W_v", "conv_k", "conv_v", "W_beta")
    }
    queries = _conv(p["conv_q"], u @ p["W_q"].T)
    keys, values = ([_conv(many[f"conv_{x}"][j], u @ many[f"W_{x}"][j].T) for j in range(J)] for x in "kv")
    memory = np.zeros((heads, len(p["W_q"]) // heads, width // heads))
    outputs, states = [], []
    for t, now in enumerate(u):
        if "A_log" in p:
            rates = np.log1p(np.exp(p["W_alpha"] @ now + p["dt_bias"]))
            memory = np.exp(-np.exp(p["A_log"]) * rates)[:, None, None] * memory
        for j in range(J):
            sizes = (1 + signed) * _sigmoid(many["W_beta"][j] @ now)
            ks, vs = (series[j][t].reshape(heads, -1) for series in (keys, values))
            for h in range(heads):
                key = ks[h] / np.sqrt(ks[h] @ ks[h] + 1e-6)
                turn = np.eye(len(key)) - sizes[h] * np.outer(key, key)
                memory[h] = turn @ memory[h] + sizes[h] * np.outer(key, vs[h])
        answers = []
        for query, matrix in zip(queries[t].reshape(heads, -1), memory, strict=True):
            answer = matrix.T @ (query / np.sqrt(query @ query + 1e-6))
            answers.append(answer / np.sqrt(np.mean(answer**2) + 1e-5) * p["norm"])
        gate = p["W_g"] @ now if "W_g" in p else None
        outputs.append(np.concatenate(answers) * (1 if gate is None else gate * _sigmoid(gate)))
        states.append(memory.copy())
    return np.array(outputs) @ p["out_proj"].T, np.array(states)


def s6(p: Arrays, u: Floats, *, signed: bool = False) -> Answer:
    """Return outputs and states; source: Mamba, algorithm 2, with Euler's rule for B."""
    (width, rank), states_of = p["dt_proj"].shape, p["A_log"].shape[1]
    x, gate = np.split(u @ p["in_proj"].T, 2, axis=1)
    x = _conv(p["conv"], x, p["conv_bias"])
    state, states, outputs = np.zeros((width, states_of)), [], []
    for now, opening in zip(x, gate, strict=True):
        step, into, out = np.split(p["x_proj"] @ now, [rank, rank + states_of])
        step = np.log1p(np.exp(p["dt_proj"] @ step + p["dt_bias"]))
        decay = np.exp(-np.exp(p["A_log"]) * step[:, None])
        state = (2 * decay - 1 if signed else decay) * state + np.outer(step * now, into)
        outputs.append((state @ out + p["D"] * now) * opening * _sigmoid(opening))
        states.append(state)
    return np.array(outputs) @ p["out_proj"].T, np.array(states)


def attention(p: Arrays, u: Floats, *, heads: int, context: int) -> Answer:
    """Return outputs, and the keys and values that each row sees; positions count from the first row."""
    queries, keys, values = (u @ p[name].T for name in ("W_q", "W_k", "W_v"))
    turned = [_rotary(rows.reshape(len(u), heads, -1)) for rows in (queries, keys)]
    outputs, states = [], []
    for t in range(len(u)):
        seen = slice(max(0, t - context + 1), t + 1)
        scores = np.einsum("hk,thk->ht", turned[0][t], turned[1][seen]) / np.sqrt(turned[1].shape[2])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        answers = np.einsum("ht,thv->hv", weights, values[seen].reshape(weights.shape[1], heads, -1))
        outputs.append(answers.ravel())
        states.append(np.sqrt(np.sum(keys[seen] ** 2) + np.sum(values[seen] ** 2)))
    return np.array(outputs) @ p["out_proj"].T, np.array(states)


def _rotary(rows: Floats) -> Any:
    """Return rows (L, H, K), each turned by its position from the first on."""
    half = rows.shape[2] // 2
    angles = np.arange(len(rows))[:, None, None] * 10_000.0 ** (-np.arange(half) / half)
    turned = (rows[..., :half] + 1j * rows[..., half:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], axis=2)


def urnn(p: Arrays, u: Floats) -> Answer:
    """Return outputs and states, by the unitary matrix itself; source: uRNN, equation 6."""
    size = len(p["b"])
    fourier = np.exp(-2j * np.pi * np.outer(np.arange(size), np.arange(size)) / size) / np.sqrt(size)
    d1, d2, d3 = (np.diag(np.exp(1j * angles)) for angles in p["theta"])
    r1, r2 = (
        np.eye(size) - 2 * np.outer(v, v.conj()) / np.sum(np.abs(v) ** 2) for v in p["v_re"] + 1j * p["v_im"]
    )
    permutation = np.eye(size)[p["order"].astype(int)]
    unitary = d3 @ r2 @ fourier.conj() @ d2 @ permutation @ r1 @ fourier @ d1
    np.testing.assert_allclose(unitary @ unitary.conj().T, np.eye(size), atol=1e-12)
    state, states = p["h0_re"] + 1j * p["h0_im"], []
    for now in u:
        z = unitary @ state + (p["V_re"] + 1j * p["V_im"]) @ now
        state = z * np.maximum(np.abs(z) + p["b"], 0) / (np.abs(z) + 1e-5)
        states.append(np.concatenate([state.real, state.imag]))
    return np.array(states) @ p["C"].T + u * p["D"], np.array(states)


class PDSSM:
    """Outputs and states of PD-SSM, with dense matrices; source: Terzić et al., section 3.

    The layer's gradient is that of P + soft - soft(0), where P and soft(0), the softmax of its columns, stay
    as they are at the parameters of the first call. There the value is that of P.
    """

    def __init__(self) -> None:
        self._fixed: list[Floats] = []

    def __call__(self, p: Arrays, u: Floats) -> Answer:
        first = not self._fixed
        state, states = np.eye(len(p["b_r2"]))[0].astype(complex), []
        for t, now in enumerate(u):
            chosen = np.exp(p["S"] @ now)
            columns = np.tensordot(chosen / chosen.sum(), p["M"], axes=1)
            soft = np.exp(columns) / np.exp(columns).sum(axis=0)
            if first:
                hard = np.zeros_like(soft)
                hard[np.argmax(soft, axis=0), np.arange(len(soft))] = 1
                self._fixed.append(hard - soft)
            modulus, phase = (self._network(p, kind, now) for kind in ("r", "p"))
            diagonal = np.diag(modulus * np.exp(2j * np.pi * phase))
            state = (self._fixed[t] + soft) @ diagonal @ state + (p["B_re"] + 1j * p["B_im"]) @ now
            states.append(state)
        out = p["C_re"] + 1j * p["C_im"]
        return (np.array(states) @ out.T).real + u * p["D"], np.array(states)

    @staticmethod
    def _network(p: Arrays, kind: str, now: Floats) -> Floats:
        inside = p[f"W_{kind}1"] @ now + p[f"b_{kind}1"]
        # gelu in the form with tanh, as in JAX.
        inside = inside / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (inside + 0.044715 * inside**3)))
        return _sigmoid(p[f"W_{kind}2"] @ inside + p[f"b_{kind}2"])


def _conv(weights: Floats, rows: Floats, bias: Any = 0) -> Any:
    """Return SiLU of the causal convolution of each channel."""
    padded = np.concatenate([np.zeros((weights.shape[1] - 1, rows.shape[1])), rows])
    width = weights.shape[1]
    out = np.array([np.sum(weights.T * padded[t : t + width], axis=0) for t in range(len(rows))]) + bias
    return out * _sigmoid(out)


def _sigmoid(a: Any) -> Any:
    return 1 / (1 + np.exp(-a))
