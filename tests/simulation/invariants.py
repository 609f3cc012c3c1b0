"""The invariants of every run of a sweep in the end, whatever has happened to its processes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ray.tune.schedulers import TrialScheduler

from orchestrator.assignment import shown_as
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import (
    AttemptRecord,
    CheckpointRecord,
    EvaluationRecord,
    ReportRecord,
    TrialRecord,
    is_confirmation,
)
from orchestrator.ledger.sweeps.selection import best_trial
from orchestrator.schedule import schedulers
from orchestrator.schedule.keyed import NO_CONTROLLER, KeyedTrial
from orchestrator.storage.paths import Paths
from orchestrator.tracking import events
from tests.simulation.population import copies_of, reports_of
from tests.simulation.steps import RequestedDecision
from tests.simulation.sweeps import Variant
from tests.simulation.tracking import Run
from tests.simulation.violation import require
from trainables.checkpoint import MANIFEST


@dataclass(frozen=True)
class Outcome:
    """The result of a sweep.

    Attributes:
        trials: Trials of the sweep.
        reports: Reports of the sweep, by trial and step.
        attempts: Attempts of the sweep.
        evaluations: Evaluations on test.
        steps: Steps that were trained, by trial.
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

    def begun(self) -> list[TrialRecord]:
        """Return the trials without those that were proposed and, because the search ended, never begun."""
        return [trial for trial in self.trials if trial.attempts]

    def decisions(self) -> dict[str, tuple[object, ...]]:
        """Return what was proposed for each trial, and how it ended."""
        return {
            trial.key: (dict(trial.params), trial.seed, trial.state, trial.value, trial.best_step, trial.step)
            for trial in self.begun()
        }


def check_values(sweep: SweepConfig, outcome: Outcome) -> None:
    """Check that every report has the values of an undisturbed training, from the states that it copied."""
    legal = reports_of(sweep, outcome.trials)
    for report in outcome.reports:
        key, step = report.trial_key, report.step
        got = report.metrics[sweep.metric], report.metrics["train/loss"]
        expected = sorted((each.state.accuracy(), each.loss()) for each in legal[key].get(step, ()))
        require(got in expected, "values", f"{key} step {step}: {got}, undisturbed {expected}")


def check_evaluations(sweep: SweepConfig, outcome: Outcome) -> None:
    """Check that test was evaluated for the best trial and each confirmation, with an undisturbed result."""
    best = best_trial(
        [trial for trial in outcome.trials if trial.role == "search"], maximize=sweep.direction == "maximize"
    )
    # A confirmation that a person has stopped confirms nothing.
    confirming = [
        trial for trial in outcome.trials if trial.role == "confirmation" and not _is_stopped(trial)
    ]
    chosen = [*confirming, *([best] if best else [])]
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
    for trial in outcome.begun():
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


def _is_stopped(trial: TrialRecord) -> bool:
    """Return True if a person has stopped a trial."""
    return trial.state == "PRUNED" and trial.decided_by("stop") is not None


def check_trial_requests(outcome: Outcome, requested: Mapping[str, RequestedDecision]) -> None:
    """Check that decisions of people about trials were obeyed, and that nobody else has decided.

    A trial may reach its last step before its driver learns of a request to stop it.
    """
    for trial in outcome.trials:
        for decision in ("stop", "exempt"):
            asked = requested.get(trial.key)
            is_asked = asked is not None and asked.decision == decision
            require(trial.decided_by(decision) is None or is_asked, "requests", f"nobody asked: {trial}")
        if trial.decided_by("stop"):
            ended = trial.state == "COMPLETE" or str(trial.cause).startswith("stopped at step")
            require(ended, "requests", f"{trial.key} is {trial.state} ({trial.cause}), a person stopped it")
        if trial.decided_by("exempt"):
            require(trial.state == "COMPLETE", "requests", f"{trial.key} is {trial.state}, it was exempt")


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
    for trial in outcome.begun():
        if trial.value is not None:  # else a person has stopped it before its first report
            expected[trial.key].append((events.OBJECTIVE, trial.value, trial.step))
    unbegun = {trial.key for trial in outcome.trials if not (trial.attempts or _is_stopped(trial))}
    for key, points in expected.items():
        runs_of_key = of_trial.pop(key, [])
        require(len(runs_of_key) == 1, "MLflow", f"{key} has {len(runs_of_key)} runs")
        (run,) = runs_of_key
        got = sorted((name, value, step) for (name, step), (value, _) in run.points.items())
        require(
            got == sorted(points), "MLflow", f"{key} has the points {got}, reported were {sorted(points)}"
        )
        status = "FINISHED" if key not in unbegun else "KILLED"
        require(run.status == status, "MLflow", f"{key} is {run.status} in MLflow")
    require(not of_trial, "MLflow", f"runs of nothing: {sorted(of_trial)}")


