"""Axes, slices, parallel coordinates and surfaces draw the trials at their hyperparameters."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.config.space import chosen
from orchestrator.report.analysis import Importance
from orchestrator.report.figures import curves, landscape, style
from orchestrator.report.figures.landscape import Axis, axes, valued
from tests import sweeps
from tests.orchestrator.study.sweeps import FURTHER


def test_axes_come_from_the_file() -> None:
    rate, gamma, theta = axes(sweeps.history())
    assert (rate.name, rate.kind, rate.low, rate.high) == ("learning_rate", "log", 1e-4, 1e-1)
    assert gamma.kind == "linear"
    assert theta.choices == (0.1, 1.0, 2 * math.pi)


def test_positions_are_from_0_to_1_and_invertible() -> None:
    rate, gamma, theta = axes(sweeps.history())
    assert rate.position(1e-4) == 0.0
    assert rate.position(10**-2.5) == pytest.approx(0.5)
    assert rate.value(0.5) == pytest.approx(10**-2.5)
    assert gamma.position(0.9) == pytest.approx(1.0)
    assert [theta.position(choice) for choice in theta.choices] == pytest.approx([1 / 6, 0.5, 5 / 6])
    assert [text for _, text in theta.ticks()] == ["0.1", "1", "6.283"]
    assert Axis("constant", "linear", 3.0, 3.0).position(3.0) == 0.5


def test_every_distribution_has_an_axis() -> None:
    """Values of any types have texts and places of their own: 1 and true too."""
    history = sweeps.history()
    choice = chosen([1, True, None, [64, 64]])
    search = {name: distribution.document() for name, distribution in {**FURTHER, "any": choice}.items()}
    document = {**history.sweep.document, "search": search}
    over = {
        axis.name: axis for axis in axes(replace(history, sweep=replace(history.sweep, document=document)))
    }
    assert [over[name].kind for name in ("rate", "shift", "units", "width")] == [
        "log",
        "linear",
        "log",
        "log",
    ]
    assert [text for _, text in over["any"].ticks()] == ["1", "true", "null", "[64, 64]"]
    assert [place for place, _ in over["any"].ticks()] == [0.125, 0.375, 0.625, 0.875]
    assert [text for _, text in over["stack"].ticks()] == ["small", "large"]
    assert over["shift"].position(0) == pytest.approx(0.5)


def test_slices_draw_every_trial_with_a_value() -> None:
    history = sweeps.history()
    over = axes(history)
    figure = landscape.slices(over, valued(history, over), "val/accuracy", maximize=True)
    pruned, complete = figure.data[0], figure.data[1]
    assert list(complete.y) == [sweeps.trial(n).value for n in (0, 2, 4, 6, 7)]
    assert list(complete.x) == [over[0].position(1e-3 * (1 + n)) for n in (0, 2, 4, 6, 7)]
    assert list(pruned.y) == [sweeps.trial(n, "PRUNED").value for n in (1, 5)]
    assert len(figure.data) == 2 * len(over)


def test_parallel_coordinates_pass_through_the_hyperparameters() -> None:
    history = sweeps.history()
    over = axes(history)
    figure = landscape.parallel_coordinates(over, valued(history, over), "val/accuracy", maximize=True)
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    best = sweeps.trial(7)
    assert lines[-1].text[0] == f"trial 7: {best.value:.4f}"
    assert list(lines[-1].y)[:3] == [axis.position(best.params[axis.name]) for axis in over]
    assert lines[0].line.color == style.PRUNED
    assert len([y for y in lines[0].y if np.isnan(y)]) == 2


def test_the_best_line_is_on_top_and_brightest_either_way() -> None:
    history = sweeps.history()
    over = axes(history)
    ends = {}
    for maximize in (True, False):
        figure = landscape.parallel_coordinates(over, valued(history, over), "m", maximize=maximize)
        lines = [trace for trace in figure.data if trace.mode == "lines"]
        ends[maximize] = (lines[-1].text[0].partition(":")[0], lines[-1].line.color)
    assert ends[True][0] == "trial 7"
    assert ends[False][0] == "trial 0"
    assert ends[True][1] == ends[False][1]


def test_a_conditional_hyperparameter_may_be_absent() -> None:
    history = sweeps.history()
    cut = replace(history.trials[0], params={"learning_rate": 1e-3})
    history = replace(history, trials=(cut, *history.trials[1:]))
    over = axes(history)
    trials = valued(history, over)
    assert np.isnan(trials.positions["gamma_init.min"][0])
    landscape.slices(over, trials, "m", maximize=True)
    landscape.parallel_coordinates(over, trials, "m", maximize=True)
    assert len(landscape.over_both(over[0], over[1], trials)[0]) == 4


def test_the_surface_has_at_a_trial_its_value_and_ends_far_from_all() -> None:
    grid = np.linspace(0, 1, 51)
    x, y, values = np.array([0.2, 0.4]), np.array([0.2, 0.6]), np.array([0.5, 0.9])
    drawn = landscape.between(x, y, values, grid)
    assert drawn[10, 10] == pytest.approx(0.5, abs=1e-3)
    assert drawn[30, 20] == pytest.approx(0.9, abs=1e-3)
    assert drawn[20, 15] == pytest.approx(0.7, abs=1e-3)
    assert np.isnan(drawn[0, 50])
    assert np.nanmin(drawn) >= 0.5
    assert np.nanmax(drawn) <= 0.9


def test_contours_use_complete_trials_only() -> None:
    history = sweeps.history()
    over = axes(history)
    figure = landscape.contour(over[0], over[1], valued(history, over), "val/accuracy", maximize=True)
    assert list(figure.data[1].marker.color) == [sweeps.trial(n).value for n in (0, 2, 4, 6, 7)]


def test_importances_are_drawn_with_their_interval() -> None:
    figure = landscape.importance_bars([Importance("a", 0.7, 0.5, 0.8), Importance("b", 0.3, 0.1, 0.45)])
    (bars,) = figure.data
    assert list(bars.y) == ["b", "a"]
    assert list(bars.x) == [0.3, 0.7]
    assert list(bars.error_x.array) == pytest.approx([0.15, 0.1])
    assert list(bars.error_x.arrayminus) == pytest.approx([0.2, 0.2])


def test_far_worse_values_are_left_out_and_the_best_one_never() -> None:
    values = [0.1 * n for n in range(20)]
    assert style.inliers(values, maximize=True) is None
    assert style.inliers([*values, -1e4, math.nan], maximize=True) == (0.0, pytest.approx(1.9))
    assert style.inliers([*values, 1e4], maximize=True) is None
    assert style.inliers([*values, 1e4], maximize=False) == (0.0, pytest.approx(1.9))
    assert style.inliers([0.5] * 9 + [0.9], maximize=True) is None, "most trials are at chance"


def test_a_diverged_trial_does_not_flatten_the_others() -> None:
    trials = [sweeps.trial(n, value=0.5 + 0.01 * n if n else -1e4) for n in range(20)]
    figure = curves.optimisation_history(sweeps.history(trials), trials[-1].key)
    low, high = figure.layout.yaxis.range
    assert (low > 0.4, high < 0.8) == (True, True)
    assert [note.text for note in figure.layout.annotations] == ["1 below ▼"]
    (menu,) = figure.layout.updatemenus
    assert [button.label for button in menu.buttons] == ["Fit", "All"]


def test_colours_of_lines_are_ranks() -> None:
    """One outlier would give all other trials nearly the same colour."""
    trials = [sweeps.trial(n, value=0.5 + 0.01 * n if n else -1e4) for n in range(24)]
    history = sweeps.history(trials)
    over = axes(history)
    figure = landscape.parallel_coordinates(over, valued(history, over), "m", maximize=True)
    colours = [trace.line.color for trace in figure.data if trace.line.color]
    assert len(set(colours)) == 12
