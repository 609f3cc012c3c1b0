"""LDS: reachable linear systems with one input each, given by their eigenvalues alone.

The spectrum of a real system is N free real numbers, or N/2:

    unit      theta          exp(+-i theta): modulus 1
    standard  alpha, beta    alpha +- i beta
    hinge     alpha, omega   alpha +- i omega where omega < 0, else alpha and alpha + omega: two real
                             eigenvalues can become a pair, and a pair two real ones

Source: LDStack, figure 1 and section 10.5.1.
"""

from __future__ import annotations

import jax
import numpy as np
from flax import nnx
from jax import Array
from jax import numpy as jnp
from numpy.typing import NDArray

from trainables.errors import Refusal
from trainables.layers.layer import DiagonalLayer, Fixed, Folded, backwards, complex_normal, normal
from trainables.layers.recurrence import conjugate, planar, until
from trainables.layers.recurrence.blocks import outputs_by_blocks, pays_off
from trainables.layers.recurrence.planar import rows
from trainables.settings import BLOCKS_ALGORITHM, Count, LayerSettings, Need, Option

PARAMETERS = {"unit": ("theta",), "standard": ("alpha", "beta"), "hinge": ("alpha", "omega")}
"""Names of the parameters of each kind of spectrum, (N/2,) each."""


