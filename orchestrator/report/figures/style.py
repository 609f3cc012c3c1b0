"""How all pictures look: one frame, colours that the colour-blind tell apart, curves of a bearable length."""

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
BEST = "#009E73"
CHANCE = "#555555"
SCALE = "Viridis"

MOST_POINTS = 200
"""Points of a curve that is looked at by itself; more cannot be told apart on a screen."""

_Item = TypeVar("_Item")


def framed(figure: go.Figure, *, x: str, y: str, height: int = 400) -> go.Figure:
    """Give a picture its axes' titles, its size and the common look."""
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
    """Return `count` colours from dark to light, for things that have an order, such as layers."""
    places = [0.0] if count == 1 else [0.9 * k / (count - 1) for k in range(count)]
    return list(sample_colorscale(SCALE, places))


def thinned(items: Sequence[_Item], most: int = MOST_POINTS) -> list[_Item]:
    """Return at most `most` items, evenly spread, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    places = np.linspace(0, len(items) - 1, most).round().astype(int)
    return [items[place] for place in places]


def joined(curves: Iterable[tuple[str, Sequence[int], Sequence[float]]]) -> dict[str, Any]:
    """Join curves into one trace with gaps between them: a thousand traces would stall a browser.

    Args:
        curves: a name, steps and values each.
    """
    x: list[int] = []
    y: list[float] = []
    names: list[str] = []
    for name, steps, values in curves:
        x += [*steps, steps[-1]]
        y += [*values, float("nan")]
        names += [name] * (len(steps) + 1)
    return {"x": np.array(x, dtype=np.int32), "y": np.array(y, dtype=float), "text": names}


def scale(*, maximize: bool) -> str:
    """Return the scale on which better is brighter."""
    return SCALE if maximize else f"{SCALE}_r"
