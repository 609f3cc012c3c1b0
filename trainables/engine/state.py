"""The state of a slot: packed vectors on the device, and named arrays in a checkpoint.

An engine stacks the states of K slots on a leading axis. Hyperparameters are part of a state, so they are
traced numbers and can differ by slot. They are not part of a checkpoint, because they come from the settings.

Training keeps parameters and moments as vectors. An update is then one kernel instead of a few for each of
the dozens of arrays of a model, and a loop carries three arrays instead of hundreds. The model reads its
arrays as slices of the vectors. On a CPU, with two blocks, this saved a third of the program and of its
compilation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from trainables.errors import Refusal
from trainables.layers.layer import Bounds
from trainables.model import Memory
from trainables.optim import Groups, Members, Moments, Plateau, first_plateau, layer_path, transformation
from trainables.trial import TrainingSettings, TrialSettings

Tree = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Carried:
    """The positions of R rows that read consecutive examples, one a step.

    Attributes:
        following: (R,) int32, the example that continues from the memory; -1 if there is none.
        memory: Memory of the network after the previous example, (R, ...) each.
    """

    following: Array
    memory: Memory


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Trained:
    """The part of a slot that training changes and a checkpoint holds.

    Attributes:
        params: (P,) float32, packed.
        stats: (S,) float32, packed running statistics of batch normalisation.
        moments: Moments of the optimiser, packed as the parameters are.
        step: Int32, updates done.
        plateau: State of the schedule `plateau`; None for other schedules.
        carried: Positions of the rows of a batch; None if every example starts with the initial state.
    """

    params: Array
    stats: Array
    moments: Moments
    step: Array
    plateau: Plateau | None = None
    carried: Carried | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Free:
    """The part of a trial's settings that may differ between the slots of an engine.

    Attributes:
        values: Float32 scalars by the names of `TrialSettings.free`.
        ranges: Initialisation ranges by name, pairs of float32 scalars.
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
        trained: Part that a checkpoint holds: `Trained`, or another tree with a `step`.
        free: Free hyperparameters.
        finite: False once a loss or gradient, or a number in the state of a user's program, was not finite.
            The slot is then frozen.
    """

    trained: Any
    free: Free
    finite: Array


def free_of(settings: TrialSettings) -> Free:
    """Return a trial's free hyperparameters as arrays."""
    ranges = dict(settings.model.complete().ranges)
    values, ranges = jax.tree.map(jnp.float32, (settings.free(), ranges))
    return Free(values, ranges, seed=jnp.asarray(np.array(divmod(settings.seed, 2**32), np.uint32)))


def take(stacked: Tree, slot: Array | int) -> Tree:
    """Return one or several slots of a stacked tree."""
    return jax.tree.map(lambda leaf: leaf[slot], stacked)


def put(stacked: Tree, slot: Array, new: Tree) -> Tree:
    """Return a stacked tree with one or several slots replaced."""
    return jax.tree.map(lambda leaf, one: leaf.at[slot].set(one), stacked, new)


def copied(tree: Tree) -> Tree:
    """Return a tree in memory of its own."""
    return jax.tree.map(jnp.copy, tree)


def blank(one: Tree, slots: int) -> Tree:
    """Return K slots of zeros in the shapes of `one`."""
    return jax.tree.map(lambda leaf: jnp.zeros((slots, *leaf.shape), leaf.dtype), one)


@dataclass(frozen=True)
class VectorPacking:
    """The order of a tree's arrays in a vector: one group of the optimiser after the other.

    Attributes:
        names: Names of the arrays in the order of the vector, such as `blocks/0/layer/theta`.
        shapes: Shapes of the arrays in the same order.
        leaves: Index of each array among the leaves of the tree.
        structure: Structure of the tree.
        groups: Position in the vector at which each group begins.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    leaves: tuple[int, ...]
    structure: jax.tree_util.PyTreeDef
    groups: Groups

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(map(math.prod, self.shapes))

    def pack(self, tree: Tree) -> Array:
        """Return a tree's arrays as a vector; a tree may have none."""
        leaves = jax.tree.leaves(tree)
        return jnp.concatenate([jnp.ravel(leaves[place]) for place in self.leaves] or [jnp.zeros(0)])

    def unpack(self, vector: Array) -> Tree:
        """Return the tree from its vector."""
        parts = dict(zip(self.leaves, self.split(vector).values(), strict=True))
        return jax.tree.unflatten(self.structure, [parts[place] for place in range(len(parts))])

    def split(self, vector: Any) -> dict[str, Any]:
        """Return the arrays of a vector by name."""
        arrays, start = {}, 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            stop = start + math.prod(shape)
            arrays[name] = vector[start:stop].reshape(shape)
            start = stop
        return arrays


def packing_of(tree: Tree, members: Members) -> VectorPacking:
    """Return the packing of a tree of float32 arrays.

    Args:
        tree: Arrays or shapes, in nested dicts.
        members: Names of a layer's arrays that come after all others, in the order of its fields.
    """
    groups = [layer_path(names) for names in members]
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    paths = [tuple(str(entry.key) for entry in path) for path, _ in leaves]
    shapes = [leaf.shape for _, leaf in leaves]
    assert all(leaf.dtype == jnp.float32 for _, leaf in leaves)
    group = [next((k for k in (3, 2, 1) if groups[k - 1](path)), 0) for path in paths]
    sizes = [
        sum(math.prod(shapes[i]) for i in range(len(leaves)) if group[i] == number) for number in range(3)
    ]
    order = sorted(range(len(leaves)), key=lambda index: group[index])
    return VectorPacking(
        names=tuple("/".join(paths[index]) for index in order),
        shapes=tuple(shapes[index] for index in order),
        leaves=tuple(order),
        structure=structure,
        groups=Groups(*itertools.accumulate(sizes)),
    )


