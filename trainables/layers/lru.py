"""LRU: the linear recurrent unit, and the ablations that lead to it."""

from __future__ import annotations

from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.layers.layer import Bounds, DiagonalLayer, Folded, between, complex_normal, normal, ring
from trainables.layers.recurrence import linear_recurrence, planar, polar
from trainables.layers.recurrence.planar import rows
from trainables.settings import ACTIVATIONS, ALGORITHM, ANGLES, Count, LayerSettings, Need, Option, Range

GLOROT = nnx.initializers.glorot_normal()


class LRU(DiagonalLayer):
    """A complex diagonal recurrence x_t = lambda x_{t-1} + gamma B u_t, y_t = Re(C x_t) + D u_t.

    Parameters: nu_log, theta_log (N,) with lambda = exp(-exp(nu_log) + i exp(theta_log)), gamma_log (N,) with
    gamma = exp(gamma_log), B_re, B_im (N, D), C_re, C_im (D, N), D (D,); C_backward_re, C_backward_im if
    bidirectional. Not stable: nu, theta (N,) with lambda = exp(-nu + i theta). Cartesian: Lambda_re and
    Lambda_im (N,), the parts of lambda. Not normalised, or with a computed gamma: no gamma_log. Dense:
    A (N, N) real, B_re, C_re and D alone.

    Source: LRU, sections 3.1-3.4, tables 1-3 and 5.
    """

    settings = LayerSettings(
        summary="LRU: N complex channels on a ring, with a learned normaliser (LRU, section 3).",
        options={
            "stable": Option(
                True, "Keep moduli below 1 by a second exponential; learn the logarithm of phases too."
            ),
            "cartesian": Option(
                False, "Learn real and imaginary part of each eigenvalue, not modulus and phase (table 2)."
            ),
            "normalise": Option(True, "Scale each channel's input by gamma."),
            "gamma": Option(
                "learned",
                "Gamma starts from sqrt(1 - |lambda|^2) and is learned, or is computed from lambda at every"
                " step, as in the RotRNN authors' program.",
                choices=("learned", "computed"),
            ),
            "dense": Option(False, "A dense real transition instead (table 1)."),
            "algorithm": ALGORITHM,
            "activations": ACTIVATIONS,
        },
        ranges={
            "r_init": Range((0.0, 0.99), (0.0, 1.0), False, "Moduli of the eigenvalues, uniform by area."),
            "theta_init": ANGLES,
        },
        needs=(
            Need(
                ("cartesian", "stable"),
                lambda cartesian, stable: not (cartesian and stable),
                "stable must be false with cartesian",
            ),
            Need(
                ("gamma", "stable"),
                lambda gamma, stable: gamma == "learned" or stable,
                "gamma must be learned unless stable is true",
            ),
        ),
        parameters=Count(
            ("d_model", "d_state", "bidirectional", "dense", "normalise", "gamma"),
            lambda d, n, both, dense, normalise, gamma: (
                (2 + both) * n * d + d + n * n
                if dense
                else (4 + 2 * both) * n * d + d + (2 + (normalise and gamma == "learned")) * n
            ),
        ),
    )
    recurrent = frozenset(
        {"nu_log", "theta_log", "nu", "theta", "Lambda_re", "Lambda_im", "gamma_log", "A", "B_re", "B_im"}
    )

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        r_init: Bounds = settings.default("r_init"),
        theta_init: Bounds = settings.default("theta_init"),
        stable: bool = settings.default("stable"),
        cartesian: bool = settings.default("cartesian"),
        normalise: bool = settings.default("normalise"),
        gamma: str = settings.default("gamma"),
        dense: bool = settings.default("dense"),
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
        activations: str = settings.default("activations"),
    ) -> None:
        """Draw the parameters as the paper does.

        Args:
            d_model: Width D.
            d_state: Complex channels N of the state; real ones if dense.
            rngs: Source of randomness; its keys may be traced.
            r_init: Range of the moduli (r_min, r_max), within [0, 1]; may be traced.
            theta_init: Range of the phases, in radians a step; may be traced.
            stable: Keep moduli below 1 by a second exponential. It also learns the logarithm of each phase,
                which the paper introduces later, in section 3.4, with small phases alone.
            cartesian: Learn real and imaginary part of each eigenvalue, not modulus and phase; without
                `stable`, because nothing then keeps moduli below 1.
            normalise: Scale the input of each channel by gamma, initially sqrt(1 - |lambda|^2).
            gamma: "learned", or "computed" from the eigenvalues at every step, which needs `stable`.
            dense: A dense real transition instead, of table 1; without the three options above.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
            algorithm: Algorithm of the recurrence, a name of `recurrence.ALGORITHMS`, or "auto".
            activations: Type of the recurrence's inputs and states.
        """
        self.bidirectional, self.algorithm, self.activations = bidirectional, algorithm, activations
        self.stable, self.cartesian = stable, cartesian
        self.normalise, self.gamma, self.dense = normalise and not dense, gamma, dense
        if dense:
            self._draw_dense(d_model, d_state, rngs)
        else:
            self._draw_diagonal(d_model, d_state, rngs, r_init, theta_init)
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))

    def _draw_dense(self, d_model: int, d_state: int, rngs: nnx.Rngs) -> None:
        self.A = nnx.Param(GLOROT(rngs.params(), (d_state, d_state)))
        self.B_re = nnx.Param(GLOROT(rngs.params(), (d_state, d_model)))
        self.C_re = nnx.Param(GLOROT(rngs.params(), (d_model, d_state)))
        if self.bidirectional:
            self.C_backward_re = nnx.Param(GLOROT(rngs.params(), (d_model, d_state)))

    def _draw_diagonal(
        self, d_model: int, d_state: int, rngs: nnx.Rngs, r_init: Bounds, theta_init: Bounds
    ) -> None:
        nu = ring(rngs.params(), (d_state,), r_init)
        theta = between(rngs.params(), (d_state,), theta_init)
        if self.cartesian:
            real, imaginary = polar(jnp.exp(-nu), theta)
            self.Lambda_re, self.Lambda_im = nnx.Param(real), nnx.Param(imaginary)
        elif self.stable:
            self.nu_log, self.theta_log = nnx.Param(jnp.log(nu)), nnx.Param(jnp.log(theta))
        else:
            self.nu, self.theta = nnx.Param(nu), nnx.Param(theta)
        if self.normalise and self.gamma == "learned":
            self.gamma_log = nnx.Param(0.5 * jnp.log(-jnp.expm1(-2 * nu)))
        self.B_re, self.B_im = complex_normal(rngs, (d_state, d_model), 1 / (2 * d_model))
        self.C_re, self.C_im = complex_normal(rngs, (d_model, d_state), 1 / d_state)
        if self.bidirectional:
            self.C_backward_re, self.C_backward_im = complex_normal(rngs, (d_model, d_state), 1 / d_state)

    @property
    def may_grow(self) -> bool:
        """Return True if training may move eigenvalues outside the unit circle."""
        return self.dense or not self.stable

    def coefficients(self) -> Folded:
        """Return the recurrence; if dense, A (N, N) in place of the decay, B (N, D) and C^T (N, D)."""
        if self.dense:
            backward = self.C_backward_re[...].T if self.bidirectional else None
            return Folded(self.A[...], self.B_re[...], self.C_re[...].T, backward)
        gamma = self._scale()[:, None] if self.normalise else 1
        return Folded(
            decay=self._decay(),
            into=rows(gamma * self.B_re[...], gamma * self.B_im[...]),
            out=rows(self.C_re[...].T, -self.C_im[...].T),
            out_backward=rows(self.C_backward_re[...].T, -self.C_backward_im[...].T)
            if self.bidirectional
            else None,
        )

    def inputs(self, coefficients: Folded, u: Array) -> Array:
        """Return gamma B u, planes (L, 2, N), or B u (L, N) if dense."""
        return u @ self.B_re[...].T if self.dense else super().inputs(coefficients, u)

    def states(
        self, coefficients: Folded, inputs: Array, *, reverse: bool = False, length: Array | None = None
    ) -> Array:
        """Return the states, planes (L, 2, N), or (L, N) if dense."""
        if self.dense:
            return linear_recurrence(
                coefficients.decay, inputs, reverse=reverse, algorithm=self.algorithm, length=length
            )
        return super().states(coefficients, inputs, reverse=reverse, length=length)

    def respond_from(self, coefficients: Folded, state: Array, inputs: Array) -> tuple[Array, Array, Array]:
        """Return the outputs (L, D) from an initial state, all states, and the last state."""
        if not self.dense:
            return super().respond_from(coefficients, state, inputs)
        states = self.states(coefficients, inputs.at[0].add(coefficients.decay @ state))
        return self.read(coefficients, states, backward=False), states, states[-1]

    def expected_norms(self, length: int) -> Array | None:
        """Return the root of E||x_t||^2, (length, 1); None if dense."""
        return None if self.dense else super().expected_norms(length)

    def initial_state(self) -> Array:
        """Return the zero state: planes (2, N), or (N,) if dense."""
        return jnp.zeros(len(self.A)) if self.dense else super().initial_state()

    def advance(self, coefficients: Folded, state: Array, inputs: Array) -> tuple[Array, Array]:
        """Return the next state, which is also the row of `states`."""
        if self.dense:
            state = coefficients.decay @ state + inputs
            return state, state
        return super().advance(coefficients, state, inputs)

    def _scale(self) -> Array:
        """Return gamma (N,); without rounding 1 - |lambda|^2 to 0 where |lambda| is close to 1."""
        if self.gamma == "learned":
            return jnp.exp(self.gamma_log[...])
        return jnp.sqrt(-jnp.expm1(-2 * jnp.exp(self.nu_log[...])))

    def _decay(self) -> Array:
        if self.cartesian:
            return planar(self.Lambda_re[...], self.Lambda_im[...])
        if self.stable:
            return polar(jnp.exp(-jnp.exp(self.nu_log[...])), jnp.exp(self.theta_log[...]))
        return polar(jnp.exp(-self.nu[...]), self.theta[...])
