"""RotRNN implemented literally from the equations of its paper: the baseline of the measurements.

The listing in the paper's Appendix C is not available; this code is transcribed from the equations:

    B u_t of every head, times xi                        equations 11 and 12, section 3.4
    P^T on every step's input, P on every step's state   A = P Theta P^T, appendix B.1
    one associative scan over time that carries decays,
    angles and states, and takes sines at every level    appendix B.1, Theta x by equation 19
    C on the joined heads, and D on the input            equation 13
"""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.layers.layer import Layer
from trainables.layers.rotrnn import RotRNN

Element = tuple[Array, Array, Array]
"""Consecutive steps: product of decays (L, H, 1), sum of angles (L, H, Dh/2), states (L, H, Dh)."""


def printed_recurrence(gamma: Array, theta: Array, inputs: Array) -> Array:
    """Return all states of x_t = gamma Theta x_{t-1} + inputs_t from zero, (L, H, Dh).

    Args:
        gamma: decays (H,).
        theta: angles (H, Dh/2), in radians per step.
        inputs: inputs (L, H, Dh).
    """
    length = len(inputs)
    gammas = jnp.broadcast_to(gamma[:, None], (length, len(gamma), 1))
    thetas = jnp.broadcast_to(theta, (length, *theta.shape))
    return jax.lax.associative_scan(rotations_joined, (gammas, thetas, inputs))[2]


def rotations_joined(first: Element, second: Element) -> Element:
    """Join consecutive steps: decays multiply, angles add up."""
    (gamma_1, theta_1, x_1), (gamma_2, theta_2, x_2) = first, second
    return gamma_1 * gamma_2, theta_1 + theta_2, gamma_2 * rotated(x_1, theta_2) + x_2


def rotated(x: Array, theta: Array) -> Array:
    """Return Theta x; source: RotRNN, equation 19."""
    crossed = jnp.stack([-x[..., 1::2], x[..., ::2]], axis=-1).reshape(x.shape)
    return x * jnp.repeat(jnp.cos(theta), 2, axis=-1) + crossed * jnp.repeat(jnp.sin(theta), 2, axis=-1)


class PrintedRotRNN(Layer):
    """RotRNN by the paper's equations, in one direction; same parameters and outputs as `RotRNN`.

    The size of a head must be even.
    """

    settings, recurrent = RotRNN.settings, RotRNN.recurrent

    def __init__(self, d_model: int, d_state: int, *, rngs: nnx.Rngs, **options: Any) -> None:
        """Take the parameters that `RotRNN` draws with these options, which leave P and one direction."""
        drawn = RotRNN(d_model, d_state, rngs=rngs, **options)
        assert drawn.M is not None
        assert not drawn.bidirectional
        self.bidirectional = False
        self.gamma_log, self.theta, self.M, self.B = drawn.gamma_log, drawn.theta, drawn.M, drawn.B
        self.C, self.D = drawn.C, drawn.D

    def coefficients(self) -> tuple[Array, Array]:
        """Return P (H, Dh, Dh) and gamma (H,)."""
        skew = self.M[...]
        return jax.scipy.linalg.expm(skew - skew.mT), jnp.exp(-jnp.exp(self.gamma_log[...]))

    def inputs(self, coefficients: tuple[Array, Array], u: Array) -> Array:
        """Return P^T xi B u, (L, H, Dh)."""
        (basis, gamma), weights = coefficients, self.B[...]
        heads, size, width = weights.shape
        xi = jnp.sqrt((1 - gamma**2) / jnp.einsum("hid,hid->h", weights, weights))
        inputs = u @ (xi[:, None, None] * weights).reshape(-1, width).T
        return jnp.einsum("hji,lhj->lhi", basis, inputs.reshape(-1, heads, size))

    def states(self, coefficients: tuple[Array, Array], inputs: Array) -> Array:
        """Return the states (L, N)."""
        basis, gamma = coefficients
        turned = printed_recurrence(gamma, self.theta[...], inputs)
        return jnp.einsum("hij,lhj->lhi", basis, turned).reshape(len(inputs), -1)

    def read(self, coefficients: tuple[Array, Array], states: Array, *, backward: bool) -> Array:
        """Return C x, (L, D)."""
        return states @ self.C[...].T

    def initial_state(self) -> Array:
        """Return the zero state P^T x, (H, Dh)."""
        return jnp.zeros(self.B.shape[:2])

    def advance(self, coefficients: tuple[Array, Array], state: Array, inputs: Array) -> tuple[Array, Array]:
        """Return the next P^T x, (H, Dh), and its x, (N,)."""
        basis, gamma = coefficients
        state = gamma[:, None] * rotated(state, self.theta[...]) + inputs
        return state, jnp.einsum("hij,hj->hi", basis, state).reshape(-1)
