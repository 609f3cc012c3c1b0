"""A comparison of sweeps: test results by seed, costs and established differences, as data and as tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from orchestrator.errors import counted
from orchestrator.ledger.sweeps.standing import BestTrial
from orchestrator.report import words
from orchestrator.report.answer import noise
from orchestrator.report.controls import doubts, sample_of
from orchestrator.report.leaderboard import SIZES, size_cells
from orchestrator.report.markdown import bullets, table
from orchestrator.report.published import FIGURES, Figure, figures
from orchestrator.report.statistics import (
    CONFIDENCE,
    POWER,
    Comparison,
    Difference,
    MeanEstimate,
    compared,
    estimated,
)
from orchestrator.report.summary import Summary
from orchestrator.report.tuning import BUDGETS, TuningComparison, TuningCurve
from orchestrator.report.words import TitledTable
from trainables.cost import Cost


@dataclass(frozen=True)
class Spent:
    """The cost of a sweep's result.

    Attributes:
        trials: Number of trials of the search by state.
        confirmations: Number of retrainings with fresh seeds.
        elapsed_seconds: Wall-clock seconds in which at least one trial ran, see `SweepCost`.
        compute_seconds: Sum of the seconds of all attempts, up to now for those that run.
    """

    trials: Mapping[str, int]
    confirmations: int
    elapsed_seconds: float
    compute_seconds: float


@dataclass(frozen=True)
class SweepResult:
    """The test result of one sweep.

    Attributes:
        layer: Layer of the chosen trial.
        metric: Metric on the test split, such as `test/accuracy`.
        best: Trial whose value stands for the sweep, as its status names it: the best complete one of an
            ended sweep, and the best so far of another; None without a value.
        values: Test metric of each seed, by trial key.
        fresh: Whether the seeds were drawn after the hyperparameters were chosen.
        missing: Number of finished confirmations without a result.
        estimate: Mean over seeds with its interval, or None without a result.
        cost: Size of the chosen network; None if unknown.
        examples: Number of test examples, or None if their scores are not recorded.
        comparable: Whether the result can be compared with published ones.
        why_not: Reasons why the result cannot be compared; '' if it can.
        doubts: Sentences on the controls that the result is not established to beat.
    """

    sweep_id: str
    layer: str
    task: str
    profile: str | None
    state: str
    metric: str
    best: BestTrial | None
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
    """A comparison of the sweeps of one task.

    Attributes:
        metric: Metric on the test split.
        comparison: Comparison of the sweeps that have a result.
        left_out: IDs of the sweeps without a result.
    """

    task: str
    metric: str
    comparison: Comparison
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class SideBySide:
    """A comparison of several sweeps.

    Attributes:
        results: One result per sweep.
        comparisons: One comparison for each task and metric of several sweeps, with simultaneous intervals.
        tuning: Tuning curves for each task and metric; empty unless they were requested.
    """

    results: tuple[SweepResult, ...]
    comparisons: tuple[TaskComparison, ...]
    tuning: tuple[TuningComparison, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return asdict(self)


def side_by_side(summaries: Sequence[Summary], tuning: tuple[TuningComparison, ...] = ()) -> SideBySide:
    """Compare sweeps with the other sweeps of the same task.

    Args:
        summaries: Summaries of the sweeps.
        tuning: Tuning curves of the sweeps, as `tuning_of` returns them.
    """
    groups: dict[tuple[str, str, bool], list[Summary]] = {}
    for summary in {summary.sweep_id: summary for summary in summaries}.values():
        groups.setdefault((summary.task, summary.test_metric, summary.maximize), []).append(summary)
    sizes = [sum(bool(summary.seeds.results) for summary in group) for group in groups.values()]
    comparisons = sum(math.comb(size, 2) for size in sizes)
    return SideBySide(
        tuple(map(_result, summaries)),
        tuple(
            _comparison(group, comparisons)
            for group, size in zip(groups.values(), sizes, strict=True)
            if size > 1
        ),
        tuning,
    )


def _comparison(group: Sequence[Summary], comparisons: int) -> TaskComparison:
    """Compare the sweeps of one task; `comparisons` is the number of differences over all tasks."""
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
    """Withdraw a winner whose result is incomplete.

    A mean leaves out confirmations that failed or diverged, and unfinished confirmations of any sweep may
    still change the comparison.
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
        best=summary.leading,
        values={result.trial: result.value for result in summary.seeds.results},
        fresh=summary.seeds.fresh,
        missing=summary.seeds.missing,
        estimate=None if sample is None else estimated(sample),
        cost=None if summary.chosen is None else summary.chosen.row.cost,
        examples=None if sample is None or sample.scores is None else sample.scores.shape[1],
        spent=Spent(
            summary.states,
            len(summary.confirmations),
            summary.cost.elapsed_seconds,
            summary.cost.compute_seconds,
        ),
        data_source=summary.data_source,
        data_digest=summary.data_digest,
        comparable=summary.is_as_published,
        why_not="; ".join(summary.obstacles),
        doubts=tuple(doubts(summary)),
    )


