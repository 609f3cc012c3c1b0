"""A small dose of the growth that `benchmarks.orchestration` measures."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.ray
def test_a_driver_keeps_none_of_rays_objects_of_a_finished_trial() -> None:
    """Tune alone would keep at least seven: the trial, its states, request and files."""
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # short: Ray's sockets lie below it
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.orchestration", "--trials", "40"],
            cwd=ROOT,
            env={**os.environ, "SWEEP_RUNTIME": folder, "SWEEP_RAY_LINGER": "0"},
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )
    assert done.returncode == 0, done.stderr
    names, _, values = (line.strip("| ").split(" | ") for line in done.stdout.splitlines()[-3:])
    figures = dict(zip(names, map(float, values), strict=True))
    assert abs(figures["objects of Ray a trial"]) < 2, "those of a running trial or two come and go"
