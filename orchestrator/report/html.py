"""The report of a sweep as one HTML file: the answer first, then what it rests on."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from itertools import combinations

from orchestrator.report import words
from orchestrator.report.answer import answer, baseline, caveats, context, findings
from orchestrator.report.figures import curves, landscape, parallel, progress, surface
from orchestrator.report.figures.axes import Axis, axes, valued
from orchestrator.report.history import History
from orchestrator.report.importance import Importance
from orchestrator.report.page import Section, cards, page, table
from orchestrator.report.summary import Row, Summary

_CONTOURED = 3
"""The most important hyperparameters whose pairs are drawn."""


_FEWEST = 6
"""Trials below which a surface would be drawn from nothing."""


def report(history: History, summary: Summary, importances: Sequence[Importance]) -> str:
    """Return the report's HTML."""
    title = f"{summary.layer} on {summary.task}: {summary.sweep_id}"
    sections = [
        _leaderboard(summary),
        *_progress(history, summary),
        *_hidden_norms(history, summary),
        *_landscape(history, summary, importances),
        *_costs(history, summary),
        _again(history, summary),
    ]
    return page(title, _lead(summary), sections)


def hidden_norms_page(history: History, summary: Summary) -> str:
    """Return the pictures of the hidden norms as a page of their own, or '' where there are none."""
    sections = _hidden_norms(history, summary)
    return page(f"Hidden norms of {summary.sweep_id}", "", sections) if sections else ""


def _lead(summary: Summary) -> str:
    chosen = summary.chosen
    done = sum(summary.states.get(state, 0) for state in ("COMPLETE", "PRUNED", "FAILED"))
    items = [(f"trials ended, of {len(summary.rows)} begun", str(done))]
    if chosen is not None:
        items = [
            (f"{summary.metric} of trial {chosen.row.number}", words.number(chosen.row.value)),
            (summary.test_metric, words.number(chosen.row.test)),
            (baseline(summary.metric), words.number(summary.chance.get("test"))),
            *((f"published {name}", words.number(value)) for name, value in summary.published.items()),
            *items,
        ]
    told = html.escape(answer(summary).replace("**", ""))
    notes = "".join(f"<p>{html.escape(line)}</p>" for line in [*findings(summary), *context(summary)])
    cautions = "".join(f'<p class="warn">{html.escape(line)}</p>' for line in caveats(summary))
    return f"<p>{told}</p>{cards(items)}{cautions}{notes}"


def _leaderboard(summary: Summary) -> Section:
    header = [
        "#",
        "trial",
        summary.metric,
        summary.test_metric,
        "steps",
        "state",
        "time",
        *summary.parameters,
    ]
    rows = [_cells(summary, row) for row in summary.rows]
    key = summary.chosen.row.key if summary.chosen else None
    classes = ["chosen" if row.key == key else row.state.lower() for row in summary.rows]
    caption = "Complete trials by their best validation value; a click on a heading sorts."
    return Section("Leaderboard", caption, table(header, rows, classes))


def _cells(summary: Summary, row: Row) -> list[tuple[str, object]]:
    settings = [
        (words.setting(row.params.get(name, "–")), row.params.get(name)) for name in summary.parameters
    ]
    return [
        ("" if row.rank is None else str(row.rank), row.rank),
        (str(row.number), row.number),
        (words.number(row.value), row.value),
        (words.number(row.test), row.test),
        (f"{row.step}/{row.total_steps}", row.step),
        (row.state.lower(), row.state.lower()),
        (words.duration(row.seconds), row.seconds),
        *settings,
    ]


def _progress(history: History, summary: Summary) -> list[Section]:
    key = summary.chosen.row.key if summary.chosen else None
    found = [
        Section(
            "Optimisation history",
            "The best validation value of each trial, in the order in which they were proposed.",
            figures=(progress.optimisation_history(history, key),),
        )
    ]
    if history.reports:
        chance = summary.chance.get("validation")
        found.append(
            Section(
                "Learning curves",
                f"{summary.metric} at every report; trials that were stopped early are faint.",
                figures=(curves.learning_curves(history, summary.metric, key, chance),),
            )
        )
    return found


