"""The answer in words: what was chosen, how good it is, and what that may be compared with."""

from __future__ import annotations

from orchestrator.report import words
from orchestrator.report.significance import Verdict, against_figure, between_accuracies, spread
from orchestrator.report.summary import Chosen, Summary


def answer(summary: Summary) -> str:
    """Return the first paragraph of a report."""
    if summary.chosen is None:
        return f"No trial is complete, so none is chosen ({summary.state.lower()})."
    chosen = summary.chosen
    validation = f"**{words.number(chosen.row.value)}** {summary.metric}{beside(summary, 'validation')}"
    where = f"at step {chosen.row.best_step}"
    return f"Trial {chosen.row.number} reaches {validation}{_tested(summary, chosen)}, {where}."


def _tested(summary: Summary, chosen: Chosen) -> str:
    if chosen.row.test is None:
        return ""
    return f" and **{words.number(chosen.row.test)}** {summary.test_metric}{beside(summary, 'test')}"


def beside(summary: Summary, split: str) -> str:
    """Return the chance level of a split in brackets, or nothing where it is not known."""
    chance = summary.chance.get(split)
    return "" if chance is None else f" ({baseline(summary.metric)}: {words.number(chance)})"


def baseline(metric: str) -> str:
    """Return what the chance level of a metric is called."""
    names = {"accuracy": "always the most frequent class", "mse": "always the mean"}
    return names.get(metric.rpartition("/")[2], "the best constant answer")


def notes(summary: Summary) -> list[str]:
    """Return the lines below the answer: findings, where the numbers come from, what they do not say."""
    return [*findings(summary), *context(summary), *caveats(summary)]


def findings(summary: Summary) -> list[str]:
    """Return what the differences mean: over fresh seeds to the published figure, and to the second best."""
    return [*_confirmed(summary), *_ahead(summary)]


def _confirmed(summary: Summary) -> list[str]:
    values = [row.test for row in summary.confirmations if row.test is not None]
    if not values:
        return []
    seen = spread(values)
    deviation = "" if seen.deviation is None else f" ± {words.number(seen.deviation)} (standard deviation)"
    told = [f"Over {seen.count} fresh seeds {summary.test_metric} is {words.number(seen.mean)}{deviation}."]
    figure = summary.published.get(summary.test_metric)
    test = None if figure is None else against_figure(values, figure)
    if summary.comparable and test is not None:
        told.append(f"Against the published {words.number(figure)}: {_verdict(test)}.")
    return told


def _ahead(summary: Summary) -> list[str]:
    ranked = [row for row in summary.rows if row.rank is not None and row.value is not None]
    if len(ranked) < 2 or summary.examples is None or not summary.metric.endswith("accuracy"):
        return []
    first, second = ranked[0], ranked[1]
    assert first.value is not None
    assert second.value is not None
    test = between_accuracies(first.value, second.value, summary.examples)
    ahead = words.number(abs(first.value - second.value))
    where = f"on {summary.examples:,} validation examples"
    return [f"Trial {first.number} is {ahead} ahead of trial {second.number} {where}: {_verdict(test)}."]


def _verdict(test: Verdict) -> str:
    meaning = "a difference" if test.differs else "no more than chance explains"
    return f"{meaning} ({test.name}, p = {test.p:.2g})"


def context(summary: Summary) -> list[str]:
    """Return the lines that say where the numbers come from."""
    published = summary.published.items()
    return [
        f"Data: {summary.data_source}.",
        *(
            f"Published {name}: {words.number(value)} ({summary.published_source})."
            for name, value in published
        ),
    ]


def caveats(summary: Summary) -> list[str]:
    """Return the lines that say what the numbers may not be compared with."""
    lines = []
    if not summary.comparable and summary.note:
        lines.append(f"Not comparable with published figures: {summary.note}.")
    if summary.profile:
        lines.append(f"Profile `{summary.profile}`: smaller than the published setting.")
    return lines
