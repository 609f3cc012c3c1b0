"""uRNN: a recurrence whose transition is a product of simple unitary matrices."""

from __future__ import annotations

from functools import partial

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.layers.layer import Fixed, Layer, between, normal
from trainables.settings import Count, LayerSettings

GLOROT = nnx.initializers.glorot_normal()


class URNN(Layer):
    """h_t = modReLU(W h_{t-1} + V u_t) with a unitary W, y_t = C [Re h_t, Im h_t] + D u_t.

    W = D3 R2 F^-1 D2 Pi R1 F D1, D_k = diag(exp(i theta_k)), R_k = 1 - 2 v v* / ||v||^2, F the unitary
    Fourier transform, Pi a permutation drawn once, and modReLU(z) = z max(|z| + b, 0) / (|z| + 1e-5).

    Parameters, for N complex units: theta (3, N), v_re, v_im (2, N), b (N,), V_re, V_im (N, D), h0_re, h0_im
    (N,) the trained state before the first step, C (D, 2 N), D (D,); C_backward (D, 2 N) if bidirectional,
    read in reverse from the same first state.

    Source: Arjovsky et al., Unitary evolution recurrent neural networks, 2016, equations 6 and 8, and
    section 4; amarshah/complex_RNN (the small number in modReLU, initial values but those of V and C). Their
    network has no D.
    """

    settings = LayerSettings(
        summary="uRNN: N complex units with a unitary transition and modReLU.",
        parameters=Count(
            ("d_model", "d_state", "bidirectional"), lambda d, n, both: 10 * n + (4 + 2 * both) * n * d + d
        ),
    )
    recurrent = frozenset({"theta", "v_re", "v_im", "b", "V_re", "V_im", "h0_re", "h0_im"})

    def __init__(self, d_model: int, d_state: int, *, rngs: nnx.Rngs, bidirectional: bool = False) -> None:
        """Draw the parameters as the published code does, but for V and C.

        V and C are truncated normal instead of uniform, with the same variance of Glorot's rule.

        Args:
            d_model: Width D.
            d_state: Complex units N.
            rngs: Source of randomness; its keys may be traced.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
        """
        self.bidirectional = bidirectional
        units, of_v, of_h0 = (d_state,), (6 / (2 + 2 * d_state)) ** 0.5, (3 / (2 * d_state)) ** 0.5
        self.theta = nnx.Param(between(rngs.params(), (3, d_state), (-jnp.pi, jnp.pi)))
        self.v_re = nnx.Param(between(rngs.params(), (2, d_state), (-of_v, of_v)))
        self.v_im = nnx.Param(between(rngs.params(), (2, d_state), (-of_v, of_v)))
        self.order = Fixed(jnp.argsort(jax.random.uniform(rngs.params(), units)).astype(jnp.float32))
        self.b = nnx.Param(between(rngs.params(), units, (-0.01, 0.01)))
        into = GLOROT(rngs.params(), (2 * d_state, d_model))
        self.V_re, self.V_im = nnx.Param(into[:d_state]), nnx.Param(into[d_state:])
        self.h0_re = nnx.Param(between(rngs.params(), units, (-of_h0, of_h0)))
        self.h0_im = nnx.Param(between(rngs.params(), units, (-of_h0, of_h0)))
        self.C = nnx.Param(GLOROT(rngs.params(), (d_model, 2 * d_state)))
        if bidirectional:
            self.C_backward = nnx.Param(GLOROT(rngs.params(), (d_model, 2 * d_state)))
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))

    def inputs(self, coefficients: None, u: Array) -> Array:
        """Return V u, complex (L, N)."""
        return jax.lax.complex(u @ self.V_re[...].T, u @ self.V_im[...].T)

    def states(self, coefficients: None, inputs: Array) -> Array:
        """Return the states [Re h, Im h], (L, 2 N)."""
        return jax.lax.scan(partial(self.advance, None), self.initial_state(), inputs)[1]

    def initial_state(self) -> Array:
        """Return the trained state, complex (N,)."""
        return jax.lax.complex(self.h0_re[...], self.h0_im[...])

    def advance(self, coefficients: None, state: Array, inputs: Array) -> tuple[Array, Array]:
        """Return the next state, complex (N,), and its row (2 N,)."""
        z = self._transition(state) + inputs
        # A root of the sum of squares has no gradient at 0.
        modulus = jnp.sqrt(jnp.maximum(jnp.real(z * jnp.conj(z)), 1e-30))
        state = z * (jax.nn.relu(modulus + self.b[...]) / (modulus + 1e-5))
        return state, jnp.concatenate([jnp.real(state), jnp.imag(state)])

    def _transition(self, state: Array) -> Array:
        first, second, third = jnp.exp(1j * self.theta[...])
        one, other = jax.lax.complex(self.v_re[...], self.v_im[...])
        order = self.order[...].astype(jnp.int32)
        state = _reflected(one, jnp.fft.fft(first * state, norm="ortho"))[order]
        return third * _reflected(other, jnp.fft.ifft(second * state, norm="ortho"))


def _reflected(across: Array, state: Array) -> Array:
    """Return (1 - 2 v v* / ||v||^2) h."""
    share = jnp.vdot(across, state) / jnp.real(jnp.vdot(across, across))
    return state - 2 * share * across
