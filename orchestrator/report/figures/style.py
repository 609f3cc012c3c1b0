"""The common style of all figures: frame, colour-blind safe colours, thinned curves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from orchestrator.ledger.sweeps.records import TrialRecord
from orchestrator.ledger.sweeps.selection import ranked
from orchestrator.report.history import History

CHOSEN = "#D55E00"
COMPLETE = "#0072B2"
PRUNED = "#9AA0A6"
FAILED = "#CC79A7"
DIVERGED = "#E69F00"
BEST = "#009E73"
CHANCE = "#555555"
EVALUATION = "#56B4E9"
SCALE = "Viridis"
INK, LINE, CARD, VEIL = "#1b1f24", "#d4dae1", "#ffffff", "rgba(255,255,255,.8)"
"""Colours of text, lines and ground, and of the ground of labels above curves."""

DARK = {
    CHOSEN: "#ff8a3d",
    COMPLETE: "#56b4e9",
    PRUNED: "#8b949e",
    FAILED: "#e5a3c5",
    DIVERGED: "#f0b429",
    BEST: "#2bc79a",
    CHANCE: "#a3adb8",
    EVALUATION: "#b5def8",
    INK: "#e6e9ee",
    LINE: "#333c47",
    CARD: "#1d232a",
    VEIL: "rgba(29,35,42,.8)",
}
"""The colour in a dark page of each colour of a figure."""

_FEWEST = 8
"""Minimum number of values with outliers among them."""

MOST_TRIALS = 1_000
"""Largest number of trials that a report lists and draws one by one: more would take a browser seconds."""

MOST_POINTS = 200
"""Largest number of points of a curve; a screen does not show more."""

_Item = TypeVar("_Item")


_AXIS = {"gridcolor": LINE, "linecolor": LINE, "automargin": True, "ticks": "", "title": {"standoff": 8}}
_TEMPLATE = go.layout.Template(
    layout={
        "font": {"color": INK},
        "paper_bgcolor": CARD,
        "plot_bgcolor": CARD,
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
)


def framed(figure: go.Figure, *, x: str, y: str, height: int = 400) -> go.Figure:
    """Set the titles of the axes, the height in pixels and the common style of a figure."""
    figure.update_layout(
        template=_TEMPLATE,
        height=height,
        margin={"l": 60, "r": 20, "t": 20, "b": 50},
        font={"size": 13},
        hovermode="closest",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
    )
    figure.update_xaxes(title_text=x, zeroline=False)
    figure.update_yaxes(title_text=y, zeroline=False)
    return figure


def inliers(values: Iterable[float], *, maximize: bool) -> tuple[float, float] | None:
    """Return the ends of the values without those that are far worse than the others; None without any.

    Values count as far worse beyond three interquartile ranges from the quartiles. Good values are never left
    out.

    Source: J. W. Tukey, "Exploratory Data Analysis", 1977, section 2D ("far out").
    """
    finite = np.array([value for value in values if np.isfinite(value)])
    if len(finite) < _FEWEST:
        return None
    low, high = np.percentile(finite, (25, 75))
    reach = 3.0 * (high - low)
    if reach == 0.0:
        return None
    inside = finite[finite >= low - reach] if maximize else finite[finite <= high + reach]
    return None if len(inside) == len(finite) else (float(inside.min()), float(inside.max()))


def scaled(figure: go.Figure, values: Iterable[float], *, maximize: bool) -> go.Figure:
    """Fit the vertical axes of a figure to the values without outliers, and add buttons that change them.

    `Fit` leaves out the values that `inliers` does, and gives their number. `All` shows every value. `Log`
    exists if all values are positive and span two decades.
    """
    known = [value for value in values if np.isfinite(value)]
    ends = inliers(known, maximize=maximize)
    is_wide = bool(known) and min(known) > 0 and max(known) > 100 * min(known)
    if ends is None and not is_wide:
        return figure
    axes = [axis.plotly_name for axis in figure.select_yaxes()]
    everything = {f"{axis}.autorange": True for axis in axes}
    linear, log = ({f"{axis}.type": kind for axis in axes} for kind in ("linear", "log"))
    changes = {"All": {**linear, **everything}, **({"Log": {**log, **everything}} if is_wide else {})}
    if ends is not None:
        low, high = ends
        margin = 0.04 * (high - low)
        outside = sum(not low <= value <= high for value in known)
        where = "below ▼" if maximize else "above ▲"
        figure.add_annotation(
            text=f"{outside} {where}",
            x=1.0,
            y=0.0 if maximize else 1.0,
            xref="paper",
            yref="paper",
            xanchor="right",
            yanchor="bottom" if maximize else "top",
            bgcolor=VEIL,
            showarrow=False,
        )
        note = f"annotations[{len(figure.layout.annotations) - 1}].visible"
        figure.update_yaxes(range=[low - margin, high + margin])
        fit = {f"{axis}.range": [low - margin, high + margin] for axis in axes}
        changes = {
            "Fit": {**linear, **fit, note: True},
            **{name: {**change, note: False} for name, change in changes.items()},
        }
    figure.update_layout(
        margin={"b": 66},
        updatemenus=[
            {
                "type": "buttons",
                "direction": "right",
                "x": 1.0,
                "xanchor": "right",
                "y": 0.0,
                "yanchor": "top",
                "pad": {"t": 26},  # below the labels of the ticks
                "bgcolor": CARD,
                "bordercolor": LINE,
                "font": {"size": 12},
                "buttons": [
                    {"label": name, "method": "relayout", "args": [change]}
                    for name, change in changes.items()
                ],
            }
        ],
    )
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


def drawn(history: History) -> list[TrialRecord]:
    """Return the trials of the search that figures draw one by one: all, or at most `MOST_TRIALS` of them.

    If there are more, half of the drawn trials are the best ones, as far as they have a value, and the others
    are evenly spaced; they are in the order of their numbers.
    """
    trials = history.search()
    if len(trials) <= MOST_TRIALS:
        return list(trials)
    best_first = ranked(history.trials, maximize=history.maximize, violations=history.violations())
    kept = {trial.key for trial in best_first[: MOST_TRIALS // 2]}
    others = thinned([trial for trial in trials if trial.key not in kept], MOST_TRIALS - len(kept))
    kept |= {trial.key for trial in others}
    return [trial for trial in trials if trial.key in kept]


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
