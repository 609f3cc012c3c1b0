"""Checks of translated search-space files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.app import run_command
from orchestrator.config import load
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.scripts.script_process import AttemptFolder, command_of
from trainables.trial import ScriptSettings

SCRIPT = "import sweep_client\ndef train(trial):\n    sweep_client.trial()\n"
"""A script that a translated file may name."""


def translated(
    folder: Path, capsys: pytest.CaptureFixture[str], *words: str, script: str = "train.py"
) -> tuple[SweepConfig, str, list[str]]:
    """Import a source into a file that `validate` accepts.

    Returns:
        The sweep of the file, its text, and the printed lines about what could not be translated.
    """
    (folder / script).parent.mkdir(parents=True, exist_ok=True)
    (folder / script).write_text(SCRIPT)
    (folder / script).chmod(0o755)
    file = folder / "translated.yaml"
    capsys.readouterr()
    assert run_command(["import", *words, "--output", str(file)]) == 0, capsys.readouterr().err
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Not translated")]
    assert run_command(["validate", str(file)]) == 0, (file.read_text(), capsys.readouterr())
    text = file.read_text()
    assert all(f"# {note}" in text for note in notes)
    return load(file, profile=None, gpus=0), text, notes


def words_of(sweep: SweepConfig, folder: Path) -> list[str]:
    """Return the words that start a trial with the largest values."""
    drawn: Any = sweep.settings(sweep.largest(()), seed=7)
    assert isinstance(drawn, ScriptSettings)
    return command_of(drawn, AttemptFolder(folder), 0)
