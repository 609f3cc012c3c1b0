"""The verbs `report` and `compare` on a real ledger."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli.app import run_command
from tests import sweeps


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root whose ledger holds a running sweep."""
    return sweeps.filled(tmp_path / "mlruns").root


def test_report_of_a_running_sweep(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["report", "retrieval", "--root", str(root)]) == 0
    printed = capsys.readouterr().out
    assert "Chosen: retrieval-laptop-0123abcd-7" in printed
    assert str(root / "reports" / sweeps.SWEEP_ID / "report.html") in printed
    assert f"--root {root}" in printed
    page = root / "reports" / sweeps.SWEEP_ID / "report.html"
    assert 500_000 < page.stat().st_size < 1_500_000, "it contains plotly, packed"


def test_report_to_a_file(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    assert run_command(["report", "retrieval", "--output", str(file), "--root", str(root)]) == 0
    assert file.read_bytes() == (root / "reports" / sweeps.SWEEP_ID / "report.html").read_bytes()


def test_a_report_to_a_missing_folder_is_refused(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The refusal says where, what must hold, what was found and what would be right."""
    file, folder = tmp_path / "nowhere" / "file", tmp_path / "nowhere"
    assert run_command(["report", "retrieval", "--output", str(file), "--root", str(root)]) == 2
    assert capsys.readouterr().err == (
        f"{file} cannot be written: the folder {folder} does not exist."
        f" Create {folder} first, or name a file elsewhere.\n"
    )
    assert not (root / "reports").exists(), "nothing was written"


def test_compare(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", "retrieval", "--root", str(root)]) == 0
    assert "rotrnn  0.6359 (1 seed) *" in capsys.readouterr().out


def test_compare_in_markdown(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", "retrieval", "--markdown", "--root", str(root)]) == 0
    assert "| rotrnn | 0.6359 (1 seed) * |" in capsys.readouterr().out


def test_compare_in_json(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", "retrieval", "--json", "--root", str(root)]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert list(result["values"]) == [f"{sweeps.SWEEP_ID}-7"]


def test_an_unknown_sweep_is_bad_input(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["report", "nothing", "--root", str(root)]) == 2
    assert "must be the ID of one sweep" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["stop", "resume", "retry-failed", "follow", "report", "compare", "check"])
def test_an_empty_name_names_no_sweep(root: Path, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every id begins with it: a script whose variable is unset must not stop or resume the only sweep."""
    assert run_command([verb, "--root", str(root), "--", ""]) == 2
    assert "SWEEP must be the ID of one sweep" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["0", "-1", "65536"])
def test_a_port_that_cannot_be_is_refused(root: Path, port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["ui", "--port", port, "--root", str(root)]) == 2
    assert "--port" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["export-study", "export-tensorboard"])
def test_a_target_below_a_file_is_refused(root: Path, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "file").touch()
    assert run_command([verb, "retrieval", str(root / "file" / "target"), "--root", str(root)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(str(root / "file"))


@pytest.mark.slow
def test_a_locale_without_the_characters_of_a_table_ends_no_command(root: Path) -> None:
    words = ["-m", "orchestrator.sweep", "compare", "retrieval", "--root", str(root)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    left = subprocess.run([sys.executable, *words], env=environment, capture_output=True, check=False)
    assert left.returncode == 0
    assert b"95 % interval" in left.stdout
