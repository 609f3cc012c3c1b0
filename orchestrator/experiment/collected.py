"""The results of an arm, collected from the rows of its sweep.

A metric that ends with `*`, such as `hidden_norm/head/layer_*`, stands for one curve per layer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.assignment import NORM
from orchestrator.errors import counted
from orchestrator.experiment.departures import from_paper
from orchestrator.experiment.experiment_results import ArmResult, NormCurve, Origin, Seed
from orchestrator.experiment.file import Arm, Experiment
from orchestrator.ledger.sweeps.records import HARDWARE, AttemptRecord
from orchestrator.report.figures.curves import layers, norm_points
from orchestrator.report.figures.style import thinned
from orchestrator.report.history import History, seed_results
from orchestrator.report.summary import cost_of, test_metric
from orchestrator.report.words import size
from trainables.cost import Cost
from trainables.tasks import TASKS

MOST_POINTS = 60
"""Largest number of points of a curve in the results."""

MOST_NORMS = 24
"""Largest number of curves of norms in the results of an arm, if one seed does not have more."""


@dataclass(frozen=True)
class SeedCurves:
    """The curves of one seed.

    Attributes:
        steps: Steps of the reports, shape (reports,).
        values: Values by layer, shape (layers, reports); one row for a metric without layers.
        best: Index of the report with the best validation value.
    """

    steps: np.ndarray
    values: np.ndarray
    best: int


Reduce = Callable[[Sequence[SeedCurves]], list[float]]
"""A function that reduces the curves of all seeds to one number per seed."""


def _variation(values: np.ndarray, axis: int) -> float:
    """Return the mean coefficient of variation along an axis."""
    return float(np.mean(values.std(axis=axis) / values.mean(axis=axis)))


def _over_seeds(seeds: Sequence[SeedCurves]) -> list[float]:
    means = np.array([seed.values.mean() for seed in seeds])
    middle = float(np.median(means))
    return [float(abs(mean - middle) / middle) for mean in means]


REDUCTIONS: Mapping[str, Reduce] = {
    "value": lambda seeds: [float(seed.values[:, seed.best].mean()) for seed in seeds],
    "mean": lambda seeds: [float(seed.values.mean()) for seed in seeds],
    "last": lambda seeds: [float(seed.values[:, -1].mean()) for seed in seeds],
    "drift": lambda seeds: [_variation(seed.values, axis=1) for seed in seeds],
    "layers": lambda seeds: [_variation(seed.values, axis=0) for seed in seeds],
    "seeds": _over_seeds,
}
"""Reductions of curves to one number per seed, by the name in `compare.of`.

`drift` is the coefficient of variation over training, averaged over the layers. `layers` is the coefficient
of variation over the layers, averaged over training. `seeds` is the distance of a seed's mean from the median
of all seeds, divided by that median. A comparison by `seeds` is Brown and Forsythe's test for equal spread.

