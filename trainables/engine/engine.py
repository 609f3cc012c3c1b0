"""An engine with K slots on one device, each of which trains one trial at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import jax
import numpy as np
from jax import numpy as jnp

from trainables.cost import Cost
from trainables.data.task import TaskData
from trainables.engine.calls import Calls, Compiler
from trainables.engine.example_blocks import ExampleBlock, blocks, blocks_of_streams
from trainables.engine.programs import program_of
from trainables.engine.report import MOST_STEPS, TrainReport, joined
from trainables.engine.slot_program import Examples, SlotProgram, at, number_of, on_device
from trainables.engine.slots import Call, SeparateSlots, Slots, StackedSlots
from trainables.engine.state import SlotState, Trained
from trainables.errors import Refusal
from trainables.optim import Sums
from trainables.program import ProgramData
from trainables.trial import ProgramSettings, TrialSettings

UNOPTIMISED = {"xla_backend_optimization_level": 0}
"""XLA options of programs that run once a trial, which compile 4 times as long on a CPU if optimised."""

DETERMINISTIC = {"xla_gpu_deterministic_ops": True, "xla_gpu_autotune_level": 0}
"""XLA options of `reproducible: bits`, without atomic additions and without autotuning."""


EngineSettings: TypeAlias = TrialSettings | ProgramSettings
"""Settings of a trial that an engine can train."""


@dataclass
class StepsAsked:
    """The steps that a slot still has to do before its report.

    Attributes:
        steps: Number of remaining steps.
        calls: Device calls of the rounds so far.
        seconds: Time of the rounds so far, without compilation.
    """

    steps: int
    calls: list[Call] = field(default_factory=list)
    seconds: float = 0.0

    def ended(self, call: Call, seconds: float) -> bool:
        """Add the calls of a round; return True if it was the last one."""
        log, _ = call
        self.calls.append(call)
        self.seconds += seconds
        self.steps -= len(log.loss)
        return not (self.steps and log.finite)


@dataclass(frozen=True)
class Round:
    """The results of a round of device calls, by slot.

    Attributes:
        steps: Number of steps of the round.
        reports: Reports of the slots that have no steps left or are frozen.
        failures: Exceptions of calls of single slots, whose states are lost.
    """

    steps: Mapping[int, int]
    reports: Mapping[int, TrainReport]
    failures: Mapping[int, Exception]


class Engine:
    """The training program of one static choice on one device, with K slots.

        engine = Engine(settings, data, slots=8)
        engine.admit(0, settings)
        report = engine.advance({0: 500})[0]
        scores = engine.evaluate(0)

    Only one thread may use an engine. A slot is free, or holds a trial from `admit` or `restore` to `evict`.

    Attributes:
        data: Data of the task of its trials.
        slots: Number of slots K.
    """

    def __init__(
        self,
        settings: EngineSettings,
        data: TaskData | ProgramData,
        *,
        slots: int = 1,
        stacked: bool | None = None,
    ) -> None:
        """Place the training examples on the device; compile nothing yet.

        Args:
            settings: Settings of any trial of the static choice.
            data: Data of its task, or of its program.
            slots: K.
            stacked: Whether a device call serves several slots; by default on a GPU with more than one slot,
                unless the settings ask for reproducible bits.
        """
        self.slots = slots
        self._settings, self.data = settings, data
        self._program: SlotProgram = program_of(settings, data)
        self._compiler = Compiler()
        self._train = on_device(self._program.examples(data.train))
        self._validation: tuple[int, list[ExampleBlock]] = (0, [])
        self._options = DETERMINISTIC if self._program.bits and self.device != "cpu" else None
        shared = self._program, self._compiler, self._train, slots
        self._slots: Slots = (
            StackedSlots(*shared)
            if (slots > 1 and self._program.stacks if stacked is None else stacked)
            else SeparateSlots(*shared, self._options)
        )
        self._taken: set[int] = set()
        self._asked: dict[int, StepsAsked] = {}
        self._compiled: dict[int, float] = {}

    @property
    def width(self) -> int:
        """Return the largest number of slots of a device call: K, or fewer after memory ran out."""
        return self._slots.width

    @property
    def device(self) -> str:
        """Return the kind of device that trains: `cpu`, `gpu` or another of JAX's platforms."""
        return jax.default_backend()

    @property
    def compiled(self) -> float:
        """Return the total time of compilation in seconds."""
        return self._compiler.seconds

    @cached_property
    def cost(self) -> Cost | None:
        """Return the numbers of parameters and of the state, from shapes alone; None for a user's program."""
        return self._program.cost()

    def admit(self, slot: int, settings: EngineSettings) -> None:
        """Start a trial in a slot, from its seed.

        Raises:
            Refusal: The settings are of another static choice, or the trial is too long.
        """
        self._check(settings)
        self._compiled[slot] = self._compiler.seconds
        self._place(slot, self._drawn(settings))

    def restore(self, slot: int, settings: EngineSettings, arrays: Mapping[str, np.ndarray]) -> None:
        """Continue a trial in a slot from a snapshot, with the hyperparameters and the seed of the settings.

        Raises:
            Refusal: The settings are of another static choice, or the arrays do not fit the model.
        """
        self._check(settings)
        self._compiled[slot] = self._compiler.seconds
        trained = self._program.together(arrays)
        state = SlotState(trained=trained, free=self._program.free(settings), finite=jnp.asarray(True))
        self._place(slot, state)

    def evict(self, slot: int) -> None:
        """Free a slot, and drop its remaining steps."""
        self._taken.remove(slot)
        self._asked.pop(slot, None)
        self._slots.clear(slot)

    def advance(
        self, steps: Mapping[int, int], *, stop: Callable[[], bool] | None = None
    ) -> dict[int, TrainReport]:
        """Train each slot for its number of steps.

        Args:
            steps: Slot -> steps from now, each at least 1.
            stop: Function that is called after every round and returns True to end early.

        Raises:
            Exception: A device call failed.
        """
        for slot, count in steps.items():
            self.ask(slot, count)
        done: dict[int, TrainReport] = {}
        while len(done) < len(steps):
            ended = self.round()
            for error in ended.failures.values():
                raise error
            done |= ended.reports
            if stop is not None and stop():
                break
        return {slot: done[slot] if slot in done else self.cut(slot) for slot in steps}

    def ask(self, slot: int, steps: int) -> None:
        """Request a number of training steps from a slot; the next rounds take them."""
        assert steps >= 1
        assert slot in self._taken, f"slot {slot} holds no trial"
        assert slot not in self._asked, f"slot {slot} has steps left"
        self._asked[slot] = StepsAsked(steps)

    def round(self, *, size: int | None = None, most: int = MOST_STEPS) -> Round:
        """Run device calls of a second or two for the slots with steps left.

        A slot without steps left is not computed. A slot with a loss or gradient that is not finite
        is frozen, without an effect on its neighbours.

        Args:
            size: Size of the program for several slots, to repeat a recorded stretch; None to choose one.
            most: Largest number of steps of a slot.

        Raises:
            Exception: A call of several slots failed; the states of all slots are lost.
        """
        began, before = time.perf_counter(), self._compiler.seconds
        left = {slot: min(asked.steps, most) for slot, asked in self._asked.items()}
        results = dict(self._slots.advance(left, size))
        seconds = time.perf_counter() - began - (self._compiler.seconds - before)
        failures = {slot: result for slot, result in results.items() if isinstance(result, Exception)}
        for slot in failures:
            del self._asked[slot]
        calls = {slot: result for slot, result in results.items() if not isinstance(result, Exception)}
        done = [slot for slot, call in calls.items() if self._asked[slot].ended(call, seconds)]
        taken = {slot: stretch.steps for slot, (_, stretch) in calls.items()}
        return Round(taken, {slot: self.cut(slot) for slot in done}, failures)

    def cut(self, slot: int) -> TrainReport:
        """Return the report of a slot's steps so far, at least one round, and drop its remaining steps."""
        asked = self._asked.pop(slot)
        compiled = self._compiler.seconds - self._compiled[slot]
        self._compiled[slot] = self._compiler.seconds
        return joined(asked.calls, asked.seconds, compiled)

    def evaluate(self, slot: int, split: str = "validation", examples: int | None = None) -> dict[str, float]:
        """Return the mean loss and the metric of a slot over the first examples of a split.

        Args:
            slot: Slot with a trial.
            split: Name of `TaskData.split`; those of test are opened at the first such call.
            examples: Number of examples; None for all of them.
        """
        parts = self._evaluations("evaluate", slot, split, examples)
        sums = np.asarray(jax.device_get([part for part, _ in parts]), np.float64)
        return self._metrics(*np.sum(sums, axis=0))

    def evaluate_each(self, slot: int, split: str = "test") -> tuple[dict[str, float], np.ndarray]:
        """Return the loss and the metric of a slot on a whole split, and the score of each of its n examples.

        Args:
            slot: Slot with a trial.
            split: Name of `TaskData.split`; those of test are opened at the first such call.

        Returns:
            Loss and metric, and the scores (n,), float64. Their mean is the metric; for an output by step,
            longer sequences have larger scores.
        """
        parts = self._evaluations("evaluate_each", slot, split, None)
        table = np.concatenate([np.asarray(jax.device_get(sums), np.float64) for sums, _ in parts], axis=1)
        places = np.concatenate([places for _, places in parts])
        loss, metric, counted = table[:, np.argsort(places, kind="stable")[np.count_nonzero(places < 0) :]]
        metrics = self._metrics(loss.sum(), metric.sum(), counted.sum())
        is_number = np.isfinite(metrics["loss"])
        return metrics, metric / counted.mean() if is_number else np.full(len(metric), metrics["loss"])

    def hidden_norms(self, slot: int, *, initial: EngineSettings | None = None) -> dict[str, float]:
        """Return the hidden-state norms of a slot over the first examples of validation, in evaluation.

        These are the `evaluated` first examples, each read from its first step: a batch on a CPU.

        Args:
            slot: Slot with a trial.
            initial: Settings of the trial, to return the norms before its first step; None for the current
                norms.

        Returns:
            `head/layer_k`, `state/layer_k` and `expected/layer_k` of each layer k, as
            `trainables.model.hidden_norms` defines them, without those that are unknown or not finite.
            Nothing for a user's program.
        """
        if not self._program.depth:
            return {}
        rows = self.data.split("validation")
        calls = Calls(self._program.of_split(rows))
        whole = self._program.examples(rows)
        most = min(number_of(whole), calls.program.evaluated)
        examples = at(whole, jnp.arange(most))
        trained = self._trained(slot) if initial is None else self._drawn(initial).trained
        arguments = (trained, examples)
        key = "hidden_norms", calls.program.key, _shapes(examples)
        call = self._compiler.get(key, calls.hidden_norms, arguments, options=self._options)
        table = np.asarray(jax.device_get(call(*arguments)), np.float64)
        return {
            f"{name}/layer_{layer}": float(value)
            for layer, row in enumerate(table)
            for name, value in zip(("head", "state", "expected"), row, strict=True)
            if np.isfinite(value)
        }

    def solutions(self, slot: int) -> dict[str, float]:
        """Return how Newton's method did in the training of a slot, for layers with `algorithm: newton`.

        Returns:
            `fallbacks/layer_k`, the number of sequences so far that were run step by step instead, and
            `residual/layer_k`, the largest residual of the last step unless it is infinite.
        """
        return self._program.solutions(self._trained(slot))

    def _evaluations(
        self, name: Literal["evaluate", "evaluate_each"], slot: int, split: str, examples: int | None
    ) -> list[tuple[Sums, np.ndarray]]:
        """Call a function of the program with each block of a split; return its sums and their places."""
        trained, parts, rows = self._trained(slot), [], self.data.split(split)
        calls = Calls(self._program.of_split(rows))
        memory = self._memory(calls, trained)
        for block in self._blocks(split, calls.program, self._program.examples(rows), examples):
            arguments = (trained, memory, block.examples, block.counts, block.rounds)
            key = name, calls.program.key, _shapes(block.examples)
            call = self._compiler.get(key, getattr(calls, name), arguments, options=self._options)
            memory, sums = call(*arguments)
            parts.append((sums, block.places))
        return parts

    def _memory(self, calls: Calls, trained: Trained) -> Any:
        """Return the memory before the first examples of an evaluation; most programs have none."""
        if not calls.program.carries:
            return ()
        return self._compiler.get("start", calls.start, (trained,), options=self._options)(trained)

    def _metrics(self, loss: float, metric: float, counted: float) -> dict[str, float]:
        mean = float(loss / counted)
        # If the logits are NaN, argmax returns the first class, which is sometimes right.
        scored = float(metric / counted) if np.isfinite(mean) else mean
        return {"loss": mean, self._program.metric: scored}

    def snapshot(self, slot: int) -> dict[str, np.ndarray]:
        """Return the arrays that `restore` needs, by name, on the host."""
        return self._program.apart(self._trained(slot))

    def _check(self, settings: EngineSettings) -> None:
        if settings.static() != self._settings.static():
            must = "a trial must share its engine's static choice"
            raise Refusal("engine", must, str(settings.static()), "Use another engine.")
        examples = settings.training.steps * self._program.batch
        if examples >= 2**32:
            must = "steps * batch_size * accumulate must be below 2**32"
            raise Refusal("training.steps", must, str(examples), "Train for fewer steps.")

    def _drawn(self, settings: EngineSettings) -> SlotState:
        """Return a trial at step 0."""
        arguments = (self._program.free(settings),)
        options = UNOPTIMISED if self.device == "cpu" else self._options
        draw = self._compiler.get("initialise", self._program.initialise, arguments, options=options)
        return draw(*arguments)

    def _place(self, slot: int, state: SlotState) -> None:
        assert slot in range(self.slots), f"no slot {slot}"
        assert slot not in self._taken, f"slot {slot} is not free"
        self._slots.place(slot, state)
        self._taken.add(slot)

    def _trained(self, slot: int) -> Trained:
        assert slot in self._taken, f"slot {slot} holds no trial"
        return self._slots.trained(slot)

    def _blocks(
        self, name: str, program: SlotProgram, split: Examples, most: int | None
    ) -> Iterable[ExampleBlock]:
        """Return the blocks of a split; validation's stay on the device."""
        size = min(number_of(split), most or number_of(split))
        cut = blocks_of_streams if program.carries else blocks
        if name != "validation":
            return cut(split, size, program.block, program.evaluated)
        if self._validation[0] != size:
            self._validation = size, list(cut(split, size, program.block, program.evaluated))
        return self._validation[1]


def _shapes(examples: Examples) -> tuple[tuple[int, ...], ...]:
    return tuple(leaf.shape for leaf in jax.tree.leaves(examples))
