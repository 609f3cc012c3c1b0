"""Training of a simulated worker: the real attempt, with real checkpoints, in an engine that only counts.

The state of a trial is a chain of checksums over its seed, its hyperparameters and its steps, and its metrics
follow from the state: an attempt that goes on from a wrong checkpoint reports wrong values.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from orchestrator.assignment import Assignment, Outcome
from orchestrator.schedule import cluster
from orchestrator.schedule.cluster import EvaluationRequest
from orchestrator.training import evaluation
from orchestrator.training.attempt import Attempt, failure_outcome, unbegun
from tests.simulation.kernel import Kernel, Signal
from tests.simulation.system import Machine
from trainables.cost import Cost
from trainables.engine import TrainReport
from trainables.engine.engine import Round
from trainables.per_step import PerStep
from trainables.trial import TrialSettings

ROUND_STEPS = 3
"""Most steps of a call of the device, after which an attempt may stop: an interval takes several calls."""

EVALUATE_SECONDS = 5.0
"""Longest time until a task that evaluates test begins."""


@dataclass
class Work:
    """The training of a simulation, over all attempts.

    Attributes:
        steps: Steps trained, by trial key.
    """

    steps: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class State:
    """State of a simulated trial.

    Attributes:
        salt: Its hyperparameters.
        step: Steps trained.
        chain: Checksum over all of them.
    """

    salt: bytes
    step: int
    chain: int

    @staticmethod
    def mutated(settings: TrialSettings, copied: State) -> State:
        """Return a copied state, to go on with other hyperparameters."""
        return State(State.salt_of(settings), copied.step, copied.chain)

    @staticmethod
    def salt_of(settings: TrialSettings) -> bytes:
        """Return the hyperparameters of a trial as bytes."""
        return json.dumps(
            {name: repr(value) for name, value in settings.free().items()}, sort_keys=True
        ).encode()

    @staticmethod
    def first(settings: TrialSettings) -> State:
        """Return the state before the first step."""
        return State(State.salt_of(settings), 0, zlib.crc32(str(settings.seed).encode()))

    def path(self, steps: int) -> list[State]:
        """Return the state after each of the next steps."""
        states, state = [], self
        for step in range(self.step + 1, self.step + steps + 1):
            state = State(self.salt, step, zlib.crc32(self.salt, state.chain + step & 0xFFFFFFFF))
            states.append(state)
        return states

    def loss(self) -> float:
        """Return the training loss of the last step."""
        return self.chain / 2**32

    def accuracy(self) -> float:
        """Return the accuracy on validation."""
        goodness, noise = zlib.crc32(self.salt) / 2**32, self.chain / 2**32
        return 0.2 + 0.7 * goodness * (1.0 - 2.0 ** (-self.step / 10)) + 0.01 * noise


class CountingEngine:
    """An engine of one slot that trains by counting; a step takes `seconds` of simulated time."""

    data = SimpleNamespace(facts=dict, further=())
    device = "cpu"
    cost = Cost(parameters=100, layer_parameters=60, recurrent_parameters=40, state_floats=8)

    def __init__(self, kernel: Kernel, work: Work, trial_key: str, seconds: float) -> None:
        self._kernel, self._work, self._key, self._seconds = kernel, work, trial_key, seconds
        self._state = State(b"", 0, 0)
        self._path: list[State] = []
        self._done, self._pace = 0, 0.0

    def admit(self, slot: int, settings: TrialSettings) -> None:
        self._state = State.first(settings)

    def restore(self, slot: int, settings: TrialSettings, arrays: Mapping[str, np.ndarray]) -> None:
        step, chain = arrays["state"]
        self._state = State(State.salt_of(settings), int(step), int(chain))

    def ask(self, slot: int, steps: int) -> None:
        self._path, self._done = self._state.path(steps), 0
        self._pace = self._seconds * (0.5 + self._kernel.random.random())

    def round(self) -> Round:
        count = min(ROUND_STEPS, len(self._path) - self._done)
        self._kernel.sleep(count * self._pace)
        self._work.steps[self._key] = self._work.steps.get(self._key, 0) + count
        self._done += count
        return Round({0: count}, {0: self.cut(0)} if self._done == len(self._path) else {}, {})

    def cut(self, slot: int) -> TrainReport:
        path = self._path[: self._done]
        self._state = path[-1]
        losses = [state.loss() for state in path]
        per_step = PerStep(*np.array([losses, losses, [1.0] * len(path)], np.float32))
        return TrainReport(self._state.step, len(path), per_step, 1e-3, len(path), True, 0.0, 0.0, ())

    def hidden_norms(self, slot: int, *, initial: object = None) -> dict[str, float]:
        return {}

    def solutions(self, slot: int) -> dict[str, float]:
        return {}

    def evaluate(self, slot: int, split: str, examples: int | None) -> dict[str, float]:
        return {"loss": 1.0, "accuracy": self._state.accuracy()}

    def evaluate_each(self, slot: int, split: str) -> tuple[dict[str, float], np.ndarray]:
        return self.evaluate(slot, split, None), np.array([self._state.accuracy()])

    def snapshot(self, slot: int) -> dict[str, np.ndarray]:
        return {"state": np.array([self._state.step, self._state.chain], np.int64)}

    def evict(self, slot: int) -> None:
        return None


@contextmanager
def evaluating(kernel: Kernel, machines: Sequence[Machine]) -> Iterator[None]:
    """Evaluate test in the driver's process instead of a Ray task, with an engine that only counts.

    Args:
        kernel: Kernel of the simulation.
        machines: A task runs on any of them.
    """
    roots = [str(machine.root) for machine in machines]

    class Cache:
        def engine(self, settings: TrialSettings, data: str) -> CountingEngine:
            return CountingEngine(kernel, Work(), "", 0.0)

    def evaluate(request: EvaluationRequest, *_: object) -> dict[str, Any]:
        kernel.sleep(EVALUATE_SECONDS * kernel.random.random())
        own = next(root for root in roots if request.folder.startswith(root))
        folder = request.folder.replace(own, kernel.random.choice(roots))
        return evaluation.evaluate(*request._replace(folder=folder))

    with (
        patch.object(cluster, "evaluate", evaluate),
        patch.object(evaluation, "cache_of_process", Cache),
        patch.object(evaluation, "configure", lambda _: None),
    ):
        yield


class StoppableAttempt(Attempt):
    """An attempt whose own worker, not the whole process, learns that it must stop."""

    stopping = False

    def must_stop(self) -> bool:
        return self.stopping


class Worker:
    """The actor of one attempt: trains an interval at each request, and answers with a result.

    Args:
        kernel: Kernel of the simulation.
        work: Work of the simulation.
        assignment: Assignment of the attempt.
        seconds: Seconds of a step.
        answer: Function that receives each outcome.

    Attributes:
        is_doomed: Whether it is killed as soon as its first report has been dealt with.
        loses_answer: Whether its next answer never arrives.
    """

    def __init__(
        self,
        kernel: Kernel,
        work: Work,
        assignment: Assignment,
        seconds: float,
        answer: Callable[[Outcome], None],
    ) -> None:
        self._kernel, self._answer, self._assignment = kernel, answer, assignment
        self._engine = CountingEngine(kernel, work, assignment.trial_key, seconds)
        self._attempt: StoppableAttempt | None = None
        self._stopping = False
        self.requests = 0
        self.is_doomed = self.loses_answer = False
        self.asked = Signal()

    def serve(self) -> None:
        """Answer requests until the process is killed."""
        answered = 0
        while True:
            while not self.requests:
                self._kernel.wait(self.asked)
            self.requests -= 1
            if self.is_doomed and answered == 1:
                self._kernel.end(self._kernel.task.process, 1)
            answered += 1
            outcome = replace(self._advance(), node=self._kernel.task.process.name)
            self._kernel.trace(f"reports {_described(outcome)}")
            if self.loses_answer:
                self.loses_answer = False
            else:
                self._answer(outcome)

    def ask(self) -> None:
        """Request the next interval."""
        self.requests += 1
        self._kernel.send(self.asked)

    def stop(self) -> None:
        """Let the attempt save and end at the end of its call of the device."""
        self._stopping = True
        if self._attempt is not None:
            self._attempt.stopping = True

    def _advance(self) -> Outcome:
        try:
            if self._attempt is None:
                if outcome := unbegun(self._assignment):
                    return outcome
                self._attempt = StoppableAttempt(self._engine, 0, self._assignment)  # type: ignore[arg-type]
                self._attempt.stopping = self._stopping
            return self._attempt.advance()
        except Exception as error:  # noqa: BLE001 - a failure inside a trial is an outcome with a cause
            return failure_outcome(self._assignment, error)


def _described(outcome: Outcome) -> str:
    hidden = {"metrics", "checkpoint", "node"}
    facts = {name: value for name, value in vars(outcome).items() if value and name not in hidden}
    return ", ".join(f"{name} {value}" for name, value in facts.items())
