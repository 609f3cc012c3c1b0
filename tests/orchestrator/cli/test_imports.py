"""The verbs that only read a ledger import no module that takes seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import sweeps

SLOW = "{'ray', 'jax', 'flax', 'optuna', 'mlflow', 'pandas', 'plotly', 'sklearn', 'scipy', 'alembic'}"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sweeps.filled(tmp_path_factory.mktemp("imports") / "mlruns").root


@pytest.mark.parametrize(
    "command",
    [["list"], ["list", "--json"], ["status"], ["status", "--json"], ["show", f"{sweeps.SWEEP_ID}-0"]],
)
def test_a_read_only_verb_imports_nothing_slow(root: Path, command: list[str]) -> None:
    code = (
        "import sys; from orchestrator.cli.app import run_command; code = run_command(sys.argv[1:]); "
        f"print(code, sorted({SLOW} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command, "--root", str(root)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert sweeps.SWEEP_ID in done.stdout
    assert done.stdout.strip().splitlines()[-1] == "0 []", done.stderr