MARK = " (!)"
"""Mark of a test result that is not established to differ from a control."""


def markdown(sides: SideBySide) -> str:
    """Return a comparison in GitHub's Markdown."""
    parts = [
        part
        for section in tables(sides)
        for part in (f"## {section.title}", table(section.header, section.rows), bullets(section.sentences))
    ]
    return "\n\n".join(part for part in parts if part)


def tables(sides: SideBySide) -> list[TitledTable]:
    """Return the tables of a comparison: results, differences, tuning curves, and published results."""
    return [
        _results(sides),
        *map(_differences, sides.comparisons),
        *map(_tuning, sides.tuning),
        _published(sides),
    ]


def _results(sides: SideBySide) -> TitledTable:
    confidence = words.share(CONFIDENCE, 1.0)
    header = ("sweep", "layer", "task", "best", "test", f"{confidence} interval", "noise", "by seed")
    return TitledTable(
        "Sweeps",
        (*header, *SIZES, "trials spent", "elapsed", "compute", "state", "how"),
        [_line(result) for result in sides.results],
        [*_remarks(sides)],
    )


def _line(result: SweepResult) -> list[str]:
    estimate = result.estimate
    return [
        result.sweep_id,
        result.layer,
        result.task,
        _best(result.best),
        words.number(None if estimate is None else estimate.mean) + (MARK if result.doubts else ""),
        "–" if estimate is None else words.interval(estimate.low, estimate.high),
        "–" if estimate is None or not estimate.sources else noise(estimate.sources),
        ", ".join(map(words.number, result.values.values())) or "–",
        *size_cells(result.cost),
        _trials(result.spent),
        words.duration(result.spent.elapsed_seconds),
        words.duration(result.spent.compute_seconds),
        result.state.lower(),
        "as published" if result.comparable else result.why_not,
    ]


def _best(best: BestTrial | None) -> str:
    """Format the value of a trial, with its number and state if it is not complete."""
    if best is None or best.state == "COMPLETE":
        return words.number(None if best is None else best.value)
    return f"{words.number(best.value)} (trial {best.label}, {best.state.lower()})"


def _trials(spent: Spent) -> str:
    """Format the number of trials of the search, by state if not complete, and of confirmations."""
    others = [f"{count} {state.lower()}" for state, count in spent.trials.items() if state != "COMPLETE"]
    search = " ".join([str(sum(spent.trials.values())), *([f"({', '.join(others)})"] if others else [])])
    return f"{search} + {counted(spent.confirmations, 'confirmation')}" if spent.confirmations else search


def _remarks(sides: SideBySide) -> Iterator[str]:
    for result in sides.results:
        if result.estimate is not None and not result.fresh:
            yield f"{result.sweep_id}: the chosen trial alone; its seed was chosen with its hyperparameters."
        if result.missing:
            confirmations = counted(result.missing, "confirmation")
            yield f"{result.sweep_id}: {confirmations} failed or diverged, without a result."
        yield from (f"{result.sweep_id}{MARK}: {doubt}" for doubt in result.doubts)


def _differences(task: TaskComparison) -> TitledTable:
    comparison = task.comparison
    confidence = words.share(comparison.confidence, 1.0)
    return TitledTable(
        f"Differences on {task.task}",
        (
            "difference",
            task.metric,
            f"{confidence} interval, all together",
            "p (Holm)",
            "examples",
            "noise",
        ),
        [_difference(difference) for difference in comparison.differences],
        [*conclusion(task)],
    )


def _difference(difference: Difference) -> list[str]:
    return [
        f"{difference.first} - {difference.second}",
        f"{difference.mean:+.4f}",
        words.interval(difference.low, difference.high),
        words.p_value(difference.p),
        "the same" if difference.paired else "other data",
        noise(difference.sources) if difference.sources else "–",
    ]


def conclusion(task: TaskComparison) -> Iterator[str]:
    """Yield sentences on the best sweep, or on why none is established and what difference would be."""
    comparison = task.comparison
    if comparison.winner is not None:
        yield f"{comparison.winner} is better than every other sweep on {task.task}."
    else:
        yield f"No sweep is named the best on {task.task}: {comparison.reason}."
    if comparison.detectable is not None:
        yield (
            f"With these seeds and examples, a difference of {words.setting(comparison.detectable)} would be"
            f" established with a probability of {words.share(POWER, 1.0)}."
        )
    if task.left_out:
        yield f"Without a test result: {', '.join(task.left_out)}."


