"""The common style of all figures: frame, colour-blind safe colours, thinned curves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

CHOSEN = "#D55E00"
COMPLETE = "#0072B2"
PRUNED = "#9AA0A6"
FAILED = "#CC79A7"
DIVERGED = "#E69F00"
BEST = "#009E73"
CHANCE = "#555555"
SCALE = "Viridis"

MOST_POINTS = 200
"""Largest number of points of a curve; a screen does not show more."""

_Item = TypeVar("_Item")


def framed(figure: go.Figure, *, x: str, y: str, height: int = 400) -> go.Figure:
    """Set the titles of the axes, the height in pixels and the common style of a figure."""
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 60, "r": 20, "t": 20, "b": 50},
        font={"size": 13},
        hovermode="closest",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
    )
    figure.update_xaxes(title_text=x, zeroline=False)
    figure.update_yaxes(title_text=y, zeroline=False)
    return figure


def shades(count: int) -> list[str]:
    """Return `count` colours from dark to light, for ordered things such as layers."""
    positions = [0.0] if count == 1 else [0.9 * k / (count - 1) for k in range(count)]
    return list(sample_colorscale(SCALE, positions))


def thinned(items: Sequence[_Item], most: int = MOST_POINTS) -> list[_Item]:
    """Return at most `most` items, evenly spaced, including the first and the last."""
    if len(items) <= most:
        return list(items)
    indices = np.linspace(0, len(items) - 1, most).round().astype(int)
    return [items[index] for index in indices]


def joined(curves: Iterable[tuple[str, Sequence[int], Sequence[float]]]) -> dict[str, Any]:
    """Join curves, each a name, steps and values, into one trace: a thousand traces would stall a browser."""
    x: list[int] = []
    y: list[float] = []
    names: list[str] = []
    for name, steps, values in curves:
        x += [*steps, steps[-1]]
        y += [*values, float("nan")]
        names += [name] * (len(steps) + 1)
    return {"x": np.array(x, dtype=np.int32), "y": np.array(y, dtype=float), "text": names}


def scale(*, maximize: bool) -> str:
    """Return the colour scale on which a better value is brighter."""
    return SCALE if maximize else f"{SCALE}_r"
