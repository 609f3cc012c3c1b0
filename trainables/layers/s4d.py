"""S4D: a diagonal state-space model of its own for every channel."""

from __future__ import annotations

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.errors import Refusal
from trainables.layers.discretisation import METHODS
from trainables.layers.hippo import SPECTRA
from trainables.layers.initial import Bounds, complex_normal, log_between, normal
from trainables.layers.layer import Layer, backwards, only_looks_back, until
from trainables.layers.projection import real_states
from trainables.layers.recurrence import planar, recurrence, times
from trainables.layers.recurrence.convolution import causal_convolution, kernel
from trainables.settings import DISCRETISATION, EVEN, STEPS, LayerSettings, Option


class S4D(Layer):
    """x' = A_d x + u_d, y_d = 2 Re(C_d x) + D_d u_d in every channel d, held over a learned step.

    Parameters, for N/2 stored states a channel: log_A_re, A_im (D, N/2) with A = -exp(log_A_re) + i A_im,
    C_re, C_im (D, N/2), log_step (D,), D (D,); C_backward_re, C_backward_im if bidirectional. The input
    matrix is 1.

    Source: S4D, sections 3-4.
    """

    settings = LayerSettings(
        summary="S4D: a diagonal state-space model of N states a channel, N/2 stored (S4D, section 4).",
        options={
            "spectrum": Option("legs", "What A starts from.", choices=("legs", "inv", "lin")),
            "discretisation": DISCRETISATION,
            "algorithm": Option(
                "auto",
                "Fourier convolution, which auto is, or an algorithm of the recurrence.",
                choices=("auto", "convolution", "sequential", "chunked", "associative", "pallas"),
            ),
        },
        ranges={"dt_init": STEPS},
        needs=(EVEN,),
    )

    recurrent = frozenset({"log_A_re", "A_im", "log_step"})
    states_at_hand = False

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        dt_init: Bounds = settings.default("dt_init"),
        spectrum: str = settings.default("spectrum"),
        discretisation: str = settings.default("discretisation"),
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
    ) -> None:
        """Draw the parameters as the paper does.

        Args:
            d_model: width D.
            d_state: states N a channel; N/2 are stored.
            rngs: the source of randomness; its keys may be traced.
            dt_init: range of the steps, log-uniform; may be traced.
            spectrum: what A starts from: "legs", "inv" or "lin".
            discretisation: "zoh" or "bilinear".
            bidirectional: whether to read the sequence backwards too, with a readout of its own.
            algorithm: "convolution" by Fourier transforms, which "auto" is, or that of the recurrence.

        Raises:
            Refusal: if N is odd.
        """
        if d_state % 2 or d_state < 2:
            raise Refusal("S4D: d_state", "d_state must be even", str(d_state), "States come in pairs.")
        self.bidirectional, self.algorithm, self.discretisation = bidirectional, algorithm, discretisation
        shape = (d_model, d_state // 2)
        eigenvalues = SPECTRA[spectrum](d_state // 2)
        self.log_A_re = nnx.Param(jnp.broadcast_to(jnp.log(-eigenvalues.real).astype(jnp.float32), shape))
        self.A_im = nnx.Param(jnp.broadcast_to(jnp.float32(eigenvalues.imag), shape))
        self.log_step = nnx.Param(log_between(rngs.params(), (d_model,), dt_init))
        self.C_re, self.C_im = complex_normal(rngs, shape, 0.5)
        if bidirectional:
            self.C_backward_re, self.C_backward_im = complex_normal(rngs, shape, 0.5)
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))

    def run(self, u: Array, length: Array | None = None) -> tuple[Array, Array]:
        """Return the outputs (L, D) and the stored states, (L, D * N).

        A convolution has no states: they are computed beside it, and only if they are used. Padding is
        zeroed because a Fourier transform spreads its rounding errors over all of time.
        """
        seen = until(length, u)
        decay, factor = self._discrete()
        outputs, states = self._respond(decay, factor, planar(self.C_re[...], self.C_im[...]), seen)
        if self.bidirectional:
            readout = planar(self.C_backward_re[...], self.C_backward_im[...])
            behind, _ = self._respond(decay, factor, readout, backwards(length, seen))
            outputs += backwards(length, behind)
        return outputs + self.D[...] * u, real_states(states)

    def initial_state(self) -> Array:
        """Return the zero state, planes (2, D * N/2)."""
        return jnp.zeros((2, self.A_im.size))

    def step(self, state: Array, u: Array) -> tuple[Array, Array]:
        """Advance by one step u (D,)."""
        only_looks_back(self)
        decay, factor = self._discrete()
        state = times(_flat(decay), state) + _flat(factor * u[:, None, None])
        readout = planar(self.C_re[...], self.C_im[...])
        return state, _read(readout, state[None])[0] + self.D[...] * u

    def _discrete(self) -> tuple[Array, Array]:
        """Return the decay of a step and the factor of the input, planes (D, 2, N/2)."""
        eigenvalues = planar(-jnp.exp(self.log_A_re[...]), self.A_im[...])
        step = jnp.broadcast_to(jnp.exp(self.log_step[...])[:, None], self.A_im.shape)
        return METHODS[self.discretisation](eigenvalues, step)

    def _respond(self, decay: Array, factor: Array, readout: Array, u: Array) -> tuple[Array, Array]:
        """Return 2 Re(C x), (L, D), and the states, planes (L, 2, D * N/2)."""
        direct = self.algorithm in {"auto", "convolution"}
        inputs = jax.vmap(lambda now: _flat(factor * now[:, None, None]))(u)
        states = recurrence(_flat(decay), inputs, algorithm="auto" if direct else self.algorithm)
        if not direct:
            return _read(readout, states), states
        response = kernel(decay.swapaxes(0, 1), 2 * times(readout, factor).swapaxes(0, 1), len(u))
        return causal_convolution(response, u), states


def _flat(planes: Array) -> Array:
    """Return planes (D, 2, N/2) as (2, D * N/2)."""
    return planes.swapaxes(0, 1).reshape(2, -1)


def _read(readout: Array, states: Array) -> Array:
    """Return 2 Re(C x), (L, D), for C planes (D, 2, N/2) and states (L, 2, D * N/2)."""
    apart = states.reshape(len(states), 2, *readout.shape[::2])
    signed = readout * jnp.array([[1.0], [-1.0]], readout.dtype)
    return 2 * jnp.einsum("lpdn,dpn->ld", apart, signed)
