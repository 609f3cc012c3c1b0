"""The dry runs of the recurrences' GPU benchmarks run on any machine, and all algorithms agree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCANS = ["lax.scan", "associative_scan", "ours, associative", "ours, pallas", "floor"]
CHUNKS = [f"ours, chunks of {size}" for size in (32, 64, 128)]
ROWS = {
    "gpu_recurrence": [
        "lax.scan",
        "printed form",
        "associative_scan",
        "ours, associative",
        "ours, chunked",
        "ours, pallas",
        "floor",
    ],
    "gpu_gated": [*SCANS, *SCANS, "lax.scan", *CHUNKS, "ours, pallas", "floor"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_dry_run_prints_its_table(name: str) -> None:
    """One command measures every form at both lengths without the service, and finds no difference."""
    code = (
        f"import sys, runpy; sys.argv = ['{name}', '--dry-run', '--rounds', '1'];"
        f"runpy.run_module('benchmarks.{name}', run_name='__main__');"
        "assert not {'ray', 'mlflow', 'optuna', 'sqlalchemy'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    forms = [row[-5] for row in rows if row[0] in {"12", "40"} and "floor" not in row]
    errors = [float(row[-1]) for row in rows if row[0] in {"12", "40"} and "floor" not in row]
    expected = [form for form in ROWS[name] if form != "floor"]
    assert forms == 2 * expected
    assert max(errors) < 1e-5
    assert sum("floor" in row for row in rows) == 2 * ROWS[name].count("floor")
