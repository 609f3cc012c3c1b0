"""A small dose of the growth that `benchmarks.orchestration` measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import orchestration


@pytest.mark.ray
def test_a_driver_keeps_none_of_rays_objects_of_a_finished_trial(tmp_path: Path) -> None:
    """Tune alone would keep at least seven: the trial, its states, request and files."""
    figures = orchestration.measured(40, tmp_path)
    assert abs(figures["objects of Ray a trial"]) < 2, "those of a running trial or two come and go"
