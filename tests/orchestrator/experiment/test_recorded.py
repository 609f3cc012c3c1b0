"""What is true of all recorded results."""

from __future__ import annotations

import math
from pathlib import Path

from orchestrator.experiment import experiment_results
from orchestrator.experiment.experiment_page import _ends
from orchestrator.experiment.verdict import RULES, interval
from orchestrator.report.noise import Sample
from orchestrator.report.statistics import estimated, median_interval

FILES = sorted((Path(__file__).parents[3] / "docs" / "experiments").glob("*.json"))


def _is_within(ends: tuple[float | None, float | None], least: float, most: float) -> bool:
    return all(end is None or least <= end <= most for end in ends)


def test_intervals_of_recorded_results_stay_within_their_bounds() -> None:
    """An accuracy lies between 0 and 1, a loss or a norm is at least 0, and differences follow from them."""
    bounded = 0
    for file in FILES:
        kept = experiment_results.read(file)
        for arm in kept.arms:
            if not arm.values:
                continue
            least, most = arm.sample(kept.metric).bounds
            bounded += least == 0.0
            mean = estimated(arm.sample(kept.metric))
            found: list[tuple[float | None, float | None]] = [
                median_interval(arm.values)[:2],
                (mean.low, mean.high),
                _ends(kept, arm) or (None, None),
            ]
            for values in arm.lengths.values():
                bounds = Sample.of("", values, [], "", arm.lengths_metric).bounds
                assert _is_within(median_interval(values)[:2], *bounds), (file.name, arm.name)
            for ends in found:
                assert _is_within(ends, least, most), (file.name, arm.name, ends)
        width = 1.0 if kept.metric.startswith("test/accuracy") else math.inf
        for ordering in kept.orderings:
            assert ordering is None or _is_within((ordering.low, ordering.high), -width, width), file.name
    assert bounded > 200


def test_intervals_would_leave_the_bounds() -> None:
    """The intervals before did: of the mean of three seeds by Student, on the recorded pages."""
    (file,) = (file for file in FILES if file.stem == "delta-net-heads")
    assert any(
        ends[1] > 1 or ends[0] < 0
        for arm in experiment_results.read(file).arms
        if (ends := interval(arm.values)) is not None
    )


def test_older_pages_say_that_they_were_judged_again() -> None:
    for file in FILES:
        date = experiment_results.read(file).circumstances.date
        assert ("- Judged again by the rules" in file.with_suffix(".md").read_text()) == (date < RULES)


def test_no_verdict_is_in_favour_without_enough_seeds_for_its_family() -> None:
    """Each page says how many comparisons it corrects for."""
    for file in FILES:
        kept, text = experiment_results.read(file), file.with_suffix(".md").read_text()
        for verdict in (*kept.verdicts.values(), *kept.orders):
            assert verdict.outcome not in ("reproduced", "confirmed") or "p = " in verdict.reason
        assert ("- Comparisons in a family: " in text) == bool(kept.family_sizes)
