"""The figures over time draw the reports in the ledger."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.report.figures import curves, style
from orchestrator.report.summary import TimeSpent
from tests import sweeps


def _split(trace: object) -> list[tuple[list[float], list[float]]]:
    """Return the curves that a trace joins."""
    parts: list[tuple[list[float], list[float]]] = [([], [])]
    for x, y in zip(trace.x, trace.y, strict=True):
        if np.isnan(y):
            parts.append(([], []))
        else:
            parts[-1][0].append(int(x))
            parts[-1][1].append(float(y))
    return parts[:-1]


def _curve(number: int, state: str) -> tuple[list[int], list[float]]:
    rows = sweeps.reports(sweeps.trial(number, state))
    return [row.step for row in rows], [row.metrics["val/accuracy"] for row in rows]


def test_learning_curves_are_the_reports() -> None:
    history = sweeps.history()
    chosen = sweeps.trial(7).key
    figure = curves.learning_curves(history, "val/accuracy", chosen, chance=0.502)
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces) == ["pruned", "failed", "complete", "chosen (trial 7)"]
    assert _split(traces["pruned"]) == [_curve(1, "PRUNED"), _curve(5, "PRUNED")]
    assert _split(traces["failed"]) == [_curve(3, "FAILED")]
    assert _split(traces["complete"]) == [_curve(n, "COMPLETE") for n in (0, 2, 4, 6)]
    assert (list(traces["chosen (trial 7)"].x), list(traces["chosen (trial 7)"].y)) == _curve(7, "COMPLETE")
    assert traces["pruned"].opacity < traces["complete"].opacity
    assert figure.layout.shapes[0].y0 == 0.502


def test_of_many_trials_the_best_stand_out() -> None:
    trials = [sweeps.trial(number) for number in range(130)]
    figure = curves.learning_curves(sweeps.history(trials), "val/accuracy", None)
    background, best = figure.data
    assert [curve[1][-1] for curve in _split(best)] == [sweeps.accuracy(n, 200) for n in range(100, 130)]
    assert len(_split(background)) == 100
    assert background.opacity < best.opacity


def test_hidden_norms_by_layer_are_the_reports() -> None:
    trial = sweeps.trial(7)
    figure = curves.hidden_norms(sweeps.history(), trial.key)
    names = ["layer 0", "layer 0, expected", "layer 1", "layer 1, expected"]
    assert [trace.name for trace in figure.data] == names
    rows = sweeps.reports(trial)
    for trace, name in zip(
        figure.data, ("head/layer_0", "expected/layer_0", "head/layer_1", "expected/layer_1"), strict=True
    ):
        assert list(trace.x) == [0, *(row.step for row in rows)]
        assert list(trace.y) == [0.5, *(row.metrics[f"hidden_norm/{name}"] for row in rows)]
    assert figure.layout.yaxis.rangemode == "tozero"
    whole = curves.hidden_norms(sweeps.history(), trial.key, "state")
    assert [trace.name for trace in whole.data] == ["layer 0", "layer 1"]
    assert list(whole.data[0].y)[1:] == [2 * y for y in figure.data[0].y[1:]]
    assert curves.has_heads(sweeps.history(), trial.key)


def test_spread_is_mean_and_sample_deviation() -> None:
    history = sweeps.history()
    keys = [sweeps.trial(n).key for n in (0, 2, 4, 6, 7)]
    of_trials = [
        [(row.step, row.metrics["hidden_norm/head/layer_1"]) for row in history.reports[key]] for key in keys
    ]
    steps, means, deviations = curves.spread(of_trials)
    at_80 = [points[1][1] for points in of_trials]
    assert list(steps) == [40, 80, 120, 160, 200]
    assert means[1] == pytest.approx(np.mean(at_80))
    assert deviations[1] == pytest.approx(np.std(at_80, ddof=1))
    figure = curves.hidden_norm_spread(history, keys)
    lines = [trace for trace in figure.data if trace.name]
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    assert list(lines[1].y) == [0.5, *means]
    assert list(bands[1].y) == [0.5, *(means + deviations), *(means - deviations)[::-1], 0.5]


def test_steps_of_a_single_trial_have_no_spread() -> None:
    steps, _, _ = curves.spread([[(40, 1.0), (80, 2.0), (120, 3.0)], [(40, 1.5), (80, 1.0)]])
    assert list(steps) == [40, 80]


def test_a_trial_without_layers_draws_nothing() -> None:
    history = sweeps.history()
    assert curves.layers(history, ["unknown"]) == []
    assert len(curves.hidden_norms(history, "unknown").data) == 0


def test_thinning_keeps_both_ends() -> None:
    thin = style.thinned(range(1000), 7)
    assert (thin[0], thin[-1], len(thin)) == (0, 999, 7)
    assert style.thinned([1, 2, 3], 7) == [1, 2, 3]


def test_history_shows_every_value_and_the_best_so_far() -> None:
    figure = curves.optimisation_history(sweeps.history(), sweeps.trial(7).key)
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces["complete"].x) == [0, 2, 4, 6, 7]
    assert list(traces["complete"].y) == [sweeps.trial(n).value for n in (0, 2, 4, 6, 7)]
    assert list(traces["pruned"].y) == [sweeps.trial(n, "PRUNED").value for n in (1, 5)]
    assert list(traces["chosen"].x) == [7]
    assert list(traces["best so far"].y)[-1] == sweeps.trial(7).value


@pytest.mark.parametrize(("maximize", "best"), [(True, [0.5, 0.7, 0.7, 0.7]), (False, [0.5, 0.5, 0.4, 0.4])])
def test_best_so_far_ignores_trials_that_are_not_complete(maximize: bool, best: list[float]) -> None:
    trials = [
        sweeps.trial(3, value=0.4),
        sweeps.trial(0, value=0.5),
        sweeps.trial(1, "PRUNED", value=0.9),
        sweeps.trial(2, value=0.7),
        sweeps.trial(9, "FAILED"),
    ]
    steps = curves.best_so_far(trials, maximize=maximize)
    assert [number for number, _ in steps] == [0, 2, 3, 9]
    assert [value for _, value in steps] == best


def test_the_bar_is_the_spending() -> None:
    figure = curves.spending_bar(TimeSpent(train=600, compile=60, evaluate=30, other=6, lost=120))
    drawn = {trace.name: trace.x[0] for trace in figure.data}
    assert drawn == {
        "training": 10.0,
        "compiling": 1.0,
        "evaluating": 0.5,
        "starting, saving, waiting": 0.1,
        "lost to faults": 2.0,
    }
    assert figure.layout.xaxis.title.text.startswith("minutes")
    assert curves.spending_bar(TimeSpent(train=7200)).data[0].x[0] == 2.0
