"""What is written of a trial whose code is not this package's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from orchestrator.errors import BadInput
from orchestrator.export.saved_files import export_arrays
from orchestrator.ledger.records import CheckpointRecord, TrialRecord
from trainables import checkpoint


def test_the_arrays_of_a_program_have_the_names_of_their_paths(tmp_path: Path) -> None:
    arrays = {"state/params/kernel": np.ones((2, 3), np.float32), "step": np.int32(20)}
    facts = {"step": 20, "metrics": {"val/loss": 0.5}}
    saved = checkpoint.save(tmp_path / "kept" / "step-20", arrays, facts)
    trial = TrialRecord(
        *("s-0", "s", 0, "search", "COMPLETE", None, {"learning_rate": 0.1}, {}),
        *(7, 0.5, 20, 20, 20, 1, 0.0),
    )
    row = CheckpointRecord("s-0", 20, "best", str(saved.folder), saved.digest, saved.bytes, {})
    export_arrays(trial, row, saved.folder, tmp_path / "exported")
    with np.load(tmp_path / "exported" / "checkpoint.npz", allow_pickle=False) as written:
        assert set(written) == set(arrays)
        assert np.array_equal(written["state/params/kernel"], arrays["state/params/kernel"])
    document = json.loads((tmp_path / "exported" / "trial.json").read_text())
    assert (document["step"], document["params"], document["seed"]) == (20, {"learning_rate": 0.1}, 7)
    with pytest.raises(BadInput, match="must not exist"):
        export_arrays(trial, row, saved.folder, tmp_path / "exported")
