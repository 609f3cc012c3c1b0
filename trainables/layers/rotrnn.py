"""RotRNN: a linear recurrence whose transition is a rotation.

A head h of size Dh runs x_t = gamma A x_{t-1} + xi B u_t with A = P Theta P^T, P = expm(M - M^T) orthogonal,
Theta a block-diagonal rotation and xi such that E||x_t||^2, once 1, stays 1; from the zero state it is
1 - gamma^(2 t) after t steps, for independent inputs of mean 0 and covariance 1. P is constant over a
sequence. In the coordinates P^T x the input matrix is therefore P^T xi B, the output matrix is C P, and Theta
acts on pairs of channels: a complex recurrence with decay gamma exp(i theta). P is orthogonal, so no norm
changes.

Options remove single parts: the normaliser xi, P, and the training of theta and of gamma. Layers of the same
seed then differ only in that part, because all others are drawn as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.errors import Refusal
from trainables.layers.layer import (
    Bounds,
    DiagonalLayer,
    Fixed,
    Folded,
    between,
    log_between,
    normal,
    ring,
)
from trainables.layers.recurrence import polar
from trainables.layers.rotation import EXACT, rotation
from trainables.settings import (
    ACTIVATIONS,
    ALGORITHM,
    ANGLES,
    Count,
    LayerSettings,
    Need,
    Option,
    Range,
    divisible,
)

Factors = tuple[Array | float, Array | float]


def _on_inputs(rate: Array, power: Array) -> Factors:
    # 1 - gamma^2 from the rate: near gamma = 1 the difference would have no digits left.
    return 1.0, jnp.sqrt(-jnp.expm1(-2 * rate) / power)


def _on_states(rate: Array, power: Array) -> Factors:
    alpha = 1 / jnp.sqrt(jnp.exp(-2 * rate) + power)
    return alpha, alpha


def _unchanged(rate: Array, power: Array) -> Factors:
    return 1.0, 1.0


NORMALISERS: Mapping[str, Callable[[Array, Array], Factors]] = MappingProxyType(
    {"input": _on_inputs, "state": _on_states, "learned": _unchanged, "none": _unchanged}
)
"""Functions by name: (-log(gamma) (H,), Tr B^T B (H,)) -> factors of gamma and of B in each head.

