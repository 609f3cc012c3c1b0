"""Sessions on a real ledger and a real study; tests report outcomes as a worker would."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.assignment import Assignment, Outcome, SavedCheckpoint
from orchestrator.config import load
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import SweepRecord
from orchestrator.ledger.writer import SweepWriter
from orchestrator.session.session import Session
from orchestrator.storage.paths import Paths, checkpoint_name
from orchestrator.study.study import Study
from tests.orchestrator.ledger.examples import writer

NODE_WAIT = 10.0
OBJECTIVE = "maximize: val/accuracy"
SPACE = """
task: retrieval
model: {layer: rotrnn, depth: 1, d_model: 8, d_state: 8, heads: 2}
training: {steps: 30, interval: 10, batch_size: 4}
search:
  learning_rate: {log_uniform: [1e-4, 1e-2]}
  recurrent_learning_rate: {log_uniform: [1e-5, 1e-2]}
objective: {maximize: val/accuracy}
sampler: {random: {seed: 3}}
scheduler: {none: {}}
budget: {trials: BUDGET}
resources: {cpu: 1}
"""


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class FixedResources:
    """Resources that a test sets.

    Attributes:
        attempts: how many fit.
        reason: why none can start.
    """

    attempts: int = 2
    reason: str = "no node"

    def capacity(self) -> int:
        return self.attempts

    def shortage(self) -> str:
        return self.reason


class Sessions:
    """Opens sessions on one ledger, as one driver after the other would."""

    def __init__(self, folder: Path) -> None:
        self.paths = Paths(folder / "mlruns")
        self.paths.create()
        self.ledger = Ledger.open(self.paths.ledger_url)
        self.folder, self.clock, self.resources = folder, Clock(), FixedResources()

    def sweep(self, trials: int, extra: str = "", objective: str = OBJECTIVE) -> SweepConfig:
        file = self.folder / "space.yaml"
        file.write_text(SPACE.replace("BUDGET", str(trials)).replace(OBJECTIVE, objective) + extra)
        return load(file, profile=None, gpus=0)

    def writer(self, sweep: SweepConfig) -> SweepWriter:
        """Return a writer with the newest token of a sweep, as if its driver had just taken the lease."""
        return writer(self.ledger, sweep.id)

    def open(self, sweep: SweepConfig, capacity: int = 2) -> Session:
        record = SweepRecord(
            sweep.id,
            sweep.name,
            None,
            sweep.task,
            sweep.document(),
            sweep.digest,
            "RUNNING",
            None,
            "",
            "",
            {"direction": sweep.direction},
            0.0,
        )
        self.ledger.create_sweep(record)
        study = Study(sweep, self.ledger.trials(sweep.id, role="search"), self.ledger.reports(sweep.id))
        self.resources.attempts = capacity
        return Session(
            sweep,
            self.writer(sweep),
            study,
            self.paths,
            self.folder,
            resources=self.resources,
            node_wait=NODE_WAIT,
            clock=self.clock,
        )


def outcome(assignment: Assignment, step: int, value: float, **changes: object) -> Outcome:
    """Return a worker's report, whose checkpoint folder exists."""
    folder = Path(assignment.checkpoints) / checkpoint_name(step)
    folder.mkdir(parents=True, exist_ok=True)
    fields = {
        "step": step,
        "done": step >= assignment.settings.training.steps,
        "metrics": {"val/accuracy": value, "val/loss": 1.0},
        "checkpoint": SavedCheckpoint(str(folder), step, "d" * 64, 1),
    }
    return Outcome(**{**fields, **changes})


def launch(session: Session) -> Assignment:
    """Launch an attempt and let a worker take it."""
    assignment = session.next_assignment()
    assert assignment is not None
    session.started(assignment.attempt_id)
    return assignment


def number(assignment: Assignment) -> int:
    """Return the number of the assignment's trial."""
    return int(assignment.trial_key.rpartition("-")[2])


def train(session: Session, assignment: Assignment, value: float = 0.5, until: int = 30) -> None:
    for step in range(10, until + 1, 10):
        session.reported(assignment.attempt_id, outcome(assignment, step, value))
    session.completed(assignment.attempt_id)


def failure(step: int, cause: str) -> Outcome:
    return Outcome(step, done=True, metrics={}, failure=cause, message="it broke")
