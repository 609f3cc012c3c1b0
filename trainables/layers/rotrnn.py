"""RotRNN: a linear recurrence whose transition is a rotation.

A head h of size Dh runs x_t = gamma A x_{t-1} + xi B u_t with A = P Theta P^T, P = expm(M - M^T) orthogonal,
Theta a block-diagonal rotation and xi such that E||x_t||^2 stays 1. P is constant over a sequence, so in
the coordinates P^T x the input matrix is P^T xi B, the output matrix C P, and Theta acts on pairs of
channels: a complex recurrence with decay gamma exp(i theta). No norm changes, for P is orthogonal.
"""

from __future__ import annotations

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.errors import Refusal
from trainables.layers.layer import Layer, until
from trainables.layers.recurrence import Pair, plus, polar, recurrence, times

Bounds = tuple[float | Array, float | Array]


class RotRNN(Layer):
    """RotRNN with H heads of rotations and one decay a head.

    Parameters: theta (H, Dh//2) in radians a step, gamma_log (H,) with gamma = exp(-exp(gamma_log)),
    M (H, Dh, Dh), B (H, Dh, D), C (D, N), C_backward (D, N) if bidirectional, D (D,); Dh = N / H. In a head
    of odd size the last channel of Theta is not rotated.

    Source: RotRNN, section 3, equations 6-13, and appendix B.
    """

    recurrent = frozenset({"theta", "gamma_log", "M", "B"})

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        heads: int = 32,
        gamma_init: Bounds = (0.5, 0.999),
        theta_init: Bounds = (0.0, 2 * jnp.pi),
        bidirectional: bool = False,
        form: str | None = None,
    ) -> None:
        """Draw the parameters as the paper does.

        Args:
            d_model: width D.
            d_state: real channels N of the state.
            rngs: the source of randomness; its keys may be traced.
            heads: number of heads H, a divisor of N with Dh >= 2.
            gamma_init: range of the decays, within (0, 1); may be traced.
            theta_init: range of the angles, in radians a step; may be traced.
            bidirectional: whether to read the sequence backwards too, with P, Theta and B shared.
            form: form of the recurrence; None for the fastest here.

        Raises:
            Refusal: if N is no multiple of H, or a head would have fewer than two channels.
        """
        size = _head_size(d_state, heads)
        self.bidirectional, self.form = bidirectional, form
        low, high = gamma_init
        uniform = jax.random.uniform(rngs.params(), (heads,))
        gamma = jnp.sqrt(uniform * (high**2 - low**2) + low**2)
        self.gamma_log = nnx.Param(jnp.log(-jnp.log(gamma)))
        self.theta = nnx.Param(
            jax.random.uniform(rngs.params(), (heads, size // 2), minval=theta_init[0], maxval=theta_init[1])
        )
        self.M = nnx.Param(jax.random.normal(rngs.params(), (heads, size, size)))
        self.B = nnx.Param(jax.random.normal(rngs.params(), (heads, size, d_model)) / d_model**0.5)
        self.C = nnx.Param(jax.random.normal(rngs.params(), (d_model, d_state)) / d_state**0.5)
        if bidirectional:
            self.C_backward = nnx.Param(jax.random.normal(rngs.params(), (d_model, d_state)) / d_state**0.5)
        self.D = nnx.Param(jax.random.normal(rngs.params(), (d_model,)))

    def run(self, u: Array, length: Array | None = None) -> tuple[Array, Array]:
        """Return the outputs (L, D), and the states (L, N) in the coordinates of P.

        The channels of a state are ordered: first of every pair, then second of every pair.
        """
        basis = self._basis()
        decay, (into_re, into_im) = self._decay(), self._into(basis)
        seen = until(length, u) if self.bidirectional else u
        inputs = seen @ into_re.T, seen @ into_im.T
        states = recurrence(decay, inputs, form=self.form)
        outputs = _read(self._out_of(self.C[...], basis), states) + self.D[...] * u
        if self.bidirectional:
            backward = recurrence(decay, inputs, reverse=True, form=self.form)
            outputs += _read(self._out_of(self.C_backward[...], basis), backward)
        return outputs, self._real(states)

    def initial_state(self) -> Pair:
        """Return the zero state, a pair of (channels,)."""
        zero = jnp.zeros_like(self._decay()[0])
        return zero, zero

    def step(self, state: Pair, u: Array) -> tuple[Pair, Array]:
        """Advance by one step u (D,)."""
        basis = self._basis()
        into = self._into(basis)
        state = plus(times(self._decay(), state), (into[0] @ u, into[1] @ u))
        return state, _read(self._out_of(self.C[...], basis), state) + self.D[...] * u

    def _gamma(self) -> Array:
        return jnp.exp(-jnp.exp(self.gamma_log[...]))

    def _basis(self) -> Array:
        """Return P (H, Dh, Dh)."""
        weights = self.M[...]
        return jax.scipy.linalg.expm(weights - weights.swapaxes(1, 2))

    def _decay(self) -> Pair:
        """Return gamma exp(i theta) of every complex channel, with angle 0 for an odd head's last one."""
        theta = self.theta[...]
        odd = self.M.shape[1] % 2
        theta = jnp.pad(theta, ((0, 0), (0, odd)))
        re, im = polar(self._gamma()[:, None], theta)
        return re.ravel(), im.ravel()

    def _into(self, basis: Array) -> Pair:
        """Return P^T xi B as a pair of (channels, D).

        Source: equation 11, with c = 1.
        """
        weights = self.B[...]
        xi = jnp.sqrt((1 - self._gamma() ** 2) / jnp.sum(weights**2, axis=(1, 2)))
        turned = jnp.einsum("hji,hjd->hid", basis, xi[:, None, None] * weights)
        return _pairs(turned, axis=1)

    def _out_of(self, weights: Array, basis: Array) -> Pair:
        """Return C P as a pair of (channels, D)."""
        heads, size, _ = basis.shape
        apart = weights.reshape(-1, heads, size)
        return _pairs(jnp.einsum("dhj,hji->hid", apart, basis), axis=1)

    def _real(self, states: Pair) -> Array:
        """Return the N real channels of the states (L, channels)."""
        heads, size = self.M.shape[:2]
        im = states[1].reshape(-1, heads, (size + 1) // 2)[:, :, : size // 2]
        return jnp.concatenate([states[0], im.reshape(im.shape[0], -1)], axis=1)


def _head_size(d_state: int, heads: int) -> int:
    if heads < 1 or d_state % heads or d_state // heads < 2:
        raise Refusal(
            "RotRNN: heads",
            "d_state must be a multiple of heads, with two channels a head or more",
            f"d_state={d_state}, heads={heads}",
            f"Choose a divisor of {d_state} up to {d_state // 2}.",
        )
    return d_state // heads


def _pairs(rows: Array, axis: int) -> Pair:
    """Split channels (H, Dh, D) into first and second of each pair, each (H * ceil(Dh/2), D)."""
    first, second = rows[:, 0::2], rows[:, 1::2]
    missing = first.shape[axis] - second.shape[axis]
    second = jnp.pad(second, ((0, 0), (0, missing), (0, 0)))
    return first.reshape(-1, rows.shape[-1]), second.reshape(-1, rows.shape[-1])


def _read(out_of: Pair, states: Pair) -> Array:
    """Return C P x for states (L, channels) or (channels,)."""
    return states[0] @ out_of[0] + states[1] @ out_of[1]
