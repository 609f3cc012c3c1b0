"""A dry run of the comparison of settings of threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_both_numbers_of_processes_are_measured_under_a_setting() -> None:
    words = ["benchmarks.cores", "--steps", "1", "--rounds", "1", "--settings", "workers"]
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| workers")]
    rows = [line.strip("| ").split(" | ") for line in lines]
    assert [row[:2] for row in rows] == [["workers", "1"], ["workers", "2"]]
    assert all(float(row[3].split()[0]) > 0 for row in rows)
