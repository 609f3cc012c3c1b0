"""What a function or a command has saved, as it has written it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.errors import BadInput
from orchestrator.ledger.records import CheckpointRecord, TrialRecord
from trainables import checkpoint


def export_saved(trial: TrialRecord, saved: CheckpointRecord, kept: Path, folder: Path) -> None:
    """Write the files of a script's checkpoint to `checkpoint/` of a new folder, and `trial.json` beside it.

    Args:
        trial: of the checkpoint.
        saved: the checkpoint.
        kept: its folder.
        folder: to create.

    Raises:
        BadInput: the folder exists, or the script has saved nothing.
        DamagedCheckpoint: a file of the checkpoint is not what was recorded, or is another trial's.
    """
    _check_new(folder)
    facts = checkpoint.facts_of(kept, saved.digest)
    checkpoint.check_trial(kept, facts, trial.key)
    if not facts["resumable"]:
        must, remedy = (
            "must have saved files to export",
            "Report a checkpoint: trial.report(..., checkpoint=folder).",
        )
        raise BadInput(trial.key, must, "reports without a checkpoint", remedy)
    checkpoint.extract(kept, saved.digest, folder / "checkpoint")
    _write_document(trial, facts, folder)


def _check_new(folder: Path) -> None:
    if folder.exists():
        raise BadInput(str(folder), "must not exist", "an existing folder", "Name another with --to.")


def _write_document(trial: TrialRecord, facts: Mapping[str, Any], folder: Path) -> None:
    text = json.dumps(_document(trial, facts), indent=1)
    folder.mkdir(parents=True, exist_ok=True)  # a checkpoint may be an empty folder
    (folder / "trial.json").write_text(f"{text}\n", encoding="utf-8")


def _document(trial: TrialRecord, facts: Mapping[str, Any]) -> dict[str, Any]:
    known = {"trial": trial.key, "params": dict(trial.params), "seed": trial.seed}
    return {**known, "step": facts["step"], "metrics": facts["metrics"]}