Source: RotRNN, equation 11 (input) and lemma 3 (state), with c = 1.
"""


class RotRNN(DiagonalLayer):
    """RotRNN with H heads of rotations and one decay a head.

    Parameters: theta (H, Dh//2) in radians a step, gamma_log (H,) with gamma = exp(-exp(gamma_log)),
    M (H, Dh, Dh), B (H, Dh, D), C (D, N), C_backward (D, N) if bidirectional, D (D,); Dh = N / H. In a head
    of odd size the last channel of Theta is not rotated. With a learned normaliser also scale_log (H, pairs),
    with the factor exp(scale_log) of the input of each pair of channels. No M if P is the identity.

    Source: RotRNN, section 3, equations 6-13, and appendix B.
    """

    settings = LayerSettings(
        summary="RotRNN: H heads of rotations with one decay each (RotRNN, section 3).",
        options={
            "heads": Option(32, "Number of heads H; d_state must be divisible by it.", at_least=1),
            "normalisation": Option(
                "input",
                "What keeps states at norm 1: a factor of the input (eq. 11), of the whole state (lemma 3), a"
                " learned factor of the input that starts from the first, or none.",
                choices=("input", "state", "learned", "none"),
            ),
            "basis": Option(
                "learned", "The orthogonal P: learned, or the identity.", choices=("learned", "identity")
            ),
            "init": Option(
                "paper",
                "How gamma, B and C are drawn: as the paper says, or as the authors' code does, with"
                " -log(gamma) log-uniform and B and C of variance 1 / (D + N).",
                choices=("paper", "code"),
            ),
            "train_theta": Option(True, "Train the angles; if not, they stay as drawn."),
            "train_gamma": Option(True, "Train the decays; if not, they stay as drawn."),
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
        parameters=Count(
            (
                *("d_model", "d_state", "bidirectional", "heads"),
                *("normalisation", "basis", "train_theta", "train_gamma"),
            ),
            lambda d, n, both, h, normalisation, basis, theta, gamma: (
                (2 + both) * n * d
                + d
                + (basis == "learned") * n * (n // h)
                + theta * h * (n // h // 2)
                + gamma * h
                + (normalisation == "learned") * h * ((n // h + 1) // 2)
            ),
        ),
    )
    recurrent = frozenset({"theta", "gamma_log", "M", "B", "scale_log"})

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        heads: int = settings.default("heads"),
        gamma_init: Bounds = settings.default("gamma_init"),
        theta_init: Bounds = settings.default("theta_init"),
        normalisation: str = settings.default("normalisation"),
        basis: str = settings.default("basis"),
        init: str = settings.default("init"),
        train_theta: bool = settings.default("train_theta"),
        train_gamma: bool = settings.default("train_gamma"),
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
        activations: str = settings.default("activations"),
    ) -> None:
        """Draw the parameters as the paper does.

        Args:
            d_model: Width D.
            d_state: Real channels N of the state.
            rngs: Source of randomness; its keys may be traced.
            heads: Number of heads H, a divisor of N with Dh >= 2.
            gamma_init: Range of the decays, within (0, 1); may be traced.
            theta_init: Range of the angles, in radians a step; may be traced.
            normalisation: A name of `NORMALISERS`; "learned" starts as "input" does.
            basis: "learned" for P = expm(M - M^T), or "identity".
            init: "paper" for appendix B.3, or "code" for the authors' program, which draws -log(gamma)
                log-uniformly, and B and C with variance 1 / (D + N).
            train_theta: Whether the angles are trained.
            train_gamma: Whether the decays are trained.
            bidirectional: Whether to read the sequence backwards too, with P, Theta and B shared.
            algorithm: Algorithm of the recurrence, a name of `recurrence.ALGORITHMS`, or "auto".
            activations: Type of the recurrence's inputs and states.

        Raises:
            Refusal: N is not a multiple of H, or a head would have fewer than two channels.
        """
        size = head_size(d_state, heads)
        self.bidirectional, self.algorithm, self.activations = bidirectional, algorithm, activations
        self.normalisation, self.heads = normalisation, heads
        as_paper, total = init == "paper", d_model + d_state
        draw = _of_ring if as_paper else _of_rates
        self.gamma_log = _kind(train_gamma)(draw(rngs.params(), (heads,), gamma_init))
        self.theta = _kind(train_theta)(between(rngs.params(), (heads, size // 2), theta_init))
        key = rngs.params()
        self.M = nnx.Param(normal(key, (heads, size, size))) if basis == "learned" else None
        of_inputs, of_states = (1 / d_model, 1 / d_state) if as_paper else (1 / total, 1 / total)
        self.B = nnx.Param(normal(rngs.params(), (heads, size, d_model), of_inputs))
        if normalisation == "learned":
            xi = _on_inputs(jnp.exp(self.gamma_log[...]), self._power())[1]
            self.scale_log = nnx.Param(jnp.repeat(jnp.log(xi)[:, None], (size + 1) // 2, axis=1))
        self.C = nnx.Param(normal(rngs.params(), (d_model, d_state), of_states))
        if bidirectional:
            self.C_backward = nnx.Param(normal(rngs.params(), (d_model, d_state), of_states))
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))

    def coefficients(self) -> Folded:
        """Return the recurrence in the coordinates of P; odd heads have one channel that is always real."""
        basis = None if self.M is None else rotation(self.M[...])
        rate = jnp.exp(self.gamma_log[...])
        of_gamma, of_inputs = NORMALISERS[self.normalisation](rate, self._power())
        return Folded(
            decay=self._decay(of_gamma * jnp.exp(-rate)),
            into=self._into(basis, jnp.broadcast_to(of_inputs, rate.shape)),
            out=self._out(self.C[...], basis),
            out_backward=self._out(self.C_backward[...], basis) if self.bidirectional else None,
        )

    def real(self, states: Array) -> Array:
        """Return the N real channels (L, N): the first of every pair, then the second of every pair."""
        heads, size = self.B.shape[:2]
        if size % 2 == 0:
            return super().real(states)
        rotated = states[:, 1].reshape(len(states), heads, -1)[:, :, :-1]
        return jnp.concatenate([states[:, 0], rotated.reshape(len(states), -1)], axis=1)

    def head_norms(self, states: Array) -> Array:
        """Return the norms of the heads, (L, H), of states (L, N) as `real` orders them."""
        pairs = self.heads * ((self.B.shape[1] + 1) // 2)
        parts = (states[:, :pairs], states[:, pairs:])
        squared = (jnp.sum(part.reshape(len(states), self.heads, -1) ** 2, axis=-1) for part in parts)
        return jnp.sqrt(sum(squared))

    def _power(self) -> Array:
        """Return Tr B^T B of each head, (H,)."""
        return jnp.sum(self.B[...] ** 2, axis=(1, 2))

    def _decay(self, gamma: Array) -> Array:
        """Return gamma exp(i theta), planes (2, channels); the angle of an odd head's last channel is 0."""
        theta = jnp.pad(self.theta[...], ((0, 0), (0, self.B.shape[1] % 2)))
        return polar(gamma[:, None], theta).swapaxes(0, 1).reshape(2, -1)

    def _into(self, basis: Array | None, factor: Array) -> Array:
        """Return P^T B, (2 * channels, D), scaled by the factor (H,) of each head, or by the learned ones."""
        turned = self.B[...]
        if basis is not None:
            turned = jnp.einsum("hji,hjd->hid", basis, turned, precision=EXACT)
        scale = factor[:, None]
        if self.normalisation == "learned":
            scale = jnp.repeat(jnp.exp(self.scale_log[...]), 2, axis=1)[:, : turned.shape[1]]
        return planes_of_pairs(scale[:, :, None] * turned)

    def _out(self, weights: Array, basis: Array | None) -> Array:
        """Return the columns of C P, (2 * channels, D), for C (D, N)."""
        apart = weights.reshape(-1, *self.B.shape[:2])
        if basis is None:
            return planes_of_pairs(apart.transpose(1, 2, 0))
        return planes_of_pairs(jnp.einsum("dhj,hji->hid", apart, basis, precision=EXACT))


def _of_ring(key: Array, shape: tuple[int, ...], gamma: Bounds) -> Array:
    """Draw log(-log(gamma)) with gamma on a ring, uniform by area."""
    return jnp.log(ring(key, shape, gamma))


def _of_rates(key: Array, shape: tuple[int, ...], gamma: Bounds) -> Array:
    """Draw log(-log(gamma)) uniformly between its values at both ends of the range of gamma.

    Source: the authors' program, `rotrnn.py` of `raresdolga/s5`.
    """
    low, high = gamma
    return log_between(key, shape, (-jnp.log(high), -jnp.log(low)))


def _kind(is_trained: bool) -> type[nnx.Variable[Array]]:
    return nnx.Param if is_trained else Fixed


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


def planes_of_pairs(rows: Array) -> Array:
    """Reorder channels (H, Dh, D): the first of every pair, then the second, (2 * H * ceil(Dh/2), D)."""
    heads, size, width = rows.shape
    even = jnp.pad(rows, ((0, 0), (0, size % 2), (0, 0))).reshape(heads, -1, 2, width)
    return even.transpose(2, 0, 1, 3).reshape(-1, width)
