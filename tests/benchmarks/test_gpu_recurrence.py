"""The dry run of the recurrence's GPU benchmark runs on any machine, and all algorithms agree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_dry_run_prints_its_table() -> None:
    """One command measures every algorithm at both lengths without the service, and finds no difference."""
    code = (
        "import sys, runpy; sys.argv = ['gpu_recurrence', '--dry-run', '--rounds', '1'];"
        "runpy.run_module('benchmarks.gpu_recurrence', run_name='__main__');"
        "assert not {'ray', 'mlflow', 'optuna', 'sqlalchemy'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith(("| 12 ", "| 40 "))]
    assert [row[1] for row in rows[:7]] == [
        "lax.scan",
        "printed form",
        "associative_scan",
        "ours, associative",
        "ours, chunked",
        "ours, pallas",
        "floor",
    ]
    assert len(rows) == 14
    assert all(float(row[5].rstrip(" |")) < 1e-5 for row in rows if row[1] != "floor")
