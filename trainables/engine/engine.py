"""K slots of stacked state on one device, and the compiled programs that move them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from trainables.data.task import Signature, Split, TaskData
from trainables.engine.compiler import Compiler
from trainables.engine.examples import Examples, blocks, on_device
from trainables.engine.program import Program
from trainables.engine.report import MOST_STEPS, Log, TrainReport, joined, taken
from trainables.engine.state import Names, SlotState, Trained, blank, copied, free_of, put, take
from trainables.errors import Refusal
from trainables.trial import TrialSettings

CALL_SECONDS = 1.5
"""What one device call aims at, so that a signal or an eviction never waits long."""

BLOCK = 8
"""Batches an evaluation hands to the device at once."""

EVALUATED_STEPS = 2**20
"""Steps of sequences that a GPU evaluates at once: what one trial's batch leaves idle, many batches fill."""

UNOPTIMISED = {"xla_backend_optimization_level": 0}
"""For what runs once a trial: mostly random draws, which take a CPU 4 times as long to compile optimised."""


@dataclass
class Asked:
    """What a slot is asked for and has not reported yet.

    Attributes:
        steps: left to do.
        logs: of the rounds so far.
        seconds: of the rounds so far, without compilation.
    """

    steps: int
    logs: list[Log] = field(default_factory=list)
    seconds: float = 0.0


