"""A dry run of the comparison of settings of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_bits_of_a_trial_do_not_depend_on_the_cores_that_its_process_may_use() -> None:
    """Without the limit to one thread, a process on one core trains to other last digits than one on two."""
    settings = ["workers", "pinned", "pool"]
    words = ["benchmarks.cores", "--steps", "1", "--rounds", "1", "--settings", *settings]
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    rows = [line.strip("| ").split(" | ") for line in lines]
    assert [row[:2] for row in rows] == [[name, count] for name in sorted(settings) for count in "12"]
    assert all(float(row[3].split()[0]) > 0 for row in rows)
    digests = {row[0]: row[-1] for row in rows}
    assert digests["workers"] == digests["pinned"]
    if len(os.sched_getaffinity(0)) > 1:
        assert digests["workers"] != digests["pool"]