@dataclass(frozen=True)
class Names:
    """Names such as `params/blocks/0/layer/theta`, `moments/mu/head/kernel`, `step`.

    Attributes:
        params: Packing of the parameters and of the moments of the optimiser.
        stats: Packing of the running statistics.
        training: Training settings, whose optimiser and schedule decide the state between updates.
        carried: Shapes and types of the state that rows carry from example to example, or None.
    """

    params: VectorPacking
    stats: VectorPacking
    training: TrainingSettings
    carried: Carried | None = None

    def apart(self, trained: Trained) -> dict[str, np.ndarray]:
        """Return the arrays by name, on the host."""
        host = jax.device_get(trained)
        leaves = jax.tree.leaves({"moments": host.moments, "plateau": host.plateau})
        remembered = dict(zip(self._remembered, leaves, strict=True))
        arrays = {"step": host.step, **{name: remembered[name] for name in self._scalars}}
        vectors = {"params": host.params, "stats": host.stats}
        for group, packing in self._vectors.items():
            parts = packing.split((vectors | remembered)[group])
            arrays |= {f"{group}/{name}": part for name, part in parts.items()}
        arrays |= zip(self._carried, jax.tree.leaves(host.carried), strict=True)
        return {name: np.array(array) for name, array in arrays.items()}

    def together(self, arrays: Mapping[str, np.ndarray]) -> Trained:
        """Return the state from the arrays of `apart`.

        Raises:
            Refusal: Names, shapes or types are not those of the model.
        """
        self._check(arrays)
        vectors = {group: _vector(group, packing, arrays) for group, packing in self._vectors.items()}
        scalars = {name: jnp.asarray(arrays[name]) for name in self._scalars}
        leaves = [(vectors | scalars)[name] for name in self._remembered]
        remembered = jax.tree.unflatten(jax.tree.structure(self._shapes), leaves)
        carried = jax.tree.map(jnp.asarray, [arrays[name] for name in self._carried])
        return Trained(
            vectors["params"],
            vectors["stats"],
            step=jnp.asarray(arrays["step"]),
            carried=jax.tree.unflatten(jax.tree.structure(self.carried), carried),
            **remembered,
        )

    @cached_property
    def _shapes(self) -> dict[str, Any]:
        """Shapes and types of the state of the optimiser and the schedule."""
        params = jax.ShapeDtypeStruct((self.params.size,), jnp.float32)
        return {
            "moments": jax.eval_shape(transformation(self.training.optimizer).init, params),
            "plateau": jax.eval_shape(lambda: first_plateau(self.training)),
        }

    @cached_property
    def _remembered(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and types of the state of the optimiser and the schedule, by name."""
        return {
            name: leaf for group, tree in self._shapes.items() for name, leaf in named(group, tree).items()
        }

    @cached_property
    def _carried(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and types of the carried state by name, such as `carried/memory/0/layer`."""
        return named("carried", self.carried)

    @cached_property
    def _scalars(self) -> dict[str, jax.ShapeDtypeStruct]:
        return {name: leaf for name, leaf in self._remembered.items() if leaf.ndim == 0}

    @cached_property
    def _vectors(self) -> dict[str, VectorPacking]:
        """The packing of each vector."""
        moments = (name for name in self._remembered if name not in self._scalars)
        return {"params": self.params, "stats": self.stats, **dict.fromkeys(moments, self.params)}

    def _check(self, arrays: Mapping[str, np.ndarray]) -> None:
        wanted: dict[str, Any] = {"step": ((), np.int32)}
        wanted |= {name: (leaf.shape, leaf.dtype) for name, leaf in (self._scalars | self._carried).items()}
        for group, packing in self._vectors.items():
            for name, shape in zip(packing.names, packing.shapes, strict=True):
                wanted[f"{group}/{name}"] = (shape, np.float32)
        if odd := sorted(wanted.keys() ^ arrays.keys()):
            side = "in the checkpoint" if odd[0] in arrays else "in the model"
            raise _misfit("its arrays must be those of the model", f"{odd[0]} only {side}")
        for name, (shape, kind) in wanted.items():
            array = arrays[name]
            if (array.shape, array.dtype) != (shape, kind):
                raise _misfit(f"{name} must be {np.dtype(kind)} {shape}", f"{array.dtype} {array.shape}")


def named(group: str, tree: Tree) -> dict[str, Any]:
    """Return the leaves of a tree by the name of a group and their paths, in the order of the leaves."""
    paths = jax.tree_util.tree_leaves_with_path({group: tree})
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in paths}


def _vector(group: str, packing: VectorPacking, arrays: Mapping[str, np.ndarray]) -> Array:
    parts = [np.ravel(arrays[f"{group}/{name}"]) for name in packing.names]
    return jnp.asarray(np.concatenate(parts or [np.zeros(0, np.float32)]))


def _misfit(must: str, got: str) -> Refusal:
    return Refusal("checkpoint", must, got, "Use a checkpoint of the same static choices.")
