"""The straight line through points, and the deviation of the points from it."""

from __future__ import annotations

import pytest

from benchmarks.slopes import Line, lines


def test_a_line_gives_the_deviation_of_its_points() -> None:
    exact = Line.through([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0), (4.0, 9.0)])
    assert (exact.at_none, exact.slope, exact.off, exact.points) == (1.0, 2.0, 0.0, 4)
    bent = Line.through([(0.0, 0.0), (1.0, 3.0), (2.0, 0.0)])
    assert (bent.at_none, bent.slope, bent.off) == pytest.approx((1.0, 0.0, 2.0))


def test_each_process_gets_its_own_slope() -> None:
    """A driver takes 12 ms per second and 5 ms per report, a head 0.5 ms per node."""
    rows = [
        {
            "nodes": nodes,
            "reports_a_second": 0.9 * nodes,
            "driver_share_of_a_core": (12 + 5 * 0.9 * nodes) / 1000,
            "writer_ms_a_report": 6.0,
            "gcs_ms_a_second": 4 + 0.5 * nodes,
            "raylet_ms_a_second": 4.75,
        }
        for nodes in (3, 6, 12, 18)
    ]
    driver, _, head, raylet = lines(rows).splitlines()
    assert "12, and 5 more" in driver
    assert "4, and 0.5 more" in head
    assert "4.75, and 0 more" in raylet
