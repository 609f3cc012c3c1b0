"""Bands of tuning curves hold as often as they claim, and dependent trials get none."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.report.comparison import markdown, side_by_side
from orchestrator.report.history import History
from orchestrator.report.html import comparison_page
from orchestrator.report.summary import summarise
from orchestrator.report.tuning import LEAST_TRIALS, band, claims, inside, tuning, tuning_of, why_dependent
from tests import sweeps

RESAMPLES = 1000


def _population(kind: str, size: int, rng: np.random.Generator) -> np.ndarray:
    """Draw values of trials: without ties, with many ties, or with trials that failed."""
    values = rng.beta(2.0, 5.0, size)
    if kind == "ties":
        return np.round(values, 1)
    if kind == "failures":
        return np.where(rng.random(size) < 0.3, np.nan, values)
    return values


def _true_medians(kind: str, count: int) -> np.ndarray:
    """Return the median of the best of k trials for k = 1 to count, from a million draws."""
    scores = _population(kind, 1_000_000, np.random.default_rng(99))
    scores = np.sort(np.where(np.isnan(scores), -np.inf, scores))
    return scores[np.ceil(0.5 ** (1 / np.arange(1, count + 1)) * len(scores)).astype(int) - 1]


def test_probability_of_the_band_equals_the_area_for_two_numbers() -> None:
    low, high = np.array([0.1, 0.3]), np.array([0.6, 0.9])
    # The sorted pair is uniform on x < y: twice the area of [.1, .6] x [.3, .9] above the diagonal.
    area = (0.3 - 0.1) * (0.9 - 0.3) + ((0.9 - 0.3) ** 2 - (0.9 - 0.6) ** 2) / 2
    assert inside(low, high) == pytest.approx(2 * area, abs=1e-12)
    assert inside(np.array([0.5, 0.6]), np.array([0.4, 0.9])) == 0.0


@pytest.mark.parametrize("count", [1, 8, 64, 512])
def test_order_statistics_are_within_their_bounds_as_often_as_claimed(count: int) -> None:
    low, high = band(count, 0.95)
    draws = np.sort(np.random.default_rng(count).random((4000, count)), axis=1)
    share = np.mean(np.all((draws >= low) & (draws <= high), axis=1))
    assert inside(low, high) == pytest.approx(0.95, abs=1e-4)
    assert share == pytest.approx(0.95, abs=0.012)  # 3.5 standard errors


@pytest.mark.parametrize("kind", ["continuous", "ties", "failures"])
@pytest.mark.parametrize("maximize", [True, False])
def test_bands_cover_the_whole_curve(kind: str, maximize: bool) -> None:
    count, sign = 48, 1.0 if maximize else -1.0
    truth = sign * _true_medians(kind, count)
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(RESAMPLES):
        values = sign * _population(kind, count, rng)
        (curve,) = tuning({"a": values}, metric="m", maximize=maximize).curves
        covered += all(
            low <= true <= high for low, true, high in zip(curve.low, truth, curve.high, strict=True)
        )
    assert covered >= 0.95 * RESAMPLES - 2 * math.sqrt(0.05 * 0.95 * RESAMPLES)


def test_bands_of_each_point_alone_do_not_cover_the_whole_curve() -> None:
    """Control: the coverage test notices bands that are too narrow."""
    count, rng = 48, np.random.default_rng(0)
    low, high = band(1, 0.95)
    draws = np.sort(rng.random((RESAMPLES, count)), axis=1)
    narrow = [np.quantile(np.sort(rng.random((4000, count)), axis=1), end, axis=0) for end in (0.025, 0.975)]
    assert low[0] == pytest.approx(0.025, abs=1e-4)
    assert high[0] == pytest.approx(0.975, abs=1e-4)
    assert np.mean(np.all((draws >= narrow[0]) & (draws <= narrow[1]), axis=1)) < 0.8


@pytest.mark.parametrize("kind", ["continuous", "ties"])
def test_equal_methods_seldom_differ_and_unequal_ones_do(kind: str) -> None:
    rng = np.random.default_rng(1)
    false = found = 0
    for _ in range(RESAMPLES):
        first, second = _population(kind, 64, rng), _population(kind, 64, rng)
        (equal,) = tuning({"a": first, "b": second}, metric="m", maximize=True).differences
        false += equal.better is not None
        (shifted,) = tuning({"a": first, "b": second + 0.4}, metric="m", maximize=True).differences
        found += shifted.better == "b"
    assert false <= 0.05 * RESAMPLES
    assert found >= 0.95 * RESAMPLES


@pytest.mark.slow
def test_claims_need_more_trials_for_smaller_differences() -> None:
    rng = np.random.default_rng(2)
    values = {name: rng.normal(size=64) for name in ("a", "b")}
    needed = claims(list(values.values()), maximize=True)
    assert [claim.difference for claim in needed] == sorted(claim.difference for claim in needed)
    assert [claim.sweeps for claim in needed] == sorted((claim.sweeps for claim in needed), reverse=True)
    assert all(claim.trials is None or claim.trials > 64 for claim in needed if claim.difference < 0.2)


def _random(sweep_id: str, values: list[float], **changes: object) -> History:
    """Return a sweep of complete random trials."""
    history = sweeps.history()
    document = {**history.sweep.document, "sampler": {"random": {"seed": 0}}, "scheduler": {"none": {}}}
    del document["published"]
    trials = tuple(
        replace(sweeps.trial(7), key=f"{sweep_id}-{number}", number=number, value=value)
        for number, value in enumerate(values)
    )
    sweep = replace(history.sweep, id=sweep_id, document={**document, **changes})
    return replace(
        history, sweep=sweep, trials=trials, reports={}, attempts={}, checkpoints={}, evaluations={}
    )


def test_dependent_trials_are_declined_with_what_would_be_accepted() -> None:
    values = list(np.linspace(0.1, 0.9, LEAST_TRIALS))
    assert why_dependent(_random("a", values)) == ""
    assert "search with `sampler: random`" in why_dependent(_random("a", values, sampler={"tpe": {}}))
    assert "use `scheduler: none`" in why_dependent(_random("a", values, scheduler={"asha": {}}))
    assert why_dependent(_random("a", values[1:])) == f"it has fewer than {LEAST_TRIALS} random trials"
    published = _random("a", values, published={"values": {}})
    assert why_dependent(published) == f"it has fewer than {LEAST_TRIALS} random trials"
    running = _random("a", values)
    trials = (replace(running.trials[0], state="RUNNING"), *running.trials[1:])
    assert why_dependent(replace(running, trials=trials)) == "1 trial of it has not ended"


def test_a_failed_trial_counts_as_spent_and_as_the_worst() -> None:
    history = _random("a", list(np.linspace(0.1, 0.9, 9)))
    failed = replace(history.trials[8], state="FAILED", value=None)
    (compared,) = tuning_of([replace(history, trials=(*history.trials[:8], failed))])
    (curve,) = compared.curves
    assert (curve.trials, curve.failed) == (9, 1)
    assert curve.median[-1] == pytest.approx(0.8)


@pytest.mark.slow
def test_a_comparison_shows_curves_trials_and_claims(tmp_path: object) -> None:
    rng = np.random.default_rng(3)
    histories = [_random(name, rng.normal(0.5, 0.1, 32).tolist()) for name in ("one", "two")]
    histories.append(replace(sweeps.history(), sweep=replace(sweeps.sweep_record(), id="three")))
    sides = side_by_side([summarise(history) for history in histories], tuning_of(histories))
    text = markdown(sides)
    assert "| k | one | two |" in text
    assert "one: 32 trials spent." in text
    assert "one and two: the bands overlap, no difference is established." in text
    assert "To claim a difference of" in text
    assert "three has no curve: its sampler, tpe, chooses trials by earlier ones" in text
    assert sides.document()["tuning"][0]["curves"][0]["name"] == "one"
    page = comparison_page(sides)
    assert "number of trials" in page
    assert "three has no curve" in page
