"""The invariants of every run of a sweep, whatever happens to its processes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ray.tune.schedulers import TrialScheduler

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.keys import is_confirmation
from orchestrator.ledger.lease_backends import LIFE_SECONDS
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import (
    AttemptRecord,
    CheckpointRecord,
    EvaluationRecord,
    ReportRecord,
    TrialRecord,
)
from orchestrator.ledger.selection import best_trial
from orchestrator.schedule import schedulers
from orchestrator.schedule.keyed import NO_CONTROLLER, KeyedTrial
from orchestrator.session.limits import ALLOWED_RETRIES
from orchestrator.storage.paths import Paths
from orchestrator.tracking import events
from tests.simulation.cluster import Cluster
from tests.simulation.database import Database
from tests.simulation.kernel import Kernel, Process
from tests.simulation.population import copies_of, states_of
from tests.simulation.sweeps import Variant
from tests.simulation.system import EPOCH
from tests.simulation.tracking import Run
from trainables.checkpoint import MANIFEST

BUDGET_SLACK_SECONDS = 6.0
"""Longest time after which a driver learns of the end of an attempt."""


class Violation(Exception):
    """Raised when an invariant does not hold.

    Attributes:
        invariant: its name.
    """

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


def require(holds: bool, invariant: str, text: str) -> None:
    """Raise Violation unless something holds."""
    if not holds:
        raise Violation(invariant, text)


_FINISHED = (
    "SELECT key, state, value, best_step, step, attempts, params FROM trial WHERE finished_at IS NOT NULL"
)


class Finished:
    """Compares what is finished after each commit: it is neither lost nor changed nor run again.

    A loss of power, or `recover`, may lose what was not flushed: nothing has acted on that.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, tuple[object, ...]] = {}
        self._flushed: dict[str, tuple[object, ...]] = {}

    def flush(self) -> None:
        """Note that every commit so far is durable."""
        self._flushed = self._known

    def lose(self) -> None:
        """Compare what is left after rows may have been lost with what was flushed."""
        rows = self._rows()
        lost = sorted(key for key, row in self._flushed.items() if rows.get(key) != row)
        require(not lost, "finished", f"{lost} were flushed and are lost")
        self._known = rows

    def _rows(self) -> dict[str, tuple[object, ...]]:
        return {str(key): tuple(rest) for key, *rest in self._database.rows(_FINISHED)}

    def check(self, process: Process, written: list[str]) -> None:
        """Compare the finished trials with those of the commit before."""
        if not any(label.endswith(" trial") for label in written):
            return
        rows = self._rows()
        for key, row in self._known.items():
            require(
                rows.get(key) == row, "finished", f"{key} was {row}, {process.name} makes it {rows.get(key)}"
            )
        self._known = rows


class Holders:
    """Checks that only the process that took the lease last changes the rows of the sweep."""

    def __init__(self, kernel: Kernel, database: Database) -> None:
        self._kernel, self._database = kernel, database
        self._number, self._holder = 0, ""
        self._renewed_at = float("-inf")
        self._process: Process | None = None

    def lose(self) -> None:
        """Forget the newest token: its row may be lost."""
        self._number, self._process = -1, None

    def check(self, process: Process, written: list[str]) -> None:
        """Note who takes the lease, and compare who changes rows."""
        if process.name == "person":  # who asks for a stop needs no lease
            return
        if any(label.endswith(" lease") for label in written):
            ((number, expires_at),) = self._database.rows("SELECT number, expires_at FROM lease")
            if number != self._number:
                self._number, before = number, self._holder
                silent = self._kernel.now - self._renewed_at
                lives = self._process is not None and self._process.alive
                require(
                    not lives or silent >= LIFE_SECONDS,
                    "lease",
                    f"{process.name} takes it from {before}, which lives and renewed it {silent:.0f} s ago",
                )
                self._holder, self._process = process.name, process
                self._kernel.trace(f"takes the lease from {before}" if before else "takes the lease")
            self._renewed_at = self._kernel.now
            if expires_at <= EPOCH + self._kernel.now:  # it is given back, or the kernel guards it
                self._process = None
            return
        require(
            process.name == self._holder,
            "token",
            f"{process.name} changes rows ({', '.join(written)}) although {self._holder} holds the lease",
        )


class StopRequests:
    """Checks that no driver that starts after a stop request launches anything, until a person resumes."""

    def __init__(self, kernel: Kernel, database: Database) -> None:
        self._kernel, self._database = kernel, database
        self._asked_at: float | None = None

    def lose(self) -> None:
        """Forget a request whose row is lost."""
        if not self._database.count("stop_request"):
            self._asked_at = None

    def check(self, process: Process, written: list[str]) -> None:
        """Note stop requests and their end, and compare who launches attempts."""
        if "insert stop_request" in written:
            self._asked_at = self._kernel.now
        elif "delete stop_request" in written:
            self._asked_at = None
        elif "insert attempt" in written:
            asked_at = self._asked_at
            obeys = asked_at is None or process.began <= asked_at
            require(obeys, "stop", f"{process.name} launches an attempt, asked to stop at {asked_at} s")


