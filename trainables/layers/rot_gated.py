"""RotRNN with angles and decays that depend on the input.

    theta_t = theta + W_theta u_t                              angle of every pair of channels
    gamma_t = exp(-exp(gamma_log + W_gamma u_t + b_gamma))     decay of every head
    xi_t = sqrt((1 - gamma_t^2) / trace(B^T B))

P is constant over a sequence, so the coordinates of RotRNN remain: each pair of channels is a complex number
with the decay gamma_t exp(i theta_t). Rotations by u_t add up, so a pair can count modulo a number; rotations
of one plane commute, so what depends on the order of the symbols needs more than one layer.
"""

from __future__ import annotations

from typing import NamedTuple

from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.layers.layer import Bounds, GatedLayer, between, normal, ring
from trainables.layers.recurrence import polar
from trainables.layers.rotation import EXACT, rotation
from trainables.layers.rotrnn import head_size, planes_of_pairs
from trainables.settings import (
    ANGLES,
    GATED_ALGORITHM,
    Count,
    LayerSettings,
    Need,
    Option,
    Range,
    divisible,
)

RATES = (-30.0, 4.5)
"""Range of log(-log gamma). Beyond it gamma is 1 or 0 in float32, and gradients would be infinite times 0."""


class Turning(NamedTuple):
    """Values that each sequence needs, computed from the parameters; K = ceil(Dh / 2) pairs a head.

    Attributes:
        angles: W_theta, (H * K, D); the last pair of a head of odd size is not rotated.
        into: P^T B / sqrt(trace(B^T B)), (2 * H * K, D).
        out: C P, (D, 2 * H * K).
        out_backward: Read-out of the reverse direction, or None.
    """

    angles: Array
    into: Array
    out: Array
    out_backward: Array | None


