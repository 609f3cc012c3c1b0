"""AdamW in two groups under one schedule; every hyperparameter may be a traced number.

The recurrent parameters that a layer names have a rate of their own and no weight decay. Everything else is
decayed, biases and normalisation included: the public implementations behind the papers' tables (S5, and
the RotRNN authors' fork of it) apply AdamW to that whole group without a mask.

Source: RotRNN, table 3 (GLR, LR, WD); LRU, appendix (no decay on recurrent parameters).
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import NamedTuple, TypeAlias

import jax
import optax
from jax import Array
from jax import numpy as jnp

ADAM = optax.scale_by_adam(b1=0.9, b2=0.999, eps=1e-8)
Moments: TypeAlias = optax.ScaleByAdamState


class Rates(NamedTuple):
    """Hyperparameters of one update, all scalars.

    Attributes:
        learning_rate: of the parameters outside the recurrence, at this step.
        recurrent_learning_rate: of the recurrent parameters, at this step.
        weight_decay: decoupled, of the parameters outside the recurrence; times their rate.
    """

    learning_rate: Array
    recurrent_learning_rate: Array
    weight_decay: Array


def schedule(step: Array, steps: Array, warmup: Array) -> Array:
    """Return the share of the peak rate at a step: a linear rise, then a cosine to 0.

    A shape in [0, 1] and no rate, because `optax.warmup_cosine_decay_schedule` cannot take a traced peak.

    Args:
        step: updates done before this one.
        steps: length of the whole schedule, in updates.
        warmup: share of `steps` that rises; the last step of the rise has the peak rate.
    """
    rise = warmup * steps
    rising = (step + 1) / jnp.maximum(rise, 1)
    fallen = jnp.clip((step - rise) / jnp.maximum(steps - rise, 1), 0, 1)
    falling = 0.5 * (1 + jnp.cos(jnp.pi * fallen))
    return jnp.where(step < rise, jnp.minimum(rising, 1), falling)


def recurrent_path(names: Set[str]) -> Callable[[tuple[str, ...]], bool]:
    """Return what tells whether a parameter's path is that of a recurrent one of a layer.

    Args:
        names: the layer's `recurrent`.
    """
    return lambda path: "layer" in path and path[-1] in names


def updated(
    params: Array, gradients: Array, moments: Moments, boundary: int, rates: Rates
) -> tuple[Array, Moments]:
    """Return parameters and moments after one update.

    Args:
        params: (P,), the recurrent ones last.
        gradients: (P,).
        moments: state of `ADAM`.
        boundary: where the recurrent parameters begin.
        rates: scalars, traced or not.
    """
    directions, moments = ADAM.update(gradients, moments)
    recurrent = jax.lax.iota(jnp.int32, params.size) >= boundary
    rate = jnp.where(recurrent, rates.recurrent_learning_rate, rates.learning_rate)
    decay = jnp.where(recurrent, 0, rates.weight_decay)
    return params - rate * (directions + decay * params), moments
