"""LDS: reachable linear systems with one input each, given by their eigenvalues alone."""

from __future__ import annotations

from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.errors import Refusal
from trainables.layers.initial import complex_normal, normal
from trainables.layers.layer import Fixed, Layer, backwards, only_looks_back
from trainables.layers.projection import real_part, real_states, rows
from trainables.layers.reachable.eigenvalues import PARAMETERS, initial_parameters, spectrum
from trainables.layers.recurrence import recurrence, times
from trainables.settings import ALGORITHM, LayerSettings, Need, Option


class LDS(Layer):
    """x_t = lambda * x_{t-1} + (scalar input)_t in every system, y_t = Re(C x_t) + D u_t.

    Without projections, channel d of u drives a system of its own of size N/D. With r of them, input g_j^T u
    drives copy j of one system of size N, and outputs are averaged over copies.

    Parameters: theta (N/2,), or alpha and beta, or alpha and omega (N/2,), by kind; C_re, C_im (D, N), or
    (r, D, N) with projections; D (D, D); C_backward_re, C_backward_im if bidirectional. Fixed: projections
    (r, D). Eigenvalue N/2 + k is the partner of eigenvalue k.

    Source: LDStack, figure 1 and proposition 3.
    """

    settings = LayerSettings(
        summary="LDS: reachable systems given by their N eigenvalues alone (LDStack, section 3).",
        options={
            "eigenvalues": Option(
                "unit", "How they are parameterised.", choices=("unit", "standard", "hinge")
            ),
            "projections": Option(
                0, "Random projections r of the input; 0 for a system a channel.", at_least=0
            ),
            "algorithm": ALGORITHM,
        },
        needs=(
            Need(
                ("d_state", "d_model", "projections"),
                lambda n, d, r: n % (2 if r else 2 * d) == 0,
                "d_state must be divisible by 2 * d_model, or by 2 with projections",
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
            d_model: width D.
            d_state: eigenvalues N in all.
            rngs: the source of randomness; its keys may be traced.
            eigenvalues: how they are parameterised: "unit", "standard" or "hinge".
            projections: number r of random projections of the input, or 0 for a system a channel.
            bidirectional: whether to read the sequence backwards too, with a readout of its own.
            algorithm: algorithm of the recurrence, or "auto" for the fastest here.

        Raises:
            Refusal: if the systems would not have an even number of eigenvalues.
        """
        systems = 1 if projections else d_model
        if d_state % (2 * systems):
            raise Refusal(
                "LDS: d_state",
                "every system must have an even number of states",
                f"d_state={d_state} in {systems} systems",
                f"Choose a multiple of {2 * systems}.",
            )
        self.bidirectional, self.algorithm, self.kind, self.copies = (
            bidirectional,
            algorithm,
            eigenvalues,
            projections,
        )
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

    def run(self, u: Array, length: Array | None = None) -> tuple[Array, Array]:
        """Return the outputs (L, D) and the states as real numbers.

        Where eigenvalues come in conjugate pairs, one state of each pair is run and returned.
        """
        states = self._states(u)
        outputs = real_part(states, self._readout(self.C_re[...], self.C_im[...]))
        if self.bidirectional:
            readout = self._readout(self.C_backward_re[...], self.C_backward_im[...])
            outputs += backwards(length, real_part(self._states(backwards(length, u)), readout))
        return outputs + u @ self.D[...].T, real_states(states)

    def initial_state(self) -> Array:
        """Return the zero state, planes (2, eigenvalues run)."""
        return jnp.zeros_like(self._decay())

    def step(self, state: Array, u: Array) -> tuple[Array, Array]:
        """Advance by one step u (D,)."""
        only_looks_back(self)
        state = times(self._decay(), state) + self._driven(u[None])[0]
        readout = self._readout(self.C_re[...], self.C_im[...])
        return state, real_part(state[None], readout)[0] + self.D[...] @ u

    def _states(self, u: Array) -> Array:
        return recurrence(self._decay(), self._driven(u), algorithm=self.algorithm)

    def _decay(self) -> Array:
        """Return the eigenvalues that are run, (2, N/2), or (2, N) for "hinge", once a projection."""
        found = spectrum(self.kind, *(getattr(self, name)[...] for name in PARAMETERS[self.kind]))
        return jnp.tile(found, (1, max(1, self.copies)))

    def _driven(self, u: Array) -> Array:
        """Return the scalar input of every eigenvalue that is run, planes (L, 2, any)."""
        pairs = self.C_re.shape[-1] // 2
        halves = 2 if self.kind == "hinge" else 1
        if self.copies:
            scalars = jnp.repeat(u @ self.projections[...].T, halves * pairs, axis=1)
        else:
            scalars = jnp.tile(jnp.repeat(u, pairs // u.shape[1], axis=1), (1, halves))
        return jnp.stack([scalars, jnp.zeros_like(scalars)], axis=1)

    def _readout(self, re: Array, im: Array) -> Array:
        """Return the rows of C that read what is run, averaged over projections.

        Re(a x + b conj(x)) = Re((a + conj(b)) x): a pair needs one state.
        """
        if self.kind != "hinge":
            (re, re_other), (im, im_other) = jnp.split(re, 2, axis=-1), jnp.split(im, 2, axis=-1)
            re, im = re + re_other, im - im_other
        if self.copies:
            re, im = (jnp.concatenate(list(part), axis=-1) / self.copies for part in (re, im))
        return rows(re.T, -im.T)
