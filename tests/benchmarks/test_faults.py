"""The fault scenarios that need no Ray, with few faults; `make test-faults` runs all of them in full."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks.faults
from benchmarks.faults import endings
from benchmarks.faults.__main__ import SCENARIOS
from benchmarks.faults.damage import damaged_files
from benchmarks.faults.power import power_failures
from benchmarks.faults.table import Dose, Row, Tally, markdown
from benchmarks.faults.writes import failing_writes


@pytest.mark.slow
def test_any_damage_is_reported_or_without_effect(tmp_path: Path) -> None:
    (row,) = damaged_files(Dose(tmp_path, cases=8))
    assert row.holds, row.seen


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build the library that fails")
@pytest.mark.slow
def test_a_failing_write_tears_nothing(tmp_path: Path) -> None:
    (row,) = failing_writes(Dose(tmp_path, writes=20))
    assert row.holds, row.seen
    assert "20 cases, 20 cut short" in row.seen


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build the library that records")
def test_a_loss_of_power_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    (row,) = power_failures(Dose(tmp_path, crashes=12))
    assert row.holds, row.seen
    assert "0 of 12 states wrong" in row.seen


@pytest.mark.slow  # it starts two drivers
def test_a_late_refusal_does_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start of Python alone takes longer than this bound."""
    monkeypatch.setattr(endings, "REFUSAL_SECONDS", 0.001)
    (row,) = endings.impossible_resources(Dose(tmp_path))
    assert not row.holds
    assert row.seen.count("s of a processor") == 2, "each refusal is judged"
    assert "exit code" not in row.seen, row.seen


def test_every_scenario_is_a_function() -> None:
    """The functions are named by texts, which no check of types reads."""
    folder = Path(benchmarks.faults.__file__).parent
    for text in SCENARIOS.values():
        module, function = text.split(":")
        tree = ast.parse((folder / f"{module}.py").read_text())
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, text


@pytest.mark.slow
def test_the_command_runs_outside_a_test() -> None:
    """A process without pytest may start a Ray of its own."""
    command = [sys.executable, "-m", "benchmarks.faults", "damage", "--cases", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "holds" in done.stdout


def test_a_row_lists_the_failed_expectations() -> None:
    tally = Tally()
    tally.expect(True, "not this")
    tally.expect(False, "two points missing")
    row = tally.row("a kill", "nothing lost", "1 kill")
    assert row == Row("a kill", "nothing lost", "1 kill; two points missing", holds=False)
    assert (
        markdown([row])
        .splitlines()[-1]
        .startswith("| a kill | nothing lost | 1 kill; two points missing | **no**")
    )