class RotGated(GatedLayer):
    """RotRNN with H heads whose angles and decays depend on the input, normalised at every step.

    Parameters: those of `RotRNN`, and W_theta (H, Dh//2, D), W_gamma (H, D), b_gamma (H,). With the three at
    zero it is RotRNN. With a learned start also x0 (H, Dh), the state P x0 before the first step of either
    direction.

    For independent inputs of mean 0 and covariance 1 and W_gamma = 0, a head that starts from zero has
    E||x_t||^2 = 1 - gamma^(2 t), whatever the angles are. Decays that depend on the input make xi_t and u_t
    dependent, and then E||x_t||^2 departs from it, above or below: with W_gamma standard normal and D = 8, it
    was between 0.98 and 1.12 in eight heads after 60 steps. W_gamma starts at zero.

    Source: RotRNN, section 6 (input-dependent rotations as future work); the equations are ours.
    """

    settings = LayerSettings(
        summary="RotRNN whose angles and decays depend on the input.",
        options={
            "heads": Option(32, "Number of heads H; d_state must be divisible by it.", at_least=1),
            "start": Option(
                "zero", "The state before the first step: zero, or learned.", choices=("zero", "learned")
            ),
            "algorithm": GATED_ALGORITHM,
        },
        ranges={
            "gamma_init": Range((0.5, 0.999), (0.0, 1.0), True, "Initial decays of the heads."),
            "theta_init": ANGLES,
        },
        needs=(
            divisible("d_state", "heads"),
            Need(("d_state", "heads"), lambda n, h: n >= 2 * h, "d_state must be at least 2 * heads"),
        ),
        parameters=Count(
            ("d_model", "d_state", "bidirectional", "heads", "start"),
            lambda d, n, both, h, start: (
                (2 + both) * n * d
                + d
                + n * (n // h)
                + h * (n // h // 2) * (d + 1)
                + h * (d + 2)
                + (start == "learned") * n
            ),
        ),
    )
    recurrent = frozenset({"theta", "gamma_log", "M", "B", "W_theta", "W_gamma", "b_gamma", "x0"})
    planes = True

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        heads: int = settings.default("heads"),
        gamma_init: Bounds = settings.default("gamma_init"),
        theta_init: Bounds = settings.default("theta_init"),
        start: str = settings.default("start"),
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
    ) -> None:
        """Draw the parameters as `RotRNN` does, and W_theta from N(0, 1 / D).

        The standard deviation of an element is 1 / sqrt(D): for inputs of covariance 1, angles vary by one
        radian around theta.

        Args:
            d_model: Width D.
            d_state: Real channels N of the state.
            rngs: Source of randomness; its keys may be traced.
            heads: Number of heads H, a divisor of N with Dh >= 2.
            gamma_init: Range of the decays at u = 0, within (0, 1); may be traced.
            theta_init: Range of the angles at u = 0, in radians a step; may be traced.
            start: The state before the first step: "zero", or "learned", at first with E||x_0||^2 = 1 a head.
            bidirectional: Whether to read the sequence backwards too, with all but C shared.
            algorithm: Algorithm of the recurrence: "sequential", "associative", "pallas" or "auto".

        Raises:
            Refusal: N is not a multiple of H, or a head would have fewer than two channels.
        """
        size = head_size(d_state, heads)
        self.bidirectional, self.algorithm = bidirectional, algorithm
        self.gamma_log = nnx.Param(jnp.log(ring(rngs.params(), (heads,), gamma_init)))
        self.theta = nnx.Param(between(rngs.params(), (heads, size // 2), theta_init))
        self.M = nnx.Param(normal(rngs.params(), (heads, size, size)))
        self.B = nnx.Param(normal(rngs.params(), (heads, size, d_model), 1 / d_model))
        self.C = nnx.Param(normal(rngs.params(), (d_model, d_state), 1 / d_state))
        if bidirectional:
            self.C_backward = nnx.Param(normal(rngs.params(), (d_model, d_state), 1 / d_state))
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))
        self.W_theta = nnx.Param(normal(rngs.params(), (heads, size // 2, d_model), 1 / d_model))
        self.W_gamma = nnx.Param(jnp.zeros((heads, d_model)))
        self.b_gamma = nnx.Param(jnp.zeros(heads))
        learned = start == "learned"
        self.x0 = nnx.Param(normal(rngs.params(), (heads, size), 1 / size)) if learned else None

    def coefficients(self) -> Turning:
        """Return the recurrence in the coordinates of P."""
        basis, weights = rotation(self.M[...]), self.B[...]
        width = weights.shape[-1]
        unit = weights / jnp.sqrt(jnp.sum(weights**2, axis=(1, 2), keepdims=True))
        turned = jnp.einsum("hji,hjd->hid", basis, unit, precision=EXACT)
        angles = jnp.pad(self.W_theta[...], ((0, 0), (0, self._odd), (0, 0)))
        return Turning(
            angles=angles.reshape(-1, width),
            into=planes_of_pairs(turned),
            out=_out(self.C[...], basis),
            out_backward=_out(self.C_backward[...], basis) if self.bidirectional else None,
        )

    def gates(self, coefficients: Turning, u: Array) -> tuple[Array, Array]:
        """Return gamma_t exp(i theta_t) and xi_t P^T B u_t, planes (L, 2, H * K).

        1 - gamma^2 is computed from the logarithm: near gamma = 1 the difference would have no digits left.
        """
        pairs = len(coefficients.angles) // len(self.gamma_log)
        rates = self.gamma_log[...] + u @ self.W_gamma[...].T + self.b_gamma[...]
        fading = jnp.exp(jnp.clip(rates, *RATES))
        theta = jnp.pad(self.theta[...], ((0, 0), (0, self._odd))).reshape(-1)
        gamma, xi = jnp.exp(-fading), jnp.sqrt(-jnp.expm1(-2 * fading))
        decays = polar(jnp.repeat(gamma, pairs, axis=1), theta + u @ coefficients.angles.T)
        inputs = (u @ coefficients.into.T).reshape(len(u), 2, -1)
        return decays, jnp.repeat(xi, pairs, axis=1)[:, None] * inputs

    def read(self, coefficients: Turning, states: Array, *, backward: bool) -> Array:
        """Return Re(C x), (L, D)."""
        out = coefficients.out_backward if backward else coefficients.out
        assert out is not None
        return states.reshape(len(states), -1) @ out.T

    def real(self, states: Array) -> Array:
        """Return the N real channels (L, N): the first of every pair, then the second of every pair."""
        if not self._odd:
            return super().real(states)
        rotated = states[:, 1].reshape(len(states), len(self.gamma_log), -1)[:, :, :-1]
        return jnp.concatenate([states[:, 0], rotated.reshape(len(states), -1)], axis=1)

    def initial_state(self) -> Array:
        """Return the state before the first step, zero or learned, planes (2, H * K)."""
        start = jnp.zeros(self.M.shape[:2]) if self.x0 is None else self.x0[...]
        return planes_of_pairs(start[:, :, None]).reshape(2, -1)

    @property
    def _odd(self) -> int:
        return self.M.shape[1] % 2


def _out(weights: Array, basis: Array) -> Array:
    """Return C P, (D, 2 * H * K), for C (D, N)."""
    apart = weights.reshape(-1, *basis.shape[:2])
    return planes_of_pairs(jnp.einsum("dhj,hji->hid", apart, basis, precision=EXACT)).T
