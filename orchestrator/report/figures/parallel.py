"""Every trial as one line through all of its hyperparameters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from orchestrator.report.figures import style
from orchestrator.report.figures.axes import Axis, Valued

_BUCKETS = 12

_CROWD = 100
"""Trials from which on the lines of the worse ones fade."""


def parallel_coordinates(over: Sequence[Axis], trials: Valued, metric: str, *, maximize: bool) -> go.Figure:
    """Draw every trial as a line through its hyperparameters, coloured by its value, the best on top.

    Pruned trials are grey below the others: their values are of fewer steps.
    """
    figure = go.Figure()
    named = [axis for axis in over if not np.isnan(trials.places[axis.name]).all()]
    scale = style.scale(maximize=maximize)
    pruned = [int(n) for n in np.flatnonzero(~trials.complete)]
    _through(figure, named, trials, pruned, style.PRUNED, 0.25)
    buckets = _buckets(trials, maximize=maximize)
    for index, (members, place) in enumerate(buckets):
        opacity = 0.9 if len(trials.values) < _CROWD else 0.15 + 0.75 * (index + 1) / len(buckets)
        _through(figure, named, trials, members, sample_colorscale(scale, [place])[0], opacity)
    for column, axis in enumerate(named):
        figure.add_vline(column, line={"color": "#888888", "width": 1})
        for place, text in axis.ticks():
            label = {"x": column, "y": place, "text": text, "bgcolor": "rgba(255,255,255,.8)"}
            figure.add_annotation(**label, showarrow=False, xanchor="left", xshift=4)
    _colour_bar(figure, trials.values[trials.complete], metric, scale)
    style.framed(figure, x="", y="", height=440)
    names = [axis.name for axis in named]
    figure.update_xaxes(tickvals=list(range(len(names))), ticktext=names, showgrid=False)
    figure.update_xaxes(range=[-0.1, len(names) - 0.6])
    return figure.update_yaxes(visible=False, range=[-0.06, 1.06])


def _through(
    figure: go.Figure,
    over: Sequence[Axis],
    trials: Valued,
    members: Sequence[int],
    colour: str,
    opacity: float,
) -> None:
    columns = list(range(len(over)))
    curves = [
        (
            f"trial {trials.numbers[n]}: {trials.values[n]:.4f}",
            columns,
            [float(trials.places[axis.name][n]) for axis in over],
        )
        for n in members
    ]
    if curves:
        line = {"color": colour, "width": 1.5}
        joined = style.joined(curves)
        figure.add_scatter(
            **joined, mode="lines", line=line, opacity=opacity, hoverinfo="text", showlegend=False
        )


def _buckets(trials: Valued, *, maximize: bool) -> list[tuple[list[int], float]]:
    """Return the complete trials in order of their value, a few colours in all, the best last.

    Each bucket is the places of its trials in `trials`, and the place of its mean on the scale of values.
    """
    places = np.flatnonzero(trials.complete)
    values = trials.values[places]
    if not len(values):
        return []
    order = places[np.argsort(values if maximize else -values, kind="stable")]
    low, high = float(values.min()), float(values.max())
    buckets = np.array_split(order, min(_BUCKETS, len(order)))
    means = [float(np.mean(trials.values[members])) for members in buckets]
    return [
        ([int(n) for n in members], 0.5 if high == low else (mean - low) / (high - low))
        for members, mean in zip(buckets, means, strict=True)
    ]


def _colour_bar(figure: go.Figure, values: np.ndarray, metric: str, scale: str) -> None:
    if not len(values):
        return
    figure.add_scatter(
        x=[None],
        y=[None],
        mode="markers",
        showlegend=False,
        marker={
            "color": [float(values.min())],
            "cmin": float(values.min()),
            "cmax": float(values.max()),
            "colorscale": scale,
            "showscale": True,
            "colorbar": {"title": {"text": metric}},
        },
    )
