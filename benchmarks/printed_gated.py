"""Layers that look at their input by the equations of their papers: baselines of the measurements.

Each is a function of one of our layers, whose parameters it reads, and of u (L, D); it returns the outputs.
One form is a scan of the printed step, the other the parallel form that the paper prints or implies:

    min_gru    section 3.1; the scan in logarithms of appendix B
    rg_lru     Griffin, section 2.4, the gates block by block; an associative scan of a_t and sqrt(1 - a_t^2)
    rot_gated  gamma_t P Theta_t P^T x with the rotation of every pair; the associative scan of RotRNN's
               appendix B.1, which adds angles and takes sines at every level
    delta_net  S <- S + beta k (v - S^T k)^T and o = S^T q in a scan, projected and convolved before it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
from jax import Array
from jax import numpy as jnp

from benchmarks.printed import rotated, rotations_joined
from trainables.layers.causal_conv import causal_conv

Form = Callable[[Any, Array], Array]


def prefixes(product: Callable[[Array, Array], Array], decays: Array, inputs: Array) -> Array:
    """Return the states of x_t = decays_t * x_{t-1} + inputs_t from zero, by one associative scan."""

    def join(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
        return product(second[0], first[0]), product(second[0], first[1]) + second[1]

    return jax.lax.associative_scan(join, (decays, inputs))[1]


def _min_gru_scan(layer: Any, u: Array) -> Array:
    def step(h: Array, now: Array) -> tuple[Array, Array]:
        z, candidate = jax.nn.sigmoid(layer.W_z[...] @ now), layer.W_h[...] @ now
        h = (1 - z) * h + z * jnp.where(candidate >= 0, candidate + 0.5, jax.nn.sigmoid(candidate))
        return h, layer.C[...] @ h + layer.D[...] * now

    return jax.lax.scan(step, layer.initial_state(), u)[1]


def _min_gru_logarithms(layer: Any, u: Array) -> Array:
    k, candidate = u @ layer.W_z[...].T, u @ layer.W_h[...].T
    log_g = jnp.where(candidate >= 0, jnp.log(jnp.maximum(candidate, 0) + 0.5), -jax.nn.softplus(-candidate))
    log_decays = jnp.cumsum(-jax.nn.softplus(k), axis=0)
    log_states = log_decays + jax.lax.cumlogsumexp(log_g - jax.nn.softplus(-k) - log_decays, axis=0)
    return jnp.exp(log_states) @ layer.C[...].T + layer.D[...] * u


def _rg_lru_gates(layer: Any, u: Array) -> tuple[Array, Array]:
    """Return a_t and sqrt(1 - a_t^2) (i_t * x_t) of rows u (..., D)."""
    x = u @ layer.B[...].T
    blocks = x.reshape(*x.shape[:-1], len(layer.W_a[...]), -1)
    r, i = (
        jax.nn.sigmoid(jnp.einsum("hij,...hj->...hi", weights[...], blocks).reshape(x.shape) + bias[...])
        for weights, bias in ((layer.W_a, layer.b_a), (layer.W_x, layer.b_x))
    )
    a = jnp.exp(-8 * r * jax.nn.softplus(layer.Lambda[...]))
    return a, jnp.sqrt(1 - a**2) * (i * x)


def _rg_lru_scan(layer: Any, u: Array) -> Array:
    def step(h: Array, now: Array) -> tuple[Array, Array]:
        a, b = _rg_lru_gates(layer, now)
        h = a * h + b
        return h, layer.C[...] @ h + layer.D[...] * now

    return jax.lax.scan(step, layer.initial_state(), u)[1]


def _rg_lru_associative(layer: Any, u: Array) -> Array:
    return prefixes(jnp.multiply, *_rg_lru_gates(layer, u)) @ layer.C[...].T + layer.D[...] * u


def _rot_gated_gates(layer: Any, u: Array) -> tuple[Array, Array, Array]:
    """Return gamma_t (..., H), theta_t (..., H, Dh/2) and xi_t B u_t (..., H, Dh) of rows u (..., D)."""
    weights = layer.B[...]
    gamma = jnp.exp(-jnp.exp(layer.gamma_log[...] + u @ layer.W_gamma[...].T + layer.b_gamma[...]))
    theta = layer.theta[...] + jnp.einsum("hkd,...d->...hk", layer.W_theta[...], u)
    xi = jnp.sqrt((1 - gamma**2) / jnp.einsum("hid,hid->h", weights, weights))
    return gamma, theta, xi[..., None] * jnp.einsum("hid,...d->...hi", weights, u)


def _basis(layer: Any) -> Array:
    return jax.scipy.linalg.expm(layer.M[...] - layer.M[...].mT)


def _rot_gated_scan(layer: Any, u: Array) -> Array:
    basis = _basis(layer)

    def step(x: Array, now: Array) -> tuple[Array, Array]:
        gamma, theta, inputs = _rot_gated_gates(layer, now)
        turned = rotated(jnp.einsum("hji,hj->hi", basis, x), theta)
        x = gamma[:, None] * jnp.einsum("hij,hj->hi", basis, turned) + inputs
        return x, layer.C[...] @ x.ravel() + layer.D[...] * now

    return jax.lax.scan(step, jnp.zeros(layer.B.shape[:2]), u)[1]


def _rot_gated_associative(layer: Any, u: Array) -> Array:
    basis = _basis(layer)
    gamma, theta, inputs = _rot_gated_gates(layer, u)
    series = gamma[..., None], theta, jnp.einsum("hji,lhj->lhi", basis, inputs)
    states = jax.lax.associative_scan(rotations_joined, series)[2]
    states = jnp.einsum("hij,lhj->lhi", basis, states).reshape(len(u), -1)
    return states @ layer.C[...].T + layer.D[...] * u


def printed_delta_rule(queries: Array, keys: Array, values: Array, sizes: Array) -> Array:
    """Return the answers (L, V) of one head to queries and keys (L, K), values (L, V) and sizes (L,)."""

    def step(state: Array, now: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
        query, key, value, size = now
        state = state + size * jnp.outer(key, value - state.T @ key)
        return state, state.T @ query

    start = jnp.zeros((keys.shape[1], values.shape[1]))
    return jax.lax.scan(step, start, (queries, keys, values, sizes))[1]


def _delta_net_scan(layer: Any, u: Array) -> Array:
    def activated(weights: Any, conv: Any) -> Array:
        before = jnp.zeros((3, len(weights[...])))
        convolved = causal_conv(conv[...], before, u @ weights[...].T)[0]
        return jax.nn.silu(convolved).reshape(len(u), layer.heads, -1)

    def unit(rows: Array) -> Array:
        return rows / jnp.sqrt(jnp.sum(rows**2, axis=-1, keepdims=True) + 1e-6)

    queries, keys = unit(activated(layer.W_q, layer.conv_q)), unit(activated(layer.W_k, layer.conv_k))
    values, sizes = activated(layer.W_v, layer.conv_v), jax.nn.sigmoid(u @ layer.W_beta[...].T)
    answers = jax.vmap(printed_delta_rule, in_axes=1, out_axes=1)(queries, keys, values, sizes)
    answers /= jnp.sqrt(jnp.mean(answers**2, axis=-1, keepdims=True) + 1e-5)
    return (answers * layer.norm[...]).reshape(len(u), -1) @ layer.out_proj[...].T


PRINTED: Mapping[str, Mapping[str, Form]] = MappingProxyType(
    {
        "printed scan": {
            "min_gru": _min_gru_scan,
            "rg_lru": _rg_lru_scan,
            "rot_gated": _rot_gated_scan,
            "delta_net": _delta_net_scan,
        },
        "printed associative": {
            "min_gru": _min_gru_logarithms,
            "rg_lru": _rg_lru_associative,
            "rot_gated": _rot_gated_associative,
        },
    }
)
"""By form and layer. The size of a head of `rot_gated` must be even; `delta_net` must not be signed."""
