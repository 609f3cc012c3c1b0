"""An exported trial holds its settings, its code and its results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.proto.event_pb2 import Event

from orchestrator.cli.app import run_command
from orchestrator.export.folder import guarantee
from tests import sweeps
from trainables import replay
from trainables.errors import BadData
from trainables.sources import holds_no_code
from trainables.trial import ScriptSettings, TrialSettings, settings_from

TRIAL = f"{sweeps.SWEEP_ID}-7"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root whose ledger holds a sweep."""
    return sweeps.filled(tmp_path / "mlruns").root


def _exported(root: Path) -> tuple[Path, dict[str, Any]]:
    folder = root.parent / "out"
    assert run_command(["export", TRIAL, "--to", str(folder), "--root", str(root)]) == 0
    return folder, json.loads((folder / "trial.json").read_text())


def test_the_folder_holds_everything_that_the_ledger_knows(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, document = _exported(root)
    printed = capsys.readouterr().out
    assert "The code is that of" in printed, "the recorded commit is not the one that is checked out"
    record, trial = sweeps.sweep_record(), sweeps.trial(7)
    assert document["trial"] == TRIAL
    assert document["data"] == {"source": record.data_source, "digest": record.data_digest}
    assert document["environment"]["XLA_FLAGS"]
    settings = TrialSettings.from_document(document["settings"])
    assert (settings.seed, settings.training.learning_rate) == (trial.seed, trial.params["learning_rate"])
    for row in sweeps.reports(trial):
        point = document["curve"][str(row.step)]
        assert point["val/accuracy"] == row.metrics["val/accuracy"]
        assert not {"tokens_per_second", "seconds/train"} & point.keys()
    assert "jax==0.10.2" in (folder / "requirements.txt").read_text()
    assert (folder / "search-space.yaml").read_text() == "task: retrieval\n"
    assert not list((folder / "code").rglob("*.pyc"))
    assert holds_no_code(folder), "beside a script, it would be code of its sweep"


@pytest.mark.slow
def test_the_script_uses_the_exported_code(root: Path) -> None:
    """`--help` imports everything that training needs, from the folder only, in any working directory."""
    folder, _ = _exported(root)
    shown = subprocess.run(
        [folder / "run.sh", "--help"],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert "--data" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([TRIAL, "--to", "{root}"], "already exists"),
        ([f"{sweeps.SWEEP_ID}-99"], "is not the key of a trial"),
    ],
)
def test_nothing_is_overwritten(
    root: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    words = [argument.format(root=root) for argument in arguments]
    assert run_command(["export", *words, "--root", str(root)]) == 2
    assert message in capsys.readouterr().err


def test_a_study_is_written_once(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = root.parent / "study.db"
    assert run_command(["export-study", "retrieval", str(file), "--root", str(root)]) == 0
    assert "8 trials" in capsys.readouterr().out
    assert run_command(["export-study", "retrieval", str(file), "--root", str(root)]) == 2
    assert "already exists" in capsys.readouterr().err


def _events(folder: Path) -> Iterator[Any]:
    """Read TensorBoard's records: a length of 8 bytes, its checksum of 4, the data, its checksum of 4."""
    (file,) = folder.iterdir()
    content = file.read_bytes()
    while content:
        end = 12 + int.from_bytes(content[:8], "little")
        yield Event.FromString(content[12:end])
        content = content[end + 4 :]


def test_tensorboard_gets_every_point_of_the_ledger(root: Path) -> None:
    folder = root.parent / "tensorboard"
    assert run_command(["export-tensorboard", "retrieval", str(folder), "--root", str(root)]) == 0
    assert run_command(["export-tensorboard", "retrieval", str(folder), "--root", str(root)]) == 2
    assert {path.name for path in folder.iterdir()} == {
        trial.key for trial in sweeps.trials() if sweeps.reports(trial)
    }
    values = [(event, value) for event in _events(folder / TRIAL) for value in event.summary.value]
    points = {(value.tag, event.step): value.simple_value for event, value in values if event.step}
    rows = sweeps.reports(sweeps.trial(7))
    expected = {(name, row.step): value for row in rows for name, value in row.metrics.items()}
    assert points == pytest.approx(expected)
    assert "_hparams_/session_start_info" in {value.tag for _, value in values}


def test_a_replay_refuses_other_data(tmp_path: Path) -> None:
    settings = TrialSettings.from_document(
        {**NETWORK, "task_options": {"delay": 2, "examples": 8, "held_out": 8}}
    )
    with pytest.raises(BadData, match="must be the data of the trial"):
        next(replay.replayed(settings, "feed" * 16, tmp_path, []))


NETWORK = {
    "task": "copy",
    "model": {"layer": "lru", "depth": 1, "d_model": 4, "d_state": 4},
    "training": {
        "steps": 2,
        "interval": 1,
        "batch_size": 2,
        "learning_rate": 0.1,
        "recurrent_learning_rate": 0.1,
    },
    "seed": 0,
}
PROGRAM = {
    "program": "model.py:Net",
    "folder": ".",
    "params": {},
    "training": {"steps": 2, "interval": 1},
    "seed": 0,
    "free": [],
}
ALONE, TOGETHER = [[[2, 1, 1]]], [[[1, 4, 2], [1, 4, 4]]]


@pytest.mark.parametrize(
    ("document", "reproducible", "facts", "message"),
    [
        (NETWORK, None, {}, "are not recorded"),
        (NETWORK, None, {"device": "gpu"}, "are not recorded"),
        (PROGRAM, None, {"device": "cpu"}, "are not recorded"),
        (NETWORK, None, {"device": "cpu", "devices": ["gpu", "cpu"]}, "on a GPU, then on a CPU"),
        (NETWORK, None, {"device": "cpu"}, "on a CPU, by a program of its own: the same versions"),
        (NETWORK, None, {"device": "cpu", "stretches": ALONE}, "on a CPU, by a program of its own"),
        (PROGRAM, None, {"device": "cpu", "stretches": ALONE}, "advanced up to 1 slot at once"),
        (PROGRAM, None, {"device": "cpu", "stretches": TOGETHER}, "with other sizes the last digits differ"),
        (PROGRAM, "bits", {"device": "cpu", "stretches": ALONE}, "regardless of other trials on the device"),
        (NETWORK, "bits", {"device": "gpu"}, "same model of GPU give the same digits, regardless of"),
        (NETWORK, None, {"device": "gpu", "stretches": TOGETHER}, "up to 4 slots at once: run.sh repeats"),
    ],
)
def test_the_folder_says_when_the_values_are_equal(
    document: dict[str, Any], reproducible: str | None, facts: dict[str, Any], message: str
) -> None:
    training = {**document["training"], "reproducible": reproducible}
    settings = settings_from({**document, "training": training})
    assert not isinstance(settings, ScriptSettings)
    assert message in guarantee(settings, facts)


def test_the_folder_says_that_a_trial_went_on_from_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Training from its own seed cannot give the curve of a trial that has copied another one's state."""
    segment = {"step": 80, "donor": f"{sweeps.SWEEP_ID}-3", "params": {"learning_rate": 1e-2}}
    trial = sweeps.trial(7, system_attrs={"segments": [segment]})
    _, document = _exported(sweeps.filled(tmp_path / "mlruns", [trial]).root)
    assert f"at step 80 from the state of {sweeps.SWEEP_ID}-3" in document["guarantee"]
    assert document["guarantee"] in capsys.readouterr().out


def test_a_different_digit_is_reported() -> None:
    recorded = {"val/loss": 0.5, "val/accuracy": 0.25}
    assert replay.differences(recorded, {"val/loss": 0.5, "val/accuracy": 0.25}) == []
    assert replay.differences(recorded, {"val/loss": 0.5000000001, "val/accuracy": 0.25}) == ["val/loss"]
