"""Sweeps side by side: test results by seed, what was spent on them, and which differences are established.

`side_by_side` returns the comparison as data; `orchestrator.report.comparison_text` makes texts of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import comb
from typing import Any

from orchestrator.counts import counted
from orchestrator.report.controls import doubts
from orchestrator.report.samples import sample_of
from orchestrator.report.statistics import CONFIDENCE, Comparison, MeanEstimate, compared, estimated
from orchestrator.report.summary import Summary
from trainables.cost import Cost


@dataclass(frozen=True)
class Spent:
    """What a sweep has spent on its result.

    Attributes:
        trials: number of trials of the search by state, whatever came of them.
        confirmations: number of retrainings with fresh seeds.
        seconds: of all attempts together.
    """

    trials: Mapping[str, int]
    confirmations: int
    seconds: float


@dataclass(frozen=True)
class SweepResult:
    """The test result of one sweep.

    Attributes:
        layer: of the chosen trial.
        metric: of the test split, such as `test/accuracy`.
        validation: best value of the chosen trial, or None.
        values: the test metric of each seed, by trial key.
        fresh: whether the seeds were drawn after the choice of the hyperparameters.
        missing: number of finished confirmations without a result.
        estimate: the mean over seeds with its interval, or None without a result.
        cost: size of the chosen network, and the work of a training step if it was counted; None if unknown.
        examples: number of test examples, or None if their scores are not recorded.
        comparable: whether the result can be compared with published ones.
        why_not: every reason why it cannot be; '' if it can.
        doubts: the controls that the result is not established to differ from, in sentences.
    """

    sweep_id: str
    layer: str
    task: str
    profile: str | None
    state: str
    metric: str
    validation: float | None
    values: Mapping[str, float]
    fresh: bool
    missing: int
    estimate: MeanEstimate | None
    cost: Cost | None
    examples: int | None
    spent: Spent
    data_source: str
    data_digest: str
    comparable: bool
    why_not: str
    doubts: tuple[str, ...]


@dataclass(frozen=True)
class TaskComparison:
    """The sweeps of one task compared with each other.

    Attributes:
        metric: of the test split.
        comparison: of the sweeps that have a result.
        left_out: ids of the sweeps that have none.
    """

    task: str
    metric: str
    comparison: Comparison
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class SideBySide:
    """Several sweeps compared.

    Attributes:
        results: one for each sweep.
        comparisons: one for each task and metric that several sweeps have; all intervals hold together.
    """

    results: tuple[SweepResult, ...]
    comparisons: tuple[TaskComparison, ...]

    def document(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return asdict(self)


def side_by_side(summaries: Sequence[Summary]) -> SideBySide:
    """Compare sweeps: those of one task with each other."""
    groups: dict[tuple[str, str, bool], list[Summary]] = {}
    for summary in {summary.sweep_id: summary for summary in summaries}.values():
        groups.setdefault((summary.task, summary.test_metric, summary.maximize), []).append(summary)
    sizes = [sum(bool(summary.seeds.results) for summary in group) for group in groups.values()]
    comparisons = sum(comb(size, 2) for size in sizes)
    return SideBySide(
        tuple(map(_result, summaries)),
        tuple(
            _comparison(group, comparisons)
            for group, size in zip(groups.values(), sizes, strict=True)
            if size > 1
        ),
    )


def _comparison(group: Sequence[Summary], comparisons: int) -> TaskComparison:
    """Compare the sweeps of one task, as some of a number of comparisons."""
    first = group[0]
    samples = [sample for sample in map(sample_of, group) if sample is not None]
    comparison = compared(samples, maximize=first.maximize, comparisons=comparisons)
    return TaskComparison(
        task=first.task,
        metric=first.test_metric,
        comparison=_without_survivors(comparison, group),
        left_out=tuple(summary.sweep_id for summary in group if not summary.seeds.results),
    )


def _without_survivors(comparison: Comparison, group: Sequence[Summary]) -> Comparison:
    """Withdraw a winner some of whose confirmations failed or diverged: its mean leaves them out.

    Confirmations of any sweep that have not ended may change the comparison, so nothing wins before.
    """
    for summary in group:
        if comparison.winner and (pending := summary.seeds.pending):
            has = "has" if pending == 1 else "have"
            reason = f"{counted(pending, 'confirmation')} of {summary.sweep_id} {has} not ended"
            return replace(comparison, winner=None, reason=reason)
    for summary in group:
        missing, known = summary.seeds.missing, len(summary.seeds.results)
        if summary.sweep_id == comparison.winner and missing:
            of = f"{missing} of the {missing + known} confirmations of {summary.sweep_id}"
            return replace(comparison, winner=None, reason=f"{of} failed or diverged")
    return comparison


def _result(summary: Summary) -> SweepResult:
    sample = sample_of(summary)
    return SweepResult(
        sweep_id=summary.sweep_id,
        layer=summary.chosen_layer,
        task=summary.task,
        profile=summary.profile,
        state=summary.state,
        metric=summary.test_metric,
        validation=None if summary.chosen is None else summary.chosen.row.value,
        values={result.trial: result.value for result in summary.seeds.results},
        fresh=summary.seeds.fresh,
        missing=summary.seeds.missing,
        estimate=None if sample is None else estimated(sample, CONFIDENCE),
        cost=None if summary.chosen is None else summary.chosen.row.cost,
        examples=None if sample is None or sample.scores is None else sample.scores.shape[1],
        spent=Spent(summary.states, len(summary.confirmations), summary.spending.total),
        data_source=summary.data_source,
        data_digest=summary.data_digest,
        comparable=summary.is_as_published,
        why_not="; ".join(summary.obstacles),
        doubts=tuple(doubts(summary)),
    )
