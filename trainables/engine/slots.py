"""The states of an engine's slots on the device, and the device calls that advance them.

`SeparateSlots` calls one program for each slot in turn, so the results of a trial cannot depend on its
neighbours. This is as fast as possible on a CPU. `StackedSlots` advances several slots with one program,
which fills a GPU. The last bits of the results then depend on the size of that program.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import jax
import numpy as np

from trainables.engine.buckets import Buckets, halved
from trainables.engine.calls import Calls, Compiler
from trainables.engine.report import MOST_STEPS, StepLog, cut
from trainables.engine.slot_program import Examples, SlotProgram
from trainables.engine.state import SlotState, Trained, blank, copied, put, take
from trainables.stretches import Stretch

CALL_SECONDS = 1.5
"""Target duration of a round of device calls, so that signals and evictions do not wait long."""


Call: TypeAlias = tuple[StepLog, Stretch]
"""The log of one slot's steps in a device call, and the program that took them."""


class Slots(Protocol):
    """The states of K slots.

    Attributes:
        width: Most slots that one device call may serve.
    """

    width: int

    def place(self, slot: int, state: SlotState) -> None:
        """Put a state into a free slot."""

    def clear(self, slot: int) -> None:
        """Forget the state of a slot, if it has one."""

    def trained(self, slot: int) -> Trained:
        """Return the part of a slot that training changes."""

    def advance(self, steps: Mapping[int, int], size: int | None) -> Iterator[tuple[int, Call | Exception]]:
        """Advance slots by some of their steps; yield each slot's call, or the exception that ended it.

        Args:
            steps: Number of remaining steps by slot.
            size: Size of the program for several slots, at least their number; None to choose one.

        Raises:
            Exception: A call of several slots failed; the states of all slots are lost.
        """


class SeparateSlots:
    """A state and a device call for each slot; the program does not depend on the number of slots.

    Args:
        program: Program of the engine's static choice.
        compiler: Compiler of the engine.
        train: All training examples.
        slots: K.
        options: Options of XLA, for the program.
    """

    def __init__(
        self,
        program: SlotProgram,
        compiler: Compiler,
        train: Examples,
        slots: int,
        options: dict[str, Any] | None,
    ) -> None:
        self.width, self._options = slots, options
        self._calls, self._compiler, self._train = Calls(program), compiler, train
        self._states: dict[int, SlotState] = {}
        self._step_seconds: float | None = None

    def place(self, slot: int, state: SlotState) -> None:
        """Put a copy of a state into a free slot, because later calls overwrite their arguments."""
        self._states[slot] = self._compiler.get("copy", copied, (state,))(state)

    def clear(self, slot: int) -> None:
        """Forget the state of a slot, if it has one."""
        self._states.pop(slot, None)

    def trained(self, slot: int) -> Trained:
        """Return the part of a slot that training changes."""
        return self._states[slot].trained

    def advance(self, steps: Mapping[int, int], size: int | None) -> Iterator[tuple[int, Call | Exception]]:
        """Advance one slot after the other; an exception ends only its own slot."""
        most = steps_in(CALL_SECONDS / len(steps), self._step_seconds)
        for slot, left in steps.items():
            try:
                yield slot, self._call(slot, min(left, most))
            except Exception as error:  # noqa: BLE001 - it belongs to this slot alone
                self.clear(slot)
                yield slot, error

    def _call(self, slot: int, steps: int) -> Call:
        arguments = (self._states[slot], np.int32(steps), self._train)
        call = self._compiler.get(
            "advance", self._calls.advance, arguments, donate=(0,), options=self._options
        )
        began = time.perf_counter()
        self._states[slot], log = call(*arguments)
        log = jax.device_get(log)
        self._step_seconds = (time.perf_counter() - began) / steps
        return cut(log), Stretch(int(log.taken), 1, 1)