class LDS(DiagonalLayer):
    """x_t = lambda * x_{t-1} + (scalar input)_t in every system, y_t = Re(C x_t) + D u_t.

    Without projections, channel d of u drives a system of its own of size N/D. With r of them, input g_j^T u
    drives copy j of one system of size N, and outputs are averaged over copies.

    Parameters: theta (N/2,), or alpha and beta, or alpha and omega (N/2,), by kind; C_re, C_im (D, N), or
    (r, D, N) with projections; D (D, D); C_backward_re, C_backward_im if bidirectional. Fixed: projections
    (r, D). Eigenvalue N/2 + k is the partner of eigenvalue k. Where eigenvalues come in conjugate pairs, the
    recurrence runs one state of each pair.

    Source: LDStack, figure 1 and proposition 3.
    """

    settings = LayerSettings(
        summary="LDS: reachable systems given by their N eigenvalues alone (LDStack, section 3).",
        options={
            "eigenvalues": Option(
                "unit", "Parameterisation of the eigenvalues.", choices=("unit", "standard", "hinge")
            ),
            "projections": Option(
                0, "Random projections r of the input; 0 for a system a channel.", at_least=0
            ),
            "algorithm": BLOCKS_ALGORITHM,
        },
        needs=(
            Need(
                ("d_state", "d_model", "projections"),
                lambda n, d, r: n % (2 if r else 2 * d) == 0,
                "d_state must be divisible by 2 * d_model, or by 2 with projections",
            ),
        ),
        parameters=Count(
            ("d_model", "d_state", "bidirectional", "eigenvalues", "projections"),
            lambda d, n, both, kind, r: (
                n // 2 * (1 if kind == "unit" else 2) + 2 * (1 + both) * (r or 1) * d * n + d * d
            ),
        ),
    )
    recurrent = frozenset({"theta", "alpha", "beta", "omega"})

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        eigenvalues: str = settings.default("eigenvalues"),
        projections: int = settings.default("projections"),
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
    ) -> None:
        """Draw the parameters.

        Args:
            d_model: Width D.
            d_state: Eigenvalues N in all.
            rngs: Source of randomness; its keys may be traced.
            eigenvalues: Their parameterisation: "unit", "standard" or "hinge".
            projections: Number r of random projections of the input, or 0 for a system a channel.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
            algorithm: "blocks", which skips the states inside blocks of steps, or a name of
                `recurrence.ALGORITHMS`. "auto" is the fastest.

        Raises:
            Refusal: A system would have an odd number of eigenvalues.
        """
        systems = 1 if projections else d_model
        if d_state % (2 * systems):
            raise Refusal(
                "LDS: d_state",
                "every system must have an even number of states",
                f"d_state={d_state} in {systems} systems",
                f"Choose a multiple of {2 * systems}.",
            )
        self.bidirectional, self.chosen = bidirectional, algorithm
        # Of the states, which are computed beside blocks where they are wanted.
        self.algorithm = "auto" if algorithm == "blocks" else algorithm
        self.kind, self.copies = eigenvalues, projections
        self.in_pairs = eigenvalues != "hinge"
        drawn = initial_parameters(eigenvalues, rngs.params(), d_state // 2 // systems, systems)
        for name, values in zip(PARAMETERS[eigenvalues], drawn, strict=True):
            setattr(self, name, nnx.Param(values))
        shape = (projections, d_model, d_state) if projections else (d_model, d_state)
        self.C_re, self.C_im = complex_normal(rngs, shape, 1 / d_state)
        if bidirectional:
            self.C_backward_re, self.C_backward_im = complex_normal(rngs, shape, 1 / d_state)
        self.D = nnx.Param(normal(rngs.params(), (d_model, d_model), 1 / d_model))
        if projections:
            self.projections = Fixed(normal(rngs.params(), (projections, d_model)))

    def coefficients(self) -> Folded:
        """Return the recurrence of N/2 or N eigenvalues, once for each projection."""
        eigenvalues = spectrum(self.kind, *(getattr(self, name)[...] for name in PARAMETERS[self.kind]))
        backward = self._out(self.C_backward_re, self.C_backward_im) if self.bidirectional else None
        return Folded(
            decay=jnp.tile(eigenvalues, (1, max(1, self.copies))),
            into=None,
            out=self._out(self.C_re, self.C_im),
            out_backward=backward,
        )

    def inputs(self, coefficients: Folded, u: Array) -> Array:
        """Return the scalar inputs (L, G): of each projection, or of each channel's system."""
        return u @ self.projections[...].T if self.copies else u

    @property
    def may_grow(self) -> bool:
        """Return True if training may move eigenvalues outside the unit circle."""
        return self.kind != "unit"

    def respond(self, coefficients: Folded, inputs: Array, *, backward: bool) -> tuple[Array, Array]:
        """Return the outputs (L, D) of one direction and the states, which blocks do not need."""
        return self.respond_until(coefficients, inputs, None, backward=backward)

    def respond_until(
        self, coefficients: Folded, inputs: Array, length: Array | None, *, backward: bool
    ) -> tuple[Array, Array]:
        """Return the outputs and the states of a sequence with `length` true steps, which come first."""
        length = length if self.may_grow else None
        states = self.states(coefficients, inputs, length=length)
        if not self.by_blocks:
            return until(length, self.read(coefficients, states, backward=backward)), states
        out = coefficients.out_backward if backward else coefficients.out
        assert out is not None
        drives = self._planes(jnp.eye(inputs.shape[1]))
        return outputs_by_blocks(coefficients.decay, out, drives, inputs, length), states

    def respond_against_time(self, coefficients: Folded, inputs: Array, length: Array | None) -> Array:
        """Return the outputs (L, D) of the reverse direction."""
        if not self.by_blocks:
            return super().respond_against_time(coefficients, inputs, length)
        if not self.may_grow:
            return self.respond(coefficients, inputs[::-1], backward=True)[0][::-1]
        turned = backwards(length, inputs)
        return backwards(length, self.respond_until(coefficients, turned, length, backward=True)[0])

    def states(
        self, coefficients: Folded, inputs: Array, *, reverse: bool = False, length: Array | None = None
    ) -> Array:
        """Return the states, planes (L, 2, any)."""
        return super().states(coefficients, self._planes(inputs), reverse=reverse, length=length)

    def respond_from(self, coefficients: Folded, state: Array, inputs: Array) -> tuple[Array, Array, Array]:
        """Return the outputs (L, D) after a state, the states, planes (L, 2, any), and the last of them."""
        return super().respond_from(coefficients, state, self._planes(inputs))

    def advance(self, coefficients: Folded, state: Array, inputs: Array) -> tuple[Array, Array]:
        """Return decay * state + inputs, which is also the row of `states`."""
        return super().advance(coefficients, state, self._planes(inputs[None])[0])

    def skip(self, u: Array) -> Array:
        """Return D u, for u (L, D) or (D,)."""
        return u @ self.D[...].T

    def driven(self, inputs: Array) -> Array:
        """Return the input of every computed eigenvalue, (L, any), for scalar inputs (L, G)."""
        pairs = self.C_re.shape[-1] // 2
        halves = 2 if self.kind == "hinge" else 1
        if self.copies:
            return jnp.repeat(inputs, halves * pairs, axis=1)
        return jnp.tile(jnp.repeat(inputs, pairs // inputs.shape[1], axis=1), (1, halves))

    @property
    def by_blocks(self) -> bool:
        """Return True if the states inside blocks of steps are not computed."""
        if self.chosen != "auto":
            return self.chosen == "blocks"
        width, count = self.C_re.shape[-2:]
        states = (self.copies or 1) * (count // 2 if self.in_pairs else count)
        return jax.default_backend() == "cpu" and pays_off(self.copies or width, states, width)

    def _planes(self, inputs: Array) -> Array:
        """Return the inputs of the recurrence, planes (L, 2, any), for scalar inputs (L, G)."""
        driven = self.driven(inputs)
        return jnp.stack([driven, jnp.zeros_like(driven)], axis=1)

    def _out(self, of_re: nnx.Param, of_im: nnx.Param) -> Array:
        """Return the columns of C for the computed eigenvalues, averaged over projections.

        Re(a x + b conj(x)) = Re((a + conj(b)) x): a pair needs one state.
        """
        re, im = of_re[...], of_im[...]
        if self.kind != "hinge":
            (re, re_other), (im, im_other) = jnp.split(re, 2, axis=-1), jnp.split(im, 2, axis=-1)
            re, im = re + re_other, im - im_other
        if self.copies:
            re, im = (jnp.concatenate(list(part), axis=-1) / self.copies for part in (re, im))
        return rows(re.T, -im.T)


def spectrum(kind: str, *parameters: Array) -> Array:
    """Return one eigenvalue of every pair and then, for "hinge", the others too.

    Args:
        kind: Parameterisation, a name of `PARAMETERS`.
        parameters: Parameters of this kind, (N/2,) each.

    Returns:
        Planes (2, N/2) of numbers whose conjugates are the other half; for "hinge" planes (2, N).
    """
    if kind == "unit":
        return planar(jnp.cos(parameters[0]), jnp.sin(parameters[0]))
    if kind == "standard":
        return planar(*parameters)
    alpha, omega = parameters
    up, down = jax.nn.relu(omega), jax.nn.relu(-omega)
    return jnp.concatenate([planar(alpha, down), planar(alpha + up, -down)], axis=1)


def whole_spectrum(kind: str, *parameters: Array) -> Array:
    """Return all eigenvalues, planes (2, N): the first half, then their partners."""
    eigenvalues = spectrum(kind, *parameters)
    if kind == "hinge":
        return eigenvalues
    return jnp.concatenate([eigenvalues, conjugate(eigenvalues)], axis=1)


def initial_parameters(kind: str, key: Array, pairs: int, systems: int) -> tuple[Array, ...]:
    """Draw the parameters of several systems, one after the other.

    "unit" draws angles uniformly. The others start from the roots of random monic polynomials, which lie near
    the unit circle and which NumPy finds on the host. Roots outside the circle are reflected into it, so that
    no power of them overflows. "standard" draws until no root is real: it can represent pairs alone.

    Args:
        kind: Parameterisation, a name of `PARAMETERS`.
        key: Random key; may be traced.
        pairs: Number of pairs of eigenvalues of each system.
        systems: Number of systems.

    Returns:
        The parameters, (systems * pairs,) each.
    """
    if kind == "unit":
        return (jax.random.uniform(key, (systems * pairs,), minval=-2 * jnp.pi, maxval=2 * jnp.pi),)
    shape = jax.ShapeDtypeStruct((2, systems * pairs), jnp.float32)

    def draw(seed: NDArray[np.uint32]) -> NDArray[np.float32]:
        generator = np.random.default_rng(np.asarray(seed))
        roots = [_roots(kind, generator, pairs) for _ in range(systems)]
        return np.concatenate(roots, axis=1).astype(np.float32)

    drawn = jax.pure_callback(draw, shape, jax.random.bits(key, (2,)), vmap_method="sequential")
    return drawn[0], drawn[1]


def _roots(kind: str, generator: np.random.Generator, pairs: int) -> NDArray[np.float64]:
    """Return (2, pairs) parameters of the roots of one random monic polynomial of degree 2 * pairs."""
    while True:
        degree = 2 * pairs
        roots = np.roots(np.r_[1, generator.normal(size=degree) / degree**0.5])
        roots = np.where(abs(roots) > 1, 1 / roots.conj(), roots)
        upper, real = roots[roots.imag > 0], np.sort(roots[roots.imag == 0].real)
        if kind == "hinge":
            gaps = real[1::2] - real[0::2]
            return np.array([np.r_[upper.real, real[0::2]], np.r_[-upper.imag, gaps]])
        if len(upper) == pairs:
            return np.array([upper.real, upper.imag])
