"""LinOSS: a layer of forced harmonic oscillators."""

from __future__ import annotations

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.layers.layer import Layer, normal
from trainables.layers.recurrence.coupled import apply, coupled_recurrence
from trainables.settings import DENSE_ALGORITHM, EVEN, Count, LayerSettings, Option


class LinOSS(Layer):
    """N/2 oscillators y'' = -A y + B u with a diagonal A >= 0; the output is C y + D u.

    The state holds the velocities z and the positions y. With the step Δ of an oscillator, the two
    discretisations are

        im:    z_t = z_{t-1} + Δ (B u_t - A y_t),       y_t = y_{t-1} + Δ z_t
        imex:  z_t = z_{t-1} + Δ (B u_t - A y_{t-1}),   y_t = y_{t-1} + Δ z_t

    The first is implicit and loses energy: its eigenvalues have the modulus 1 / sqrt(1 + Δ² A). Those of the
    second have modulus 1, as long as Δ² A <= 4.

    Parameters: A, step_logit (N/2,), B (N/2, D), C (D, N/2), D (D,); C_backward (D, N/2) if bidirectional.
    The stiffness is max(A, 0), and Δ = sigmoid(step_logit).

    The paper's equations have real B and C, as here; the authors' program has complex ones, which amounts to
    twice as many oscillators with the same A and Δ.

    Source: Rusch and Rus, Oscillatory state-space models, 2024, sections 2 (the system and its
    discretisations) and 3 (eigenvalues).
    """

    settings = LayerSettings(
        summary="LinOSS: N/2 harmonic oscillators, with N states (Rusch and Rus, section 2).",
        options={
            "discretisation": Option(
                "im",
                "From continuous time to steps: im is implicit and forgets, imex keeps the energy.",
                choices=("im", "imex"),
            ),
            "algorithm": DENSE_ALGORITHM,
        },
        needs=(EVEN,),
        parameters=Count(
            ("d_model", "d_state", "bidirectional"), lambda d, n, both: n // 2 * (2 + (2 + both) * d) + d
        ),
    )
    recurrent = frozenset({"A", "step_logit", "B"})

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        bidirectional: bool = False,
        discretisation: str = settings.default("discretisation"),
        algorithm: str = settings.default("algorithm"),
    ) -> None:
        """Draw A and step_logit uniformly from 0 to 1, and the matrices as the authors' program does.

        Args:
            d_model: Width D.
            d_state: States N; each oscillator has two.
            rngs: Source of randomness; its keys may be traced.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
            discretisation: "im" or "imex".
            algorithm: Algorithm of the recurrence: "sequential", "associative" or "auto".
        """
        self.bidirectional, self.discretisation, self.algorithm = bidirectional, discretisation, algorithm
        count = d_state // 2
        self.A = nnx.Param(jax.random.uniform(rngs.params(), (count,)))
        self.step_logit = nnx.Param(jax.random.uniform(rngs.params(), (count,)))
        self.B = nnx.Param(_centred(rngs.params(), (count, d_model)))
        self.C = nnx.Param(_centred(rngs.params(), (d_model, count)))
        if bidirectional:
            self.C_backward = nnx.Param(_centred(rngs.params(), (d_model, count)))
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))

    def coefficients(self) -> tuple[Array, Array]:
        """Return the transitions (2, 2, N/2) of velocity and position, and the factors (2, N/2) of B u."""
        stiffness, step = jnp.maximum(self.A[...], 0), jax.nn.sigmoid(self.step_logit[...])
        one = jnp.ones_like(step)
        # 1 / (1 + Δ² A) solves the implicit equation; 1 - Δ² A / (1 + Δ² A) is computed without a difference.
        share = 1 / (1 + step**2 * stiffness) if self.discretisation == "im" else one
        stays = share if self.discretisation == "im" else 1 - step**2 * stiffness
        transition = jnp.stack(
            [jnp.stack([share, -step * stiffness * share]), jnp.stack([step * share, stays])]
        )
        return transition, jnp.stack([step * share, step**2 * share])

    def inputs(self, coefficients: tuple[Array, Array], u: Array) -> Array:
        """Return what B u adds to velocities and positions, (L, 2, N/2)."""
        return (u @ self.B[...].T)[..., None, :] * coefficients[1]

    def states(
        self, coefficients: tuple[Array, Array], inputs: Array, *, length: Array | None = None
    ) -> Array:
        """Return velocities and positions, (L, 2, N/2)."""
        return coupled_recurrence(coefficients[0], inputs, algorithm=self.algorithm, length=length)

    def read(self, coefficients: tuple[Array, Array], states: Array, *, backward: bool) -> Array:
        """Return C y, (L, D)."""
        return super().read(coefficients, states[..., 1, :], backward=backward)

    def respond_until(
        self, coefficients: tuple[Array, Array], inputs: Array, length: Array | None, *, backward: bool
    ) -> tuple[Array, Array]:
        """Return the outputs (L, D) of one direction, and the states, 0 in the padding."""
        # A free particle (A = 0) does not stop in the padding, and stiff oscillators may grow there.
        states = self.states(coefficients, inputs, length=length)
        return self.read(coefficients, states, backward=backward), states

    def respond_from(
        self, coefficients: tuple[Array, Array], state: Array, inputs: Array
    ) -> tuple[Array, Array, Array]:
        """Return the outputs (L, D) from an initial state, all states, and the last state."""
        states = self.states(coefficients, inputs.at[0].add(apply(coefficients[0], state)))
        return self.read(coefficients, states, backward=False), states, states[-1]

    def initial_state(self) -> Array:
        """Return oscillators at rest, (2, N/2)."""
        return jnp.zeros((2, len(self.A)))

    def advance(self, coefficients: tuple[Array, Array], state: Array, inputs: Array) -> tuple[Array, Array]:
        """Return the next velocities and positions, which are also their row."""
        state = apply(coefficients[0], state) + inputs
        return state, state


def _centred(key: Array, shape: tuple[int, int]) -> Array:
    """Draw uniformly between plus and minus 1 / sqrt(columns)."""
    bound = shape[1] ** -0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)
