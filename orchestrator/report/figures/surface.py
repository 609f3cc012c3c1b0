"""A trial's value over two hyperparameters at once."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from orchestrator.report.figures import style
from orchestrator.report.figures.axes import Axis, Valued

_GRID = 50

_CORE = 0.02
"""Distance within which two trials are one, in lengths of an axis."""

_REACH = 0.25
"""Distance from the nearest trial beyond which nothing is drawn, in lengths of an axis."""


def contour(across: Axis, up: Axis, trials: Valued, metric: str, *, maximize: bool) -> go.Figure:
    """Draw the value of the complete trials over two hyperparameters, on a surface between them."""
    x, y, values, numbers = over_both(across, up, trials)
    grid = np.linspace(0.0, 1.0, _GRID)
    bounds = {"colorscale": style.scale(maximize=maximize)}
    ends = {"min": float(values.min()), "max": float(values.max())}
    figure = go.Figure()
    figure.add_contour(
        x=grid,
        y=grid,
        z=between(x, y, values, grid),
        zmin=ends["min"],
        zmax=ends["max"],
        colorbar={"title": {"text": metric}},
        line={"width": 0.5},
        hoverinfo="skip",
        **bounds,
    )
    marker = {"size": 9, "line": {"color": "white", "width": 1}, "cmin": ends["min"], "cmax": ends["max"]}
    figure.add_scatter(
        x=x,
        y=y,
        text=[f"trial {number}: {value:.4f}" for number, value in zip(numbers, values, strict=True)],
        mode="markers",
        marker={"color": values, **marker, **bounds},
        hoverinfo="text",
        showlegend=False,
    )
    style.framed(figure, x=across.name, y=up.name, height=440)
    for update, axis in ((figure.update_xaxes, across), (figure.update_yaxes, up)):
        ticks = axis.ticks()
        update(
            tickvals=[tick[0] for tick in ticks], ticktext=[tick[1] for tick in ticks], range=[-0.03, 1.03]
        )
    return figure


def over_both(
    across: Axis, up: Axis, trials: Valued
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return places across and upwards, values and numbers of the complete trials that have both.

    All four have the shape `(n,)`.
    """
    x, y = trials.places[across.name], trials.places[up.name]
    here = trials.complete & ~np.isnan(x) & ~np.isnan(y)
    return x[here], y[here], trials.values[here], trials.numbers[here]


def between(x: np.ndarray, y: np.ndarray, values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Return `values` interpolated on the square of `grid`, shape `(grid, grid)`; NaN far from all trials.

    Weighted by the inverse fourth power of the distance, so that it has at a trial that trial's value.

    Args:
        x: places of the trials across, shape `(n,)`.
        y: places upwards, shape `(n,)`.
        values: shape `(n,)`.
        grid: places of the lines, shape `(grid,)`.

    Source: D. Shepard, "A two-dimensional interpolation function for irregularly-spaced data", 1968.
    """
    squares = (grid[None, :, None] - x) ** 2 + (grid[:, None, None] - y) ** 2
    weights = 1.0 / (squares + _CORE**2) ** 2
    surface = (weights @ values) / weights.sum(axis=-1)
    return np.where(squares.min(axis=-1) < _REACH**2, surface, np.nan)