@dataclass(frozen=True)
class Outcome:
    """The result of a sweep.

    Attributes:
        trials: of the sweep.
        reports: of the sweep, by trial and step.
        attempts: of the sweep.
        evaluations: on test.
        steps: that were trained, by trial.
    """

    trials: list[TrialRecord]
    reports: list[ReportRecord]
    attempts: list[AttemptRecord]
    evaluations: list[EvaluationRecord]
    steps: dict[str, int]

    @staticmethod
    def of(ledger: Ledger, sweep_id: str, steps: dict[str, int]) -> Outcome:
        """Read the result of a sweep."""
        return Outcome(
            ledger.trials(sweep_id),
            ledger.reports(sweep_id),
            ledger.attempts(sweep_id),
            ledger.evaluations(sweep_id),
            steps,
        )

    def decisions(self) -> dict[str, tuple[object, ...]]:
        """Return what was proposed for each trial, and how it ended."""
        return {
            trial.key: (dict(trial.params), trial.seed, trial.state, trial.value, trial.best_step, trial.step)
            for trial in self.trials
        }


def check_values(sweep: SweepConfig, outcome: Outcome) -> None:
    """Check that every report has the value of an undisturbed training, from the states that it copied."""
    legal = states_of(sweep, outcome.trials)
    for report in outcome.reports:
        key, step, got = report.trial_key, report.step, report.metrics[sweep.metric]
        expected = sorted(state.accuracy() for state in legal[key].get(step, ()))
        require(got in expected, "values", f"{key} step {step}: {got}, undisturbed {expected}")


def check_evaluations(sweep: SweepConfig, outcome: Outcome) -> None:
    """Check that test was evaluated for the best trial and each confirmation, with an undisturbed result."""
    best = best_trial(
        [trial for trial in outcome.trials if trial.role == "search"], maximize=sweep.direction == "maximize"
    )
    chosen = [trial for trial in outcome.trials if trial.role == "confirmation" or trial == best]
    got = {
        evaluation.trial_key: (evaluation.step, evaluation.metrics["test/accuracy"])
        for evaluation in outcome.evaluations
    }
    # The simulated engine has one accuracy for both splits.
    expected = {trial.key: (trial.best_step, trial.value) for trial in chosen}
    require(got == expected, "evaluations", f"of test: {got}, undisturbed {expected}")


def check_completeness(sweep: SweepConfig, outcome: Outcome) -> None:
    """Check that each trial has ended, with a report at each interval up to its last step."""
    steps: dict[str, list[int]] = {trial.key: [] for trial in outcome.trials}
    for report in outcome.reports:
        steps[report.trial_key].append(report.step)
    for trial in outcome.trials:
        require(trial.state in ("COMPLETE", "PRUNED"), "ends", f"{trial.key} is {trial.state}: {trial.cause}")
        wanted = list(range(sweep.training.interval, trial.step + 1, sweep.training.interval))
        reported = steps[trial.key]
        whole = reported == wanted
        if "segments" in trial.system_attrs:  # it has skipped what a donor was ahead
            whole = set(reported) <= set(wanted) and reported[-1:] == wanted[-1:]
        require(whole, "reports", f"{trial.key} has reports at {reported}")
        require(
            trial.state == "PRUNED" or trial.step == trial.total_steps,
            "ends",
            f"{trial.key} is COMPLETE at step {trial.step}",
        )


def check_work(sweep: SweepConfig, outcome: Outcome, faults: int) -> None:
    """Check that at most one interval was repeated for each fault."""
    for trial in outcome.trials:
        most = trial.step + faults * sweep.training.interval
        trained = outcome.steps.get(trial.key, 0)
        require(
            trained <= most,
            "work",
            f"{trial.key} trained {trained} steps, {most} at most with {faults} faults",
        )


def check_checkpoints(ledger: Ledger, sweep_id: str, paths: Paths, objects: Mapping[str, bytes]) -> None:
    """Check that the checkpoints of the ledger exist, each as it was recorded, and that none other does."""
    rows = ledger.checkpoints(sweep_id)
    if paths.store is None:
        stored = {str(folder) for folder in paths.checkpoints(sweep_id).glob("*/*")}
        contents = {row.path: (Path(row.path) / MANIFEST).read_bytes() for row in rows if row.path in stored}
    else:
        names = {row.path: _object_name(ledger, sweep_id, paths, row) for row in rows}
        stored = {name.rpartition("/")[0] for name in objects}
        contents = {row.path: objects.get(f"{names[row.path]}/{MANIFEST}", b"") for row in rows}
        require(not stored - set(names.values()), "garbage", f"left: {sorted(stored - set(names.values()))}")
        stored = {row.path for row in rows if names[row.path] in stored}
    wanted = {row.path for row in rows}
    require(
        not wanted - stored,
        "checkpoints",
        f"the ledger refers to {sorted(wanted - stored)}, which do not exist",
    )
    require(not stored - wanted, "garbage", f"left: {sorted(stored - wanted)}")
    for row in rows:
        digest = hashlib.sha256(contents[row.path]).hexdigest()
        require(digest == row.digest, "checkpoints", f"{row.path} has other content than was recorded")