Source: Brown & Forsythe, Journal of the American Statistical Association 69 (1974).
"""


_LENGTH = re.compile(r"_(x\d+)$")


def base_of(metric: str) -> str:
    """Return a metric without the suffix of a longer test split: `test/accuracy` for `test/accuracy_x4`."""
    return _LENGTH.sub("", metric)


def chance_of(metric: str, history: History) -> float | None:
    """Return the score of the best constant answer on the test split, or None for another kind of metric.

    Splits of longer sequences have the same rule for answers, so their score is that of the test split.
    """
    if base_of(metric).removeprefix("test/") != history.metric.removeprefix("val/"):
        return None
    chance: float | None = history.sweep.facts.get("chance", {}).get("test")
    return chance


def collected(experiment: Experiment, arm: Arm, history: History) -> ArmResult:
    """Return the results of an arm from the rows of its sweep."""
    sweep, document = history.sweep, history.sweep.document
    attempts = [attempt for trial in history.trials for attempt in history.attempts.get(trial.key, ())]
    spans = [_span(attempt, history) for attempt in attempts]
    held = [sweep.held_by(attempt) for attempt in attempts]
    seeds = tuple(seeds_of(experiment, history))
    cost = _cost(seeds, history)
    of_test = base_of(experiment.metric)
    lengths_metric = of_test if of_test.startswith("test/") else test_metric(history.metric)
    lengths = dict(_lengths(history, lengths_metric))
    return ArmResult(
        name=arm.name,
        about=f"{document['model']['layer']} on {sweep.task}",
        sweep=sweep.id,
        state=sweep.state,
        seeds=seeds,
        published=arm.published,
        obstacle=obstacle(experiment, arm, history, cost),
        cell=arm.cell,
        data=sweep.data_source,
        data_digest=sweep.data_digest,
        digest=sweep.digest,
        trials=len(history.trials),
        wall_seconds=covered(spans),
        core_seconds=sum(cpu * (end - start) for (cpu, _), (start, end) in zip(held, spans, strict=True)),
        gpu_seconds=sum(gpu * (end - start) for (_, gpu), (start, end) in zip(held, spans, strict=True)),
        hypothesis=arm.hypothesis,
        size=size_of(document),
        parameters=None if cost is None else cost.parameters,
        network="" if cost is None else size(cost),
        chance=chance_of(experiment.metric, history),
        lengths=lengths,
        lengths_metric=lengths_metric if lengths else "",
        origin=_origin(history),
        begun_at=sweep.created_at,
        norms=_norms(history, seeds) if experiment.metric.startswith(NORM) else (),
    )


def size_of(document: Mapping[str, Any]) -> str:
    """Format the size of the networks and of their training, from the resolved specification of a sweep."""
    model, training = document["model"], document["training"]
    blocks = counted(model["depth"], "block")
    return f"{blocks} of width {model['d_model']}, {training['steps']:,} steps of {training['batch_size']}"


def _lengths(history: History, metric: str) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield the values by seed on the test split and on each split of longer sequences, by name."""
    names = {name for rows in history.evaluations.values() for row in rows for name in row.metrics}
    longer = (re.fullmatch(rf"{re.escape(metric)}_x(\d+)", name) for name in names)
    times = sorted(int(match[1]) for match in longer if match)
    for name, split in (("x1", metric), *((f"x{count}", f"{metric}_x{count}") for count in times)):
        values = tuple(seed.value for seed in seed_results(history, split).results)
        if times and values:
            yield name, values


def _norms(history: History, seeds: Sequence[Seed]) -> tuple[NormCurve, ...]:
    """Return the norms of hidden states of the first seeds."""
    found: list[NormCurve] = []
    for seed in seeds:
        own = list(_norms_of(history, seed))
        if found and len(found) + len(own) > MOST_NORMS:
            break
        found += own
    return tuple(found)


def _norms_of(history: History, seed: Seed) -> Iterator[NormCurve]:
    for of in ("head", "expected", "state"):
        for layer in layers(history, [seed.trial]):
            if points := thinned(norm_points(history, seed.trial, f"{of}/layer_{layer}"), MOST_POINTS):
                steps, values = [step for step, _ in points], [float(f"{value:.6g}") for _, value in points]
                yield NormCurve(of, seed.seed, layer, steps, values)


def _cost(seeds: Sequence[Seed], history: History) -> Cost | None:
    """Return the size of the network that represents the arm, or of the first trial that reported one."""
    representative = {seed.trial for seed in seeds}
    ordered = sorted(history.trials, key=lambda trial: trial.key not in representative)
    return next((cost for trial in ordered if (cost := cost_of(history, trial)) is not None), None)


def _origin(history: History) -> Origin:
    date = time.strftime("%Y-%m-%d", time.gmtime(history.sweep.created_at))
    facts = history.sweep.facts
    commit, versions = str(facts.get("git_commit", "unknown")), tuple(facts.get("versions", {}).items())
    return Origin(date, commit, ", then ".join(facts.get(HARDWARE, ())), versions)


