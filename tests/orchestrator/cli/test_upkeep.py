"""The verb `gc` deletes what no row refers to, with `--delete` alone, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.cli.app import run_command
from orchestrator.ledger.lease import Lease
from orchestrator.ledger.ledger import Ledger
from orchestrator.storage.paths import Paths
from tests import sweeps

SAVED = f"checkpoints/{sweeps.SWEEP_ID}/{sweeps.SWEEP_ID}-0"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Return a root with a sweep, its checkpoints, and three things that no row refers to."""
    paths = sweeps.filled(tmp_path / "mlruns")
    for name in (f"{SAVED}/step-000000040", f"ray/{sweeps.SWEEP_ID}", "checkpoints/of-another-ledger"):
        (paths.root / name).mkdir(parents=True)
        (paths.root / name / "file").write_bytes(b"0123456789")
    return paths


def there(paths: Paths) -> set[str]:
    """Return every file under the folders that `gc` looks at."""
    files = [*paths.root.glob("checkpoints/**/*"), *paths.root.glob("ray/**/*")]
    return {str(path.relative_to(paths.root)) for path in files if path.is_file()}


def test_gc_deletes_what_no_row_refers_to(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    before = there(paths)
    assert run_command(["gc", "--root", str(paths.root)]) == 0
    printed = capsys.readouterr().out
    assert "2 found, 20 bytes; `gc --delete` deletes them" in printed
    assert "of-another-ledger: of no sweep in this ledger; left alone" in printed
    assert there(paths) == before
    assert run_command(["gc", "--root", str(paths.root), "--delete", "--json"]) == 0
    assert [row["bytes"] for row in json.loads(capsys.readouterr().out)["found"]] == [10, 10]
    assert before - there(paths) == {f"{SAVED}/step-000000040/file", f"ray/{sweeps.SWEEP_ID}/file"}
    assert run_command(["gc", "--root", str(paths.root), "--delete"]) == 0
    assert "0 found, 0 bytes" in capsys.readouterr().out


def test_gc_leaves_a_running_sweep_alone(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    before = there(paths)
    with Lease(Ledger.open(paths.ledger_url), sweeps.SWEEP_ID):
        assert run_command(["gc", "--root", str(paths.root), "--delete"]) == 0
    assert there(paths) == before
