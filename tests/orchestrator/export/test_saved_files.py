"""An export of what a function or a command has saved takes only the checkpoint of its own trial."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orchestrator.export.folder import export_saved
from orchestrator.ledger.sweeps.records import CheckpointRecord
from tests import sweeps
from trainables import checkpoint
from trainables.errors import DamagedCheckpoint


def recorded(folder: Path, trial_key: str) -> CheckpointRecord:
    """Return the row of a checkpoint of a script with one file, which exists."""
    facts = {"trial": trial_key, "step": 10, "metrics": {}, "resumable": True}
    saved = checkpoint.save(folder / "step", {"state": np.frombuffer(b"state", np.uint8)}, facts)
    row = sweeps.checkpoint(replace(sweeps.trial(0), best_step=10), str(saved.folder))
    return replace(row, digest=saved.digest, bytes=saved.bytes)


def test_the_checkpoint_of_another_trial_is_not_exported(tmp_path: Path) -> None:
    """Neither in the place of the recorded one, nor recorded as this trial's."""
    trial = sweeps.trial(0)
    own, other = recorded(tmp_path / "own", trial.key), recorded(tmp_path / "other", "s-9")
    export_saved(trial, own, Path(own.path), tmp_path / "exported")
    assert (tmp_path / "exported" / "checkpoint" / "state").read_bytes() == b"state"
    with pytest.raises(DamagedCheckpoint, match=rf"must be a checkpoint of {trial.key} \(got one of s-9"):
        export_saved(trial, other, Path(other.path), tmp_path / "again")
    with pytest.raises(DamagedCheckpoint, match="must have SHA-256"):
        export_saved(trial, own, Path(other.path), tmp_path / "again")
    assert not (tmp_path / "again").exists()
