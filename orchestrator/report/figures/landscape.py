"""How a trial's value depends on each hyperparameter by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from orchestrator.report.figures import style
from orchestrator.report.figures.axes import Axis, Valued
from orchestrator.report.importance import Importance


def importance_bars(importances: Sequence[Importance]) -> go.Figure:
    """Draw each hyperparameter's share of the variance, with the interval that resampled trials give."""
    ordered = sorted(importances, key=lambda each: each.share)
    shares = [each.share for each in ordered]
    figure = go.Figure()
    figure.add_bar(
        x=shares,
        y=[each.name for each in ordered],
        orientation="h",
        marker={"color": style.COMPLETE},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [each.high - each.share for each in ordered],
            "arrayminus": [each.share - each.low for each in ordered],
            "color": "#333333",
        },
    )
    style.framed(figure, x="importance (share)", y="", height=110 + 36 * len(ordered))
    return figure.update_xaxes(range=[0, 1]).update_yaxes(automargin=True)


def slices(over: Sequence[Axis], trials: Valued, metric: str) -> go.Figure:
    """Draw the value over each hyperparameter by itself; pruned trials faint."""
    columns = 2 if len(over) in (2, 4) else min(3, len(over))
    rows = math.ceil(len(over) / columns)
    figure = make_subplots(rows, columns, shared_yaxes=True, vertical_spacing=0.28 / rows)
    for index, axis in enumerate(over):
        row, column = divmod(index, columns)
        place = {"row": row + 1, "col": column + 1}
        for complete, colour, opacity in ((False, style.PRUNED, 0.5), (True, style.COMPLETE, 0.75)):
            here = (trials.complete == complete) & ~np.isnan(trials.places[axis.name])
            figure.add_scatter(
                x=trials.places[axis.name][here],
                y=trials.values[here],
                text=[f"trial {number}" for number in trials.numbers[here]],
                mode="markers",
                marker={"color": colour, "size": 7},
                opacity=opacity,
                name="complete" if complete else "pruned",
                legendgroup=str(complete),
                showlegend=index == 0,
                hoverinfo="text+y",
                **place,
            )
        _ruled(figure, axis, place)
    style.framed(figure, x="", y="", height=90 + 280 * rows)
    for index, axis in enumerate(over):
        figure.update_xaxes(title_text=axis.name, row=index // columns + 1, col=index % columns + 1)
    return figure.update_yaxes(title_text=metric, col=1)


def _ruled(figure: go.Figure, axis: Axis, place: dict[str, int]) -> None:
    ticks = axis.ticks()
    figure.update_xaxes(
        tickvals=[tick[0] for tick in ticks],
        ticktext=[tick[1] for tick in ticks],
        range=[-0.05, 1.05],
        **place,
    )
