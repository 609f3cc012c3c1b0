"""The device calls of an engine: advance one slot, advance several, evaluate one.

Pure functions over any `SlotProgram`, for an engine to compile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from trainables.counter import order_of_steps
from trainables.engine.report import MOST_STEPS, Log, empty, noted
from trainables.engine.slot_program import Examples, SlotProgram, at, number_of, on_device
from trainables.engine.state import SlotState, put, take
from trainables.optim import Sums


@dataclass(frozen=True)
class Calls:
    """The device calls of one program."""

    program: SlotProgram

    def advance(self, slot: SlotState, steps: Array, train: Examples) -> tuple[SlotState, Log]:
        """Advance one slot, until a loss or gradient is not finite.

        Args:
            slot: a slot's state.
            steps: int32 scalar, at most `MOST_STEPS`.
            train: all training examples.

        Returns:
            The slot and its log.
        """
        return self._advance(slot, jnp.bool_(True), steps, train)

    def advance_stacked(
        self, slots: SlotState, picks: Array, live: Array, steps: Array, train: Examples
    ) -> tuple[SlotState, Log]:
        """Advance some slots of a stack by the same number of steps.

        A single slot is not vmapped, so that a GPU held by one trial pays nothing for slots.

        Args:
            slots: all K, stacked.
            picks: (b,) int32, different slots.
            live: (b,) booleans; what is picked and not live only fills the bucket and stays as it is.
            steps: int32 scalar, at most `MOST_STEPS`.
            train: all training examples.

        Returns:
            All K slots, and the log of each picked one, stacked.
        """
        if len(picks) == 1:
            moved, log = self._advance(take(slots, picks[0]), live[0], steps, train)
            return put(slots, picks[0], moved), jax.tree.map(lambda leaf: leaf[None], log)
        together = jax.vmap(self._advance, in_axes=(0, 0, None, None))
        moved, log = together(take(slots, picks), live, steps, train)
        return put(slots, picks, moved), log

    def evaluate(self, trained: Any, examples: Examples, counted: Array) -> Sums:
        """Sum loss and metric over the first of some examples, `evaluated` at a time.

        Args:
            trained: one slot's.
            examples: a multiple of `evaluated`; none counts from `counted` on.
            counted: int32 scalar.
        """
        evaluated, scorer = self.program.evaluated, self.program.scorer(trained)

        def add(index: Array, total: Sums) -> Sums:
            rows = index * evaluated + jnp.arange(evaluated)
            sums = scorer.sums(at(examples, rows), (rows < counted).astype(jnp.float32))
            return jax.tree.map(jnp.add, total, sums)

        zero = jnp.float32(0)
        return jax.lax.fori_loop(0, -(-counted // evaluated), add, Sums(zero, zero, zero))

    def evaluate_each(self, trained: Any, examples: Examples, counted: Array) -> Sums:
        """Return loss, metric and what is counted of each example, as arrays (n,); zeros from `counted` on.

        Args:
            trained: one slot's.
            examples: n of them, a multiple of `evaluated`.
            counted: int32 scalar.
        """
        evaluated, scorer = self.program.evaluated, self.program.scorer(trained)

        def write(index: Array, table: Sums) -> Sums:
            rows = index * evaluated + jnp.arange(evaluated)
            each = scorer.each(at(examples, rows), (rows < counted).astype(jnp.float32))
            update = partial(jax.lax.dynamic_update_slice_in_dim, start_index=rows[0], axis=0)
            return jax.tree.map(update, table, each)

        zeros = jnp.zeros(number_of(examples), jnp.float32)
        return jax.lax.fori_loop(0, -(-counted // evaluated), write, Sums(zeros, zeros, zeros))

    def _advance(self, slot: SlotState, live: Array, steps: Array, train: Examples) -> tuple[SlotState, Log]:
        """Advance one slot; it stays as it is where it is not live, and from a step that is not finite on."""
        # For all steps at once: the loop of the permutation ends on a condition that a GPU must send to the
        # host, which would delay every step.
        order = order_of_steps(
            slot.trained.step, MOST_STEPS, self.program.batch, number_of(train), slot.free.seed
        )

        def step(index: Array, carry: tuple[SlotState, Log]) -> tuple[SlotState, Log]:
            slot, log = carry
            moved, outcome = self.program.step(slot, train, order[index], index == steps - 1)
            goes = live & slot.finite & moved.finite
            kept = jax.tree.map(lambda new, old: jnp.where(goes, new, old), moved, slot)
            kept = replace(kept, finite=slot.finite & (moved.finite | ~live))
            return kept, noted(log, index, outcome)

        moved, log = jax.lax.fori_loop(0, steps, step, (slot, empty(self.program.depth)))
        done = moved.trained.step
        return moved, log._replace(step=done, taken=done - slot.trained.step, finite=moved.finite)


def blocks(examples: Examples, size: int, rows: int) -> Iterator[tuple[Examples, int]]:
    """Yield blocks of `rows` examples on the device, the last one filled with zeros, and how many count.

    Args:
        examples: on the host, of which the first `size` are read.
        size: at most all of them.
        rows: of every block, so that one program serves every split.
    """
    for start in range(0, size, rows):
        stop = min(start + rows, size)
        cut: Callable[[np.ndarray], np.ndarray] = partial(_filled, start=start, stop=stop, rows=rows)
        yield on_device(jax.tree.map(cut, examples)), stop - start


def _filled(part: np.ndarray, *, start: int, stop: int, rows: int) -> np.ndarray:
    missing = rows - (stop - start)
    part = part[start:stop]
    return np.concatenate([part, np.zeros((missing, *part.shape[1:]), part.dtype)]) if missing else part
