"""The dry run of the benchmark of neighbours works on any machine, and on a CPU finds no difference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_dry_run_finds_no_difference() -> None:
    """One command trains beside no neighbour and beside one, with `bits` and without, and replays."""
    command = [sys.executable, "-m", "benchmarks.neighbours", "--dry-run", "--tasks", "small"]
    command += ["--slots", "1", "2", "--seconds", "0.1", "--steps", "10"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| small")]
    assert [(row[1], row[2], row[4], row[5].strip()) for row in rows] == [
        ("no", "1", "0", "0"),
        ("no", "2", "0", "0"),
        ("bits", "1", "0", ""),
        ("bits", "2", "0", ""),
    ]
