"""What a slot holds, and how it is named in a checkpoint.

A slot's state is a pytree of arrays; an engine stacks K of them on a leading axis. Hyperparameters are part
of it, so they are traced numbers and differ by slot, but not of a checkpoint: they come from the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from trainables.errors import Refusal
from trainables.optim import Moments
from trainables.settings import TrialSettings

Tree = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Trained:
    """What training changes, and a checkpoint holds.

    Attributes:
        params: nested dicts of float32 arrays.
        stats: running statistics of batch normalisation.
        moments: of Adam.
        step: int32, updates done.
    """

    params: Tree
    stats: Tree
    moments: Moments
    step: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Free:
    """What a trial's settings give: free hyperparameters, all scalars, and the seed.

    Attributes:
        values: float32 by the names of `TrialSettings.free`.
        seed: (2,) uint32, high word first.
    """

    values: Mapping[str, Array]
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
    values = {name: jnp.asarray(value, jnp.float32) for name, value in settings.free().items()}
    return Free(values=values, seed=jnp.asarray(np.array(divmod(settings.seed, 2**32), np.uint32)))


def named(trained: Trained) -> dict[str, np.ndarray]:
    """Return the arrays of a checkpoint by name, such as `params/blocks/0/layer/theta`."""
    leaves = jax.tree_util.tree_flatten_with_path(jax.device_get(trained))[0]
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def unnamed(arrays: Mapping[str, np.ndarray], like: Trained) -> Trained:
    """Return the state that `named` took apart.

    Args:
        arrays: by name.
        like: arrays or shapes of the state wanted.

    Raises:
        Refusal: if names, shapes or types are not those of `like`.
    """
    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    wanted = {_name(path): leaf for path, leaf in paths}
    if odd := sorted(wanted.keys() ^ arrays.keys()):
        raise _misfit("its arrays must be those of the model", f"{odd[0]} on one side only")
    for name, leaf in wanted.items():
        found = arrays[name]
        if (found.shape, found.dtype) != (leaf.shape, leaf.dtype):
            raise _misfit(f"{name} must be {leaf.dtype}{leaf.shape}", f"{found.dtype}{found.shape}")
    return jax.tree.unflatten(structure, [arrays[name] for name in wanted])


def take(stacked: Tree, slot: Array) -> Tree:
    """Return one slot of a stacked tree."""
    return jax.tree.map(lambda leaf: leaf[slot], stacked)


def put(stacked: Tree, slot: Array, one: Tree) -> Tree:
    """Return a stacked tree with one slot replaced; `slot` may be several, `one` then being stacked."""
    return jax.tree.map(lambda leaf, new: leaf.at[slot].set(new), stacked, one)


def blank(one: Tree, slots: int) -> Tree:
    """Return K slots of zeros in the shapes of `one`."""
    return jax.tree.map(lambda leaf: jnp.zeros((slots, *leaf.shape), leaf.dtype), one)


def _name(path: tuple[Any, ...]) -> str:
    keys = (getattr(entry, "key", getattr(entry, "name", None)) for entry in path)
    return "/".join(str(key) for key in keys)


def _misfit(must: str, got: str) -> Refusal:
    return Refusal("checkpoint", must, got, "Use a checkpoint of the same task, layer, depth and widths.")