class Engine:
    """The training program of one static choice on one device, with K slots.

    One thread uses an engine. A slot is free, or holds a trial from `admit` or `restore` to `evict`.

    Attributes:
        data: of the task of its trials.
        slots: K.
        width: most slots that one device call serves; K, or less once the device's memory has been too small.
    """

    def __init__(self, settings: TrialSettings, data: TaskData, *, slots: int = 1) -> None:
        """Place the training examples on the device; compile nothing yet.

        Args:
            settings: any trial's of the static choice.
            data: of its task.
            slots: K.
        """
        self.slots = self.width = slots
        self._settings, self.data = settings, data
        evaluated = _evaluated(settings, data.signature)
        self._program = Program(settings, data.signature, self._padded(data.train), evaluated)
        self._names = Names(self._program.layout.params, self._program.layout.stats)
        self._compiler = Compiler()
        self._train = on_device(data.train)
        self._validation: tuple[int, list[tuple[Examples, int]]] = (0, [])
        self._state: SlotState = blank(self._program.shapes(), slots)
        self._steps: dict[int, int] = {}
        self._asked: dict[int, Asked] = {}
        self._compiled: dict[int, float] = {}
        self._step_seconds: dict[int, float] = {}

    @property
    def compiled(self) -> float:
        """Return the seconds spent compiling in all."""
        return self._compiler.seconds

    def admit(self, slot: int, settings: TrialSettings) -> None:
        """Start a trial in a slot, from its seed.

        Raises:
            Refusal: if the settings are of another static choice, or the trial is too long.
        """
        self._check(settings)
        self._compiled[slot] = self._compiler.seconds
        arguments = (free_of(settings),)
        options = UNOPTIMISED if jax.default_backend() == "cpu" else None
        draw = self._compiler.get("initialise", self._program.initialise, arguments, options=options)
        self._place(slot, draw(*arguments), 0)

    def restore(self, slot: int, settings: TrialSettings, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on with a trial in a slot, from a snapshot; hyperparameters and seed are those of the settings.

        Raises:
            Refusal: if the settings are of another static choice, or the arrays do not fit the model.
        """
        self._check(settings)
        self._compiled[slot] = self._compiler.seconds
        trained = self._names.together(arrays)
        state = SlotState(trained=trained, free=free_of(settings), finite=jnp.asarray(True))
        self._place(slot, state, int(trained.step))

    def evict(self, slot: int) -> None:
        """Free a slot, whatever it was asked for."""
        del self._steps[slot]
        self._asked.pop(slot, None)

    def advance(
        self, steps: Mapping[int, int], *, stop: Callable[[], bool] | None = None
    ) -> dict[int, TrainReport]:
        """Train each slot for its number of steps, all together as one program.

        Args:
            steps: slot -> steps from now, each at least 1.
            stop: asked after every device call; once it says yes, the reports of what was done are returned.
        """
        for slot, count in steps.items():
            self.ask(slot, count)
        done: dict[int, TrainReport] = {}
        while len(done) < len(steps):
            done |= self.round()
            if stop is not None and stop():
                break
        return {slot: done[slot] if slot in done else self.cut(slot) for slot in steps}

    def ask(self, slot: int, steps: int) -> None:
        """Let a slot take part in the next rounds, until it has done that many steps."""
        assert steps >= 1
        assert slot in self._steps, f"slot {slot} holds no trial"
        assert slot not in self._asked, f"slot {slot} has steps left"
        self._asked[slot] = Asked(steps)

    def round(self) -> dict[int, TrainReport]:
        """Run one device call for every slot with steps left; return the reports of those that have none now.

        A slot with fewer steps than its neighbours is done first and no longer computed; one that meets a
        loss or gradient that is not finite is frozen, and its neighbours go on untouched.
        """
        remaining = {slot: asked.steps for slot, asked in self._asked.items()}
        began, before = time.perf_counter(), self._compiler.seconds
        logs = dict(self._round(remaining))
        seconds = time.perf_counter() - began - (self._compiler.seconds - before)
        done = []
        for slot, log in logs.items():
            asked = self._asked[slot]
            asked.logs.append(log)
            asked.seconds += seconds
            asked.steps -= len(log.loss)
            if not (asked.steps and log.finite):
                done.append(slot)
        return {slot: self.cut(slot) for slot in done}

    def cut(self, slot: int) -> TrainReport:
        """Return the report of what a slot has done since it asked, at least a round, and ask it no more."""
        asked = self._asked.pop(slot)
        compiled = self._compiler.seconds - self._compiled[slot]
        self._compiled[slot] = self._compiler.seconds
        return joined(asked.logs, asked.seconds, compiled)

    def evaluate(self, slot: int, split: str = "validation", examples: int | None = None) -> dict[str, float]:
        """Return the mean loss and the metric of a slot over the first examples of a split.

        Args:
            slot: with a trial.
            split: "train", "validation" or "test"; test is opened at the first such call.
            examples: how many; None for all of them.
        """
        trained, parts = self._trained(slot), []
        program = replace(self._program, padded=self._padded(getattr(self.data, split)))
        for block, count in self._blocks(split, examples):
            arguments = (trained, block, np.int32(count))
            call = self._compiler.get(("evaluate", program.padded), program.evaluate, arguments)
            parts.append(call(*arguments))
        loss, metric, counted = np.sum(np.asarray(jax.device_get(parts), np.float64), axis=0)
        mean = float(loss / counted)
        # Of logits that are no numbers, the first class would be "predicted", and sometimes be right.
        scored = float(metric / counted) if np.isfinite(mean) else mean
        return {"loss": mean, self.data.signature.metric: scored}

    def snapshot(self, slot: int) -> dict[str, np.ndarray]:
        """Return what `restore` needs to go on from here, by name, on the host."""
        return self._names.apart(self._trained(slot))

    def _padded(self, split: Split) -> bool:
        return bool(np.any(split.lengths < self.data.signature.length))

    def _check(self, settings: TrialSettings) -> None:
        if settings.static() != self._settings.static():
            must = "a trial must share its engine's static choice"
            raise Refusal("engine", must, str(settings.static()), "Use another engine.")
        training = settings.training
        examples = training.steps * training.batch_size * training.accumulate
        if examples >= 2**32:
            must = "steps * batch_size * accumulate must be below 2**32"
            raise Refusal("training.steps", must, str(examples), "Train for fewer steps.")

    def _place(self, slot: int, state: SlotState, step: int) -> None:
        assert slot in range(self.slots), f"no slot {slot}"
        assert slot not in self._steps, f"slot {slot} is not free"
        arguments = (self._state, np.int32(slot), state)
        self._state = self._compiler.get("put", put, arguments, donate=(0,))(*arguments)
        self._steps[slot] = step

    def _trained(self, slot: int) -> Trained:
        assert slot in self._steps, f"slot {slot} holds no trial"
        arguments = (self._state.trained, np.int32(slot))
        return self._compiler.get("take", take, arguments)(*arguments)

    def _round(self, remaining: Mapping[int, int]) -> Iterator[tuple[int, Log]]:
        """Run one device call for every slot that has steps left, as many at a time as memory allows."""
        waiting = sorted(remaining)
        while waiting:
            group = waiting[: self.width]
            steps = min(remaining[slot] for slot in group)
            try:
                logs = self._together(group, steps)
            except (jax.errors.JaxRuntimeError, MemoryError) as error:
                if len(group) == 1 or not out_of_memory(error):
                    raise
                self.width = _halved(bucket(len(group), self.slots))
                continue
            waiting = waiting[len(group) :]
            yield from zip(group, logs, strict=True)

    def _together(self, group: Sequence[int], most: int) -> list[Log]:
        """Advance a group of slots by at most `most` steps in one device call.

        A size's first call leaves the state it was given alone, so that nothing is lost if memory runs out.
        """
        size = bucket(len(group), self.slots)
        steps = min(most, self._chunk(size))
        picks = _filled(group, size, self.slots)
        live = np.arange(size) < len(group)
        arguments = (self._state, picks, live, np.int32(steps), self._train)
        key = ("advance", size)
        try:
            call = self._compiler.get(key, self._program.advance, arguments, donate=(0,))
            state = self._state if size in self._step_seconds else self._copied(call)
            began = time.perf_counter()
            moved, stacked = call(state, *arguments[1:])
            stacked = jax.device_get(stacked)
        except (jax.errors.JaxRuntimeError, MemoryError):
            self._compiler.drop(key)
            raise
        self._state = moved
        self._step_seconds[size] = (time.perf_counter() - began) / steps
        logs = [taken(stacked, row, self._steps[slot]) for row, slot in enumerate(group)]
        self._steps.update({slot: int(log.step) for slot, log in zip(group, logs, strict=True)})
        return logs

    def _copied(self, call: Any) -> SlotState:
        """Return a copy of the state for a program's first call.

        Raises:
            MemoryError: if the program needs more than the device has free.
        """
        stats = jax.devices()[0].memory_stats() or {}
        free = stats.get("bytes_limit", math.inf) - stats.get("bytes_in_use", 0)
        if (needed := call.memory_analysis().temp_size_in_bytes) > free:
            raise MemoryError(f"the program needs {needed} bytes and the device has {free} free")
        return self._compiler.get("copy", copied, (self._state,))(self._state)

    def _chunk(self, size: int) -> int:
        """Return how many steps fit into one call; one, until a step has been timed."""
        seconds = self._step_seconds.get(size)
        return 1 if seconds is None else max(1, min(MOST_STEPS, int(CALL_SECONDS / seconds)))

    def _blocks(self, name: str, examples: int | None) -> Iterable[tuple[Examples, int]]:
        """Return equal blocks of a split and how many of each count; validation's stay on the device."""
        split: Split = getattr(self.data, name)
        count = min(len(split), examples or len(split))
        rows = BLOCK * self._settings.training.batch_size
        if name != "validation":
            return blocks(split, count, rows)
        if self._validation[0] != count:
            self._validation = count, list(blocks(split, count, rows))
        return self._validation[1]


def _evaluated(settings: TrialSettings, signature: Signature) -> int:
    """Return how many examples are evaluated at once: a batch on a CPU, up to a block of them on a GPU."""
    batch = settings.training.batch_size
    if jax.default_backend() == "cpu":
        return batch
    fitting = max(1, min(EVALUATED_STEPS // (batch * signature.length * signature.towers), BLOCK))
    return batch << (fitting.bit_length() - 1)


def bucket(active: int, slots: int) -> int:
    """Return the size of the program that serves `active` of K slots: a power of two, or all K."""
    return min(slots, 1 << (active - 1).bit_length())


def _halved(size: int) -> int:
    """Return the largest power of two below a size."""
    return 1 << ((size - 1).bit_length() - 1)


def out_of_memory(error: Exception) -> bool:
    """Tell whether an error says that the device's memory is too small."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def _filled(group: Sequence[int], size: int, slots: int) -> np.ndarray:
    """Return `size` different slots, the group first."""
    others = [slot for slot in range(slots) if slot not in group]
    return np.array([*group, *others[: size - len(group)]], np.int32)
