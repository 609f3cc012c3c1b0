"""Figures over time: the sweep's progress, the trials' curves, and the time by purpose."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import plotly.graph_objects as go

from orchestrator.assignment import INITIAL_NORM, NORM
from orchestrator.ledger.sweeps.pareto import ParetoFront
from orchestrator.ledger.sweeps.records import UNFINISHED_TRIAL, TrialRecord
from orchestrator.ledger.sweeps.selection import ranked
from orchestrator.report.figures import style
from orchestrator.report.history import History
from orchestrator.report.summary import Summary, TimeSpent
from orchestrator.report.tuning import TuningComparison

_NORM = re.compile(NORM + r"head/layer_(\d+)")
_MANY = 100
"""Number of trials above which the curves in the background are thinned more."""

_GOOD = 30
"""Number of the best trials that are then drawn in the foreground."""


def learning_curves(
    history: History, metric: str, chosen: str | None, chance: float | None = None
) -> go.Figure:
    """Draw a metric over the steps of every trial: those that ended early faint, the chosen one on top."""
    trials = [trial for trial in style.drawn(history) if trial.key != chosen]
    most = style.MOST_POINTS if len(trials) <= _MANY else 60
    best_first = ranked(history.trials, maximize=history.maximize, violations=history.violations())
    good = {trial.key for trial in best_first[: _GOOD if len(trials) > _MANY else len(trials)]}
    groups = (
        ("pruned", [trial for trial in trials if trial.state == "PRUNED"], style.PRUNED, 0.45),
        ("diverged", [trial for trial in trials if trial.state == "DIVERGED"], style.DIVERGED, 0.45),
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
            [trial for trial in trials if trial.state == "COMPLETE" and trial.key in good],
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
    style.framed(figure, x="step", y=metric)
    rows = (history.reports.get(trial.key, ()) for trial in history.search())
    last = [row[-1].metrics[metric] for row in rows if row and metric in row[-1].metrics]
    return style.scaled(figure, last, maximize=history.maximize)


def _curves(
    history: History, trials: Sequence[TrialRecord], metric: str, most: int
) -> Iterator[tuple[str, list[int], list[float]]]:
    for trial in trials:
        rows = [row for row in history.reports.get(trial.key, ()) if metric in row.metrics]
        rows = style.thinned(rows, most)
        if rows:
            yield f"trial {trial.number}", [row.step for row in rows], [row.metrics[metric] for row in rows]


def layers(history: History, keys: Sequence[str]) -> list[int]:
    """Return the numbers of the layers with reported hidden-state norms."""
    names = {name for key in keys for row in history.reports.get(key, ()) for name in row.metrics}
    return sorted(int(match[1]) for match in map(_NORM.fullmatch, names) if match)


def has_heads(history: History, key: str) -> bool:
    """Return True if a head is a part of the state in any layer of a trial."""
    return any(
        norm_points(history, key, f"head/layer_{layer}") != norm_points(history, key, f"state/layer_{layer}")
        for layer in layers(history, [key])
    )


def hidden_norms(history: History, key: str, of: str = "head") -> go.Figure:
    """Draw the hidden-state norm of each layer of one trial over its steps, and the expected one dashed.

    Source: RotRNN, Figure 3.

    Args:
        history: The sweep.
        key: Key of the trial.
        of: "head", or "state" for the whole state, without its expected norm.
    """
    figure = go.Figure()
    numbers = layers(history, [key])
    for layer, colour in zip(numbers, style.shades(len(numbers)), strict=True):
        for name, shown, dash in ((of, f"layer {layer}", "solid"), ("expected", "expected", "dash")):
            points = style.thinned(norm_points(history, key, f"{name}/layer_{layer}"))
            if not points or (name == "expected" and of != "head"):
                continue
            figure.add_scatter(
                x=[step for step, _ in points],
                y=[value for _, value in points],
                name=shown if dash == "solid" else f"layer {layer}, {shown}",
                mode="lines+markers" if len(points) < 60 and dash == "solid" else "lines",
                line={"color": colour, "width": 2 if dash == "solid" else 1, "dash": dash},
            )
    style.framed(figure, x="step", y="mean norm of " + ("a head" if of == "head" else "the whole state"))
    return figure.update_yaxes(rangemode="tozero")


def norm_points(history: History, key: str, name: str) -> list[tuple[int, float]]:
    """Return the points of a norm such as `head/layer_0`, from step 0 where it is known."""
    rows = history.reports.get(key, ())
    initial = [(0, row.metrics[INITIAL_NORM + name]) for row in rows if INITIAL_NORM + name in row.metrics]
    return initial + [(row.step, row.metrics[NORM + name]) for row in rows if NORM + name in row.metrics]


def hidden_norm_spread(history: History, keys: Sequence[str]) -> go.Figure:
    """Draw the mean norm of a head of each layer over steps, with a band of one standard deviation.

    Steps that only one trial reported are left out.
    """
    figure = go.Figure()
    numbers = layers(history, keys)
    for layer, colour in zip(numbers, style.shades(len(numbers)), strict=True):
        steps, means, deviations = spread([norm_points(history, key, f"head/layer_{layer}") for key in keys])
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
    style.framed(figure, x="step", y="mean norm of a head")
    return figure.update_yaxes(rangemode="tozero")


def spread(curves: Sequence[Sequence[tuple[int, float]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the steps of several curves, and their mean and sample standard deviation at each step.

    All three have the shape `(steps,)`. Steps that only one curve has are left out.
    """
    values: defaultdict[int, list[float]] = defaultdict(list)
    for step, value in chain.from_iterable(curves):
        values[step].append(value)
    steps = style.thinned(sorted(step for step, reported in values.items() if len(reported) > 1))
    means = [float(np.mean(values[step])) for step in steps]
    deviations = [float(np.std(values[step], ddof=1)) for step in steps]
    return np.array(steps, dtype=np.int32), np.array(means), np.array(deviations)


