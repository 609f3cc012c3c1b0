"""RotRNN as its paper prints it, the baseline of the measurements: one associative scan over time that
carries the decays, the angles and the states of all steps.

P is in B and C here, once a step, as in our own layer: what differs is the recurrence and the exponential.

Source: RotRNN, appendices B.1 (equation 19) and C.
"""

from __future__ import annotations

import jax
from jax import Array
from jax import numpy as jnp

from trainables.layers.rotrnn import RotRNN

Element = tuple[Array, Array, Array]
"""Some steps in a row: product of decays (L, H, 1), sum of angles (L, H, Dh/2), states (L, H, Dh)."""


def printed_recurrence(gamma: Array, theta: Array, inputs: Array) -> Array:
    """Return all states of x_t = gamma Theta x_{t-1} + inputs_t from zero, (L, H, Dh).

    Args:
        gamma: decays (H,).
        theta: angles (H, Dh/2), in radians a step.
        inputs: (L, H, Dh).
    """
    length = len(inputs)
    gammas = jnp.broadcast_to(gamma[:, None], (length, len(gamma), 1))
    thetas = jnp.broadcast_to(theta, (length, *theta.shape))
    return jax.lax.associative_scan(_join, (gammas, thetas, inputs))[2]


def _join(first: Element, second: Element) -> Element:
    (gamma_1, theta_1, x_1), (gamma_2, theta_2, x_2) = first, second
    return gamma_1 * gamma_2, theta_1 + theta_2, gamma_2 * _rotated(x_1, theta_2) + x_2


def _rotated(x: Array, theta: Array) -> Array:
    """Return Theta x; source: RotRNN, equation 19."""
    crossed = jnp.stack([-x[..., 1::2], x[..., ::2]], axis=-1).reshape(x.shape)
    return x * jnp.repeat(jnp.cos(theta), 2, axis=-1) + crossed * jnp.repeat(jnp.sin(theta), 2, axis=-1)


class PrintedRotRNN(RotRNN):
    """RotRNN with the recurrence of the paper's listing: the same parameters, the same outputs."""

    def run(self, u: Array, length: Array | None = None) -> tuple[Array, Array]:
        """Return the outputs (L, D), and the states (L, N) in the coordinates of P."""
        weights, skew = self.B[...], self.M[...]
        heads, size, _ = weights.shape
        basis = jax.scipy.linalg.expm(skew - skew.mT)
        gamma = jnp.exp(-jnp.exp(self.gamma_log[...]))
        xi = jnp.sqrt((1 - gamma**2) / jnp.einsum("hid,hid->h", weights, weights))
        into = jnp.einsum("h,hji,hjd->hid", xi, basis, weights)
        inputs = (u @ into.reshape(heads * size, -1).T).reshape(-1, heads, size)
        states = printed_recurrence(gamma, self.theta[...], inputs).reshape(len(u), -1)
        apart = self.C[...].reshape(-1, heads, size)
        out_of = jnp.einsum("dhj,hji->hid", apart, basis).reshape(heads * size, -1)
        return states @ out_of + self.D[...] * u, states
