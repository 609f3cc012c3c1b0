"""Curves over training: how the trials learned, and how their hidden states grew."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import plotly.graph_objects as go

from orchestrator.ledger.records import UNFINISHED_TRIAL, TrialRecord
from orchestrator.report.figures import style
from orchestrator.report.history import History

_NORM = re.compile(r"hidden_norm/layer_(\d+)")
_MANY = 100
"""Trials from which on the curves that only make the background are thinned more."""


_GOOD = 30
"""Complete trials that are told apart then."""


def learning_curves(
    history: History, metric: str, chosen: str | None, chance: float | None = None
) -> go.Figure:
    """Draw a metric over steps for every trial: pruned and failed ones faint, the chosen one on top."""
    trials = [trial for trial in history.search() if trial.key != chosen]
    most = style.MOST_POINTS if len(trials) <= _MANY else 60
    good = {trial.key for trial in _best(history, _GOOD if len(trials) > _MANY else len(trials))}
    groups = (
        ("pruned", [trial for trial in trials if trial.state == "PRUNED"], style.PRUNED, 0.45),
        ("failed", [trial for trial in trials if trial.state == "FAILED"], style.FAILED, 0.45),
        ("running", [trial for trial in trials if trial.state in UNFINISHED_TRIAL], style.BEST, 0.6),
        (
            f"complete, not of the best {_GOOD}",
            [trial for trial in trials if trial.state == "COMPLETE" and trial.key not in good],
            style.COMPLETE,
            0.15,
        ),
        (
            f"complete, of the best {_GOOD}" if len(trials) > _MANY else "complete",
            [trial for trial in trials if trial.key in good],
            style.COMPLETE,
            0.6,
        ),
    )
    figure = go.Figure()
    for name, members, colour, opacity in groups:
        curves = list(_curves(history, members, metric, most))
        if curves:
            line = {"color": colour, "width": 1}
            figure.add_scatter(
                **style.joined(curves),
                name=name,
                mode="lines",
                line=line,
                opacity=opacity,
                hoverinfo="text+x+y",
            )
    best = [trial for trial in history.search() if trial.key == chosen]
    for name, steps, values in _curves(history, best, metric, style.MOST_POINTS):
        line = {"color": style.CHOSEN, "width": 3}
        figure.add_scatter(x=steps, y=values, name=f"chosen ({name})", mode="lines", line=line)
    if chance is not None:
        figure.add_hline(chance, line={"dash": "dot", "color": style.CHANCE}, annotation_text="chance")
    return style.framed(figure, x="step", y=metric)


def _best(history: History, count: int) -> list[TrialRecord]:
    complete = [trial for trial in history.search() if trial.state == "COMPLETE" and trial.value is not None]
    sign = -1.0 if history.maximize else 1.0
    return sorted(complete, key=lambda trial: sign * (trial.value or 0.0))[:count]


def _curves(
    history: History, trials: Sequence[TrialRecord], metric: str, most: int
) -> Iterator[tuple[str, list[int], list[float]]]:
    for trial in trials:
        rows = [row for row in history.reports.get(trial.key, ()) if metric in row.metrics]
        rows = style.thinned(rows, most)
        if rows:
            yield f"trial {trial.number}", [row.step for row in rows], [row.metrics[metric] for row in rows]


def layers(history: History, keys: Sequence[str]) -> list[int]:
    """Return the layers whose hidden norms the trials report."""
    names = {name for key in keys for row in history.reports.get(key, ()) for name in row.metrics}
    return sorted(int(match[1]) for match in map(_NORM.fullmatch, names) if match)


def hidden_norms(history: History, key: str) -> go.Figure:
    """Draw the hidden-state norm of each layer of one trial over its steps.

    Source: RotRNN, Figure 3.
    """
    figure = go.Figure()
    found = layers(history, [key])
    for layer, colour in zip(found, style.shades(len(found)), strict=True):
        name = f"hidden_norm/layer_{layer}"
        rows = style.thinned([row for row in history.reports[key] if name in row.metrics])
        figure.add_scatter(
            x=[row.step for row in rows],
            y=[row.metrics[name] for row in rows],
            name=f"layer {layer}",
            mode="lines+markers" if len(rows) < 60 else "lines",
            line={"color": colour, "width": 2},
        )
    style.framed(figure, x="step", y="mean norm of the hidden state")
    return figure.update_yaxes(rangemode="tozero")


def hidden_norm_spread(history: History, keys: Sequence[str]) -> go.Figure:
    """Draw the hidden-state norm of each layer over steps: mean of the trials, plus and minus one deviation.

    Only steps that at least two of the trials report are drawn.
    """
    figure = go.Figure()
    found = layers(history, keys)
    for layer, colour in zip(found, style.shades(len(found)), strict=True):
        steps, means, deviations = spread(history, keys, f"hidden_norm/layer_{layer}")
        band = {"color": colour, "width": 0}
        edges = np.concatenate([means + deviations, (means - deviations)[::-1]])
        group = f"layer {layer}"
        figure.add_scatter(
            x=np.concatenate([steps, steps[::-1]]),
            y=edges,
            fill="toself",
            mode="lines",
            line=band,
            opacity=0.2,
            legendgroup=group,
            showlegend=False,
            hoverinfo="skip",
        )
        line = {"color": colour, "width": 2}
        figure.add_scatter(x=steps, y=means, name=group, mode="lines", line=line, legendgroup=group)
    style.framed(figure, x="step", y="mean norm of the hidden state")
    return figure.update_yaxes(rangemode="tozero")


def spread(history: History, keys: Sequence[str], metric: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return steps, and over the trials the mean and the sample standard deviation of a metric at each.

    All three have the shape `(steps,)`; a step that fewer than two trials report is left out.
    """
    values: defaultdict[int, list[float]] = defaultdict(list)
    for key in keys:
        for row in history.reports.get(key, ()):
            if metric in row.metrics:
                values[row.step].append(row.metrics[metric])
    steps = style.thinned(sorted(step for step, seen in values.items() if len(seen) > 1))
    means = [float(np.mean(values[step])) for step in steps]
    deviations = [float(np.std(values[step], ddof=1)) for step in steps]
    return np.array(steps, dtype=np.int32), np.array(means), np.array(deviations)
