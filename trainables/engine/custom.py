"""A program of a user as a program of the engine: its state is any tree of arrays."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from trainables.counter import folded, order_of_steps
from trainables.engine.report import StepMetrics
from trainables.engine.slot_program import Scorer, at
from trainables.engine.state import Free, SlotState
from trainables.errors import Refusal
from trainables.optim import Sums
from trainables.program import Program, ProgramData, Tree
from trainables.trial import ProgramSettings

BLOCK = 8
"""Number of batches of a block, which an evaluation sends to the device at once."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Stepped:
    """The part of a slot that training changes and a checkpoint holds.

    Attributes:
        state: State of the user's program.
        step: Int32, updates done.
    """

    state: Tree
    step: Array


@dataclass(frozen=True)
class CustomProgram:
    """A user's program for one static choice."""

    program: Program
    settings: ProgramSettings

    @staticmethod
    def of(program: Program, settings: ProgramSettings, data: ProgramData) -> CustomProgram:
        """Return the program of a static choice, after checking the shapes of its results.

        Args:
            program: Program of the user.
            settings: Settings of any trial of the static choice.
            data: Data that it trains on and evaluates.

        Raises:
            Refusal: An evaluation does not score every example, or a step has no mean loss.
        """
        made = CustomProgram(program, settings)
        train, validation = (
            jax.tree.map(partial(_shape, made.batch), part) for part in (data.train, data.validation)
        )
        state, free = made.shapes().trained.state, made.free(settings).values
        scores = jax.eval_shape(lambda *given: dict(program.evaluate(*given)), state, validation)
        for name in ("loss", program.metric):
            _require(scores, name, (made.batch,), "`evaluate`", "a number for each example")
        means = jax.eval_shape(lambda *given: dict(program.step(*given)[1]), state, train, _key_shape(), free)
        _require(means, "loss", (), "`step`", "the mean of the batch")
        return made

    @property
    def depth(self) -> int:
        """Return 0: no hidden-state norm is known."""
        return 0

    @property
    def batch(self) -> int:
        """Return the examples of one step."""
        return self.program.batch_size

    @property
    def evaluated(self) -> int:
        """Return the number of examples that are evaluated at once."""
        return self.program.batch_size

    @property
    def block(self) -> int:
        """Return the number of examples that an evaluation sends to the device at once."""
        return BLOCK * self.evaluated

    @property
    def carries(self) -> bool:
        """Return False, because no example continues another one."""
        return False

    @property
    def metric(self) -> str:
        """Return the name of the score."""
        return self.program.metric

    @property
    def bits(self) -> bool:
        """Return True if a trial's numbers must not depend on its neighbours."""
        return self.settings.training.reproducible == "bits"

    @property
    def stacks(self) -> bool:
        """Return True unless the settings ask for reproducible bits; small programs gain on a CPU too."""
        return not self.bits

    @property
    def key(self) -> Hashable:
        """Return an empty key, because one program evaluates every split."""
        return None

    def of_split(self, split: Any) -> CustomProgram:
        """Return the same program."""
        return self

    def examples(self, split: Any) -> Any:
        """Return the arrays of a split as they are."""
        return split

    def free(self, settings: ProgramSettings) -> Free:
        """Return the free hyperparameters of a trial, as arrays."""
        values = {name: jnp.float32(settings.params[name]) for name in settings.free}
        return Free(values, {}, seed=jnp.asarray(np.array(divmod(settings.seed, 2**32), np.uint32)))

    def initialise(self, free: Free) -> SlotState:
        """Return a slot at step 0."""
        state = self.program.initialise(_key(free.seed), free.values)
        return SlotState(Stepped(state, jnp.int32(0)), free, finite=jnp.bool_(True))

    def shapes(self) -> SlotState:
        """Return the shapes and types of a slot's arrays."""
        return self._shapes

    @cached_property
    def _shapes(self) -> SlotState:
        return jax.eval_shape(self.initialise, self.free(self.settings))

    def cost(self) -> None:
        """Return None, because it is unknown which numbers of the state are parameters."""

    def order(self, step: Array, steps: int, examples: int, seed: Array) -> Array:
        """Return the examples of consecutive steps: all of them in the order of each epoch."""
        return order_of_steps(step, steps, self.batch, examples, seed)

    def step(self, slot: SlotState, train: Any, rows: Array) -> tuple[SlotState, StepMetrics]:
        """Take one step of the user's program on some rows of the training examples."""
        trained, free = slot.trained, slot.free
        key = _key(folded(free.seed, trained.step.astype(jnp.uint32)))
        state, means = self.program.step(trained.state, at(train, rows), key, free.values)
        loss, batch = jnp.float32(means["loss"]), jnp.float32(self.batch)
        outcome = StepMetrics(
            loss=loss,
            metric=jnp.float32(means.get(self.metric, jnp.nan)) * batch,
            counted=batch,
            tokens=jnp.int32(self.batch),
            rate=free.values.get("learning_rate", jnp.float32(0)),
        )
        finite = jnp.isfinite(loss) & _stays_finite(trained.state, state)
        moved = SlotState(Stepped(state, trained.step + 1), free, finite)
        return moved, outcome

    def scorer(self, trained: Stepped) -> Scorer:
        """Return the functions that evaluate a slot."""

        def each(memory: Any, chosen: Any, counts: Array) -> tuple[Any, Sums]:
            scores = self.program.evaluate(trained.state, chosen)
            loss, metric = (jnp.where(counts > 0, scores[name], 0) for name in ("loss", self.metric))
            return memory, Sums(loss * counts, metric * counts, counts)

        def sums(memory: Any, chosen: Any, counts: Array) -> tuple[Any, Sums]:
            return memory, jax.tree.map(jnp.sum, each(memory, chosen, counts)[1])

        return Scorer(tuple, sums, each)

    def hidden_norms(self, trained: Stepped, examples: Any) -> Array:
        """Return no norms."""
        return jnp.zeros((0, 3))

    def solutions(self, trained: Stepped) -> dict[str, float]:
        """Return nothing: a user's program has no layers."""
        return {}

    def apart(self, trained: Stepped) -> dict[str, np.ndarray]:
        """Return the arrays on the host, by their paths in the tree; keys as their data."""
        leaves = jax.tree_util.tree_leaves_with_path(trained)
        return {_name(path): _array(leaf) for path, leaf in leaves}

    def together(self, arrays: Mapping[str, np.ndarray]) -> Stepped:
        """Return the state from the arrays of `apart`.

        Raises:
            Refusal: Names, shapes or types are not those of the program.
        """
        paths, structure = jax.tree_util.tree_flatten_with_path(self._shapes.trained)
        wanted = {_name(path): leaf for path, leaf in paths}
        if odd := sorted(wanted.keys() ^ arrays.keys()):
            side = "in the checkpoint" if odd[0] in arrays else "in the program"
            raise _misfit("its arrays must be those of the program", f"{odd[0]} only {side}")
        return jax.tree.unflatten(structure, [_leaf(name, wanted[name], arrays[name]) for name in wanted])


