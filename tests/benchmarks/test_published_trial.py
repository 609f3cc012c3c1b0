"""The benchmark of the published trial trains that of the search-space file, and its dry run works."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.published_trial import PUBLISHED
from orchestrator.config import load

ROOT = Path(__file__).parents[2]


def test_it_is_trial_0_of_the_file() -> None:
    """The script trains, without the service, the trial that the sweep trains first."""
    sweep = load(ROOT / "search_spaces" / "listops.yaml", profile="full", gpus=1)
    params = sweep.published_params()
    assert params is not None
    assert sweep.settings(params, seed=0) == PUBLISHED


@pytest.mark.slow
def test_dry_run_prints_its_curve(tmp_path: Path) -> None:
    """One command trains, evaluates after every interval, tests the best once, and prints a row for each."""
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.published_trial", "--dry-run"]
    command += ["--data", str(tmp_path), "--json", str(figures)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("| ")][1:] == [
        "10",
        "20",
        "30",
        "40",
    ]
    measured = json.loads(figures.read_text())
    assert (measured["steps"], measured["of"], len(measured["curve"])) == (40, 40, 4)
    assert measured["steps_per_second"] > 0
    best = max(measured["curve"], key=lambda reading: reading["accuracy"])
    assert (measured["best_step"], measured["validation_accuracy"]) == (best["step"], best["accuracy"])
    assert 0 <= measured["test_accuracy"] <= 1