class StackedSlots:
    """The states of K slots in one stack, which a device call advances as a bucket of several slots.

    Args:
        program: Program of the engine's static choice.
        compiler: Compiler of the engine.
        train: All training examples.
        slots: K.
    """

    def __init__(self, program: SlotProgram, compiler: Compiler, train: Examples, slots: int) -> None:
        self.width = self._slots = slots
        self._calls, self._compiler, self._train = Calls(program), compiler, train
        self._state: SlotState = blank(program.shapes(), slots)
        self._step_seconds: dict[int, float] = {}
        self._buckets = Buckets(slots)

    def place(self, slot: int, state: SlotState) -> None:
        """Put a state into a free slot."""
        arguments = (self._state, np.int32(slot), state)
        self._state = self._compiler.get("put", put, arguments, donate=(0,))(*arguments)

    def clear(self, slot: int) -> None:
        """Do nothing: the old state can still fill a bucket, until another one replaces it."""

    def trained(self, slot: int) -> Trained:
        """Return the part of a slot that training changes."""
        arguments = (self._state.trained, np.int32(slot))
        return self._compiler.get("take", take, arguments)(*arguments)

    def advance(self, steps: Mapping[int, int], size: int | None) -> Iterator[tuple[int, Call | Exception]]:
        """Advance as many slots together as memory allows, by the fewest remaining steps among them."""
        waiting = sorted(steps)
        while waiting:
            group = waiting[: self.width]
            chosen = size or self._buckets.choose(len(group), self.width)
            try:
                calls = self._together(group, chosen, min(steps[slot] for slot in group))
            except (jax.errors.JaxRuntimeError, MemoryError) as error:
                if size or chosen == 1 or not out_of_memory(error):
                    raise
                self.width = halved(chosen)
                continue
            waiting = waiting[len(group) :]
            yield from zip(group, calls, strict=True)

    def _together(self, group: Sequence[int], size: int, most: int) -> list[Call]:
        """Advance a group of slots by at most `most` steps in one device call.

        The first call of each size of program works on a copy, so that nothing is lost if memory runs out.
        """
        steps = min(most, steps_in(CALL_SECONDS, self._step_seconds.get(size)))
        picks = _filled(group, size, self._slots)
        live = np.arange(size) < len(group)
        arguments = (self._state, picks, live, np.int32(steps), self._train)
        key, compiled = ("advance", size), self._compiler.seconds
        try:
            call = self._compiler.get(key, self._calls.advance_stacked, arguments, donate=(0,))
            compiling = self._compiler.seconds - compiled
            state = self._state if size in self._step_seconds else self._copied(call)
            began = time.perf_counter()
            moved, stacked = call(state, *arguments[1:])
            stacked = jax.device_get(stacked)
        except (jax.errors.JaxRuntimeError, MemoryError):
            self._compiler.drop(key)
            raise
        self._state = moved
        seconds = time.perf_counter() - began
        self._step_seconds[size] = seconds / steps
        self._buckets.ran(size, len(group), seconds, compiling)
        logs = [take(stacked, row) for row in range(len(group))]
        return [(cut(log), Stretch(int(log.taken), self._slots, size)) for log in logs]

    def _copied(self, call: Any) -> SlotState:
        """Return a copy of the state for a program's first call.

        Raises:
            MemoryError: The device has too little free memory for the program.
        """
        stats = jax.devices()[0].memory_stats() or {}
        free = stats.get("bytes_limit", math.inf) - stats.get("bytes_in_use", 0)
        if (needed := call.memory_analysis().temp_size_in_bytes) > free:
            raise MemoryError(f"the program needs {needed} bytes and the device has {free} free")
        return self._compiler.get("copy", copied, (self._state,))(self._state)


def steps_in(seconds: float, step_seconds: float | None) -> int:
    """Return the number of steps of a call with a target duration; 1 until a step has been timed."""
    return 1 if step_seconds is None else max(1, min(MOST_STEPS, int(seconds / step_seconds)))


def out_of_memory(error: Exception) -> bool:
    """Return True if an error reports that the memory of the device is exhausted."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def _filled(group: Iterable[int], size: int, slots: int) -> np.ndarray:
    """Return `size` different slots, the group first."""
    chosen = list(group)
    others = [slot for slot in range(slots) if slot not in chosen]
    return np.array([*chosen, *others[: size - len(chosen)]], np.int32)
