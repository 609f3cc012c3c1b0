"""The tour is what its cells say: executed anew, without an error, on a sweep of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]


def test_the_tour_runs(tmp_path: Path) -> None:
    copy = tmp_path / "tour.ipynb"
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "execute.py", copy], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    stored = nbformat.read(ROOT / "docs" / "tour.ipynb", as_version=4)
    again = nbformat.read(copy, as_version=4)
    for then, now in zip(stored.cells, again.cells, strict=True):
        assert then.source == now.source
        assert [each.output_type for each in then.get("outputs", [])] == [
            each.output_type for each in now.get("outputs", [])
        ]
    assert "'COMPLETE'" in str(again.cells[3].outputs)
