"""A small dose of the growth that `benchmarks.orchestration` measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import orchestration


@pytest.mark.ray
def test_a_driver_keeps_few_objects_of_a_finished_trial(tmp_path: Path) -> None:
    """Tune alone would keep about forty: the trial, its configuration, last result and request."""
    figures = orchestration.measured(40, tmp_path)
    assert figures["objects a trial"] <= 25
