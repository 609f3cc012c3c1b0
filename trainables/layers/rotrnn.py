"""RotRNN: a linear recurrence whose transition is a rotation.

A head h of size Dh runs x_t = gamma A x_{t-1} + xi B u_t with A = P Theta P^T, P = expm(M - M^T) orthogonal,
Theta a block-diagonal rotation and xi such that E||x_t||^2 stays 1. P is constant over a sequence. In the
coordinates P^T x the input matrix is therefore P^T xi B, the output matrix is C P, and Theta acts on pairs of
channels: a complex recurrence with decay gamma exp(i theta). P is orthogonal, so no norm changes.
"""

from __future__ import annotations

from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.errors import Refusal
from trainables.layers.layer import Bounds, DiagonalLayer, Folded, between, normal, ring
from trainables.layers.recurrence import polar
from trainables.layers.rotation import EXACT, rotation
from trainables.settings import ACTIVATIONS, ALGORITHM, ANGLES, LayerSettings, Need, Option, Range, divisible


class RotRNN(DiagonalLayer):
    """RotRNN with H heads of rotations and one decay a head.

    Parameters: theta (H, Dh//2) in radians a step, gamma_log (H,) with gamma = exp(-exp(gamma_log)),
    M (H, Dh, Dh), B (H, Dh, D), C (D, N), C_backward (D, N) if bidirectional, D (D,); Dh = N / H. In a head
    of odd size the last channel of Theta is not rotated.

    Source: RotRNN, section 3, equations 6-13, and appendix B.
    """

    settings = LayerSettings(
        summary="RotRNN: H heads of rotations with one decay each (RotRNN, section 3).",
        options={
            "heads": Option(32, "Number of heads H; d_state must be divisible by it.", at_least=1),
            "algorithm": ALGORITHM,
            "activations": ACTIVATIONS,
        },
        ranges={
            "gamma_init": Range((0.5, 0.999), (0.0, 1.0), True, "Initial decays of the heads."),
            "theta_init": ANGLES,
        },
        needs=(
            divisible("d_state", "heads"),
            Need(("d_state", "heads"), lambda n, h: n >= 2 * h, "d_state must be at least 2 * heads"),
        ),
    )
    recurrent = frozenset({"theta", "gamma_log", "M", "B"})

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        heads: int = settings.default("heads"),
        gamma_init: Bounds = settings.default("gamma_init"),
        theta_init: Bounds = settings.default("theta_init"),
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
        activations: str = settings.default("activations"),
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
            algorithm: of the recurrence: a name of `recurrence.ALGORITHMS`, or "auto".
            activations: type of the recurrence's inputs and states.

        Raises:
            Refusal: N is not a multiple of H, or a head would have fewer than two channels.
        """
        size = head_size(d_state, heads)
        self.bidirectional, self.algorithm, self.activations = bidirectional, algorithm, activations
        self.gamma_log = nnx.Param(jnp.log(ring(rngs.params(), (heads,), gamma_init)))
        self.theta = nnx.Param(between(rngs.params(), (heads, size // 2), theta_init))
        self.M = nnx.Param(normal(rngs.params(), (heads, size, size)))
        self.B = nnx.Param(normal(rngs.params(), (heads, size, d_model), 1 / d_model))
        self.C = nnx.Param(normal(rngs.params(), (d_model, d_state), 1 / d_state))
        if bidirectional:
            self.C_backward = nnx.Param(normal(rngs.params(), (d_model, d_state), 1 / d_state))
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))

    def coefficients(self) -> Folded:
        """Return the recurrence in the coordinates of P; odd heads have one channel that is always real."""
        basis = rotation(self.M[...])
        return Folded(
            decay=self._decay(),
            into=self._into(basis),
            out=read_out(self.C[...], basis),
            out_backward=read_out(self.C_backward[...], basis) if self.bidirectional else None,
        )

    def real(self, states: Array) -> Array:
        """Return the N real channels (L, N): the first of every pair, then the second of every pair."""
        heads, size = self.M.shape[:2]
        if size % 2 == 0:
            return super().real(states)
        rotated = states[:, 1].reshape(len(states), heads, -1)[:, :, :-1]
        return jnp.concatenate([states[:, 0], rotated.reshape(len(states), -1)], axis=1)

    def _decay(self) -> Array:
        """Return gamma exp(i theta), planes (2, channels); the angle of an odd head's last channel is 0."""
        theta = jnp.pad(self.theta[...], ((0, 0), (0, self.M.shape[1] % 2)))
        gamma = jnp.exp(-jnp.exp(self.gamma_log[...]))
        return polar(gamma[:, None], theta).swapaxes(0, 1).reshape(2, -1)

    def _into(self, basis: Array) -> Array:
        """Return P^T xi B, (2 * channels, D).

        1 - gamma^2 is computed from gamma_log: near gamma = 1 the difference would have no digits left.

        Source: equation 11, with c = 1.
        """
        weights = self.B[...]
        power = -jnp.expm1(-2 * jnp.exp(self.gamma_log[...]))
        xi = jnp.sqrt(power / jnp.sum(weights**2, axis=(1, 2)))
        turned = jnp.einsum("hji,hjd->hid", basis, weights, precision=EXACT)
        return planes_of_pairs(xi[:, None, None] * turned)


def head_size(d_state: int, heads: int) -> int:
    """Return the channels of a head, at least two, or raise Refusal."""
    if heads < 1 or d_state % heads or d_state // heads < 2:
        raise Refusal(
            "RotRNN: heads",
            "d_state must be a multiple of heads, with at least two channels a head",
            f"d_state={d_state}, heads={heads}",
            f"Choose a divisor of {d_state} up to {d_state // 2}.",
        )
    return d_state // heads


def read_out(weights: Array, basis: Array) -> Array:
    """Return the columns of C P, (2 * channels, D), for C (D, N)."""
    apart = weights.reshape(-1, *basis.shape[:2])
    return planes_of_pairs(jnp.einsum("dhj,hji->hid", apart, basis, precision=EXACT))


def planes_of_pairs(rows: Array) -> Array:
    """Reorder channels (H, Dh, D) to first and second of each pair, (2 * H * ceil(Dh/2), D)."""
    heads, size, width = rows.shape
    even = jnp.pad(rows, ((0, 0), (0, size % 2), (0, 0))).reshape(heads, -1, 2, width)
    return even.transpose(2, 0, 1, 3).reshape(-1, width)
