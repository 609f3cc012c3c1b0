"""The device calls of an engine, and their compilation: advance one slot, advance several, evaluate one.

The calls are pure functions over any `SlotProgram`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
from jax import Array
from jax import numpy as jnp

from trainables.engine.report import StepLog, empty, noted
from trainables.engine.slot_program import Examples, SlotProgram, at, number_of
from trainables.engine.state import SlotState, put, take
from trainables.optim import Sums

ORDERED = 64
"""Steps of a device call whose examples are chosen at once."""


@dataclass(frozen=True)
class Calls:
    """The device calls of one program."""

    program: SlotProgram

    def advance(self, slot: SlotState, steps: Array, train: Examples) -> tuple[SlotState, StepLog]:
        """Advance one slot, until a loss or gradient is not finite.

        Args:
            slot: Slot's state.
            steps: Int32 scalar, at most `MOST_STEPS`.
            train: All training examples.

        Returns:
            The slot and its log.
        """
        return self._advance(slot, jnp.bool_(True), steps, train)

    def advance_stacked(
        self, slots: SlotState, picks: Array, live: Array, steps: Array, train: Examples
    ) -> tuple[SlotState, StepLog]:
        """Advance some slots of a stack by the same number of steps.

        A single slot is not vmapped, so that a GPU held by one trial pays nothing for slots.

        Args:
            slots: All K, stacked.
            picks: (b,) int32, different slots.
            live: (b,) booleans; picked slots that are not live only fill the bucket and do not change.
            steps: Int32 scalar, at most `MOST_STEPS`.
            train: All training examples.

        Returns:
            All K slots, and the log of each picked one, stacked.
        """
        if len(picks) == 1:
            moved, log = self._advance(take(slots, picks[0]), live[0], steps, train)
            return put(slots, picks[0], moved), jax.tree.map(lambda leaf: leaf[None], log)
        together = jax.vmap(self._advance, in_axes=(0, 0, None, None))
        moved, log = together(take(slots, picks), live, steps, train)
        return put(slots, picks, moved), log

    def start(self, trained: Any) -> Any:
        """Return the memory before the first examples of an evaluation."""
        return self.program.scorer(trained).start()

    def evaluate(
        self, trained: Any, memory: Any, examples: Examples, counts: Array, rounds: Array
    ) -> tuple[Any, Sums]:
        """Sum loss and metric over some examples, `evaluated` at a time.

        Args:
            trained: Trained part of one slot.
            memory: Memory after the previous examples.
            examples: Examples, whose number is a multiple of `evaluated`.
            counts: Weight of each example, float32.
            rounds: Int32 scalar, number of times that `evaluated` examples are read.

        Returns:
            The memory after the last examples, and the sums.
        """
        scorer = self.program.scorer(trained)

        def add(index: Array, carry: tuple[Any, Sums]) -> tuple[Any, Sums]:
            memory, total = carry
            rows = self._rows(index)
            memory, sums = scorer.sums(memory, at(examples, rows), counts[rows])
            return memory, jax.tree.map(jnp.add, total, sums)

        zero = jnp.float32(0)
        return jax.lax.fori_loop(0, rounds, add, (memory, Sums(zero, zero, zero)))

    def evaluate_each(
        self, trained: Any, memory: Any, examples: Examples, counts: Array, rounds: Array
    ) -> tuple[Any, Sums]:
        """Return the memory, and the loss, metric and weight of each example, arrays (n,); see `evaluate`."""
        scorer = self.program.scorer(trained)

        def write(index: Array, carry: tuple[Any, Sums]) -> tuple[Any, Sums]:
            memory, table = carry
            rows = self._rows(index)
            memory, each = scorer.each(memory, at(examples, rows), counts[rows])
            update = partial(jax.lax.dynamic_update_slice_in_dim, start_index=rows[0], axis=0)
            return memory, jax.tree.map(update, table, each)

        zeros = jnp.zeros(number_of(examples), jnp.float32)
        return jax.lax.fori_loop(0, rounds, write, (memory, Sums(zeros, zeros, zeros)))

    def hidden_norms(self, trained: Any, examples: Examples) -> Array:
        """Return the hidden-state norms of one slot over some examples, (depth, 3)."""
        return self.program.hidden_norms(trained, examples)

    def _rows(self, index: Array) -> Array:
        return index * self.program.evaluated + jnp.arange(self.program.evaluated)

    def _advance(
        self, slot: SlotState, live: Array, steps: Array, train: Examples
    ) -> tuple[SlotState, StepLog]:
        """Advance one slot if it is live, and stop before a step that is not finite."""
        first = slot.trained.step

        def block(number: Array, carry: tuple[SlotState, StepLog]) -> tuple[SlotState, StepLog]:
            # For many steps at once: the loop of the permutation ends on a condition that a GPU must send to
            # the host, which would delay every step. Not for all: most calls take far fewer than they may.
            begun = number * ORDERED
            order = self.program.order(first + begun, ORDERED, number_of(train), slot.free.seed)

            def step(index: Array, carry: tuple[SlotState, StepLog]) -> tuple[SlotState, StepLog]:
                slot, log = carry
                moved, outcome = self.program.step(slot, train, order[index - begun])
                goes = live & slot.finite & moved.finite
                kept = jax.tree.map(lambda new, old: jnp.where(goes, new, old), moved, slot)
                kept = replace(kept, finite=slot.finite & (moved.finite | ~live))
                return kept, noted(log, index, outcome)

            return jax.lax.fori_loop(begun, jnp.minimum(begun + ORDERED, steps), step, carry)

        moved, log = jax.lax.fori_loop(0, -(-steps // ORDERED), block, (slot, empty()))
        done = moved.trained.step
        return moved, log._replace(step=done, taken=done - slot.trained.step, finite=moved.finite)


class Compiler:
    """Compiles each program once; `seconds` is the wall-clock time spent on it in all."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._programs: dict[Hashable, Any] = {}

    def get(
        self,
        key: Hashable,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        *,
        donate: tuple[int, ...] = (),
        options: dict[str, Any] | None = None,
    ) -> Any:
        """Return the program of a key, compiled at its first use.

        Args:
            key: Key of the program.
            function: Pure function.
            arguments: Arguments with the shapes and types of every later call.
            donate: Positions of the arguments whose memory the results may reuse.
            options: Options of XLA, for this program.
        """
        if key not in self._programs:
            began = time.perf_counter()
            lowered = jax.jit(function, donate_argnums=donate).lower(*arguments)
            self._programs[key] = lowered.compile(compiler_options=options)
            self.seconds += time.perf_counter() - began
        return self._programs[key]

    def drop(self, key: Hashable) -> None:
        """Forget a program, and free the memory it holds."""
        self._programs.pop(key, None)
