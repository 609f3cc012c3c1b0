"""AdamW in two groups under one schedule; every hyperparameter may be a traced number.

The recurrent parameters that a layer names have a rate of their own and no weight decay. Everything else is
decayed, biases and normalisation included: the public implementations behind the papers' tables (S5, and
the RotRNN authors' fork of it) apply AdamW to that whole group without a mask.

Source: RotRNN, table 3 (GLR, LR, WD); LRU, appendix (no decay on recurrent parameters).
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, NamedTuple, TypeAlias

import jax
import optax
from jax import Array
from jax import numpy as jnp

Tree = Any

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


def recurrent_mask(params: Tree, recurrent: Set[str]) -> Tree:
    """Return a tree of booleans: true for the parameters of a layer that it names recurrent."""

    def named(path: tuple[Any, ...], _: Any) -> bool:
        names = [entry.key for entry in path]
        return "layer" in names and names[-1] in recurrent

    return jax.tree_util.tree_map_with_path(named, params)


def updated(
    params: Tree, gradients: Tree, moments: Moments, mask: Tree, rates: Rates
) -> tuple[Tree, Moments]:
    """Return parameters and moments after one update.

    Args:
        params: float arrays.
        gradients: of the structure of `params`.
        moments: state of `ADAM`.
        mask: of `recurrent_mask`.
        rates: scalars, traced or not.
    """
    directions, moments = ADAM.update(gradients, moments)

    def move(recurrent: bool, value: Array, direction: Array) -> Array:
        if recurrent:
            return value - rates.recurrent_learning_rate * direction
        return value - rates.learning_rate * (direction + rates.weight_decay * value)

    return jax.tree.map(move, mask, params, directions), moments
