"""K slots of stacked state on one device, and the compiled programs that move them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from trainables.engine.names import Names
from trainables.engine.program import MOST_STEPS, Examples, Log, Program
from trainables.engine.report import TrainReport, joined, taken
from trainables.engine.state import SlotState, blank, free_of, put, take
from trainables.errors import Refusal
from trainables.settings import TrialSettings
from trainables.tasks.base import Split, TaskData

CALL_SECONDS = 1.5
"""What one device call aims at, so that a signal or an eviction never waits long."""

BLOCK = 8
"""Batches an evaluation hands to the device at once."""


class Engine:
    """The training program of one static choice on one device, with K slots.

    One thread uses an engine. A slot is free, or holds a trial from `admit` or `restore` to `evict`.
    """

    def __init__(self, settings: TrialSettings, data: TaskData, *, slots: int = 1) -> None:
        """Place the training examples on the device; compile nothing yet.

        Args:
            settings: any trial's of the static choice.
            data: of its task.
            slots: K.
        """
        self.settings, self.data, self.slots = settings, data, slots
        padded = any(
            bool(np.any(split.lengths < data.signature.length)) for split in (data.train, data.validation)
        )
        self._program = Program(settings, data.signature, padded)
        self._train = _on_device(data.train)
        self._blocks: dict[int, list[tuple[Examples, int]]] = {}
        self._compiled: dict[tuple[Any, ...], Callable[..., Any]] = {}
        self._compile_seconds = 0.0
        self._step_seconds: dict[int, float] = {}
        self._steps: dict[int, int] = {}
        layout = self._program.layout
        self._names = Names(layout.params, layout.stats)
        shapes = jax.eval_shape(self._program.initialise, free_of(settings))
        self._state: SlotState = blank(shapes, slots)

    def admit(self, slot: int, settings: TrialSettings) -> None:
        """Start a trial in a slot, from its seed.

        Raises:
            Refusal: if the settings are of another static choice, or the trial is too long.
        """
        self._check(settings)
        fresh = self._call(("initialise",), self._program.initialise, free_of(settings))
        self._place(slot, fresh, 0)

    def restore(self, slot: int, settings: TrialSettings, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on with a trial in a slot, from a snapshot; hyperparameters and seed are those of the settings.

        Raises:
            Refusal: if the settings are of another static choice, or the arrays do not fit the model.
        """
        self._check(settings)
        trained = jax.device_put(self._names.together(arrays))
        state = SlotState(trained=trained, free=free_of(settings), finite=jnp.asarray(True))
        self._place(slot, state, int(trained.step))

    def evict(self, slot: int) -> None:
        """Free a slot."""
        del self._steps[slot]

    def advance(
        self, steps: Mapping[int, int], *, stop: Callable[[], bool] | None = None
    ) -> dict[int, TrainReport]:
        """Train each slot for its number of steps, all together as one program.

        A slot with fewer steps than its neighbours is done first and no longer computed; one that meets a
        loss or gradient that is not finite is frozen, and its neighbours go on untouched.

        Args:
            steps: slot -> steps from now, each at least 1.
            stop: asked after every device call; once it says yes, the reports of what was done are returned.
        """
        began, compiled = time.perf_counter(), self._compile_seconds
        logs: dict[int, list[Log]] = {slot: [] for slot in steps}
        remaining = dict(steps)
        while remaining:
            for slot, log in self._advance_together(remaining).items():
                logs[slot].append(log)
                remaining[slot] -= len(log.loss)
                if not (remaining[slot] and log.finite):
                    del remaining[slot]
            if stop is not None and stop():
                break
        paid, self._compile_seconds = self._compile_seconds, 0.0
        seconds = time.perf_counter() - began - (paid - compiled)
        return {slot: joined(parts, seconds, paid) for slot, parts in logs.items()}

    def evaluate(self, slot: int, split: str = "validation", examples: int | None = None) -> dict[str, float]:
        """Return the mean loss and the metric of a slot over the first examples of a split.

        Args:
            slot: with a trial.
            split: "train", "validation" or "test"; test is opened at the first such call.
            examples: how many; None for those of the settings.
        """
        trained = self._call(("take",), take, self._held(slot).trained, np.int32(slot))
        wanted = examples or self.settings.evaluate_examples
        parts = [
            self._call(("evaluate",), self._program.evaluate, trained, block, np.int32(count))
            for block, count in self._evaluation(split, wanted)
        ]
        loss, metric, count = np.sum(np.asarray(jax.device_get(parts), np.float64), axis=0)
        mean = float(loss / count)
        scored = float(metric / count) if np.isfinite(mean) else mean
        return {"loss": mean, self.data.signature.metric: scored}

    def snapshot(self, slot: int) -> dict[str, np.ndarray]:
        """Return what `restore` needs to go on from here, by name, on the host."""
        return self._names.apart(self._call(("take",), take, self._held(slot).trained, np.int32(slot)))

    def _check(self, settings: TrialSettings) -> None:
        if settings.static() != self.settings.static():
            raise Refusal(
                "engine",
                "a trial must share its engine's static choice",
                str(settings.static()),
                "Use another engine.",
            )
        training = settings.training
        examples = training.steps * training.batch_size * training.accumulate
        if examples >= 2**32:
            raise Refusal(
                "training.steps",
                "steps * batch_size * accumulate must be below 2**32",
                str(examples),
                "Train for less.",
            )

    def _held(self, slot: int) -> SlotState:
        assert slot in self._steps, f"slot {slot} holds no trial"
        return self._state

    def _place(self, slot: int, state: SlotState, step: int) -> None:
        assert slot in range(self.slots), f"no slot {slot}"
        assert slot not in self._steps, f"slot {slot} is not free"
        self._state = self._call(("put",), put, self._state, np.int32(slot), state, donate=(0,))
        self._steps[slot] = step

    def _advance_together(self, remaining: Mapping[int, int]) -> dict[int, Log]:
        """Run one device call for all slots that have steps left."""
        active = sorted(remaining)
        size = _bucket(len(active), self.slots)
        idle = [slot for slot in range(self.slots) if slot not in remaining]
        picks = np.array([*active, *idle[: size - len(active)]], np.int32)
        steps = min(min(remaining.values()), self._chunk(size))
        live = np.arange(size) < len(active)
        arguments = (self._state, picks, live, np.int32(steps), self._train)
        call = self._compile(("advance", size), self._program.advance, arguments, donate=(0,))
        began = time.perf_counter()
        self._state, stacked = call(*arguments)
        stacked = jax.device_get(stacked)
        self._step_seconds[size] = (time.perf_counter() - began) / steps
        logs = {slot: taken(stacked, row, self._steps[slot]) for row, slot in enumerate(active)}
        self._steps.update({slot: int(log.step) for slot, log in logs.items()})
        return logs

    def _chunk(self, size: int) -> int:
        """Return how many steps fit into one call; one, until a step has been timed."""
        seconds = self._step_seconds.get(size)
        return 1 if seconds is None else max(1, min(MOST_STEPS, int(CALL_SECONDS / seconds)))

    def _evaluation(self, split: str, examples: int | None) -> Iterator[tuple[Examples, int]]:
        """Yield equal blocks of a split and how many of each count; validation stays on the device."""
        source: Split = getattr(self.data, split)
        count = min(len(source), examples or len(source))
        rows = BLOCK * self.settings.training.batch_size
        if split != "validation":
            return _blocks(source, count, rows)
        if count not in self._blocks:
            self._blocks = {count: list(_blocks(source, count, rows))}
        return iter(self._blocks[count])

    def _call(
        self,
        key: tuple[Any, ...],
        function: Callable[..., Any],
        *arguments: Any,
        donate: tuple[int, ...] = (),
    ) -> Any:
        return self._compile(key, function, arguments, donate)(*arguments)

    def _compile(
        self,
        key: tuple[Any, ...],
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        donate: tuple[int, ...] = (),
    ) -> Callable[..., Any]:
        """Return a program, compiled at its first use and timed."""
        if key not in self._compiled:
            began = time.perf_counter()
            self._compiled[key] = jax.jit(function, donate_argnums=donate).lower(*arguments).compile()
            self._compile_seconds += time.perf_counter() - began
        return self._compiled[key]


def _bucket(active: int, slots: int) -> int:
    """Return the size of the program that serves `active` slots: a power of two, or all K."""
    return min(slots, 1 << (active - 1).bit_length())


def _on_device(split: Split) -> Examples:
    """Return a split on the device, in the types it is stored in."""
    return Examples(
        *(jax.device_put(np.asarray(part)) for part in (split.inputs, split.lengths, split.targets))
    )


def _blocks(split: Split, count: int, rows: int) -> Iterator[tuple[Examples, int]]:
    """Yield blocks of `rows` examples, the last one filled with zeros, and how many of each count."""
    for start in range(0, count, rows):
        stop = min(start + rows, count)
        part = Split(split.inputs[start:stop], split.lengths[start:stop], split.targets[start:stop])
        yield _on_device(_filled(part, rows)), stop - start


def _filled(part: Split, rows: int) -> Split:
    missing = rows - len(part)
    if not missing:
        return part

    def fill(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array, np.zeros((missing, *array.shape[1:]), array.dtype)])

    return Split(fill(part.inputs), fill(part.lengths), fill(part.targets))
