"""From the rows of the ledger to the results of an arm."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from orchestrator.experiment.file import Arm, Experiment
from orchestrator.experiment.reductions import REDUCTIONS, Curves
from orchestrator.experiment.results import ArmResult, Seed
from orchestrator.ledger.records import AttemptRecord, TrialRecord
from orchestrator.ledger.selection import best_trial
from orchestrator.report.figures.style import thinned
from orchestrator.report.history import History

MOST_POINTS = 60
"""Points of a curve that is kept with the results."""


def collected(experiment: Experiment, arm: Arm, history: History) -> ArmResult:
    """Return the results of an arm in the present state of its sweep."""
    sweep, document = history.sweep, history.sweep.document
    attempts = [attempt for trial in history.trials for attempt in history.attempts.get(trial.key, ())]
    cpus = float(document["resources"]["cpu"])
    spans = [_span(attempt, history) for attempt in attempts]
    return ArmResult(
        name=arm.name,
        about=f"{document['model']['layer']} on {sweep.task}",
        sweep=sweep.id,
        state=sweep.state,
        seeds=tuple(seeds_of(experiment, history)),
        published=arm.published,
        obstacle=obstacle(experiment, arm, history),
        cell=arm.cell,
        data=sweep.data_source,
        data_digest=sweep.data_digest,
        digest=sweep.digest,
        trials=len(history.trials),
        wall_seconds=covered(spans),
        core_seconds=cpus * sum(end - start for start, end in spans),
    )


def obstacle(experiment: Experiment, arm: Arm, history: History | None) -> str:
    """Return why figures of an arm do not compare with published ones; '' if they do.

    Args:
        experiment: of the arm.
        arm: one of its arms.
        history: of its sweep, or None if the arm has none.
    """
    if arm.departure:
        return arm.departure
    if not experiment.is_published_size:
        return f"the profile {experiment.profile} is smaller than the published setting"
    if history is not None and not history.sweep.facts.get("comparable", False):
        return str(history.sweep.facts.get("note") or "the data are not the published ones")
    return ""


def seeds_of(experiment: Experiment, history: History) -> list[Seed]:
    """Return the seeds of a sweep that have a value: of its chosen trial, and of the confirmations."""
    chosen = best_trial(
        history.trials,
        maximize=history.maximize,
        violations=history.violations(),
        checkpoints=history.checkpoints,
    )
    if chosen is None:
        return []
    confirmations = [trial for trial in history.trials if trial.role != "search"]
    trials = [chosen, *(trial for trial in confirmations if trial.state == "COMPLETE")]
    if experiment.metric.startswith("test/"):
        return _tested(history, trials, experiment.metric)
    return _trained(experiment, history, trials)


def _tested(history: History, trials: Iterable[TrialRecord], metric: str) -> list[Seed]:
    curve_metric = f"val/{metric.removeprefix('test/')}"
    seeds = []
    for trial in trials:
        rows = [row for row in history.evaluations.get(trial.key, ()) if row.split == "test"]
        if rows and metric in rows[-1].metrics:
            steps, curve = _drawn(_curves(history, trial, curve_metric))
            seeds.append(Seed(trial.seed, trial.key, rows[-1].metrics[metric], steps, curve))
    return seeds


def _trained(experiment: Experiment, history: History, trials: Iterable[TrialRecord]) -> list[Seed]:
    pairs = [(trial, _curves(history, trial, experiment.metric)) for trial in trials]
    known = [(trial, curves) for trial, curves in pairs if curves is not None]
    if not known:
        return []
    values = REDUCTIONS[experiment.reduction]([curves for _, curves in known])
    return [
        Seed(trial.seed, trial.key, value, *_drawn(curves))
        for (trial, curves), value in zip(known, values, strict=True)
    ]


def _curves(history: History, trial: TrialRecord, metric: str) -> Curves | None:
    """Return the curves of a trial that match a metric, or None if the trial does not report it."""
    pattern = re.compile(re.escape(metric).replace(r"\*", ".+"))
    rows = history.reports.get(trial.key, ())
    names = sorted({name for row in rows for name in row.metrics if pattern.fullmatch(name)})
    rows = [row for row in rows if all(name in row.metrics for name in names)]
    if not names or not rows:
        return None
    steps = np.array([row.step for row in rows])
    values = np.array([[row.metrics[name] for row in rows] for name in names])
    return Curves(steps, values, int(np.argmin(np.abs(steps - (trial.best_step or steps[-1])))))


def _drawn(curves: Curves | None) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return steps and values for a figure: thinned, the mean over the layers, six digits."""
    if curves is None:
        return (), ()
    points = list(zip(curves.steps.tolist(), curves.values.mean(axis=0).tolist(), strict=True))
    points = thinned(points, MOST_POINTS)
    return tuple(step for step, _ in points), tuple(float(f"{value:.6g}") for _, value in points)


def _span(attempt: AttemptRecord, history: History) -> tuple[float, float]:
    """Return when an attempt began and ended; one that has not ended lasts until its last report."""
    reports = history.reports.get(attempt.trial_key, ())
    own = [row.at for row in reports if row.attempt_id == attempt.id]
    start = attempt.held_from or attempt.started_at
    return start, max([start, *own, *([attempt.ended_at] if attempt.ended_at else [])])


def covered(spans: Sequence[tuple[float, float]]) -> float:
    """Return the seconds during which at least one span lasted."""
    total, until = 0.0, -float("inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total
