"""The dry runs of the GPU benchmarks run on any machine, and all implementations agree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCANS = ["lax.scan", "associative_scan"]
CHUNKS = [f"ours, chunks of {size}" for size in (32, 64, 128)]
FORMS = [
    *(*SCANS, "ours, associative", "ours, chunked", "ours, pallas"),
    *(*SCANS, "ours, associative", "ours, pallas"),
    *(*SCANS, "ours, associative", "ours, pallas"),
    *("lax.scan", *CHUNKS, "ours, pallas"),
]


def rows_of(benchmark: str, options: str) -> list[list[str]]:
    """Return the rows of the table that a benchmark prints, without the packages of the service."""
    code = (
        f"import sys, runpy; sys.argv = 'benchmark {options}'.split();"
        f"runpy.run_module('benchmarks.{benchmark}', run_name='__main__');"
        "assert not {'ray', 'mlflow', 'optuna', 'sqlalchemy'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    return [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]


@pytest.mark.slow
def test_dry_run_prints_its_table() -> None:
    """One command measures every form at both lengths without the service, and finds no difference."""
    rows = rows_of("gpu", "--dry-run --rounds 1")
    measured = [row for row in rows if row[0] in {"12", "40"} and "floor" not in row]
    assert [row[-5] for row in measured] == 2 * FORMS
    assert max(float(row[-1]) for row in measured) < 1e-5
    assert sum("floor" in row for row in rows) == 2 * 4


@pytest.mark.slow
def test_steps_of_all_trials_stand_beside_those_by_hand() -> None:
    """One command without the service takes steps of both networks by hand and in the engine."""
    rows = rows_of("many_small_trials", "--skip-sweeps --traced --slots 2 --calls 3 --rounds 1")[2:]
    contenders = ("by hand", "engine", "by hand, traced")
    assert [tuple(row[:4]) for row in rows] == [
        (network, "2", "3", contender) for network in ("perceptron", "rotrnn") for contender in contenders
    ]
    assert all(float(row[4]) > 0 for row in rows)