def optimisation_history(history: History, chosen: str | None) -> go.Figure:
    """Draw the value of each trial over its number, and the best value so far as a staircase."""
    trials = history.search()
    figure = go.Figure()
    for name, state, colour, symbol in (
        ("complete", "COMPLETE", style.COMPLETE, "circle"),
        ("pruned", "PRUNED", style.PRUNED, "circle-open"),
        ("diverged", "DIVERGED", style.DIVERGED, "x"),
    ):
        members = [trial for trial in trials if trial.state == state and trial.value is not None]
        _markers(figure, members, name, colour, symbol, 7)
    best = best_so_far(trials, maximize=history.maximize, violations=history.violations())
    if best:
        numbers, values = zip(*best, strict=True)
        line = {"color": style.BEST, "width": 2, "shape": "hv"}
        figure.add_scatter(x=numbers, y=values, name="best so far", mode="lines", line=line)
    _markers(figure, [trial for trial in trials if trial.key == chosen], "chosen", style.CHOSEN, "star", 14)
    style.framed(figure, x="trial", y=history.metric)
    known = [trial.value for trial in trials if trial.value is not None]
    return style.scaled(figure, known, maximize=history.maximize)


def best_so_far(
    trials: Sequence[TrialRecord], *, maximize: bool, violations: Mapping[str, float] | None = None
) -> list[tuple[int, float]]:
    """Return the numbers of the candidates, each with the best value so far.

    The last pair repeats the best value at the number of the last trial. `violations` holds the violation of
    the constraints by trial key.
    """
    rank = {
        trial.key: index
        for index, trial in enumerate(ranked(trials, maximize=maximize, violations=violations))
    }
    steps: list[tuple[int, float]] = []
    best = len(rank)
    for trial in sorted(trials, key=lambda trial: trial.number):
        if trial.key in rank and trial.value is not None:
            value = trial.value if rank[trial.key] < best else steps[-1][1]
            best = min(best, rank[trial.key])
            steps.append((trial.number, value))
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
    "compile": (style.DIVERGED, "compiling"),
    "evaluate": (style.EVALUATION, "evaluating"),
    "other": (style.PRUNED, "starting, saving, waiting"),
    "lost": (style.FAILED, "lost to faults"),
}


