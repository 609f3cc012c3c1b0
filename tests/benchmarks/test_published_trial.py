"""The benchmark of the published trial trains that of the search-space file, and its dry run works."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.published_curves import curves, drawn, rows
from benchmarks.published_trial import PUBLISHED, Reading
from orchestrator.config import load

ROOT = Path(__file__).parents[2]


def test_it_is_trial_0_of_the_file() -> None:
    """The script trains, without the service, the trial that the sweep trains first."""
    sweep = load(ROOT / "search_spaces" / "listops.yaml", profile="full", gpus=1)
    params = sweep.published_params()
    assert params is not None
    assert sweep.settings(params, seed=0) == PUBLISHED


def test_curves_are_drawn_and_tabulated(tmp_path: Path) -> None:
    """Each seed has a line of each measure; the table ends with the last step that all seeds have reached."""
    readings = [Reading(seed, step, 1.0, 1.0, 0.0, 2.0, 1.5, 0.25) for seed in (0, 1) for step in (10, 20)]
    readings.append(Reading(1, 30, 1.0, 1.0, 0.0, 2.0, 1.5, 0.25))
    file = tmp_path / "figures.json"
    file.write_text(json.dumps({"curves": [asdict(reading) for reading in readings]}))
    by_seed = curves(file)
    row = ["25.0 %", "25.0 %", "1.500", "1.500", "2.000", "2.000"]
    assert rows(by_seed) == [["10", *row], ["20", *row]]
    accuracies, losses = drawn(by_seed).axes
    assert [list(line.get_xdata()) for line in accuracies.lines[:2]] == [[10, 20], [10, 20, 30]]
    assert len(losses.lines) == 4


@pytest.mark.slow
def test_dry_run_prints_its_curves_and_goes_on(tmp_path: Path) -> None:
    """Two seeds train together; a second run goes on where each of them ended, and tests the best of both."""
    figures, kept = tmp_path / "figures.json", tmp_path / "kept"
    command = [sys.executable, "-m", "benchmarks.published_trial", "--dry-run", "--seeds", "2"]
    command += ["--data", str(tmp_path), "--json", str(figures), "--keep", str(kept)]
    # The first run has time for one interval; then it is as if it had been killed before it kept seed 1.
    assert _steps([*command, "--minutes", "0"]) == ["10", "10"]
    for file in kept.glob("seed-1-*"):
        file.unlink()
    assert _steps([*command, "--minutes", "10"]) == ["10", "20", "20", "30", "30", "40", "40"]
    measured = json.loads(figures.read_text())
    assert (measured["steps"], measured["of"], len(measured["curves"])) == (40, 40, 8)
    assert measured["steps_per_second"] > 0
    for seed, tested in enumerate(measured["seeds"]):
        curve = [reading for reading in measured["curves"] if reading["seed"] == seed]
        best = max(curve, key=lambda reading: reading["accuracy"])
        assert (tested["best_step"], tested["validation_accuracy"]) == (best["step"], best["accuracy"])
        assert 0 <= tested["test_accuracy"] <= 1


def _steps(command: list[str]) -> list[str]:
    """Run the benchmark; return the step of each reading."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    return [line.split()[3] for line in done.stdout.splitlines() if line.startswith("| ")][1:]
