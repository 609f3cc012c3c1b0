"""A driver's view of one sweep: its trials, their attempts and the accepted reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

from orchestrator.assignment import Assignment, Outcome
from orchestrator.ledger.sweeps.records import attempt_id_of, trial_key
from orchestrator.session import session
from orchestrator.session.limits import FOREIGN, UNCHARGED
from tests.simulation.lending.plan import Sweep, Trial
from tests.simulation.lending.rules import Rules
from trainables.trial import Clock, ScriptSettings

OBJECTIVE = "execution"
"""Metric of every report: a number of the process that has computed it."""

RETRY_SECONDS = 0.5
"""Wait before the next attempt of a trial."""


@dataclass
class Row:
    """A trial.

    Attributes:
        plan: Plan of the trial.
        step: Step of its last report.
        attempts: Number of attempts so far.
        is_running: Whether an attempt runs.
        is_over: Whether it is complete or stopped.
        due_at: Time when its next attempt may be launched.
    """

    plan: Trial
    step: int = 0
    attempts: int = 0
    is_running: bool = False
    is_over: bool = False
    due_at: float = 0.0

    @property
    def last(self) -> int:
        """Return the step after which it is over."""
        return self.plan.stopped_after or self.plan.reports


class SimulatedSession:
    """The session of one sweep, which outlives the processes of its driver, as the rows of a ledger do.

    The decision whether a report is the attempt's own is that of the real one.

    Args:
        plan: Plan of the sweep.
        rules: What must hold.
        clock: Clock in seconds.
        gpu: GPU share that each trial has.
    """

    stopped = None
    refused = session.Session.refused

    def __init__(self, plan: Sweep, rules: Rules, clock: Callable[[], float], gpu: float) -> None:
        self.plan, self._rules, self._clock, self._gpu = plan, rules, clock, gpu
        self.sweep = SimpleNamespace(id=plan.id, metric=OBJECTIVE, evaluates_test=False)
        self.rows = {trial_key(plan.id, number): Row(trial) for number, trial in enumerate(plan.trials)}
        self.running: dict[str, Any] = {}
        self._wrong: set[str] = set()

    @property
    def is_over(self) -> bool:
        """Return True if every trial is over."""
        return all(row.is_over for row in self.rows.values())

    def begin(self) -> None:
        """Give up the attempts of a driver that has ended."""
        for name in list(self.running):
            self._end(name)

    def waiting(self) -> int:
        """Return how many trials wait for an attempt."""
        return sum(not (row.is_running or row.is_over) for row in self.rows.values())

    def next_assignment(self) -> dict[str, Any] | None:
        """Launch an attempt; return the configuration that carries its assignment, or None if none is due."""
        for key, row in self.rows.items():
            if row.is_running or row.is_over or row.due_at > self._clock():
                continue
            row.attempts += 1
            row.is_running = True
            name = attempt_id_of(key, row.attempts)
            self.running[name] = row
            resume = {"path": "", "step": row.step, "digest": "", "size": 0} if row.step else None
            fields = {**_fields(), "attempt_id": name, "trial_key": key, "resume": resume, "gpu": self._gpu}
            fields["settings"] = {**fields["settings"], "params": {"reports": row.plan.reports}}
            return {"assignment": fields}
        return None

    # ---------------------------------------------------------------- called by the real adapters

    def refuse(self, attempt: str, why: str) -> str:
        self._rules.note(f"refuses a report: {why}")
        self._wrong.add(attempt)
        return FOREIGN

    def started(self, attempt: str) -> None:
        """Note nothing."""

    def reported(self, attempt: str, outcome: Outcome) -> None:
        if (row := self.running.get(attempt)) is None or attempt in self._wrong:
            return
        self._rules.check_report(attempt, outcome, row.step)
        row.step = outcome.step

    def completed(self, attempt: str) -> None:
        if (row := self.running.get(attempt)) is None:
            return
        row.is_over = row.step >= row.last
        self._end(attempt)

    def failed(self, attempt: str, cause: str, message: str | None = None) -> None:
        if attempt in self.running:
            cause = FOREIGN if attempt in self._wrong else cause
            self._rules.check_failure(attempt, cause, message or "", is_charged=cause not in UNCHARGED)
            self._end(attempt)

    def _end(self, attempt: str) -> None:
        row = self.running.pop(attempt)
        row.is_running, row.due_at = False, self._clock() + RETRY_SECONDS


class SimulatedEngines:
    """No engines: a trial has a process of its own."""

    workers = SimpleNamespace(give_up=lambda attempt: False)

    def ensure(self, attempt: str) -> bool:
        return False

    def engine_of(self, attempt: str) -> None:
        return None

    def cause_of(self, attempt: str, failure: str | None) -> str | None:
        return failure

    def tested(self, attempt: str, *, alone: bool) -> None:
        """Note nothing."""

    def release(self, attempt: str) -> None:
        """Release nothing."""


@cache
def _fields() -> dict[str, Any]:
    """Return the fields of an assignment; those of an attempt replace some of them."""
    settings = ScriptSettings("train.py:train", None, False, ".", {}, Clock(3, 1), 0)
    common = {"cpu": 1.0, "gpu": 0.0, "data": "", "checkpoints": "", "log": "", "compilations": ""}
    return asdict(Assignment("s-0.1", "s-0", "ledger", settings, resume=None, **common))  # type: ignore[arg-type]
