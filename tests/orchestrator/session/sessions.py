"""Sessions on a real ledger and a real study; tests report outcomes as a worker would."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.assignment import Assignment, Outcome, SavedCheckpoint
from orchestrator.config import load
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import SweepRecord, attempt_number
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.session.outages import Probe
from orchestrator.session.session import Session
from orchestrator.storage.paths import Paths, checkpoint_stem
from orchestrator.study.study import Study
from tests.orchestrator.ledger.examples import writer
from trainables import checkpoint

NODE_WAIT, BUSY_WAIT = 10.0, 1000.0
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
        attempts: Number of attempts that fit.
        reason: Why no attempt can start.
        has_placed: Whether an attempt has its resources.
    """

    attempts: int = 2
    reason: str = "no node"
    has_placed: bool = False

    def capacity(self) -> int:
        return self.attempts

    def shortage(self) -> str:
        return self.reason

    def placed(self) -> bool:
        return self.has_placed


@dataclass
class FixedShare:
    """A share that a test sets.

    Attributes:
        attempts: Number of attempts that may run at once.
        leaving: Ids of the attempts to shed.
        overdue: Overdue of these, the ones to cut; by id, the time since when.
        waiting: Why nothing may run.
    """

    attempts: int
    leaving: Collection[str] = frozenset()
    overdue: Mapping[str, float] = field(default_factory=dict)
    waiting: str | None = None

    def may_start(self, session: Session) -> bool:
        return len(session.running) < self.attempts


class Sessions:
    """Opens sessions on one ledger, as successive drivers do."""

    def __init__(self, folder: Path, database: str | None = None) -> None:
        self.paths = Paths(folder / "mlruns", database=database)
        self.paths.create()
        self.ledger = Ledger.open(self.paths.ledger_url)
        self.folder, self.clock, self.resources = folder, Clock(), FixedResources()
        self.share: FixedShare | None = None
        self.probes: Mapping[str, Probe] | None = None

    def sweep(self, trials: int, extra: str = "", objective: str = OBJECTIVE) -> SweepConfig:
        return self.of(SPACE.replace("BUDGET", str(trials)).replace(OBJECTIVE, objective) + extra)

    def of(self, text: str) -> SweepConfig:
        """Return the sweep of a file with this content."""
        file = self.folder / "space.yaml"
        file.write_text(text)
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
            {"direction": sweep.direction, "metric": sweep.metric},
            0.0,
        )
        writer = self.writer(sweep)
        writer.create_sweep(record)
        earlier = [trial for name in sweep.warm_start for trial in self.ledger.trials(name, role="search")]
        reports = [row for name in (sweep.id, *sweep.warm_start) for row in self.ledger.reports(name)]
        study = Study(sweep, self.ledger.trials(sweep.id, role="search"), reports, earlier)
        self.resources.attempts = capacity
        return Session(
            sweep,
            writer,
            study,
            self.paths,
            self.folder,
            resources=self.resources,
            share=self.share,
            node_wait=NODE_WAIT,
            busy_wait=BUSY_WAIT,
            clock=self.clock,
            probes=self.probes,
        )


def outcome(assignment: Assignment, step: int, value: float, **changes: Any) -> Outcome:
    """Return a worker's report, whose checkpoint exists."""
    stem = Path(assignment.checkpoints) / checkpoint_stem(step, attempt_number(assignment.attempt_id))
    saved = checkpoint.save(
        stem, {"weights": np.full(2, value)}, {"trial": assignment.trial_key, "step": step}
    )
    fields: dict[str, Any] = {
        "attempt_id": assignment.attempt_id,
        "step": step,
        "done": step >= assignment.settings.training.steps,
        "metrics": {"val/accuracy": value, "val/loss": 1.0},
        "checkpoint": SavedCheckpoint(str(saved.folder), step, saved.digest, saved.bytes),
    }
    return Outcome(**{**fields, **changes})


def step_of(path: str | Path) -> int:
    """Return the step that the name of a checkpoint's folder holds."""
    return int(Path(path).name.split("-")[1])


def step_resumed(assignment: Assignment) -> int:
    """Return the step of the checkpoint that an attempt resumes."""
    assert assignment.resume is not None
    assert step_of(assignment.resume.path) == assignment.resume.step
    return assignment.resume.step


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


def failure(assignment: Assignment, step: int, cause: str) -> Outcome:
    return Outcome(assignment.attempt_id, step, done=True, metrics={}, failure=cause, message="it broke")


def sign(assignment: Assignment, **what: Any) -> Outcome:
    """Return a sign of life, which is not a report."""
    return Outcome(assignment.attempt_id, 0, done=False, metrics={}, **what)
