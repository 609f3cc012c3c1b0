"""The verb `queue` says so if nothing runs or waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.cli.app import run_command
from tests import sweeps


def test_a_queue_without_sweeps_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = sweeps.filled(tmp_path / "mlruns")
    assert run_command(["queue", "--root", str(paths.root)]) == 0
    assert capsys.readouterr().out == "No sweep runs or waits for the service.\n"
    assert run_command(["queue", "--json", "--root", str(paths.root)]) == 0
    assert capsys.readouterr().out.strip() == "[]"
