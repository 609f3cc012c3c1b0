"""What `benchmarks.search` prints, and the CPU time of a suggestion."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.search import digits, main, needs_curves, raced, random_function, ratio, suggestion_seconds


@pytest.mark.slow
def test_a_dry_run_prints_a_ratio_and_the_time_of_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--dry-run", "--processes", "1"])
    printed = capsys.readouterr().out
    assert "S5: " in printed
    assert "geometric mean: " in printed
    assert "a suggestion after 50 trials: " in printed
    assert "unrelated, geometric mean: " in printed


def test_only_parts_with_published_curves_need_their_folder() -> None:
    assert not needs_curves(["real", "long", "time", "known"])
    assert needs_curves(["race"])
    assert needs_curves(["real", "main"])


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("trials", [1_000, 5_000])
def test_a_suggestion_takes_at_most_50_ms_of_cpu(trials: int) -> None:
    assert suggestion_seconds(trials) <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.78, 0.53])
def test_early_values_have_the_stated_correlation_with_final_ones(correlation: float) -> None:
    found = []
    for seed in range(20):
        scene = random_function(8, correlation, seed)
        points = np.random.default_rng(seed).uniform(size=(400, 8))
        values = np.array([scene.values(point) for point in points])
        found.append(np.corrcoef(values[:, 0], values[:, -1])[0, 1])
    assert np.mean(found) == pytest.approx(correlation, abs=0.06)


def test_equal_ranks_have_a_ratio_of_1_within_its_interval() -> None:
    ranks = np.random.default_rng(0).uniform(size=200).tolist()
    middle, low, high = ratio(ranks, ranks)
    assert low < middle == 1 < high


@pytest.mark.slow
def test_a_race_gains_where_seeds_differ_and_not_where_they_do_not() -> None:
    draws = np.random.default_rng(0)
    finals = np.sort(draws.normal(80.0, 2.0, 512))
    table = np.stack([finals - 20, finals - 10, finals], axis=1)
    noisy = [raced(table, 2.0, 0.0, draws) for _ in range(300)]
    exact = [raced(np.round(table), 1e-9, 0.0, draws) for _ in range(300)]
    assert np.mean(noisy) > 3 * np.std(noisy) / np.sqrt(len(noisy))
    assert np.mean(exact) < np.mean(noisy) / 2


def test_a_perceptron_on_digits_learns_at_a_middle_rate_and_hardly_at_a_low_one() -> None:
    scene = digits(3)
    middle, low = (scene.values(np.array([rate, 0.0, 0.3, 0.6, 0.5])) for rate in (0.7, 0.0))
    assert middle[0] < middle[-1] > 0.9
    assert low[-1] < 0.3
    assert scene.finals.shape == (3,)


def test_a_diverged_perceptron_has_values_that_are_not_finite() -> None:
    values = digits(3).values(np.array([2.0, 1.0, 0.0, 1.0, 1.0]))
    assert np.isnan(values[-1])
