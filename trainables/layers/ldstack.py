"""LDStack: a nonlinear RNN approximated by corrected linear systems, averaged over random projections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.errors import Refusal
from trainables.layers.layer import Fixed, Layer, normal
from trainables.layers.lds import initial_parameters, whole_spectrum
from trainables.layers.recurrence import NONLINEARITIES, planar, recurrence, times, until
from trainables.layers.recurrence.blocks import outputs_by_blocks, pays_off
from trainables.settings import BLOCKS_ALGORITHM, EVEN, Count, LayerSettings, Option


class Bases(NamedTuple):
    """The linear systems.

    Attributes:
        decay: Eigenvalues of every system, planes (2, r * n).
        out: Matrix (2 * r * n, n) that averages the systems: Re(sum_j W_j s_j) / r for planes s.
        into: Matrices W_j^-1 into every basis, planes (n, 2, r * n).
    """

    decay: Array
    out: Array
    into: Array


Last = TypeVar("Last")
"""The last states of a layer, or None where they are not formed."""

Answer: TypeAlias = Callable[[int, Array, Array], tuple[Array, Last]]
"""Function (layer, drives (G, 2, r * n), inputs (..., G)) -> average (..., n) of the systems, last states."""


class LDStack(Layer):
    """Layers of r systems with one input each; y_t = C h_t + D u_t, h_t the last layer's average.

    System j runs s_t = lambda * s_{t-1} + g_j^T u_t + k_t in the basis of its eigenvectors; W_j = W g_j leads
    out of this basis. The average over j is the result of a linear step. The effect of the nonlinearity rho
    is the correction k of the next layer, which the inverse of W_j transforms into every basis.

    Since systems are linear, a later layer runs on its corrections alone and adds its average to the first
    layer's; the average of W_j W_j^-1 k is k, so that its linear step is h - k.

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
            "algorithm": BLOCKS_ALGORITHM,
        },
        needs=(EVEN,),
        parameters=Count(
            ("d_model", "d_state", "bidirectional"),
            lambda d, n, both: n + 2 * n * n * d + (1 + both) * n * d + d,
        ),
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
            d_model: Width D.
            d_state: State size n, even.
            rngs: Source of randomness; its keys may be traced.
            rho: The nonlinearity, a name of `NONLINEARITIES`.
            stack_depth: Number of linear layers; 1 is a plain LDS.
            projections: Number r of random projections.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
            algorithm: "blocks", which skips the states inside blocks of steps, or a name of
                `recurrence.ALGORITHMS`. "auto" is the fastest.

        Raises:
            Refusal: n is odd.
        """
        if d_state % 2 or d_state < 2:
            raise Refusal("LDStack: d_state", "must be even", str(d_state), "Eigenvalues are pairs.")
        self.bidirectional, self.chosen = bidirectional, algorithm
        # Of the states, which are computed where a sequence goes on.
        self.algorithm = "auto" if algorithm == "blocks" else algorithm
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

    def coefficients(self) -> Bases:
        """Return the eigenvalues of every system, and the matrices out of their bases and into them."""
        fixed = self.projections[...]
        re = jnp.einsum("abd,jd->jab", self.W_re[...], fixed)
        im = jnp.einsum("abd,jd->jab", self.W_im[...], fixed)
        out = jnp.stack([re, -im]).transpose(0, 1, 3, 2).reshape(-1, len(self.W_re)) / len(fixed)
        inverse = jnp.linalg.inv(jax.lax.complex(re, im))
        into = jnp.stack([inverse.real, inverse.imag]).transpose(3, 0, 1, 2)
        return Bases(self._decay(), out, into.reshape(len(self.W_re), 2, -1))

    def inputs(self, coefficients: Bases, u: Array) -> Array:
        """Return the scalar input of every system, (L, r)."""
        return u @ self.projections[...].T

    def states(self, coefficients: Bases, inputs: Array) -> Array:
        """Return the last layer's states h (L, n)."""
        return self._until(coefficients, inputs, None)

    def respond_until(
        self, coefficients: Bases, inputs: Array, length: Array | None, *, backward: bool
    ) -> tuple[Array, Array]:
        """Return the outputs (L, D) of one direction and the last layer's states, 0 in the padding."""
        states = self._until(coefficients, inputs, length)
        return self.read(coefficients, states, backward=backward), states

    def _until(self, coefficients: Bases, inputs: Array, length: Array | None) -> Array:
        if not self.by_blocks:
            return self._from(coefficients, (None,) * self.stack_depth, inputs, length)[0]
        decay, out, _ = coefficients

        def answer(layer: int, drives: Array, inputs: Array) -> tuple[Array, None]:
            return outputs_by_blocks(decay, out, drives, inputs, length), None

        return self._stacked(coefficients, inputs, answer)[0]

    def respond_from(self, coefficients: Bases, state: Array, inputs: Array) -> tuple[Array, Array, Array]:
        """Return the outputs (L, D) from a state, the last layer's states h (L, n), and the next state."""
        states, after = self._from(coefficients, tuple(state), inputs)
        return self.read(coefficients, states, backward=False), states, jnp.stack(after)

    def initial_state(self) -> Array:
        """Return the zero states of every layer, planes (layers, 2, r * n)."""
        return jnp.zeros((self.stack_depth, *self._decay().shape))

    def advance(self, coefficients: Bases, state: Array, inputs: Array) -> tuple[Array, Array]:
        """Return the next states of every layer, and the last layer's h (n,)."""
        decay, out, _ = coefficients

        def answer(layer: int, drives: Array, inputs: Array) -> tuple[Array, Array]:
            after = times(decay, state[layer]) + _driven(inputs, drives)
            return after.ravel() @ out, after

        hidden, after = self._stacked(coefficients, inputs, answer)
        return jnp.stack(after), hidden

    def _from(
        self,
        coefficients: Bases,
        before: Sequence[Array | None],
        inputs: Array,
        length: Array | None = None,
    ) -> tuple[Array, list[Array]]:
        """Return the last layer's states h (L, n) after given states, and the last states of every layer."""
        decay, out, _ = coefficients

        def answer(layer: int, drives: Array, inputs: Array) -> tuple[Array, Array]:
            driven = _driven(inputs, drives)
            states = recurrence(decay, driven, initial=before[layer], algorithm=self.algorithm, length=length)
            return until(length, states.reshape(len(inputs), -1) @ out), states[-1]

        return self._stacked(coefficients, inputs, answer)

    def _stacked(self, coefficients: Bases, inputs: Array, answer: Answer[Last]) -> tuple[Array, list[Last]]:
        """Return the last layer's h (..., n) for inputs (..., r), and the last states of every layer."""
        first, last = answer(0, self._scalars(), inputs)
        hidden, correction, after = first, jnp.zeros_like(first), [last]
        for layer in range(1, self.stack_depth):
            correction = self._deviation(hidden - correction)
            more, last = answer(layer, coefficients.into, correction)
            hidden = first + more
            after.append(last)
        return hidden, after

    @property
    def by_blocks(self) -> bool:
        """Return True if the states inside blocks of steps are not computed."""
        if self.chosen != "auto":
            return self.chosen == "blocks"
        copies, size = len(self.projections), len(self.W_re)
        inputs = copies if self.stack_depth == 1 else size
        return jax.default_backend() == "cpu" and pays_off(inputs, copies * size, size)

    def _deviation(self, linear: Array) -> Array:
        """Return delta(a) = rho(a) - a."""
        return NONLINEARITIES[self.rho][0](linear) - linear

    def _decay(self) -> Array:
        """Return the eigenvalues of every system, planes (2, r * n)."""
        eigenvalues = whole_spectrum("hinge", self.alpha[...], self.omega[...])
        return jnp.tile(eigenvalues, (1, len(self.projections[...])))

    def _scalars(self) -> Array:
        """Return the weights of the scalar inputs in every eigenvalue, planes (r, 2, r * n)."""
        taken = jnp.repeat(jnp.eye(len(self.projections[...])), len(self.W_re), axis=1)
        return planar(taken, jnp.zeros_like(taken))


def _driven(inputs: Array, drives: Array) -> Array:
    """Return the input of every eigenvalue, planes (..., 2, r * n), for inputs (..., G)."""
    return jnp.tensordot(inputs, drives, 1, precision="highest")


def _return_weights(key: Array, omega: Array, d_model: int) -> tuple[Array, Array]:
    """Return W = E diag(E^-1 B), real and imaginary (n, n, D); E are eigenvectors of a normal matrix.

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