def _tuning(compared: TuningComparison) -> TitledTable:
    most = max((curve.trials for curve in compared.curves), default=0)
    budgets = [2**power for power in range(most.bit_length())]
    confidence = words.share(compared.confidence, 1.0)
    return TitledTable(
        f"Median of the best {compared.metric} of k trials, with a band of {confidence} for all k together",
        ["k", *(curve.name for curve in compared.curves)],
        [[str(k), *(_best_of(curve, k) for curve in compared.curves)] for k in budgets],
        [*_tuning_sentences(compared)],
    )


def _best_of(curve: TuningCurve, k: int) -> str:
    """Format the median of the best of k trials with its band; a dash for more trials than the sweep has."""
    if k > curve.trials:
        return "–"
    median, low, high = (values[k - 1] for values in (curve.median, curve.low, curve.high))
    ends = (words.number(end) if math.isfinite(end) else "unknown" for end in (low, high))
    return f"{words.number(median)} [{', '.join(ends)}]"


def _tuning_sentences(compared: TuningComparison) -> Iterator[str]:
    for curve in compared.curves:
        failed = f", {curve.failed} of them without a value" if curve.failed else ""
        yield f"{curve.name}: {counted(curve.trials, 'trial')} spent{failed}."
    for difference in compared.differences:
        if difference.better is None or difference.budgets is None:
            pair = f"{difference.first} and {difference.second}"
            yield f"{pair}: the bands overlap, no difference is established."
        else:
            worse = difference.second if difference.better == difference.first else difference.first
            first, last = difference.budgets
            yield f"{difference.better} is better than {worse} with {first} to {last} trials."
    for claim in compared.claims:
        trials = f"more than {BUDGETS[-1]}" if claim.trials is None else str(claim.trials)
        yield (
            f"To claim a difference of {claim.difference:g} in {compared.metric} with a probability of "
            f"{words.share(POWER, 1.0)}: {trials} trials of each method, or {claim.sweeps} sweeps like these."
        )
    for name, reason in compared.declined.items():
        yield f"{name} has no curve: {reason}."


def _published(sides: SideBySide) -> TitledTable:
    layers = list(dict.fromkeys(result.layer for result in sides.results))
    tasks = list(dict.fromkeys(result.task for result in sides.results))
    return TitledTable(
        "Layers and tasks: measured on test, and published",
        ["layer", *tasks],
        [[layer, *(_cell(sides, layer, task) for task in tasks)] for layer in layers],
        _sources(sides),
    )


def _cell(sides: SideBySide, layer: str, task: str) -> str:
    matching = [result for result in sides.results if (result.layer, result.task) == (layer, task)]
    best = [measured(result) + ("" if result.comparable else " *") for result in matching] or ["–"]
    known = figures(layer, task)
    if known and not _is_as_published(sides, layer, task):
        return " / ".join(best)
    printed = ", ".join(_printed(figure) for figure in known)
    return " / ".join(best) + (f"; published {printed}" if printed else "; nothing published")


def _is_as_published(sides: SideBySide, layer: str, task: str) -> bool:
    """Return True if a result of a layer on a task compares with published ones, so that they are printed."""
    return any(result.comparable for result in sides.results if (result.layer, result.task) == (layer, task))


def measured(result: SweepResult) -> str:
    """Format the mean over seeds with its interval and the number of seeds, or a dash."""
    estimate = result.estimate
    if estimate is None:
        return "–"
    interval = "" if estimate.low is None else f" [{words.interval(estimate.low, estimate.high)}]"
    count = len(result.values)
    return f"{words.number(estimate.mean)}{interval} ({counted(count, 'seed')})"


def _printed(figure: Figure) -> str:
    error = "" if figure.error is None else f" ({words.brief(figure.error)})"
    number = FIGURES.index(figure) + 1
    return f"{figure.accuracy:.3f}{error} [{number}]"


def _unprinted(figure: Figure) -> str:
    """Return a remark on a figure whose setting is not published; '' for other figures."""
    return "; its setting is not printed, so no result compares with it" if figure.is_reproduction else ""


def _sources(sides: SideBySide) -> list[str]:
    lines = [
        f"[{number}] {figure.source}" + (f": {figure.note}" if figure.note else "") + _unprinted(figure)
        for number, figure in enumerate(FIGURES, start=1)
        if _is_as_published(sides, figure.layer, figure.task)
    ]
    if not all(result.comparable for result in sides.results):
        lines.append(
            "An asterisk (*) marks other data, another network or training, which cannot be compared;"
            " published figures are printed only beside results that can."
        )
    return lines
