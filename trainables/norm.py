"""Normalisations of activations (B, L, D), which leave padding out.

Source: S5's released harness, which RotRNN's authors train in: batch normalisation with momentum 0.95, over
batch and time; layer normalisation where that is switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.settings import Norm

MOMENTUM = 0.95
"""Share of the running statistics that is kept at each step."""

EPSILON = 1e-5


class BatchNorm(nnx.Module):
    """Normalise each channel over batch and time, padding left out.

    `nnx.BatchNorm(mask=)` selects inside its sums, which XLA for CPU writes out as two more arrays of the
    size of the input (0.11 ms against 0.03 ms at (16, 256, 32)), and returns padded rows that are not zero.
    Here padded rows are zero on the way in, so that plain sums are right, and on the way out.

    Parameters: scale (D,), bias (D,). Running statistics: mean (D,), var (D,).
    """

    def __init__(self, width: int) -> None:
        self.scale = nnx.Param(jnp.ones(width))
        self.bias = nnx.Param(jnp.zeros(width))
        self.mean = nnx.BatchStat(jnp.zeros(width))
        self.var = nnx.BatchStat(jnp.ones(width))

    def __call__(self, x: Array, mask: Array | None, count: Array, *, training: bool) -> Array:
        """Normalise x (B, L, D).

        Args:
            x: Zero where the mask is false.
            mask: (B, L, 1) booleans, true for true steps; None if nothing is padded.
            count: Number of true steps, a float scalar.
            training: Whether to normalise by this batch and update the running statistics with it.
        """
        scale, bias = self.scale[...], self.bias[...]
        if not training:
            return _normalised(x, mask, self.mean[...], self.var[...], scale, bias)
        normal, mean, var = _batch_norm(x, mask, count, scale, bias)
        for running, new in ((self.mean, mean), (self.var, var)):
            running[...] = MOMENTUM * running[...] + (1 - MOMENTUM) * jax.lax.stop_gradient(new)
        return normal


def _normalised(x: Array, mask: Array | None, mean: Array, var: Array, scale: Array, bias: Array) -> Array:
    normal = (x - mean) * (jax.lax.rsqrt(var + EPSILON) * scale) + bias
    return normal if mask is None else jnp.where(mask, normal, 0)


@jax.custom_vjp
def _batch_norm(
    x: Array, mask: Array | None, count: Array, scale: Array, bias: Array
) -> tuple[Array, Array, Array]:
    """Normalise x (B, L, D) by its own mean and variance (D,); return those too, without a gradient.

    The hand-written reverse pass keeps x alone and reads it twice. With the derived one, a small model's
    training step takes 2 % longer.
    """
    mean = jnp.sum(x, axis=(0, 1)) / count
    var = jnp.maximum(jnp.sum(x * x, axis=(0, 1)) / count - mean * mean, 0)
    return _normalised(x, mask, mean, var, scale, bias), mean, var


_Kept: TypeAlias = tuple[Array, Array | None, Array, Array, Array, Array]


def _batch_norm_forward(
    x: Array, mask: Array | None, count: Array, scale: Array, bias: Array
) -> tuple[tuple[Array, Array, Array], _Kept]:
    answer = _batch_norm(x, mask, count, scale, bias)
    return answer, (x, mask, count, scale, *answer[1:])


def _batch_norm_backward(
    kept: _Kept, cotangents: tuple[Array, Array, Array]
) -> tuple[Array, None, None, Array, Array]:
    x, mask, count, scale, mean, var = kept
    given = cotangents[0] if mask is None else jnp.where(mask, cotangents[0], 0)
    of_bias = jnp.sum(given, axis=(0, 1))
    deviation = jax.lax.rsqrt(var + EPSILON)
    of_scale = deviation * (jnp.sum(given * x, axis=(0, 1)) - mean * of_bias)
    # given - of_bias / count - (x - mean) * deviation * of_scale / count, times the slope, as slope and line.
    tilt = deviation * of_scale / count
    of_x = (deviation * scale) * (given - (tilt * x + (of_bias / count - tilt * mean)))
    return of_x, None, None, of_scale, of_bias


_batch_norm.defvjp(_batch_norm_forward, _batch_norm_backward)


LAYER_EPSILON = 1e-6


class LayerNorm(nnx.Module):
    """Normalise each step over its channels.

    Parameters: scale (D,), bias (D,).
    """

    def __init__(self, width: int) -> None:
        self.scale = nnx.Param(jnp.ones(width))
        self.bias = nnx.Param(jnp.zeros(width))

    def __call__(self, x: Array, mask: Array | None, count: Array, *, training: bool) -> Array:
        """Normalise x (B, L, D); return zeros where the mask (B, L, 1) is false."""
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        deviation = jax.lax.rsqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + LAYER_EPSILON)
        normal = centred * deviation * self.scale[...] + self.bias[...]
        return normal if mask is None else jnp.where(mask, normal, 0)


class NoNorm(nnx.Module):
    """Leave activations as they are."""

    def __init__(self, width: int) -> None:
        del width

    def __call__(self, x: Array, mask: Array | None, count: Array, *, training: bool) -> Array:
        """Return x (B, L, D), zero where the mask (B, L, 1) is false."""
        return x if mask is None else jnp.where(mask, x, 0)


NORMS: Mapping[Norm, Callable[[int], BatchNorm | LayerNorm | NoNorm]] = MappingProxyType(
    {"batch": BatchNorm, "layer": LayerNorm, "none": NoNorm}
)
"""Constructors of normalisations by name, called with the width D."""
