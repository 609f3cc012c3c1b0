"""The interface between an engine and the program of a static choice: pure functions, and a few sizes.

The networks of search-space files (`trainables.engine.network`) and programs of users
(`trainables.engine.custom`) implement it. Everything that differs between trials of one static choice is an
argument, so a new trial compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import numpy as np
from jax import Array

from trainables.cost import Cost
from trainables.engine.report import StepMetrics
from trainables.engine.state import Free, SlotState
from trainables.optim import Sums

Tree = Any

Examples: TypeAlias = Any
"""A tree of arrays whose leading axis counts examples."""


class Scorer(NamedTuple):
    """The functions that evaluate one trained state.

    Attributes:
        start: Function () -> the memory before the first examples; () if no example continues another one.
        sums: Function (memory, examples, counts (n,)) -> the memory after the examples, and sums over them,
            weighted by their counts.
        each: Same for every example, as arrays (n,).
    """

    start: Callable[[], Tree]
    sums: Callable[[Tree, Examples, Array], tuple[Tree, Sums]]
    each: Callable[[Tree, Examples, Array], tuple[Tree, Sums]]


class SlotProgram(Protocol):
    """The program of one static choice.

    Attributes:
        depth: Number of layers whose hidden-state norms are known.
        batch: Examples of one step.
        evaluated: Number of examples that are evaluated at once.
        block: Number of examples that an evaluation sends to the device at once, a multiple of `evaluated`.
        carries: Whether rows read consecutive examples, each from the memory of the one before.
        metric: Name of the score that is reported beside the loss.
        bits: Whether the results of a trial must not depend on its neighbours, even on a GPU.
        stacks: Whether a device call serves several slots by default.
        key: Key that distinguishes the programs of different splits.
    """

    @property
    def depth(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def evaluated(self) -> int: ...
    @property
    def block(self) -> int: ...
    @property
    def carries(self) -> bool: ...
    @property
    def metric(self) -> str: ...
    @property
    def bits(self) -> bool: ...
    @property
    def stacks(self) -> bool: ...
    @property
    def key(self) -> Hashable: ...

    def of_split(self, split: Any) -> SlotProgram:
        """Return the program that evaluates a split, whose sequences may have another length."""

    def examples(self, split: Any) -> Examples:
        """Return the arrays of a split, on the host."""

    def free(self, settings: Any) -> Free:
        """Return the free hyperparameters of a trial, as arrays."""

    def initialise(self, free: Free) -> SlotState:
        """Return a slot at step 0."""

    def shapes(self) -> SlotState:
        """Return the shapes and types of a slot's arrays."""

    def cost(self) -> Cost | None:
        """Return the numbers of parameters and of the state, from shapes alone; None if unknown."""

    def order(self, step: Array, steps: int, examples: int, seed: Array) -> Array:
        """Return the examples of consecutive steps, int32 (steps, batch).

        Args:
            step: Int32, updates done before the first of these.
            steps: Number of steps.
            examples: Number of training examples.
            seed: (2,) uint32.
        """

    def step(self, slot: SlotState, train: Examples, rows: Array) -> tuple[SlotState, StepMetrics]:
        """Take one optimiser step.

        Args:
            slot: Slot's state.
            train: All training examples.
            rows: (batch,) indices of the examples of the step.
        """

    def scorer(self, trained: Any) -> Scorer:
        """Return the functions that evaluate a slot."""

    def hidden_norms(self, trained: Any, examples: Examples) -> Array:
        """Return `trainables.model.hidden_norms` of each layer over some examples, (depth, 3)."""

    def solutions(self, trained: Any) -> dict[str, float]:
        """Return the `trainables.model.Block.solved` of each layer that has them, by name."""

    def apart(self, trained: Any) -> dict[str, np.ndarray]:
        """Return the arrays of a checkpoint by name, on the host."""

    def together(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """Return the state from the arrays of `apart`.

        Raises:
            Refusal: Names, shapes or types are not those of the program.
        """


def number_of(examples: Examples) -> int:
    """Return the number of examples."""
    return len(jax.tree.leaves(examples)[0])


def at(examples: Examples, rows: Array) -> Examples:
    """Return the examples of some rows."""
    return jax.tree.map(lambda part: part[rows], examples)


def on_device(examples: Examples) -> Examples:
    """Return examples on the device; on a CPU they are memory-mapped, not copied."""
    return jax.tree.map(jax.device_put, examples)