def _shape(examples: int, leaf: Any) -> jax.ShapeDtypeStruct:
    """Return the shape and type of an array with this many examples."""
    return jax.ShapeDtypeStruct((examples, *leaf.shape[1:]), jnp.result_type(leaf.dtype))


def _key_shape() -> Any:
    return jax.eval_shape(lambda: _key(jnp.zeros(2, jnp.uint32)))


def _require(returned: Mapping[str, Any], name: str, shape: tuple[int, ...], what: str, of: str) -> None:
    remedy = f"{what} returns the loss and the metric by name, {of}: see docs/trainables.md."
    if name not in returned:
        raise Refusal(what, f"must return `{name}`", ", ".join(returned) or "nothing", remedy)
    if returned[name].shape != shape:
        must = f"must return `{name}` of shape {shape}"
        raise Refusal(what, must, f"shape {returned[name].shape}", remedy)


def _key(words: Array) -> Array:
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def _stays_finite(before: Tree, after: Tree) -> Array:
    """Return True if all numbers that were finite still are; a state may start with others.

    Arrays of one shape, such as parameters and their moments, are joined number by number, because reductions
    take most of the time.
    """
    lost: dict[tuple[int, ...], Array] = {}
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        if jnp.issubdtype(new.dtype, jnp.inexact):
            here = jnp.isfinite(old) & ~jnp.isfinite(new)
            lost[new.shape] = lost[new.shape] | here if new.shape in lost else here
    return ~jnp.any(jnp.stack([jnp.bool_(False), *map(jnp.any, lost.values())]))


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _data(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of an array in a file; NumPy cannot read types such as bfloat16."""
    return dtype if dtype.isbuiltin == 1 else np.dtype(f"uint{8 * dtype.itemsize}")


def _array(leaf: Any) -> np.ndarray:
    array = np.array(jax.device_get(_data(leaf)))
    return array.view(_stored(array.dtype))


def _leaf(name: str, wanted: Any, array: np.ndarray) -> Array:
    shape = jax.eval_shape(_data, wanted)
    dtype = np.dtype(shape.dtype)
    if (array.shape, array.dtype) != (shape.shape, _stored(dtype)):
        raise _misfit(f"{name} must be {dtype} {shape.shape}", f"{array.dtype} {array.shape}")
    return _key(jnp.asarray(array)) if _is_key(wanted) else jnp.asarray(array.view(dtype))


def _misfit(must: str, got: str) -> Refusal:
    return Refusal("checkpoint", must, got, "Use a checkpoint of the same static choices.")
