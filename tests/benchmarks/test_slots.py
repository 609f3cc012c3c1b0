"""The dry run of the benchmark of slots works on the device of any machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_dry_run_prints_its_table(tmp_path: Path) -> None:
    """One command measures slots and processes, and prints one row for each number of them."""
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.slots", "--dry-run", "--tasks", "listops"]
    command += ["--slots", "1", "--processes", "1", "--seconds", "0.1", "--json", str(figures)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    assert "### listops (dry run) on cpu" in done.stdout
    assert len([line for line in done.stdout.splitlines() if line.startswith("| 1 |")]) == 1
    measured = json.loads(figures.read_text())["listops"]
    assert measured["slots"]["1"]["rate"] > 0
    assert measured["processes"]["1"] > 0
