"""The figures of a report by name; each is a pure function of the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches

import plotly.graph_objects as go

from orchestrator.errors import BadInput
from orchestrator.report.analysis import importances_of
from orchestrator.report.figures import curves, landscape
from orchestrator.report.figures.landscape import axes, valued
from orchestrator.report.history import History
from orchestrator.report.summary import Summary


def figure(name: str, history: History, summary: Summary) -> go.Figure:
    """Return a figure of `FIGURES`.

    Raises:
        BadInput: no figure has that name, or the sweep has too few trials for it.
    """
    if name not in FIGURES:
        near = get_close_matches(name, FIGURES, n=1, cutoff=0.4)
        remedy = f"Did you mean {near[0]}?" if near else f"The figures are {', '.join(FIGURES)}."
        raise BadInput("figure", "must be one of the report's", repr(name), remedy)
    if summary.chosen is None:
        got = f"no complete trial ({summary.state.lower()})"
        raise BadInput(f"figure {name}", "must have trials to draw", got, "Draw it again later.")
    return FIGURES[name](history, summary)


def _history(history: History, summary: Summary) -> go.Figure:
    return curves.optimisation_history(history, _chosen(summary))


def _learning_curves(history: History, summary: Summary) -> go.Figure:
    chance = summary.chance.get("validation")
    return curves.learning_curves(history, summary.metric, _chosen(summary), chance)


def _hidden_norms(history: History, summary: Summary) -> go.Figure:
    return curves.hidden_norms(history, _chosen(summary))


def _parallel(history: History, summary: Summary) -> go.Figure:
    over = axes(history)
    return landscape.parallel_coordinates(
        over, valued(history, over), summary.metric, maximize=summary.maximize
    )


def _slices(history: History, summary: Summary) -> go.Figure:
    over = axes(history)
    return landscape.slices(over, valued(history, over), summary.metric)


def _importances(history: History, summary: Summary) -> go.Figure:
    shares = importances_of(history)
    if not shares:
        got = f"{summary.states.get('COMPLETE', 0)} complete ones"
        raise BadInput("figure importances", "must have ten complete trials", got, "Extend the sweep.")
    return landscape.importance_bars(shares)


def _spending(history: History, summary: Summary) -> go.Figure:
    return curves.spending_bar(summary.spending)


def _chosen(summary: Summary) -> str:
    assert summary.chosen is not None, "`figure` refuses a sweep without a chosen trial"
    return summary.chosen.row.key


FIGURES: Mapping[str, Callable[[History, Summary], go.Figure]] = {
    "history": _history,
    "learning-curves": _learning_curves,
    "hidden-norms": _hidden_norms,
    "parallel": _parallel,
    "slices": _slices,
    "importances": _importances,
    "spending": _spending,
}
"""The figures by name, in the order of the report."""
