"""Plots of trial values against hyperparameters, and their axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from orchestrator.config.space import Distribution, find, recorded_space
from orchestrator.report import words
from orchestrator.report.analysis import Importance
from orchestrator.report.figures import style
from orchestrator.report.history import History

_BUCKETS = 12
"""Number of colours of the lines in parallel coordinates."""

_CROWD = 100
"""Number of trials above which the lines of the worse trials fade."""

_GRID = 50
"""Number of grid lines of a surface in each direction."""

_CORE = 0.02
"""Distance, as a share of an axis, within which two trials count as one."""

_REACH = 0.25
"""Distance from the nearest trial, as a share of an axis, beyond which the surface is blank."""

Kind = Literal["linear", "log", "category"]


@dataclass(frozen=True)
class Axis:
    """The axis of one hyperparameter.

    Attributes:
        name: Name in the search-space file.
        kind: Scale of the values.
        low: Value at position 0.
        high: Value at position 1.
        choices: Values of a category, in the order of the file.
    """

    name: str
    kind: Kind
    low: float = 0.0
    high: float = 1.0
    choices: tuple[Any, ...] = ()

    def position(self, value: Any) -> float:
        """Return the position of a value, from 0 to 1."""
        if self.kind == "category":
            index = find(self.choices, value)
            assert index is not None, f"{value!r} is not one of {self.choices}"
            return (index + 0.5) / len(self.choices)
        low, high, scaled = map(self._scaled, (self.low, self.high, value))
        return 0.5 if high == low else (scaled - low) / (high - low)

    def value(self, position: float) -> float:
        """Return the value at a position from 0 to 1."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        scaled = low + position * (high - low)
        return math.exp(scaled) if self.kind == "log" else scaled

    def ticks(self) -> list[tuple[float, str]]:
        """Return the positions and texts of the ticks."""
        if self.kind == "category":
            return [(self.position(choice), words.setting(choice)) for choice in self.choices]
        return [(position, words.setting(self.value(position))) for position in (0.0, 0.5, 1.0)]

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.kind == "log" else float(value)


def axes(history: History) -> list[Axis]:
    """Return the axes of the searched hyperparameters, in the order of the file."""
    search = history.sweep.document["search"]
    space = recorded_space(search)
    return [_axis(name, space[name]) for name in search]


def _axis(name: str, distribution: Distribution) -> Axis:
    if distribution.kind == "choice":
        return Axis(name, "category", choices=distribution.choices)
    low, high = distribution.ends()
    is_log = distribution.kind.startswith("log_") or distribution.kind == "power_of_two"
    return Axis(name, "log" if is_log else "linear", low, high)


@dataclass(frozen=True)
class TrialValues:
    """The trials with a value, as arrays of shape `(n,)`.

    Attributes:
        numbers: Numbers of the trials.
        values: Best validation values.
        positions: Positions on the axes by hyperparameter; NaN for trials without that hyperparameter.
        complete: Whether each trial is complete.
    """

    numbers: np.ndarray
    values: np.ndarray
    positions: Mapping[str, np.ndarray]
    complete: np.ndarray


def valued(history: History, over: Sequence[Axis]) -> TrialValues:
    """Return those complete and pruned trials of the search that have a value and are drawn."""
    trials = [trial for trial in style.drawn(history) if trial.value is not None]
    return TrialValues(
        numbers=np.array([trial.number for trial in trials], dtype=int),
        values=np.array([trial.value for trial in trials], dtype=float),
        positions={
            axis.name: np.array(
                [axis.position(t.params[axis.name]) if axis.name in t.params else math.nan for t in trials],
                dtype=float,
            )
            for axis in over
        },
        complete=np.array([trial.state == "COMPLETE" for trial in trials], dtype=bool),
    )


def importance_bars(importances: Sequence[Importance]) -> go.Figure:
    """Draw the importance of each hyperparameter, with its interval over resampled trials."""
    ordered = sorted(importances, key=lambda importance: importance.share)
    shares = [importance.share for importance in ordered]
    figure = go.Figure()
    figure.add_bar(
        x=shares,
        y=[importance.name for importance in ordered],
        orientation="h",
        marker={"color": style.COMPLETE},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [importance.high - importance.share for importance in ordered],
            "arrayminus": [importance.share - importance.low for importance in ordered],
            "color": style.CHANCE,
        },
    )
    style.framed(figure, x="importance (share)", y="", height=110 + 36 * len(ordered))
    return figure.update_xaxes(range=[0, 1]).update_yaxes(automargin=True)