def spending_bar(spending: TimeSpent) -> go.Figure:
    """Draw the time of all attempts by purpose, as one bar."""
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


def pareto_front(summary: Summary) -> go.Figure:
    """Draw the first two objectives of each trial with a value, and the Pareto front on top."""
    assert summary.front is not None, "only several objectives have a front"
    first, second, *_ = summary.front.objectives
    figure = go.Figure()
    for name, is_front, colour, symbol in (
        ("dominated or infeasible", False, style.PRUNED, "circle-open"),
        ("Pareto front", True, style.CHOSEN, "circle"),
    ):
        rows = [
            row
            for row in summary.rows
            if row.rank is not None and second in row.further and row.on_front == is_front
        ]
        figure.add_scatter(
            x=[row.value for row in rows],
            y=[row.further[second] for row in rows],
            text=[f"trial {row.number}" for row in rows],
            name=name,
            mode="markers",
            marker={"color": colour, "symbol": symbol, "size": 8},
            hoverinfo="text+x+y",
        )
    return style.framed(figure, x=first, y=second)


def hypervolume_history(front: ParetoFront) -> go.Figure:
    """Draw the hypervolume after each feasible trial, in the order of their ends, as a staircase."""
    figure = go.Figure()
    line = {"color": style.BEST, "width": 2, "shape": "hv"}
    ended = list(range(1, len(front.history) + 1))
    figure.add_scatter(x=ended, y=list(front.history), mode="lines", line=line, showlegend=False)
    return style.framed(figure, x="feasible trials that have ended", y="hypervolume", height=300)


def tuning_curves(compared: TuningComparison) -> go.Figure:
    """Draw the median of the best of k trials of each sweep, with its band.

    Unbounded ends of a band are not drawn.
    """
    figure = go.Figure()
    for curve, colour in zip(compared.curves, style.shades(len(compared.curves)), strict=True):
        budgets = np.arange(1, curve.trials + 1)
        for edge, fill in ((curve.high, None), (curve.low, "tonexty")):
            values = np.asarray(edge)
            figure.add_scatter(
                x=budgets,
                y=np.where(np.isfinite(values), values, np.nan),
                mode="lines",
                line={"color": colour, "width": 0.5, "shape": "hv"},
                fill=fill,
                legendgroup=curve.name,
                showlegend=False,
                hoverinfo="skip",
            )
        figure.add_scatter(
            x=budgets,
            y=curve.median,
            name=f"{curve.name} ({curve.trials} trials)",
            mode="lines",
            line={"color": colour, "width": 2.5},
            legendgroup=curve.name,
        )
    style.framed(figure, x="k: number of trials", y=f"median of the best {compared.metric}")
    return figure.update_xaxes(type="log")


def cost_against_regret(schedulers: Sequence[tuple[str, tuple[float, float], float]]) -> go.Figure:
    """Draw what schedulers cost and lose; the best ones are at the lower left.

    Args:
        schedulers: Name, least and greatest cost as a share of that without stopping, and regret of each.
    """
    figure = go.Figure()
    for (name, (least, most), regret), colour in zip(schedulers, style.shades(len(schedulers)), strict=True):
        figure.add_scatter(
            x=[(least + most) / 2],
            y=[regret],
            error_x={"array": [(most - least) / 2], "visible": least < most},
            name=name,
            mode="markers+text",
            text=[name],
            textposition="top center",
            marker={"color": colour, "size": 10},
            showlegend=False,
        )
    style.framed(figure, x="cost as a share of that without stopping", y="regret")
    return figure.update_xaxes(rangemode="tozero")
