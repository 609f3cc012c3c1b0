"""Sweeps that are submitted over HTTP and run on a real Ray; a short run of the soak test."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.soak_http import marked, soak

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]


def test_three_sweeps_over_http_leave_no_handle_open(tmp_path: Path, temporary: Path) -> None:
    first, second, third = soak(tmp_path / "mlruns", temporary, 3, 1, pace=0.0)
    assert third.sweeps == 3
    assert third.handles <= second.handles + 2 <= first.handles + 10
    assert third.threads <= second.threads + 2
    assert marked() == [], "no process is left"
