"""A simulated MLflow server, and the process that delivers a sweep's events to it.

The server keeps what MLflow's database keeps: a point that is sent twice is one point, and two runs that are
created for one trial are two runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from mlflow.entities import ViewType
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST, INTERNAL_ERROR, RESOURCE_DOES_NOT_EXIST

from orchestrator.tracking.child import DeliveryError
from orchestrator.tracking.deliver import Deadline, serve
from orchestrator.tracking.mlflow_sink import Destination, MlflowSink
from tests.simulation.kernel import Kernel, Process, Signal
from tests.simulation.system import Machine, SimulatedSystem
from tests.simulation.violation import Violation

PHASE_SECONDS = 10.0
"""Seconds of an outage in which MLflow rejects every request, then does not answer, then is overloaded."""

OVERLOADED = (3, 8)
"""Requests that MLflow rejects one after the other while it is overloaded, of so many."""


@dataclass
class Run:
    """A run of MLflow.

    Attributes:
        run_id: Run id of the run.
        tags: Tags by name.
        parameters: Parameters by name.
        points: Value and time of each point, by its name and step.
        status: Status of the run.
        deleted: Whether it was deleted.
    """

    run_id: str
    tags: dict[str, str]
    parameters: dict[str, str] = field(default_factory=dict)
    points: dict[tuple[str, int], tuple[float, int]] = field(default_factory=dict)
    status: str = "RUNNING"
    deleted: bool = False


class Mlflow:
    """The server.

    Attributes:
        runs: Runs by id.
        down: Whether it does not answer, or rejects requests as if they were at fault: all, or some in turn.
        on_send: Function that is called with the events of a batch whenever a driver sends some.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.runs: dict[str, Run] = {}
        self.down = False
        self._while_overloaded = 0
        self.on_send: Callable[[Sequence[Mapping[str, Any]]], None] = lambda events: None
        self.locks: dict[str, Process] = {}

    def reach(self) -> None:
        """Pass the point of a request.

        Raises:
            MlflowException: The server has vanished, or rejects the request.
        """
        self.kernel.point()
        if not self.down:
            return
        phase = int(self.kernel.now // PHASE_SECONDS) % 3
        if phase == 2:
            self._while_overloaded += 1
            rejected, of = OVERLOADED
            if self._while_overloaded % of >= rejected:
                return
        raise MlflowException("the server is away", INTERNAL_ERROR if phase == 1 else BAD_REQUEST)

    def receive(self, run: Run, point: Any) -> None:
        """Keep a point; one that it has already, with another value or time, would be two in MLflow."""
        new, place = (point.value, point.timestamp), (point.key, point.step)
        if (known := run.points.setdefault(place, new)) != new:
            of = run.tags.get("trial.key", run.run_id)
            text = f"{of} gets {point.key} of step {point.step} as {new}, it has {known}"
            self.kernel.fail(Violation("MLflow", text))


class Client:
    """What `MlflowClient` offers of the server, for one delivering process."""

    def __init__(self, server: Mlflow) -> None:
        self._server = server

    def _run(self, run_id: str) -> Run:
        self._server.reach()
        return self._server.runs[run_id]

    def get_experiment_by_name(self, name: str) -> Any:
        self._server.reach()
        return SimpleNamespace(experiment_id="1", lifecycle_stage="active")

    def get_experiment(self, experiment: str) -> Any:
        return self.get_experiment_by_name(experiment)

    def get_run(self, run_id: str) -> Any:
        self._server.reach()
        if run_id not in self._server.runs:
            raise MlflowException("no such run", RESOURCE_DOES_NOT_EXIST)
        return _seen(self._server.runs[run_id])

    def restore_run(self, run_id: str) -> None:
        self._run(run_id).deleted = False

    def create_run(self, experiment: str, *, start_time: int, tags: Mapping[str, str], run_name: str) -> Any:
        self._server.reach()
        run = Run(f"run-{len(self._server.runs) + 1}", dict(tags))
        self._server.runs[run.run_id] = run
        self._server.kernel.trace(f"creates MLflow's {run.run_id} of {run_name}")
        self._server.reach()
        return _seen(run)

    def search_runs(self, experiments: list[str], condition: str, view: int, **_: Any) -> Any:
        self._server.reach()
        wanted = dict(re.findall(r"tags\.`([^`]+)` = '([^']*)'", condition))
        runs = [
            run
            for run in self._server.runs.values()
            if (view == ViewType.ALL or not run.deleted) and wanted.items() <= run.tags.items()
        ]
        return _Page(_seen(run) for run in reversed(runs))

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = (), tags: Any = ()) -> None:
        run = self._run(run_id)
        for point in metrics:
            self._server.receive(run, point)
        run.parameters |= {param.key: param.value for param in params}
        run.tags |= {tag.key: tag.value for tag in tags}
        self._server.reach()

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        self._run(run_id).tags[key] = value

    def log_inputs(self, run_id: str, datasets: Any) -> None:
        self._run(run_id)

    def log_text(self, run_id: str, text: str, name: str) -> None:
        self._run(run_id)

    def update_run(self, run_id: str, status: str) -> None:
        self._run(run_id).status = status

    def set_terminated(self, run_id: str, status: str, end_time: int | None = None) -> None:
        self._run(run_id).status = status
        self._server.reach()

    def delete_run(self, run_id: str) -> None:
        self._run(run_id).deleted = True
        self._server.kernel.trace(f"deletes MLflow's {run_id}")


