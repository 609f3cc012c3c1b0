"""The figures of a report by name; each is a pure function of the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches

import plotly.graph_objects as go

from orchestrator.errors import BadInput, counted
from orchestrator.report.analysis import FEWEST, counted_trials, importances_of
from orchestrator.report.figures import curves, landscape
from orchestrator.report.figures.landscape import axes, valued
from orchestrator.report.history import History
from orchestrator.report.summary import Summary


def figure(name: str, history: History, summary: Summary) -> go.Figure:
    """Return a figure of `FIGURES`.

    Raises:
        BadInput: No figure has that name, or the sweep has too few trials for it.
    """
    if name not in FIGURES:
        near = get_close_matches(name, FIGURES, n=1, cutoff=0.4)
        remedy = f"Did you mean {near[0]}?" if near else f"The figures are {', '.join(FIGURES)}."
        raise BadInput("figure", "must be one of the report's", repr(name), remedy)
    if summary.chosen is None:
        got = f"no complete trial ({summary.state.lower()})"
        raise BadInput(f"figure {name}", "has no trials to draw", got, "Draw it again later.")
    return FIGURES[name](history, summary)


def _importances(history: History) -> go.Figure:
    if shares := importances_of(history):
        return landscape.importance_bars(shares)
    got = counted(len(counted_trials(history.search())), "such trial")
    must = f"must have {FEWEST} complete or pruned trials with different values"
    raise BadInput("figure importances", must, got, "Extend the sweep.")


def _parallel(history: History, summary: Summary) -> go.Figure:
    trials = valued(history, over := axes(history))
    return landscape.parallel_coordinates(over, trials, summary.metric, maximize=summary.maximize)


def _chosen(summary: Summary) -> str:
    assert summary.chosen is not None, "`figure` refuses a sweep without a chosen trial"
    return summary.chosen.row.key


FIGURES: Mapping[str, Callable[[History, Summary], go.Figure]] = {
    "history": lambda history, summary: curves.optimisation_history(history, _chosen(summary)),
    "learning-curves": lambda history, summary: curves.learning_curves(
        history, summary.metric, _chosen(summary), summary.chance.get("validation")
    ),
    "hidden-norms": lambda history, summary: curves.hidden_norms(history, _chosen(summary)),
    "parallel": _parallel,
    "slices": lambda history, summary: landscape.slices(
        over := axes(history), valued(history, over), summary.metric, maximize=summary.maximize
    ),
    "importances": lambda history, _: _importances(history),
    "spending": lambda _, summary: curves.spending_bar(summary.spending),
}
"""The figures by name, in the order of the report."""