def _object_name(ledger: Ledger, sweep_id: str, paths: Paths, row: CheckpointRecord) -> str:
    url = str(paths.stored(ledger.id, sweep_id, row.trial_key))
    return f"{url.removeprefix('simulated://')}/{Path(row.path).name}"


def check_mlflow(sweep: SweepConfig, outcome: Outcome, runs: Sequence[Run]) -> None:
    """Check that MLflow has one run for each trial, each point of its curves once, and its last status."""
    of_trial: dict[str, list[Run]] = {}
    for run in runs:
        if not run.deleted:
            of_trial.setdefault(run.tags.get("trial.key", sweep.id), []).append(run)
    expected: dict[str, list[tuple[str, float, int]]] = {sweep.id: []}
    expected |= {trial.key: [] for trial in outcome.trials}
    for report in outcome.reports:
        curves = events.curves(report.metrics)
        expected[report.trial_key] += [(name, value, report.step) for name, value in curves.items()]
    for evaluation in outcome.evaluations:
        curves = events.curves(evaluation.metrics)
        expected[evaluation.trial_key] += [(name, value, evaluation.step) for name, value in curves.items()]
    for trial in outcome.trials:
        expected[trial.key].append((events.OBJECTIVE, trial.value, trial.step))
    for key, points in expected.items():
        runs_of_key = of_trial.pop(key, [])
        require(len(runs_of_key) == 1, "MLflow", f"{key} has {len(runs_of_key)} runs")
        (run,) = runs_of_key
        got = sorted((name, value, step) for name, value, _, step in run.points)
        require(
            got == sorted(points), "MLflow", f"{key} has the points {got}, reported were {sorted(points)}"
        )
        require(run.status == "FINISHED", "MLflow", f"{key} is {run.status} in MLflow")
    require(not of_trial, "MLflow", f"runs of nothing: {sorted(of_trial)}")


def check_charges(outcome: Outcome, killed: Iterable[str]) -> None:
    """Check that the attempts that are charged to their trials are those whose workers were killed."""
    charged = {attempt.id for attempt in outcome.attempts if attempt.cause in ALLOWED_RETRIES}
    innocent = sorted(charged - set(killed))
    require(not innocent, "charges", f"charged although nothing was wrong with them: {innocent}")


def check_budget(outcome: Outcome, cluster: Cluster) -> None:
    """Check that the time that an attempt is charged is at most the time for which it held resources."""
    for attempt in outcome.attempts:
        taken, ended = attempt.taken_at, attempt.ended_at
        charged = 0.0 if taken is None or ended is None else ended - taken
        began = cluster.taken_at.get(attempt.id)
        held = 0.0 if began is None else cluster.ended_at[attempt.id] - began
        most = held + BUDGET_SLACK_SECONDS
        require(charged <= most, "budget", f"{attempt.id} is charged {charged:.1f} s, it held {held:.1f} s")


def check_copies(sweep: SweepConfig, outcome: Outcome) -> None:
    """Check that each trial of a population has copied only trials that were better when it was compared."""
    allowed = copies_of(sweep, outcome.reports)
    for trial in outcome.trials:
        donors = {segment["donor"] for segment in trial.system_attrs.get("segments", ())}
        wrong = donors - allowed.get(trial.key, set())
        require(not wrong, "decisions", f"{trial.key} has copied {wrong}, it may copy {allowed}")


def check_decisions(sweep: SweepConfig, variant: Variant, outcome: Outcome, undisturbed: Outcome) -> None:
    """Check that proposals and stopping decisions are those of an undisturbed run.

    With several attempts at once they depend on the order of the reports; then each stopping decision is
    compared with that of a fresh rule that sees the reports in the order of the ledger.
    """
    if variant.is_population:
        check_copies(sweep, outcome)
        return
    if variant.ordered:
        got, expected = outcome.decisions(), undisturbed.decisions()
        for key in sorted(expected | got):
            require(
                got.get(key) == expected.get(key),
                "decisions",
                f"{key} is {got.get(key)}, undisturbed {expected.get(key)}",
            )
        return
    rule = schedulers.build(sweep, ())
    stopped: dict[str, int] = {}
    for report in sorted(outcome.reports, key=lambda report: report.at):
        key, step = report.trial_key, report.step
        if is_confirmation(key) or step >= sweep.training.steps:
            continue
        result = {"step": step, "queued": False, **report.metrics}
        trial = KeyedTrial(f"{key}.1")
        decision = rule.on_trial_result(NO_CONTROLLER, trial, result)  # type: ignore[arg-type]
        if decision == TrialScheduler.STOP:
            stopped.setdefault(key, step)
    for trial in outcome.trials:
        pruned_at = trial.step if trial.state == "PRUNED" else None
        require(
            stopped.get(trial.key) == pruned_at,
            "decisions",
            f"{trial.key} was pruned at {pruned_at}, the rule says {stopped.get(trial.key)}",
        )
