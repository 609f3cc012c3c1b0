"""Trials use the GPU that they were given: a real GPU, where the machine has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.machines.hardware import detect
from tests.end_to_end.commands import SMALL, Commands
from trainables import checkpoint

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.slow,
    pytest.mark.skipif(not detect().gpus, reason="needs a GPU"),
]


@pytest.mark.parametrize("share", ["1", "1/4"])
def test_trials_train_on_the_gpu(commands: Commands, share: str) -> None:
    size = ["--set", f"resources={{gpu: {share}, cpu: 1}}", "--set", "budget.trials=2"]
    # JAX chooses: tests/conftest.py sets the processors.
    code, output = commands.run(*SMALL, *size, JAX_PLATFORMS="")
    assert code == 0, output
    (sweep,) = commands.ledger.sweeps()
    rows = commands.ledger.checkpoints(sweep.id)
    assert rows
    assert [checkpoint.load(Path(row.path), row.digest)[1]["devices"] for row in rows] == [["gpu"]] * len(
        rows
    )
