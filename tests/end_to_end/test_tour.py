"""The notebook of the tour runs without an error, on its own sweep."""

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
        assert _output_types(then) == _output_types(now)
    assert "'COMPLETE'" in str(again.cells[3].outputs)


def _output_types(cell: nbformat.NotebookNode) -> list[str]:
    return [output.output_type for output in cell.get("outputs", [])]
