"""The result of a sweep in sentences: the chosen trial, its quality, and the limits of comparisons.

The sentences are plain text, except for `answer`, which marks its figures with `**`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from orchestrator.errors import counted
from orchestrator.report import words
from orchestrator.report.controls import control_lines, doubts, sample_of
from orchestrator.report.statistics import CONFIDENCE, MeanEstimate, against, estimated
from orchestrator.report.summary import Chosen, EarlierSource, Racer, RaceResult, Summary
from orchestrator.study.similarity import FADED


def answer(summary: Summary) -> str:
    """Return the first paragraph of a report, with its figures between `**`."""
    if summary.chosen is None and (text := front_text(summary)):
        return text
    if summary.chosen is None:
        return f"No trial is complete, so none is chosen ({summary.state.lower()}).{_best_so_far(summary)}"
    chosen = summary.chosen
    validation = f"**{words.number(chosen.row.value)}** {summary.metric}{beside(summary, 'validation')}"
    return (
        f"Trial {chosen.row.number} reaches {validation}{_tested(summary, chosen)}, "
        f"at step {chosen.row.best_step}."
    )


def _best_so_far(summary: Summary) -> str:
    """Return a sentence on the best trial so far, after a space, or '' without one."""
    if (best := summary.best) is None:
        return ""
    where = f"{best.state.lower()} at step {best.step} of {best.total_steps}"
    return (
        f" The best so far is trial {best.label}, {where}: **{words.number(best.value)}** {summary.metric} "
        f"at step {best.best_step}."
    )


def front_text(summary: Summary) -> str:
    """Return a sentence on the Pareto front, with its figures between `**`; '' without one."""
    front = summary.front
    if front is None or not front.trials:
        return ""
    trials = counted(len(front.trials), "trial is", "trials are")
    volume = f"a hypervolume of **{words.brief(front.hypervolume)}**"
    reference = ", ".join(f"{name} {words.brief(value)}" for name, value in front.reference.items())
    names = " and ".join(front.objectives)
    text = f"**{trials}** on the Pareto front of {names}, with {volume} beyond {reference}."
    if front.preference is not None:
        return text
    return f"{text} No trial is the best in all objectives; `objective.prefer` in the file would choose one."


def _tested(summary: Summary, chosen: Chosen) -> str:
    if chosen.row.test is None:
        return ""
    return f" and **{words.number(chosen.row.test)}** {summary.test_metric}{beside(summary, 'test')}"


def beside(summary: Summary, split: str) -> str:
    """Return the score of the best constant answer in brackets, or '' if it is unknown."""
    chance = summary.chance.get(split)
    return "" if chance is None else f" ({baseline(summary.metric)}: {words.number(chance)})"


def baseline(metric: str) -> str:
    """Return the best constant answer for a metric, in words."""
    names = {"accuracy": "always the most frequent class", "mse": "always the mean"}
    return names.get(metric.rpartition("/")[2], "the best constant answer")


def notes(summary: Summary) -> list[str]:
    """Return the sentences below the answer: findings, origin and limits of the results."""
    return [*findings(summary), *context(summary), *caveats(summary)]


def findings(summary: Summary) -> list[str]:
    """Return sentences on the test results, the published value and the second best trial."""
    ahead = _ahead(summary) if summary.race is None else _raced(summary.race, summary.judged)
    earlier = map(_earlier, summary.earlier)
    return [*_confirmed(summary), *_further(summary), *ahead, *_extended(summary), *earlier]


def _earlier(source: EarlierSource) -> str:
    """Return sentences on results from which the sampler learned, how similar they are and their weight."""
    kind = "Trials of the earlier sweep" if source.is_sweep else "Known results, measured elsewhere, of"
    parts = [f"{kind} {source.name}: {counted(source.results, 'result')} in this space"]
    if source.left_out:
        parts.append(f"left out: {', '.join(f'{count} {why}' for why, count in source.left_out.items())}")
    if source.repeated:
        parts.append(
            f"settings repeated by {'trial' if len(source.repeated) == 1 else 'trials'} "
            f"{', '.join(map(str, source.repeated))}"
        )
    parts.append(similarity(source.shared, source.correlation, source.weight))
    return f"{'; '.join(parts)}."


def similarity(shared: int, correlation: float | None, weight: float) -> str:
    """Return a phrase on the similarity of earlier results, and on what the sampler was shown.

    Args:
        shared: Number of settings of which the sweep has a result too.
        correlation: Rank correlation of the values of shared settings; None if it is unknown.
        weight: Correlation if it is positive beyond its error, and else 0.
    """
    on = f"on {counted(shared, 'shared setting')}"
    if correlation is None:
        return f"similarity unknown {on}, so that the sampler was shown none"
    if weight:
        return (
            f"rank correlation {correlation:.2f} {on}; the sampler was shown some, with weight "
            f"{weight:.2f} at first and none after {FADED} complete trials"
        )
    return (
        f"rank correlation {correlation:.2f} {on}, not positive beyond its error, so that the sampler was "
        "shown none"
    )


def _extended(summary: Summary) -> list[str]:
    """Return sentences on the trials that were chosen in the search and continued to more steps."""
    if not summary.extended:
        return []
    trials = "; ".join(
        f"trial {each.number} from step {each.before} ({summary.metric} {words.number(each.value)}) to "
        f"{each.steps}"
        for each in summary.extended
    )
    return [
        f"Chosen by their values in the search and continued: {trials}. They were selected, so do not "
        "compare them with the other trials, which have fewer steps. A learning rate that depends on the "
        "number of steps changed where they continued, as in no trial with that many steps from the start."
    ]


def _further(summary: Summary) -> list[str]:
    """Return a sentence with the median and the best result over seeds on each test split."""
    if not summary.further:
        return []
    parts = []
    best = max if summary.maximize else min
    test = {summary.test_metric: tuple(result.value for result in summary.seeds.results)}
    for name, values in {**test, **summary.further}.items():
        text = f"{name} {words.number(statistics.median(values))}"
        parts.append(text if len(values) == 1 else f"{text} (best {words.number(best(values))})")
    over = (
        f"Over {seeds(count)}, median"
        if (count := len(next(iter(summary.further.values())))) > 1
        else "Of one seed"
    )
    return [f"{over}: {', '.join(parts)}."]


def _confirmed(summary: Summary) -> list[str]:
    sample = sample_of(summary)
    if sample is None or not summary.seeds.fresh:
        return []
    lines = [f"Over {seeds(sample.seeds)} {summary.test_metric} is {measured(estimated(sample))}."]
    if missing := summary.seeds.missing:
        lines.append(f"Confirmations without a result, because they failed or diverged: {missing}.")
    figure = summary.published.get(summary.test_metric)
    p = None if figure is None else against(sample, figure)
    if summary.is_as_published and p is not None:
        is_established = p <= 1 - CONFIDENCE
        meaning = "a difference" if is_established else "no difference is established"
        lines.append(f"Against the published {words.number(figure)}: {meaning} (p = {words.p_value(p)}).")
    return lines


def seeds(count: int) -> str:
    """Format a number of fresh seeds."""
    return counted(count, "fresh seed")


def measured(estimate: MeanEstimate) -> str:
    """Format a mean with its interval and the sources of noise in it."""
    if estimate.low is None:
        return f"{words.number(estimate.mean)}, without an interval"
    interval = words.interval(estimate.low, estimate.high)
    confidence = words.share(CONFIDENCE, 1.0)
    return f"{words.number(estimate.mean)} ({confidence} interval {interval}, {noise(estimate.sources)})"


def noise(sources: Sequence[str]) -> str:
    """Format the sources of noise in an interval."""
    return f"{sources[0]} alone" if len(sources) == 1 else " and ".join(sources)


def _ahead(summary: Summary) -> list[str]:
    ranked = [row for row in summary.rows if row.rank is not None and row.violation == 0.0]
    if len(ranked) < 2 or (summary.front is not None and summary.chosen is None):
        return []  # without a preference among several objectives, no trial is ahead in all of them
    first, second = ranked[0], ranked[1]
    assert first.value is not None
    assert second.value is not None
    if first.value == second.value:
        return [f"Trials {first.number} and {second.number} have the same value{summary.judged}."]
    ahead = words.number(abs(first.value - second.value))
    return [
        f"Trial {first.number} is {ahead} ahead of trial {second.number}{summary.judged}. "
        "With one seed of each, no difference is established."
    ]


def _raced(race: RaceResult, judged: str) -> list[str]:
    """Return sentences on a race, with its values separate from the search's.

    Args:
        race: The race.
        judged: `Summary.judged`.
    """
    parts = [
        f"trial {racer.number} {_fresh(racer)} (search value {words.number(racer.search)})"
        for racer in race.racers
    ]
    if not parts:
        return []
    result = f"Race{judged}, mean of fresh seeds: {'; '.join(parts)}."
    if len(parts) == 1:
        return [result, "No other trial is complete, so the race has chosen nothing."]
    verdict = "is established as" if race.established else "leads, but is not established as"
    return [
        result,
        f"Trial {race.racers[0].number} {verdict} the best of them. Its validation mean is still too good, "
        "because it was selected by it: compare sweeps by test results.",
    ]


def _fresh(racer: Racer) -> str:
    values = [value for value in racer.fresh if math.isfinite(value)]
    failed = len(racer.fresh) - len(values)
    text = f"{words.number(statistics.fmean(values))} over {seeds(len(values))}" if values else "has no value"
    return f"{text}, {failed} failed" if failed else text


def context(summary: Summary) -> list[str]:
    """Return sentences on the origin of the results."""
    cost = None if summary.chosen is None else summary.chosen.row.cost
    return [
        *([] if summary.runs_script else [f"Data: {summary.data_source}."]),
        *([] if cost is None else [f"Size: {words.size(cost)}."]),
        *([] if summary.matched is None else [f"Sizes chosen for {summary.matched}."]),
        *(
            f"Published {name}: {words.number(value)} ({summary.published_source})."
            for name, value in summary.published.items()
        ),
        *(
            f"Trial {number} has the published values ({summary.published_source})."
            for number in summary.as_published
        ),
        *control_lines(summary),
        *_constrained(summary),
        *([front_text(summary).replace("**", "")] if summary.chosen and summary.front else []),
        *_diverged(summary),
        *([] if summary.reason is None else [f"The sweep is {summary.state}: {summary.reason}."]),
    ]


def _constrained(summary: Summary) -> list[str]:
    """Return a sentence on the constraints and the number of trials that violate them."""
    if not summary.constraints:
        return []
    bounds = "; ".join(f"{name} {_bounds(bound)}" for name, bound in summary.constraints.items())
    broken = sum(row.rank is not None and row.violation > 0.0 for row in summary.rows)
    return [f"Constraints: {bounds}. Complete trials that break one, and rank behind the others: {broken}."]


def _diverged(summary: Summary) -> list[str]:
    """Return a sentence on the diverged trials, which are not among the failures."""
    rows = [row for row in summary.rows if row.state == "DIVERGED"]
    if not rows:
        return []
    valued = sum(row.value is not None for row in rows)
    verb = "keeps" if valued == 1 else "keep"
    of_which = "and" if len(rows) == 1 else f"of which {valued}"
    kept = f", {of_which} {verb} the value of an earlier report" if valued else ""
    first = min(rows, key=lambda row: row.number)
    return [f"{counted(len(rows), 'trial')} diverged{kept}. The first: trial {first.number} {first.cause}."]


def _bounds(bound: Mapping[str, float]) -> str:
    return " and ".join(f"{name.replace('_', ' ')} {words.setting(value)}" for name, value in bound.items())


def caveats(summary: Summary) -> list[str]:
    """Return the limits of the results: violated constraints, and reasons against comparisons."""
    lines = []
    if summary.chosen is not None and summary.chosen.row.violation > 0.0:
        lines.append("The chosen trial breaks a constraint: no complete trial keeps them all.")
    if summary.chosen is not None and summary.chosen.row.state == "DIVERGED":
        row = summary.chosen.row
        lines.append(
            f"The chosen trial {row.cause}. Its value and its checkpoint are of step {row.best_step}."
        )
    if not summary.comparable and summary.note:
        lines.append(f"Not comparable with published figures: {summary.note}.")
    lines += doubts(summary)
    if summary.profile:
        lines.append(f"Profile {summary.profile}: smaller than the published setting.")
    if summary.departures and summary.departures != (f"profile {summary.profile}",):
        lines.append(f"Not the published network or training: {', '.join(summary.departures)}.")
    return lines
