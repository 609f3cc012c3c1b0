"""The answer in words: what was chosen, how good it is, and what that may be compared with."""

from __future__ import annotations

from orchestrator.report import words
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
    return "always the most frequent class" if metric.endswith("accuracy") else "always the mean"


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