class _Page(list[Any]):
    token = None


def _seen(run: Run) -> Any:
    stage = "deleted" if run.deleted else "active"
    info = SimpleNamespace(run_id=run.run_id, experiment_id="1", lifecycle_stage=stage)
    return SimpleNamespace(info=info, data=SimpleNamespace(tags=dict(run.tags)))


class Child:
    """The driver's end of a delivering process, which outlives the driver until it has read all that it got.

    Args:
        server: Server of MLflow.
        machine: Machine on which it runs.
        driver: Driver that starts it.
        name: Name of its process.
        document: The destination.
    """

    def __init__(
        self, server: Mlflow, machine: Machine, driver: Process, name: str, document: Mapping[str, Any]
    ) -> None:
        self._kernel = server.kernel
        self._server, self._machine = server, machine
        self._questions: list[dict[str, Any] | None] = []
        self._answers: list[dict[str, Any]] = []
        self._asked, self._answered = Signal(), Signal()
        self.process = self._kernel.process(name)
        machine.processes.append(self.process)
        self.process.on_end.append(lambda: self._kernel.send(self._answered))
        driver.on_end.append(self._close)
        first = dict(document)
        self._kernel.start(self.process, lambda: self._main(first))

    def _close(self) -> None:
        self._questions.append(None)
        self._kernel.send(self._asked)

    def _main(self, first: dict[str, Any]) -> None:
        system = SimulatedSystem(self._kernel, self._machine, self.process)
        until = Deadline(first.pop("until"), system)
        while (holder := self._server.locks.get(self._machine.name)) is not None and holder.alive:
            self._kernel.sleep(0.5)
        self._server.locks[self._machine.name] = self.process
        try:
            sink = MlflowSink(Destination(**first), until.check, Client(self._server))  # type: ignore[arg-type]
            for _ in serve(sink, until, self._read, self._answer):
                pass
        except (MlflowException, TimeoutError) as error:
            self._kernel.trace(f"ends: {error}")

    def _read(self) -> dict[str, Any] | None:
        while not self._questions:
            self._kernel.wait(self._asked)
        return self._questions.pop(0)

    def _answer(self, document: dict[str, Any]) -> None:
        self._kernel.point()
        self._answers.append(document)
        self._kernel.send(self._answered)

    def ask(
        self, document: Mapping[str, Any] | None, seconds: float, cancelled: Callable[[], bool]
    ) -> dict[str, Any]:
        """Send a document, if there is one, and return the next answer."""
        self._kernel.point()
        if document is not None:
            if "events" in document:
                self._server.on_send(document["events"])
            self._questions.append(dict(document))
            self._kernel.send(self._asked)
        deadline = self._kernel.now + seconds
        while not self._answers:
            if cancelled() or not self.process.alive or self._kernel.now >= deadline:
                raise DeliveryError("the delivering process does not answer")
            self._kernel.wait(self._answered, min(deadline - self._kernel.now, 1.0))
        return self._answers.pop(0)

    def end(self, seconds: float) -> None:
        """Let the process end by itself; after `seconds`, kill it."""
        self._close()
        deadline = self._kernel.now + seconds
        while self.process.alive and self._kernel.now < deadline:
            self._kernel.sleep(0.2)
        self.kill()

    def kill(self) -> None:
        """Kill the process."""
        self._kernel.kill(self.process)