def check_ending(sweep: SweepConfig, variant: Variant, outcome: Outcome, reason: str | None) -> None:
    """Check that the search has ended for the reason that its trials give, in the order of their ends.

    Paused trials may go on after that; those that had not begun are left as they were proposed.
    """
    budget = sweep.budget
    ended = [trial for trial in outcome.begun() if trial.role == "search"]
    ended.sort(key=lambda trial: (trial.finished_at or 0.0, trial.number))
    decided = _end_of_search(sweep, ended)
    require(reason == decided, "ending", f"the sweep says {reason!r}, its trials {decided!r}")
    unbegun = [trial for trial in outcome.trials if not (trial.attempts or _is_stopped(trial))]
    require(not unbegun or decided is not None, "ending", f"never begun: {[t.key for t in unbegun]}")
    if decided is None:
        wanted, got = budget.trials, sum(trial.role == "search" for trial in outcome.trials)
        require(got == wanted, "ending", f"{got} of {wanted} trials without a reason")
    elif variant.concurrent == 1 and not variant.is_promotion:
        earlier = _end_of_search(sweep, ended[:-1])
        require(earlier is None, "ending", f"a trial has begun after the end of the search: {earlier}")


def _end_of_search(sweep: SweepConfig, ended: Sequence[TrialRecord]) -> str | None:
    """Return the reason for which a search ends after trials that have ended in this order, or None.

    It repeats the rules of docs/search-space.md, so that a defect of `session.limits.SearchEnd` is noticed.
    """
    target, patience = sweep.budget.target, sweep.budget.no_improvement
    sign = 1 if sweep.direction == "maximize" else -1
    values = [float(trial.value) for trial in ended if trial.value is not None]
    for count in range(1, len(values) + 1):
        signed = [sign * value for value in values[:count]]
        if target is not None and signed[-1] >= sign * target:
            return f"a trial has reached the target {target:g} with {values[count - 1]:g}"
        since = count - 1 - signed.index(max(signed))
        if patience is not None and since >= patience.trials:
            return f"{since} trials have not improved on {sign * max(signed):g}"
    return None


def check_copies(sweep: SweepConfig, outcome: Outcome) -> None:
    """Check that each trial of a population has copied only trials that were better when it was compared."""
    allowed = copies_of(sweep, outcome.reports)
    for trial in outcome.trials:
        donors = {segment["donor"] for segment in trial.system_attrs.get("segments", ())}
        wrong = donors - allowed.get(trial.key, set())
        require(not wrong, "decisions", f"{trial.key} has copied {wrong}, it may copy {allowed}")


def check_promotions(sweep: SweepConfig, outcome: Outcome) -> None:
    """Check that a trial which a fresh rule pauses goes on only once it may, and else ends at its rung.

    The leader goes on although it is not among the best if no other trial can complete.
    """
    scheduler, searched = schedulers.build(sweep, ()), [t for t in outcome.trials if t.role == "search"]
    rungs, allowed, is_complete = scheduler.rungs, set[str](), False
    for report in sorted(outcome.reports, key=lambda report: report.at):
        key, step = report.trial_key, report.step
        if is_confirmation(key):
            continue
        if key in rungs.paused:
            may = key in allowed or (key == rungs.leader and not is_complete)
            require(may, "decisions", f"{key} has gone on to step {step}, the rule has paused it")
        shown = {shown_as(name): value for name, value in report.metrics.items()}
        result = {"step": step, "queued": False, "training": False, **shown}
        scheduler.on_trial_result(NO_CONTROLLER, KeyedTrial(f"{key}.1"), result)  # type: ignore[arg-type]
        is_complete |= step >= sweep.training.steps
        allowed = (allowed - {key}) | set(rungs.promotable)
    require(is_complete, "decisions", "no trial of the search is complete")
    pruned = {trial.key for trial in searched if trial.state == "PRUNED"}
    require(pruned == rungs.paused.keys(), "decisions", f"pruned {pruned}, paused {rungs.paused}")
    require(not rungs.promotable, "decisions", f"never promoted: {rungs.promotable}")


def check_decisions(sweep: SweepConfig, variant: Variant, outcome: Outcome, undisturbed: Outcome) -> None:
    """Check that proposals and stopping decisions are those of an undisturbed run.

    With several attempts at once they depend on the order of the reports; then each stopping decision is
    compared with that of a fresh rule that sees the reports in the order of the ledger.
    """
    if variant.is_population:
        check_copies(sweep, outcome)
        return
    if variant.is_promotion:
        check_promotions(sweep, outcome)
        if not variant.ordered:
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
    exempt = {trial.key for trial in outcome.trials if trial.decided_by("exempt")}
    rule = schedulers.build(sweep, (), exempt=exempt)
    stopped: dict[str, int] = {}
    for report in sorted(outcome.reports, key=lambda report: report.at):
        key, step = report.trial_key, report.step
        if is_confirmation(key) or step >= sweep.training.steps:
            continue
        shown = {shown_as(name): value for name, value in report.metrics.items()}
        result = {"step": step, "queued": False, "training": False, **shown}
        trial = KeyedTrial(f"{key}.1")
        decision = rule.on_trial_result(NO_CONTROLLER, trial, result)  # type: ignore[arg-type]
        if decision == TrialScheduler.STOP:
            stopped.setdefault(key, step)
    for trial in outcome.trials:
        if _is_stopped(trial):
            continue
        pruned_at = trial.step if trial.state == "PRUNED" else None
        require(
            stopped.get(trial.key) == pruned_at,
            "decisions",
            f"{trial.key} was pruned at {pruned_at}, the rule says {stopped.get(trial.key)}",
        )
