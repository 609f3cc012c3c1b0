"""The verbs that only read a ledger import no module that takes seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import sweeps

SLOW = (
    "{'ray', 'jax', 'flax', 'optuna', 'mlflow', 'pandas', 'plotly', 'sklearn', 'scipy.special',"
    " 'scipy.optimize', 'alembic'}"
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sweeps.filled(tmp_path_factory.mktemp("imports") / "mlruns").root


COMMANDS = ("list", "list --json", "status", "status --json", f"show {sweeps.SWEEP_ID}-0")

CODE = f"""
import contextlib, io, sys
from orchestrator.cli.app import run_command
for command in {COMMANDS}:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = run_command([*command.split(), "--root", sys.argv[1]])
    print(command, code, {sweeps.SWEEP_ID!r} in printed.getvalue(), sorted({SLOW} & set(sys.modules)))
"""


def test_a_read_only_verb_imports_nothing_slow(root: Path) -> None:
    """One process runs them all, because none may import such a module."""
    done = subprocess.run([sys.executable, "-c", CODE, str(root)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{command} 0 True []" for command in COMMANDS], done.stderr
