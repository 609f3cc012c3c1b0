"""The sweep as a whole: the best so far, and where the time went."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from orchestrator.ledger.records import TrialRecord
from orchestrator.report.figures import style
from orchestrator.report.history import History
from orchestrator.report.spending import Spending


def optimisation_history(history: History, chosen: str | None) -> go.Figure:
    """Draw each trial's value by its number, and the best complete one so far as a staircase."""
    trials = history.search()
    figure = go.Figure()
    for name, state, colour, symbol in (
        ("complete", "COMPLETE", style.COMPLETE, "circle"),
        ("pruned", "PRUNED", style.PRUNED, "circle-open"),
    ):
        members = [trial for trial in trials if trial.state == state and trial.value is not None]
        _markers(figure, members, name, colour, symbol, 7)
    best = best_so_far(trials, maximize=history.maximize)
    if best:
        numbers, values = zip(*best, strict=True)
        line = {"color": style.BEST, "width": 2, "shape": "hv"}
        figure.add_scatter(x=numbers, y=values, name="best so far", mode="lines", line=line)
    _markers(figure, [trial for trial in trials if trial.key == chosen], "chosen", style.CHOSEN, "star", 14)
    return style.framed(figure, x="trial", y=history.metric)


def best_so_far(trials: Sequence[TrialRecord], *, maximize: bool) -> list[tuple[int, float]]:
    """Return trial numbers and the best value of a complete trial up to each, ends of the range included."""
    better = max if maximize else min
    steps: list[tuple[int, float]] = []
    for trial in sorted(trials, key=lambda trial: trial.number):
        if trial.state == "COMPLETE" and trial.value is not None:
            steps.append((trial.number, better(trial.value, steps[-1][1]) if steps else trial.value))
    if steps:
        steps.append((max(trial.number for trial in trials), steps[-1][1]))
    return steps


def _markers(
    figure: go.Figure, trials: Sequence[TrialRecord], name: str, colour: str, symbol: str, size: int
) -> None:
    if trials:
        figure.add_scatter(
            x=[trial.number for trial in trials],
            y=[trial.value for trial in trials],
            name=name,
            mode="markers",
            marker={"color": colour, "symbol": symbol, "size": size},
        )


_PARTS = {
    "train": (style.COMPLETE, "training"),
    "compile": ("#E69F00", "compiling"),
    "evaluate": ("#56B4E9", "evaluating"),
    "other": (style.PRUNED, "starting, saving, waiting"),
    "lost": (style.FAILED, "lost to faults"),
}


def spending_bar(spending: Spending) -> go.Figure:
    """Draw where the time of all attempts went, as one bar."""
    figure = go.Figure()
    unit, length = ("hours", 3600.0) if spending.total > 5400 else ("minutes", 60.0)
    for name, seconds in spending.parts().items():
        colour, title = _PARTS[name]
        figure.add_bar(
            x=[seconds / length],
            y=[""],
            name=title,
            orientation="h",
            marker={"color": colour},
            hoverinfo="x+name",
        )
    style.framed(figure, x=f"{unit} of all attempts together", y="", height=170)
    return figure.update_layout(barmode="stack", legend={"traceorder": "normal"})