def _hidden_norms(history: History, summary: Summary) -> list[Section]:
    complete = [row.key for row in summary.rows if row.state == "COMPLETE"]
    if summary.chosen is None or not curves.layers(history, complete):
        return []
    key = summary.chosen.row.key
    what = "Mean Euclidean norm of the hidden state over the last training batch and its unpadded steps"
    found = [
        Section(
            "Hidden norms",
            f"{what}, by layer, of the chosen trial.",
            figures=(curves.hidden_norms(history, key),),
        )
    ]
    if len(complete) > 1:
        caption = (
            f"The same over the {len(complete)} complete trials: mean, and one standard deviation aside."
        )
        spread = curves.hidden_norm_spread(history, complete)
        found.append(Section("Hidden norms over trials", caption, figures=(spread,)))
    return found


def _landscape(history: History, summary: Summary, importances: Sequence[Importance]) -> list[Section]:
    over = axes(history)
    trials = valued(history, over)
    if not over or len(trials.values) < 2:
        return []
    found = [_importances(importances)]
    if len(over) > 1:
        figure = parallel.parallel_coordinates(over, trials, summary.metric, maximize=summary.maximize)
        caption = "A line a trial through its hyperparameters; brighter is better, grey was stopped early."
        found.append(Section("Parallel coordinates", caption, figures=(figure,)))
    caption = f"{summary.metric} over each hyperparameter by itself."
    found.append(Section("Slices", caption, figures=(landscape.slices(over, trials, summary.metric),)))
    figures = tuple(
        surface.contour(across, up, trials, summary.metric, maximize=summary.maximize)
        for across, up in combinations(_ranked(over, importances)[:_CONTOURED], 2)
        if len(surface.over_both(across, up, trials)[0]) >= _FEWEST
    )
    if figures:
        caption = "The complete trials, and a surface between them; blank where none is near."
        found.append(Section("Contours", caption, figures=figures))
    return found


def _importances(importances: Sequence[Importance]) -> Section:
    if not importances:
        return Section("Importances", "Fewer than ten trials are complete: any number here would be noise.")
    caption = (
        "Share of each hyperparameter in reaching the best tenth of the trials (at least five of them), by "
        "PED-ANOVA; the thin bars span 90 % of the values that resampled trials give."
    )
    return Section("Importances", caption, figures=(landscape.importance_bars(importances),))


def _ranked(over: Sequence[Axis], importances: Sequence[Importance]) -> list[Axis]:
    """Return the ranges, the most important first."""
    shares = {each.name: each.share for each in importances}
    ranges = [axis for axis in over if axis.kind != "category"]
    return sorted(ranges, key=lambda axis: -shares.get(axis.name, 0.0))


def _costs(history: History, summary: Summary) -> list[Section]:
    spending = summary.spending
    gpu = float(history.sweep.document.get("resources", {}).get("gpu", 0.0))
    caption = f"{words.duration(spending.total)} of attempts, side by side."
    if gpu:
        caption += f" At {gpu:g} GPU a trial: {spending.total * gpu / 3600:.2f} GPU-hours."
    parts = [
        [(name, name), (words.duration(spent), spent), (words.share(spent, spending.total), spent)]
        for name, spent in spending.parts().items()
    ]
    body = table(["part", "time", "share"], parts, texts=True)
    found = [Section("Where the time went", caption, body, (progress.spending_bar(spending),))]
    if summary.failures:
        rows = [[(cause, cause), (str(count), count)] for cause, count in summary.failures.items()]
        details = [
            [(str(row.number), row.number), (str(row.attempts), row.attempts), (row.cause or "", row.cause)]
            for row in summary.rows
            if row.state == "FAILED"
        ]
        body = table(["cause", "trials"], rows, texts=True)
        body += table(["trial", "attempts", "what happened"], details, texts=True)
        found.append(Section("Failures", "Trials that ended without a value, by cause.", body))
    return found


def _again(history: History, summary: Summary) -> Section:
    sweep, facts = history.sweep, history.sweep.facts
    rows = [
        ("command", facts.get("command", "")),
        ("git commit", facts.get("git_commit", "")),
        ("specification digest", sweep.digest),
        ("data", f"{sweep.data_source} ({sweep.data_digest})"),
        ("sampler seed", facts.get("sampler_seed", "")),
        *((f"version of {name}", value) for name, value in facts.get("versions", {}).items()),
        *((("checkpoint", summary.chosen.checkpoint),) if summary.chosen else ()),
    ]
    known = table(["", "value"], [[(name, name), (str(value), value)] for name, value in rows], texts=True)
    specification = facts.get("specification") or json.dumps(dict(sweep.document), indent=2)
    body = f"{known}<pre>{html.escape(specification)}</pre>"
    return Section("Run it again", "Everything the numbers above depend on, and the search-space file.", body)
