"""The verb `gc` deletes only files that no row refers to, and only with `--delete`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.cli.app import run_command
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.storage.paths import Paths
from tests import sweeps

SAVED = f"checkpoints/{sweeps.SWEEP_ID}/{sweeps.SWEEP_ID}-0"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Return a root with a sweep, its checkpoints, and three files that no row refers to."""
    paths = sweeps.filled(tmp_path / "mlruns")
    for name in (f"{SAVED}/step-000000040", f"ray/{sweeps.SWEEP_ID}", "checkpoints/of-another-ledger"):
        (paths.root / name).mkdir(parents=True)
        (paths.root / name / "file").write_bytes(b"0123456789")
    return paths


def files_of(paths: Paths) -> set[str]:
    """Return all files in the folders that `gc` examines."""
    files = [*paths.root.glob("checkpoints/**/*"), *paths.root.glob("ray/**/*")]
    return {str(path.relative_to(paths.root)) for path in files if path.is_file()}


def test_gc_deletes_files_that_no_row_refers_to(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_of(paths)
    assert run_command(["gc", "--root", str(paths.root)]) == 0
    printed = capsys.readouterr().out
    assert "2 found, 20 bytes; `gc --delete` deletes them" in printed
    assert "of-another-ledger: belongs to no sweep of this ledger; kept" in printed
    assert files_of(paths) == before
    assert run_command(["gc", "--root", str(paths.root), "--delete", "--json"]) == 0
    assert [row["bytes"] for row in json.loads(capsys.readouterr().out)["found"]] == [10, 10]
    assert before - files_of(paths) == {f"{SAVED}/step-000000040/file", f"ray/{sweeps.SWEEP_ID}/file"}
    assert run_command(["gc", "--root", str(paths.root), "--delete"]) == 0
    assert "0 found, 0 bytes" in capsys.readouterr().out


def test_gc_leaves_a_running_sweep_alone(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_of(paths)
    with Lease(Ledger.open(paths.ledger_url), sweeps.SWEEP_ID):
        assert run_command(["gc", "--root", str(paths.root), "--delete"]) == 0
    assert files_of(paths) == before
