"""A time-invariant recurrence that is read out by one vector a sequence, as a convolution."""

from __future__ import annotations

import jax
from jax import Array
from jax import numpy as jnp

from trainables.layers.recurrence.planar import times
from trainables.layers.recurrence.powers import table


def kernel(decay: Array, readout: Array, length: int) -> Array:
    """Return Re(sum_n readout_n * decay_n^t) for t = 0 .. L - 1.

    decay^t is split as decay^(S r) * decay^s, so that only 2 sqrt(L) powers of each decay are formed and the
    sum is a matrix product.

    Args:
        decay: planes (2, D, N).
        readout: planes (2, D, N).
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
