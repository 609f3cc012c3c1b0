"""S4D: a separate diagonal state-space model for every channel."""

from __future__ import annotations

from typing import NamedTuple

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.errors import Refusal
from trainables.layers.layer import Bounds, Layer, complex_normal, log_between, normal
from trainables.layers.recurrence import planar, recurrence, times
from trainables.layers.recurrence.planar import table
from trainables.layers.state_space import DISCRETISATIONS, SPECTRA
from trainables.settings import DISCRETISATION, EVEN, STEPS, Count, LayerSettings, Option


class Planes(NamedTuple):
    """The discretised model, planes (D, 2, N/2)."""

    decay: Array
    factor: Array
    out: Array
    out_backward: Array | None

    def readout(self, backward: bool) -> Array:
        """Return C of one direction."""
        weights = self.out_backward if backward else self.out
        assert weights is not None
        return weights

    def driven(self, u: Array) -> Array:
        """Return the inputs of the recurrence for u (D,), planes (2, D * N/2)."""
        return _flat(self.factor * u[:, None, None])


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
                "Fourier convolution (auto), or an algorithm of the recurrence.",
                choices=("auto", "convolution", "sequential", "chunked", "associative", "pallas"),
            ),
        },
        ranges={"dt_init": STEPS},
        needs=(EVEN,),
        parameters=Count(
            ("d_model", "d_state", "bidirectional"),
            lambda d, n, both: n // 2 * (4 + 2 * both) * d + 2 * d,
        ),
    )
    in_pairs = True
    recurrent = frozenset({"log_A_re", "A_im", "log_step"})

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
            d_model: Width D.
            d_state: States N a channel; N/2 are stored.
            rngs: Source of randomness; its keys may be traced.
            dt_init: Range of the steps, log-uniform; may be traced.
            spectrum: What A starts from: "legs", "inv" or "lin".
            discretisation: "zoh" or "bilinear".
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
            algorithm: "convolution" by Fourier transforms ("auto"), or the algorithm of the recurrence.

        Raises:
            Refusal: N is odd.
        """
        if d_state % 2 or d_state < 2:
            raise Refusal("S4D: d_state", "must be even", str(d_state), "States come in pairs.")
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

    def coefficients(self) -> Planes:
        """Return the decay of a step, the factor of the input and the read-outs."""
        eigenvalues = planar(-jnp.exp(self.log_A_re[...]), self.A_im[...])
        step = jnp.broadcast_to(jnp.exp(self.log_step[...])[:, None], self.A_im.shape)
        decay, factor = DISCRETISATIONS[self.discretisation](eigenvalues, step)
        out = planar(self.C_re[...], self.C_im[...])
        backward = planar(self.C_backward_re[...], self.C_backward_im[...]) if self.bidirectional else None
        return Planes(decay, factor, out, backward)

    def respond(self, coefficients: Planes, inputs: Array, *, backward: bool) -> tuple[Array, Array]:
        """Return 2 Re(C x), (L, D), and the states.

        A convolution computes no states, so they are computed separately, and only if they are used.
        """
        if not self._convolves():
            return super().respond(coefficients, inputs, backward=backward)
        weights = coefficients.readout(backward)
        readout = 2 * times(weights, coefficients.factor)
        response = kernel(coefficients.decay.swapaxes(0, 1), readout.swapaxes(0, 1), len(inputs))
        return causal_convolution(response, inputs), self.states(coefficients, inputs)

    def states(self, coefficients: Planes, inputs: Array) -> Array:
        """Return the stored states, planes (L, 2, D * N/2)."""
        return self._states_from(coefficients, None, inputs)

    def _states_from(self, coefficients: Planes, state: Array | None, inputs: Array) -> Array:
        driven = jax.vmap(coefficients.driven)(inputs)
        algorithm = "auto" if self._convolves() else self.algorithm
        return recurrence(_flat(coefficients.decay), driven, initial=state, algorithm=algorithm)

    def respond_from(self, coefficients: Planes, state: Array, inputs: Array) -> tuple[Array, Array, Array]:
        """Return the outputs (L, D) from an initial state, all states, and the last state.

        A convolution is completed by two matrix products: the response of every step to the first state, and
        the contribution of every input to the last state. All sequences share their matrices.
        """
        states = self._states_from(coefficients, state, inputs)
        if not self._convolves():
            return self.read(coefficients, states, backward=False), states, states[-1]
        shape = coefficients.factor.swapaxes(0, 1).shape
        powers = table(_flat(coefficients.decay), len(inputs) + 1)
        reads = times(_flat(coefficients.readout(False)), powers[1:]) * jnp.array([[2.0], [-2.0]])
        leaves = times(_flat(coefficients.factor), powers[-2::-1])
        apart = [part.reshape(len(inputs), *shape) for part in (reads, leaves)]
        outputs = self.respond(coefficients, inputs, backward=False)[0]
        outputs += jnp.einsum("lpdn,pdn->ld", apart[0], state.reshape(shape))
        last = times(powers[-1], state) + jnp.einsum("lpdn,ld->pdn", apart[1], inputs).reshape(state.shape)
        return outputs, states, last

    def read(self, coefficients: Planes, states: Array, *, backward: bool) -> Array:
        """Return 2 Re(C x), (L, D), for states, planes (L, 2, D * N/2)."""
        weights = coefficients.readout(backward)
        apart = states.reshape(len(states), 2, *weights.shape[::2])
        signed = weights * jnp.array([[1.0], [-1.0]], weights.dtype)
        return 2 * jnp.einsum("lpdn,dpn->ld", apart, signed)

    def initial_state(self) -> Array:
        """Return the zero state, planes (2, D * N/2)."""
        return jnp.zeros((2, self.A_im.size))

    def advance(self, coefficients: Planes, state: Array, inputs: Array) -> tuple[Array, Array]:
        """Return the next state, which is also the row of `states`."""
        state = times(_flat(coefficients.decay), state) + coefficients.driven(inputs)
        return state, state

    def _convolves(self) -> bool:
        return self.algorithm in {"auto", "convolution"}


def _flat(planes: Array) -> Array:
    """Return planes (D, 2, N/2) as (2, D * N/2)."""
    return planes.swapaxes(0, 1).reshape(2, -1)


def kernel(decay: Array, readout: Array, length: int) -> Array:
    """Return Re(sum_n readout_n * decay_n^t) for t = 0 .. L - 1.

    decay^t is split as decay^(S r) * decay^s, so that only 2 sqrt(L) powers of each decay are formed and the
    sum is a matrix product.

    Args:
        decay: Planes (2, D, N).
        readout: Planes (2, D, N).
        length: L.

    Returns:
        (L, D).
    """
    size = 1 << ((length - 1).bit_length() + 1) // 2
    flat, weights = (part.reshape(2, -1) for part in (decay, readout))
    steps = table(flat, size)
    jumps = times(weights, table(times(flat, steps[-1]), -(-length // size)))
    signed = jumps * jnp.array([[1.0], [-1.0]], jumps.dtype)
    apart = [part.reshape(len(part), *decay.shape) for part in (signed, steps)]
    whole = jnp.einsum("rpdn,spdn->rsd", *apart, precision=jax.lax.Precision.HIGHEST)
    return whole.reshape(-1, decay.shape[1])[:length]


def causal_convolution(response: Array, u: Array) -> Array:
    """Return sum_k response_k * u_{t-k} channel by channel, (L, D), by Fourier transforms of 2 L or more."""
    length = len(u)
    size = 1 << (2 * length - 1).bit_length()
    spectra = [jnp.fft.rfft(part.T, size) for part in (response, u)]
    return jnp.fft.irfft(spectra[0] * spectra[1], size)[:, :length].T
