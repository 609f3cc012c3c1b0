"""LDStack: a nonlinear RNN approximated by corrected linear systems, averaged over random projections."""

from __future__ import annotations

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.errors import Refusal
from trainables.layers.initial import normal
from trainables.layers.layer import Fixed, Layer, backwards, only_looks_back
from trainables.layers.reachable.eigenvalues import initial_parameters, whole_spectrum
from trainables.layers.recurrence import NONLINEARITIES, recurrence, times
from trainables.settings import ALGORITHM, EVEN, LayerSettings, Option


class LDStack(Layer):
    """Layers of r systems with one input each; y_t = C h_t + D u_t, h_t the last layer's average.

    System j runs s_t = lambda * s_{t-1} + g_j^T u_t + k_t in the basis of its eigenvectors and is brought
    back by W_j = W g_j. The average over j is where a linear step leads; what the nonlinearity rho would have
    added to it is the correction k of the next layer, brought into every basis by the inverse of W_j.

    Parameters: alpha, omega (n/2,), the eigenvalues; W_re, W_im (n, n, D); C (D, n), D (D,); C_backward if
    bidirectional. Fixed: projections (r, D).

    Source: LDStack, section 5, with the eigenvalues of section 10.5.1.
    """

    settings = LayerSettings(
        summary="LDStack: a nonlinear RNN of n units from corrected linear systems (LDStack, section 5).",
        options={
            "rho": Option("elu", "The nonlinearity.", choices=("elu", "tanh", "relu")),
            "stack_depth": Option(2, "Linear layers; 1 is a plain LDS.", at_least=1),
            "projections": Option(6, "Random projections r of the input.", at_least=1),
            "algorithm": ALGORITHM,
        },
        needs=(EVEN,),
    )

    recurrent = frozenset({"alpha", "omega", "W_re", "W_im"})

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        rho: str = settings.default("rho"),
        stack_depth: int = settings.default("stack_depth"),
        projections: int = settings.default("projections"),
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
    ) -> None:
        """Draw the parameters such that W belongs to one real system.

        Args:
            d_model: width D.
            d_state: state size n, even.
            rngs: the source of randomness; its keys may be traced.
            rho: the nonlinearity, a name of `NONLINEARITIES`.
            stack_depth: number of linear layers; 1 is a plain LDS.
            projections: number r of random projections.
            bidirectional: whether to read the sequence backwards too, with a readout of its own.
            algorithm: algorithm of the recurrence, or "auto" for the fastest here.

        Raises:
            Refusal: if n is odd.
        """
        if d_state % 2 or d_state < 2:
            raise Refusal("LDStack: d_state", "d_state must be even", str(d_state), "Eigenvalues are pairs.")
        self.bidirectional, self.algorithm = bidirectional, algorithm
        self.rho, self.stack_depth = rho, stack_depth
        alpha, omega = initial_parameters("hinge", rngs.params(), d_state // 2, 1)
        self.alpha, self.omega = nnx.Param(alpha), nnx.Param(omega)
        re, im = _return_weights(rngs.params(), omega, d_model)
        self.W_re, self.W_im = nnx.Param(re), nnx.Param(im)
        self.C = nnx.Param(normal(rngs.params(), (d_model, d_state), 1 / d_state))
        if bidirectional:
            self.C_backward = nnx.Param(normal(rngs.params(), (d_model, d_state), 1 / d_state))
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))
        self.projections = Fixed(normal(rngs.params(), (projections, d_model)))

    def run(self, u: Array, length: Array | None = None) -> tuple[Array, Array]:
        """Return the outputs (L, D) and the last layer's states h (L, n)."""
        hidden = self._hidden(u)
        outputs = hidden @ self.C[...].T + self.D[...] * u
        if self.bidirectional:
            turned = self._hidden(backwards(length, u))
            outputs += backwards(length, turned) @ self.C_backward[...].T
        return outputs, hidden

    def initial_state(self) -> Array:
        """Return the zero states of every layer, planes (layers, 2, r * n)."""
        return jnp.zeros((self.stack_depth, *self._decay().shape))

    def step(self, state: Array, u: Array) -> tuple[Array, Array]:
        """Advance by one step u (D,)."""
        only_looks_back(self)
        decay, back, forth = self._decay(), *self._bases()
        driven = self._driven(u[None])[0]
        correction, states = jnp.zeros_like(driven), []
        for before in state:
            states.append(times(decay, before) + driven + correction)
            hidden = states[-1].ravel() @ back
            linear = (states[-1] - correction).ravel() @ back
            correction = self._deviation(linear) @ forth
            correction = correction.reshape(2, -1)
        return jnp.stack(states), self.C[...] @ hidden + self.D[...] * u

    def _hidden(self, u: Array) -> Array:
        decay, back, forth = self._decay(), *self._bases()
        driven = self._driven(u)
        correction = jnp.zeros_like(driven)
        for layer in range(self.stack_depth):
            states = recurrence(decay, driven + correction, algorithm=self.algorithm)
            if layer + 1 < self.stack_depth:
                linear = (states - correction).reshape(len(u), -1) @ back
                correction = (self._deviation(linear) @ forth).reshape(driven.shape)
        return states.reshape(len(u), -1) @ back

    def _deviation(self, linear: Array) -> Array:
        """Return delta(a) = rho(a) - a."""
        return NONLINEARITIES[self.rho][0](linear) - linear

    def _decay(self) -> Array:
        """Return the eigenvalues of every system, planes (2, r * n)."""
        found = whole_spectrum("hinge", self.alpha[...], self.omega[...])
        return jnp.tile(found, (1, len(self.projections[...])))

    def _driven(self, u: Array) -> Array:
        """Return the scalar input of every eigenvalue, planes (L, 2, r * n)."""
        scalars = jnp.repeat(u @ self.projections[...].T, len(self.W_re), axis=1)
        return jnp.stack([scalars, jnp.zeros_like(scalars)], axis=1)

    def _bases(self) -> tuple[Array, Array]:
        """Return the real matrices that average over systems out of their bases, and lead into them.

        Returns:
            (2 * r * n, n), with Re(sum_j W_j s_j) / r for planes s; and (n, 2 * r * n), with W_j^-1 k.
        """
        fixed = self.projections[...]
        re = jnp.einsum("abd,jd->jab", self.W_re[...], fixed)
        im = jnp.einsum("abd,jd->jab", self.W_im[...], fixed)
        back = jnp.stack([re, -im]).transpose(0, 1, 3, 2).reshape(-1, len(self.W_re)) / len(fixed)
        inverse = jnp.linalg.inv(jax.lax.complex(re, im))
        forth = jnp.stack([inverse.real, inverse.imag]).transpose(3, 0, 1, 2)
        return back, forth.reshape(len(self.W_re), -1)