def slices(over: Sequence[Axis], trials: TrialValues, metric: str, *, maximize: bool) -> go.Figure:
    """Draw the value of the trials over each hyperparameter, with pruned trials faint."""
    columns = 2 if len(over) in (2, 4) else min(3, len(over))
    rows = math.ceil(len(over) / columns)
    figure = make_subplots(rows, columns, shared_yaxes=True, vertical_spacing=0.28 / rows)
    for index, axis in enumerate(over):
        row, column = divmod(index, columns)
        subplot = {"row": row + 1, "col": column + 1}
        for complete, colour, opacity in ((False, style.PRUNED, 0.5), (True, style.COMPLETE, 0.75)):
            drawn = (trials.complete == complete) & ~np.isnan(trials.positions[axis.name])
            figure.add_scatter(
                x=trials.positions[axis.name][drawn],
                y=trials.values[drawn],
                text=[f"trial {number}" for number in trials.numbers[drawn]],
                mode="markers",
                marker={"color": colour, "size": 7},
                opacity=opacity,
                name="complete" if complete else "pruned",
                legendgroup=str(complete),
                showlegend=index == 0,
                hoverinfo="text+y",
                **subplot,
            )
        figure.update_xaxes(**_ticks(axis, 0.05), **subplot)
    style.framed(figure, x="", y="", height=90 + 280 * rows)
    style.scaled(figure, trials.values, maximize=maximize)
    for index, axis in enumerate(over):
        figure.update_xaxes(title_text=axis.name, row=index // columns + 1, col=index % columns + 1)
    return figure.update_yaxes(title_text=metric, col=1)


def _ticks(axis: Axis, margin: float) -> dict[str, Any]:
    """Return the ticks and the range of an axis of a figure, with a margin on both sides."""
    positions, texts = zip(*axis.ticks(), strict=True)
    return {"tickvals": positions, "ticktext": texts, "range": [-margin, 1.0 + margin]}


def parallel_coordinates(
    over: Sequence[Axis], trials: TrialValues, metric: str, *, maximize: bool
) -> go.Figure:
    """Draw every trial as a line through its hyperparameters, coloured by its value, the best on top.

    Pruned trials are grey and below the others, because they have trained for fewer steps.
    """
    figure = go.Figure()
    named = [axis for axis in over if not np.isnan(trials.positions[axis.name]).all()]
    scale = style.scale(maximize=maximize)
    pruned = [int(n) for n in np.flatnonzero(~trials.complete)]
    _through(figure, named, trials, pruned, style.PRUNED, 0.25)
    buckets = _buckets(trials, maximize=maximize)
    for index, (members, position) in enumerate(buckets):
        opacity = 0.9 if len(trials.values) < _CROWD else 0.15 + 0.75 * (index + 1) / len(buckets)
        _through(figure, named, trials, members, sample_colorscale(scale, [position])[0], opacity)
    # At once: each call of `add_annotation` checks the earlier ones again.
    label = {"bgcolor": style.VEIL, "showarrow": False, "xanchor": "left", "xshift": 4}
    line = {"color": style.PRUNED, "width": 1}
    figure.update_layout(
        annotations=[
            {"x": column, "y": position, "text": text, **label}
            for column, axis in enumerate(named)
            for position, text in axis.ticks()
        ],
        shapes=[
            {"type": "line", "x0": column, "x1": column, "y0": 0, "y1": 1, "yref": "y domain", "line": line}
            for column in range(len(named))
        ],
    )
    _colour_bar(figure, trials.values[trials.complete], metric, scale)
    style.framed(figure, x="", y="", height=440)
    names = [axis.name for axis in named]
    figure.update_xaxes(tickvals=list(range(len(names))), ticktext=names, showgrid=False)
    figure.update_xaxes(range=[-0.1, len(names) - 0.6])
    return figure.update_yaxes(visible=False, range=[-0.06, 1.06])


def _through(
    figure: go.Figure,
    over: Sequence[Axis],
    trials: TrialValues,
    members: Sequence[int],
    colour: str,
    opacity: float,
) -> None:
    columns = list(range(len(over)))
    curves = [
        (
            f"trial {trials.numbers[n]}: {words.number(trials.values[n])}",
            columns,
            [float(trials.positions[axis.name][n]) for axis in over],
        )
        for n in members
    ]
    if curves:
        line = {"color": colour, "width": 1.5}
        joined = style.joined(curves)
        figure.add_scatter(
            **joined, mode="lines", line=line, opacity=opacity, hoverinfo="text", showlegend=False
        )


def _buckets(trials: TrialValues, *, maximize: bool) -> list[tuple[list[int], float]]:
    """Return the complete trials in a few groups of neighbouring ranks, the best group last.

    A group is the indices of its trials in `trials`, and its position in the order of the values, from 0 to
    1. A rank, unlike a value, is not shifted by outliers.
    """
    indices = np.flatnonzero(trials.complete)
    if not len(indices):
        return []
    values = trials.values[indices]
    order = indices[np.argsort(values if maximize else -values, kind="stable")]
    buckets = np.array_split(order, min(_BUCKETS, len(order)))
    positions = np.linspace(*((0.0, 1.0) if maximize else (1.0, 0.0)), len(buckets))
    return [
        ([int(n) for n in members], float(position))
        for members, position in zip(buckets, positions, strict=True)
    ]


def _colour_bar(figure: go.Figure, values: np.ndarray, metric: str, scale: str) -> None:
    """Add the bar of the colours of ranks, with the values of five ranks."""
    if not len(values):
        return
    ranks = np.linspace(0.0, 1.0, 5)
    figure.add_scatter(
        x=[None],
        y=[None],
        mode="markers",
        showlegend=False,
        marker={
            "color": [0.0],
            "cmin": 0.0,
            "cmax": 1.0,
            "colorscale": scale,
            "showscale": True,
            "colorbar": {
                "title": {"text": metric},
                "tickvals": ranks,
                "ticktext": words.numbers(list(np.quantile(values, ranks))),
            },
        },
    )


def contour(across: Axis, up: Axis, trials: TrialValues, metric: str, *, maximize: bool) -> go.Figure:
    """Draw the complete trials over two hyperparameters, on an interpolated surface."""
    x, y, values, numbers = over_both(across, up, trials)
    grid = np.linspace(0.0, 1.0, _GRID)
    bounds = {"colorscale": style.scale(maximize=maximize)}
    low, high = style.inliers(values, maximize=maximize) or (float(values.min()), float(values.max()))
    figure = go.Figure()
    figure.add_contour(
        x=grid,
        y=grid,
        # An outlier would pull the surface around it out of the scale.
        z=between(x, y, values.clip(low, high), grid),
        zmin=low,
        zmax=high,
        colorbar={"title": {"text": metric}},
        line={"width": 0.5},
        hoverinfo="skip",
        **bounds,
    )
    marker = {"size": 9, "line": {"color": "white", "width": 1}, "cmin": low, "cmax": high}
    figure.add_scatter(
        x=x,
        y=y,
        text=[
            f"trial {number}: {words.number(value)}" for number, value in zip(numbers, values, strict=True)
        ],
        mode="markers",
        marker={"color": values, **marker, **bounds},
        hoverinfo="text",
        showlegend=False,
    )
    style.framed(figure, x=across.name, y=up.name, height=440)
    figure.update_xaxes(**_ticks(across, 0.03))
    return figure.update_yaxes(**_ticks(up, 0.03))


def over_both(
    across: Axis, up: Axis, trials: TrialValues
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the positions, values and numbers, shape `(n,)` each, of the complete trials on both axes."""
    x, y = trials.positions[across.name], trials.positions[up.name]
    has_both = trials.complete & ~np.isnan(x) & ~np.isnan(y)
    return x[has_both], y[has_both], trials.values[has_both], trials.numbers[has_both]


def between(x: np.ndarray, y: np.ndarray, values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Return values interpolated on a square grid, shape `(grid, grid)`; NaN far from all trials.

    The weights are the inverse fourth power of the distance, so the surface passes through the trials.

    Args:
        x: Positions of the trials on the horizontal axis, shape `(n,)`.
        y: Positions on the vertical axis, shape `(n,)`.
        values: Values of the trials, shape `(n,)`.
        grid: Positions of the grid lines, shape `(grid,)`.

    Source: D. Shepard, "A two-dimensional interpolation function for irregularly-spaced data", 1968.
    """
    squares = (grid[None, :, None] - x) ** 2 + (grid[:, None, None] - y) ** 2
    weights = 1.0 / (squares + _CORE**2) ** 2
    surface = (weights @ values) / weights.sum(axis=-1)
    return np.where(squares.min(axis=-1) < _REACH**2, surface, np.nan)
