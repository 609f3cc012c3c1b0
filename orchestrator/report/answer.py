"""The answer of a sweep in sentences: the chosen trial, its quality, and what it can be compared with.

Sentences are plain text, except for `answer`, which marks its figures with `**`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, stdtr

from orchestrator.report import words
from orchestrator.report.summary import Chosen, Summary
from trainables.cost import Cost


def answer(summary: Summary) -> str:
    """Return the first paragraph of a report, with its figures between `**`."""
    if summary.chosen is None:
        return f"No trial is complete, so none is chosen ({summary.state.lower()})."
    chosen = summary.chosen
    validation = f"**{words.number(chosen.row.value)}** {summary.metric}{beside(summary, 'validation')}"
    return (
        f"Trial {chosen.row.number} reaches {validation}{_tested(summary, chosen)}, "
        f"at step {chosen.row.best_step}."
    )


def _tested(summary: Summary, chosen: Chosen) -> str:
    if chosen.row.test is None:
        return ""
    return f" and **{words.number(chosen.row.test)}** {summary.test_metric}{beside(summary, 'test')}"


def beside(summary: Summary, split: str) -> str:
    """Return the chance level of a split in brackets, or '' if it is not known."""
    chance = summary.chance.get(split)
    return "" if chance is None else f" ({baseline(summary.metric)}: {words.number(chance)})"


def baseline(metric: str) -> str:
    """Return the name of the chance level of a metric."""
    names = {"accuracy": "always the most frequent class", "mse": "always the mean"}
    return names.get(metric.rpartition("/")[2], "the best constant answer")


def notes(summary: Summary) -> list[str]:
    """Return the sentences below the answer: findings, origin of the results, limits of their meaning."""
    return [*findings(summary), *context(summary), *caveats(summary)]


def findings(summary: Summary) -> list[str]:
    """Return whether the results differ from the published value and from the second best trial."""
    return [*_confirmed(summary), *_ahead(summary)]


def _confirmed(summary: Summary) -> list[str]:
    values = [row.test for row in summary.confirmations if row.test is not None]
    if not values:
        return []
    seeds = spread(values)
    deviation = "" if seeds.deviation is None else f" ± {words.number(seeds.deviation)} (standard deviation)"
    lines = [
        f"Over {seeds.count} fresh seeds {summary.test_metric} is {words.number(seeds.mean)}{deviation}."
    ]
    figure = summary.published.get(summary.test_metric)
    verdict = None if figure is None else against_figure(values, figure)
    if summary.comparable and verdict is not None:
        lines.append(f"Against the published {words.number(figure)}: {_meaning(verdict)}.")
    return lines


def _ahead(summary: Summary) -> list[str]:
    ranked = [row for row in summary.rows if row.rank is not None and row.violation == 0.0]
    if len(ranked) < 2 or summary.examples is None or not summary.metric.endswith("accuracy"):
        return []
    first, second = ranked[0], ranked[1]
    assert first.value is not None
    assert second.value is not None
    verdict = between_accuracies(first.value, second.value, summary.examples)
    ahead = words.number(abs(first.value - second.value))
    where = f"on {summary.examples:,} validation examples"
    return [f"Trial {first.number} is {ahead} ahead of trial {second.number} {where}: {_meaning(verdict)}."]


def _meaning(verdict: Verdict) -> str:
    meaning = "a difference" if verdict.differs else "no more than chance explains"
    return f"{meaning} ({verdict.name}, p = {verdict.p:.2g})"


def context(summary: Summary) -> list[str]:
    """Return where the results come from."""
    return [
        f"Data: {summary.data_source}.",
        *_size(summary),
        *(
            f"Published {name}: {words.number(value)} ({summary.published_source})."
            for name, value in summary.published.items()
        ),
        *_constrained(summary),
    ]


def _size(summary: Summary) -> list[str]:
    """Return the size of the chosen network in a sentence, with the work of a step if it was counted."""
    cost = None if summary.chosen is None else summary.chosen.row.cost
    return [] if cost is None else [f"Size: {size(cost)}."]


def size(cost: Cost) -> str:
    """Return the numbers of a cost in words."""
    parts = [
        f"{words.count(cost.parameters)} parameters ({words.count(cost.layer_parameters)} in the layers, "
        f"{words.count(cost.recurrent_parameters)} recurrent)",
        f"a state of {words.count(cost.state_floats)} numbers",
    ]
    if cost.flops is not None and cost.bytes is not None:
        parts.append(
            f"{words.amount(cost.flops, 'FLOP')} and {words.amount(cost.bytes, 'B')} a training step"
        )
    return ", ".join(parts)


def _constrained(summary: Summary) -> list[str]:
    """Return the constraints, and how many trials rank last because they break one."""
    if not summary.constraints:
        return []
    bounds = "; ".join(f"{name} {_bounds(bound)}" for name, bound in summary.constraints.items())
    broken = sum(row.rank is not None and row.violation > 0.0 for row in summary.rows)
    return [f"Constraints: {bounds}. Complete trials that break one, and rank behind the others: {broken}."]


def _bounds(bound: Mapping[str, float]) -> str:
    return " and ".join(f"{name.replace('_', ' ')} {words.setting(value)}" for name, value in bound.items())


def caveats(summary: Summary) -> list[str]:
    """Return the limits of the results: a broken constraint, and what they cannot be compared with."""
    lines = []
    if summary.chosen is not None and summary.chosen.row.violation > 0.0:
        lines.append("The chosen trial breaks a constraint: no complete trial keeps them all.")
    if not summary.comparable and summary.note:
        lines.append(f"Not comparable with published figures: {summary.note}.")
    if summary.profile:
        lines.append(f"Profile {summary.profile}: smaller than the published setting.")
    return lines


LEVEL = 0.05
"""The largest p value that counts as a difference."""


@dataclass(frozen=True)
class Spread:
    """A value over several seeds: mean and sample standard deviation, which is None for a single seed."""

    count: int
    mean: float
    deviation: float | None


@dataclass(frozen=True)
class Verdict:
    """The result of a test: its name and its two-sided p value."""

    name: str
    p: float

    @property
    def differs(self) -> bool:
        """Whether the difference is larger than chance explains at the level `LEVEL`."""
        return self.p <= LEVEL


def spread(values: Sequence[float]) -> Spread:
    """Return the mean and the standard deviation of at least one value."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Spread(len(values), float(np.mean(values)), deviation)


def against_figure(values: Sequence[float], figure: float) -> Verdict | None:
    """Compare a mean over seeds with a published value; return None for fewer than two seeds."""
    seeds = spread(values)
    if seeds.deviation is None:
        return None
    error = seeds.deviation / math.sqrt(seeds.count)
    if error == 0.0:
        return Verdict("one-sample t test", 1.0 if seeds.mean == figure else 0.0)
    t = abs(seeds.mean - figure) / error
    return Verdict("one-sample t test", 2.0 * float(stdtr(seeds.count - 1, -t)))


def between_accuracies(one: float, other: float, examples: int) -> Verdict:
    """Compare two accuracies, each measured on `examples` examples."""
    pooled = (one + other) / 2
    error = math.sqrt(2 * pooled * (1 - pooled) / examples)
    if error == 0.0:
        return Verdict("two-proportion z test", 1.0)
    return Verdict("two-proportion z test", 2.0 * float(ndtr(-abs(one - other) / error)))
