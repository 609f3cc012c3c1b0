"""The verb `queue`: one table for a ledger and a server, in the width of the terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli.app import run_command
from orchestrator.cli.look import table
from orchestrator.client.answers import QueuedSweep
from tests import sweeps

NOW = 1_790_000_000.0
WAITS = QueuedSweep(
    "a-sweep-with-the-longest-name-that-is-allowed-for-a-file-of-forty-eight-1-0123abcd",
    "somebody-with-a-long-name",
    "normal",
    "pool",
    12,
    1_000,
    0,
    100_000,
    "its share of 1000 trials is still held by 12 other sweeps",
    NOW + 5_000.0,
)


def test_a_queue_without_sweeps_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = sweeps.filled(tmp_path / "mlruns")
    assert run_command(["queue", "--root", str(paths.root)]) == 0
    assert capsys.readouterr().out == "No sweep is running or queued.\n"
    assert run_command(["queue", "--json", "--root", str(paths.root)]) == 0
    assert capsys.readouterr().out.strip() == "[]"


def test_the_table_fits_eighty_columns_and_says_everything() -> None:
    runs = replace(WAITS, sweep="copy-0123abcd", position=None, running=3, why=None, expected_start=None)
    lines = table([runs, WAITS, replace(WAITS, position=13, expected_start=None)], 80, NOW)
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["owner", "class", "share", "running", "wanted", "starts"]
    assert lines[1] == "copy-0123abcd"
    assert lines[2].split() == ["somebody-with-a…", "normal", "1000", "3", "100000"]
    text = "\n".join(lines)
    assert "12  somebody-with-a…  normal    1000        0  100000  in 83.3 min" in text
    assert "13  somebody-with-a…  normal    1000        0  100000  unknown" in text
    assert text.count("its share of 1000 trials is still held by 12 other sweeps") == 2


@pytest.mark.parametrize("width", [72, 80, 120])
def test_a_long_reason_is_wrapped_and_not_cut(width: int) -> None:
    why = "PARKED: crashed 5 times without a report, the last time: " + "no space left on the device " * 6
    lines = table([replace(WAITS, why=why)], width, NOW)
    assert max(map(len, lines)) <= width
    assert " ".join(" ".join(lines).split()).endswith(why.strip())
