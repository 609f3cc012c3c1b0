"""What a slot holds: a pytree of arrays, of which an engine stacks K on a leading axis.

Hyperparameters are part of it, so they are traced numbers and differ by slot, but not of a checkpoint: they
come from the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from trainables.layers.layer import Bounds
from trainables.optim import Moments
from trainables.trial import TrialSettings

Tree = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Trained:
    """What training changes, and a checkpoint holds.

    Attributes:
        params: (P,) float32, packed.
        stats: (S,) float32, packed running statistics of batch normalisation.
        moments: of Adam, packed as the parameters are.
        step: int32, updates done.
    """

    params: Array
    stats: Array
    moments: Moments
    step: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Free:
    """The part of a trial's settings that may differ between the slots of an engine.

    Attributes:
        values: float32 scalars by the names of `TrialSettings.free`.
        ranges: initialisation ranges by name, pairs of float32 scalars.
        seed: (2,) uint32, high word first.
    """

    values: Mapping[str, Array]
    ranges: Mapping[str, Bounds]
    seed: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SlotState:
    """One slot.

    Attributes:
        trained: what a checkpoint holds.
        free: from the settings.
        finite: false from the first loss or gradient on that is not finite: the slot is frozen.
    """

    trained: Trained
    free: Free
    finite: Array


def free_of(settings: TrialSettings) -> Free:
    """Return a trial's free hyperparameters as arrays."""
    ranges = dict(settings.model.complete().ranges)
    values, ranges = jax.tree.map(jnp.float32, (settings.free(), ranges))
    return Free(values, ranges, seed=jnp.asarray(np.array(divmod(settings.seed, 2**32), np.uint32)))


def take(stacked: Tree, slot: Array) -> Tree:
    """Return one slot of a stacked tree, or several."""
    return jax.tree.map(lambda leaf: leaf[slot], stacked)


def put(stacked: Tree, slot: Array, new: Tree) -> Tree:
    """Return a stacked tree with one slot replaced, or several."""
    return jax.tree.map(lambda leaf, one: leaf.at[slot].set(one), stacked, new)


def copied(tree: Tree) -> Tree:
    """Return a tree in memory of its own."""
    return jax.tree.map(jnp.copy, tree)


def blank(one: Tree, slots: int) -> Tree:
    """Return K slots of zeros in the shapes of `one`."""
    return jax.tree.map(lambda leaf: jnp.zeros((slots, *leaf.shape), leaf.dtype), one)