def _return_weights(key: Array, omega: Array, d_model: int) -> tuple[Array, Array]:
    """Return W = E diag(E^-1 B) as real and imaginary parts (n, n, D), for a normal matrix with vectors E.

    Column k of E and its partner k + n/2 span a plane of a random rotation: two real vectors where the
    eigenvalues are real, (a +- i b) / sqrt(2) where they are a pair. B is normal with variance 1 / D.
    """
    of_basis, of_input = jax.random.split(key)
    size = 2 * len(omega)
    axes = jnp.linalg.qr(normal(of_basis, (size, size)))[0]
    first, second = jnp.split(axes, 2, axis=1)
    paired, scale = omega < 0, 2**-0.5
    re = jnp.concatenate(
        [jnp.where(paired, scale * first, first), jnp.where(paired, scale * first, second)], axis=1
    )
    tilt = jnp.where(paired, scale * second, 0)
    im = jnp.concatenate([-tilt, tilt], axis=1)
    weights = normal(of_input, (size, d_model), 1 / d_model)
    # E is unitary, so E^-1 B is its conjugate transpose times B.
    inputs_re, inputs_im = re.T @ weights, -im.T @ weights
    return (
        re[:, :, None] * inputs_re - im[:, :, None] * inputs_im,
        re[:, :, None] * inputs_im + im[:, :, None] * inputs_re,
    )
