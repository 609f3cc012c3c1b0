"""A simulated Ray: a cluster whose workers start late, answer late, and die; and Tune's loop over them.

The loop treats a result in the order of Tune: the stopping rule decides, the session commits, then the
attempt ends or trains on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from ray.tune.schedulers import TrialScheduler

from orchestrator.assignment import Assignment, Outcome
from orchestrator.ledger.sweeps.records import Channel
from orchestrator.schedule.keyed import KeyedScheduler, KeyedTrial
from orchestrator.session.session import Session
from tests.simulation.kernel import Kernel, Process, Signal
from tests.simulation.system import Machine
from tests.simulation.training import Work, Worker

TICK_SECONDS, LONGEST_TICK_SECONDS = 2.0, 8.0
"""Time between two ticks of a driver after a message, and the longest one while none arrives."""

START_SECONDS = (2.0, 2.0, 2.0, 40.0)
"""Longest times that an attempt waits for its resources."""

STEP_SECONDS = 0.1
LATENCY_SECONDS = 0.02
POLL_SECONDS = 1.0
"""Longest time after which a worker learns that its driver has published a stop request."""

NOTICE_SECONDS = 3.0
"""Longest time after which the death of a process is noticed."""


@dataclass
class Actor:
    """A worker process of a driver.

    Attributes:
        attempt_id: Attempt id that it trains.
        node: Node on which it runs.
        process: Process of the worker.
        worker: What it does.
        cause: Why it was lost, as the driver learns it.
    """

    attempt_id: str
    node: Node
    process: Process
    worker: Worker
    cause: str = "worker lost"


@dataclass
class Node:
    """A machine that trains.

    Attributes:
        machine: Machine that it is.
        slots: Attempts that run on it at once.
    """

    machine: Machine
    slots: int


@dataclass
class Cluster:
    """The machines that train, shared by every driver of a simulation.

    Attributes:
        kernel: Kernel of the simulation.
        work: Work of the simulation.
        nodes: Nodes that train.
        on_start: Function that is called with each new actor.
        actors: The living workers.
        started: Number of workers so far.
        taken_at: Time when a worker began to hold resources, by attempt.
        ended_at: Time when a worker ended, by attempt.
        is_stopping: Whether the driver that runs has published a stop request.
        asked: Attempts that it has asked to end, if not all of them.
        on_outcome: Function that is called with each outcome of a worker.
        latency: Longest time that a message takes.
        repeats: Whether a driver treats each message twice.
    """

    kernel: Kernel
    work: Work
    nodes: list[Node]
    on_start: Callable[[Actor], None]
    actors: list[Actor] = field(default_factory=list)
    started: int = 0
    taken_at: dict[str, float] = field(default_factory=dict)
    ended_at: dict[str, float] = field(default_factory=dict)
    is_stopping: bool = False
    asked: Collection[str] = frozenset()
    on_outcome: Callable[[str, Outcome], None] = lambda attempt_id, outcome: None
    latency: float = LATENCY_SECONDS
    repeats: bool = False

    def recover(self) -> None:
        """Deliver each message soon, and once, from now on."""
        self.latency, self.repeats = LATENCY_SECONDS, False

    def capacity(self) -> int:
        """Return how many attempts run at once."""
        return sum(node.slots for node in self.nodes)

    def shortage(self) -> str:
        """Return why no attempt can start."""
        return "no node has room"

    def placed(self) -> bool:
        """Return True if an attempt has its resources, as each one that is launched here has."""
        return True

    def may_begin(self, channel: Channel, attempt_id: str) -> bool:
        """Return False if an attempt must stop before it begins; see `orchestrator.training.process`."""
        return not self.is_stopping and attempt_id not in self.asked

    def free(self) -> list[Node]:
        """Return the nodes with room."""
        used = Counter(actor.node.machine.name for actor in self.actors)
        running = [node for node in self.nodes if not node.machine.is_off]
        return [node for node in running if used[node.machine.name] < node.slots]

    def start(self, assignment: Assignment, node: Node, tune: Tune) -> None:
        """Start a worker for an attempt."""
        kernel, attempt_id = self.kernel, assignment.attempt_id
        self.started += 1
        process = kernel.process(f"worker-{self.started}")
        root = str(tune.machine.root), str(node.machine.root)

        def answer(outcome: Outcome) -> None:
            kernel.point()
            self.on_outcome(attempt_id, outcome)
            tune.deliver("result", attempt_id, moved(outcome, *reversed(root)).to_result())

        worker = Worker(kernel, self.work, moved(assignment, *root), STEP_SECONDS, answer)
        actor = Actor(attempt_id, node, process, worker)
        self.actors.append(actor)
        node.machine.processes.append(process)
        tune.actors[attempt_id] = actor

        def ended() -> None:
            self.actors.remove(actor)
            self.ended_at[attempt_id] = kernel.now
            noticed = kernel.random.random() * NOTICE_SECONDS
            kernel.after(noticed, lambda: tune.deliver("error", attempt_id, actor.cause))

        process.on_end.append(ended)
        self.on_start(actor)

        def serve() -> None:
            kernel.sleep(kernel.random.choice(START_SECONDS) * kernel.random.random())
            self.taken_at[attempt_id] = kernel.now
            kernel.trace(f"takes {attempt_id} on {node.machine.name}")
            tune.deliver("started", attempt_id, None)
            worker.serve()

        kernel.start(process, serve)

    def lose_driver(self, tune: Tune) -> None:
        """Kill the workers of a driver that has ended, once that is noticed."""
        for actor in list(tune.actors.values()):
            noticed = self.kernel.random.random() * NOTICE_SECONDS
            self.kernel.after(noticed, partial(self.kernel.kill, actor.process))


Message = TypeVar("Message", Assignment, Outcome)


def moved(message: Message, before: str, after: str) -> Message:
    """Return a message with the paths of another machine; in reality they are equal, on other disks."""
    if isinstance(message, Outcome):
        saved = message.checkpoint
        path = None if saved is None else replace(saved, path=saved.path.replace(before, after))
        return replace(message, checkpoint=path)
    paths = {name: value for name, value in vars(message).items() if isinstance(value, str)}
    return replace(message, **{name: value.replace(before, after) for name, value in paths.items()})


class Tune:
    """Ray Tune's loop, for one driver.

    Args:
        kernel: Kernel of the simulation.
        cluster: Cluster of the simulation.
        machine: Machine of the driver.
        session: Function that decides what is launched.
        scheduler: The stopping rule.
        deadline: Seconds that an attempt may stay silent.

    Attributes:
        actors: The workers, by attempt.
    """

    def __init__(
        self,
        kernel: Kernel,
        cluster: Cluster,
        machine: Machine,
        session: Session,
        scheduler: KeyedScheduler,
        deadline: float,
    ) -> None:
        self.machine = machine
        self._kernel, self._cluster, self.session = kernel, cluster, session
        self._scheduler, self._deadline = scheduler, deadline
        self._pending: list[Assignment] = []
        self._messages: list[tuple[str, str, Any]] = []
        self._news = Signal()
        self.actors: dict[str, Actor] = {}

    def deliver(self, kind: str, attempt_id: str, content: Any) -> None:
        """Send a message to the driver, which arrives later."""
        message = (kind, attempt_id, content)

        def arrive() -> None:
            self._messages.append(message)
            self._kernel.send(self._news)

        self._kernel.after(self._kernel.random.random() * self._cluster.latency, arrive)

    def run(self, tick: Callable[[], None]) -> None:
        """Run attempts until the session has finished."""
        kernel, session = self._kernel, self.session
        ticked, pause = kernel.now, TICK_SECONDS
        self._cluster.is_stopping, self._cluster.asked = False, frozenset()
        while not session.finished:
            self._launch()
            if not self._messages:
                kernel.wait(self._news, max(0.0, ticked + pause - kernel.now))
            kernel.point()
            if self._messages:
                self._handle(*self._messages.pop(0))
                pause = TICK_SECONDS
            if kernel.now - ticked >= pause:
                ticked, pause = kernel.now, min(2 * pause, LONGEST_TICK_SECONDS)
                tick()
                self._publish_stops()
                for attempt_id in session.silent(self._deadline):
                    session.condemn(attempt_id, "hung")
                    kernel.kill(self.actors[attempt_id].process)

    def _publish_stops(self) -> None:
        """Let the workers that must save and end, or not begin, learn that when they look next."""
        self._cluster.is_stopping, overdue = self.session.stopped is not None, self.session.overdue
        self._cluster.asked = frozenset(overdue)
        for attempt_id, actor in self.actors.items():
            if self._cluster.is_stopping or attempt_id in overdue:
                self._kernel.after(self._kernel.random.random() * POLL_SECONDS, actor.worker.stop)

    def _launch(self) -> None:
        if (assignment := self.session.next_assignment()) is not None:
            self._kernel.trace(f"launches {assignment.attempt_id}")
            self._pending.append(assignment)
        while self._pending and (free := self._cluster.free()):
            assignment = self._pending.pop(0)
            if assignment.attempt_id in self.session.running:
                self._cluster.start(assignment, self._kernel.random.choice(free), self)

    def _handle(self, kind: str, attempt_id: str, content: Any) -> None:
        actor = self.actors.get(attempt_id)
        if actor is None:
            return
        if kind == "started":
            self._tell(self.session.started, attempt_id)
            actor.worker.ask()
        elif kind == "result":
            self._result(actor, content)
        else:
            del self.actors[attempt_id]
            self._tell(self.session.failed, attempt_id, content, "the worker died")

    def _tell(self, receive: Callable[..., None], *content: object) -> None:
        """Pass a message on to the session, twice if messages are repeated."""
        receive(*content)
        if self._cluster.repeats:
            receive(*content)

    def _result(self, actor: Actor, result: dict[str, Any]) -> None:
        attempt_id, outcome = actor.attempt_id, Outcome.from_result(result)
        if self.session.refused(attempt_id, outcome, None):
            self._kernel.kill(actor.process)
            return
        trial: Any = KeyedTrial(attempt_id)
        is_stopped = self.session.stopped is not None or self.session.sheds(attempt_id)
        stops = outcome.done or (is_stopped and not outcome.training)
        decision = "" if stops else self._scheduler.on_trial_result(None, trial, result)
        self._tell(self.session.reported, attempt_id, outcome)
        if stops or decision == TrialScheduler.STOP:
            del self.actors[attempt_id]
            self._kernel.kill(actor.process)
            if stops:
                self._scheduler.on_trial_complete(None, trial, result)
            self._tell(self.session.completed, attempt_id)
        else:
            actor.worker.ask()