def obstacle(experiment: Experiment, arm: Arm, history: History | None, cost: Cost | None = None) -> str:
    """Return the reasons why figures of an arm cannot be compared with published ones; '' for a hypothesis.

    The history is None before the sweep starts, and the cost until a trial has reported it.
    """
    if arm.hypothesis:
        return ""
    data = "" if history is None else _other_data(history)
    changed = [line for line in arm.changes if not _is_named(line, data, history)]
    profile = f"with the profile {experiment.profile}, {', '.join(changed)}" if changed else ""
    document = None if arm.sweep is None else arm.sweep.document()
    paper = [] if document is None or changed else from_paper(arm.published, document, _params(history), cost)
    return "; ".join(dict.fromkeys(filter(None, (arm.departure, data, profile, *paper))))


def _is_named(change: str, data: str, history: History | None) -> bool:
    """Return True if the note on the data already names an option that a profile changes."""
    name = change.partition(" ")[0]
    return history is not None and name in TASKS[history.sweep.task].published and name in data


def _other_data(history: History) -> str:
    """Return the reason why the data are not the published ones; '' if they are."""
    facts = history.sweep.facts
    return (
        ""
        if facts.get("comparable", False)
        else str(facts.get("note") or "the data are not the published ones")
    )


def _params(history: History | None) -> Mapping[str, Any]:
    """Return the hyperparameters of a trial that represents the sweep."""
    trials = () if history is None else seed_results(history, test_metric(history.metric)).results
    keys = {seed.trial for seed in trials}
    known = () if history is None else history.trials
    return next((trial.params for trial in known if trial.key in keys), {})


def seeds_of(experiment: Experiment, history: History) -> list[Seed]:
    """Return the seeds of a sweep that have a value, from the trials of `seed_results`."""
    metric = experiment.metric
    if metric.startswith("test/"):
        tested = seed_results(history, metric).results
        of_training = base_of(metric).replace("test/", "val/")
        drawn = {seed.trial: _drawn(_curves(history, seed.trial, of_training)) for seed in tested}
        return [
            Seed(seed.seed, seed.trial, seed.value, *drawn[seed.trial], seed.scores or "") for seed in tested
        ]
    tested = seed_results(history, test_metric(history.metric)).results
    pairs = [(seed, _curves(history, seed.trial, metric)) for seed in tested]
    known = [(seed, curves) for seed, curves in pairs if curves is not None]
    values = REDUCTIONS[experiment.reduction]([curves for _, curves in known]) if known else []
    return [
        Seed(seed.seed, seed.trial, value, *_drawn(curves))
        for (seed, curves), value in zip(known, values, strict=True)
    ]


def _curves(history: History, key: str, metric: str) -> SeedCurves | None:
    """Return the curves of a trial for a metric, which may end with `*`; None without any."""
    (trial,) = (trial for trial in history.trials if trial.key == key)
    pattern = re.compile(re.escape(metric).replace(r"\*", ".+"))
    rows = history.reports.get(key, ())
    names = sorted({name for row in rows for name in row.metrics if pattern.fullmatch(name)})
    rows = [row for row in rows if all(name in row.metrics for name in names)]
    if not names or not rows:
        return None
    steps = np.array([row.step for row in rows])
    values = np.array([[row.metrics[name] for row in rows] for name in names])
    return SeedCurves(steps, values, int(np.argmin(np.abs(steps - (trial.best_step or steps[-1])))))


def _drawn(curves: SeedCurves | None) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the steps and the values of a curve, thinned, averaged over the layers, with six digits."""
    if curves is None:
        return (), ()
    points = list(zip(curves.steps.tolist(), curves.values.mean(axis=0).tolist(), strict=True))
    points = thinned(points, MOST_POINTS)
    return tuple(step for step, _ in points), tuple(float(f"{value:.6g}") for _, value in points)


def _span(attempt: AttemptRecord, history: History) -> tuple[float, float]:
    """Return the start and end of an attempt; a running attempt ends at its latest report."""
    reports = history.reports.get(attempt.trial_key, ())
    own = [row.at for row in reports if row.attempt_id == attempt.id]
    start = attempt.taken_at or attempt.started_at
    return start, max([start, *own, *([attempt.ended_at] if attempt.ended_at else [])])


def covered(spans: Sequence[tuple[float, float]]) -> float:
    """Return the total length of the union of intervals, in seconds."""
    total, until = 0.0, -float("inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total
