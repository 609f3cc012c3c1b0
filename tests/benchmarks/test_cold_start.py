"""The benchmark of a cold start runs, and draws what it has measured."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import cold_start


@pytest.mark.slow
@pytest.mark.end_to_end
def test_a_dry_run_measures_both_and_draws_the_processes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "start.svg"
    cold_start.main(["--dry-run", "--picture", str(picture)])
    printed = capfd.readouterr().out
    for row in ("wall, s", "CPU, s", "wall, ratio to bare Ray"):
        [line] = [line for line in printed.splitlines() if line.startswith(f"| {row} |")]
        assert all(float(found) > 0 for found in re.findall(r"\d+\.\d", line))
    texts = [text.text or "" for text in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert "orchestrator.sweep" in texts
    assert any(text.startswith("first report ") for text in texts)
