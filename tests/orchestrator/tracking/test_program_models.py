"""The chosen trial of a program as a registered model needs nothing of what trained it, and answers alike."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from pandas import DataFrame

from orchestrator.ledger.sweeps.records import CheckpointRecord, Event
from orchestrator.tracking import events, model_registry
from orchestrator.tracking.mlflow_sink import Destination
from orchestrator.training.attempt import OwnEngine
from tests.attempts import assignment
from tests.orchestrator.tracking.stored import NewDatabase, deliver
from tests.trainables.digits import digits
from trainables import checkpoint
from trainables.sources import digest_of
from trainables.trained_program import TrainedProgram
from trainables.trial import Clock, ProgramSettings

FACTS = {"data.digest": "feed", "data.comparable": False, "metric": "val/accuracy", "direction": "maximize"}
NET = """
import jax
import yaml
from width_of_the_net import WIDTH
from model import OfLinen

class Net(OfLinen):
    def __init__(self):
        super().__init__(WIDTH)

    def predict(self, state, batch):
        outputs, _ = self.outputs(state["params"], state["rest"], batch, None)
        return {"answer": outputs.argmax(-1), "probabilities": jax.nn.softmax(outputs)}
"""
DIGITS = Path(__file__).parents[2] / "trainables" / "digits.py"


def written(folder: Path) -> Path:
    """Write a program that is made of three files."""
    folder.mkdir()
    (folder / "net.py").write_text(NET)
    (folder / "width_of_the_net.py").write_text("WIDTH = 8\n")
    shutil.copy(DIGITS, folder / "model.py")
    return folder


def program(code: Path, target: str = "net.py:Net") -> dict[str, str]:
    return {"target": target, "folder": str(code), "code": digest_of(target, code)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("registered")


@pytest.fixture(scope="module")
def trained(folder: Path) -> tuple[CheckpointRecord, float]:
    """Return the checkpoint of a trial, and its accuracy on the validation examples."""
    settings = ProgramSettings(
        *("net.py:Net", str(written(folder / "trained")), {"learning_rate": 1e-2}, Clock(60, 60), 0),
        ("learning_rate",),
    )
    engine = OwnEngine()
    outcome = engine.advance(replace(assignment(folder, 0, gpu=0.0), settings=settings, store=None))
    engine.release()
    assert outcome.checkpoint is not None, outcome.message
    saved = outcome.checkpoint
    record = CheckpointRecord("s-0", 60, "best", saved.path, saved.digest, 0, {})
    return record, outcome.metrics["val/accuracy"]


def event(record: CheckpointRecord, code: Path) -> Event:
    facts = {**FACTS, "value": 0.5}
    return events.model("s-0", "digits-Net", record, "# A card", facts, 1, program(code))


@pytest.fixture(scope="module")
def destination(folder: Path, new_mlflow: NewDatabase) -> Destination:
    return Destination(new_mlflow(folder), str(folder / "artifacts"), "digits", "s", "1")


@pytest.fixture(scope="module")
def champion(folder: Path, destination: Destination, trained: tuple[CheckpointRecord, float]) -> Any:
    """Return the registered model, loaded after the code that trained it has gone."""
    code = written(folder / "registered")
    assert deliver(destination, [event(trained[0], code)]) == []
    shutil.rmtree(code)
    return mlflow.pyfunc.load_model(source(destination))


def source(destination: Destination) -> str:
    """Return the folder of the champion's files."""
    version = MlflowClient(destination.uri).get_model_version_by_alias("digits-Net", "champion")
    return str(version.source).removeprefix("file://")


@pytest.mark.slow
def test_a_model_answers_as_the_trained_program_to_the_last_bit(
    champion: Any, folder: Path, trained: tuple[CheckpointRecord, float]
) -> None:
    record, accuracy = trained
    batch = digits()["validation"]
    given = {"inputs": batch["inputs"]}
    answers = champion.predict(given)
    expected = TrainedProgram(Path(record.path), record.digest, folder / "trained").predict(given)
    assert answers.keys() == expected.keys() == {"answer", "probabilities"}
    for name, values in expected.items():
        assert answers[name].dtype == values.dtype
        assert np.array_equal(answers[name], values)
    assert np.mean(answers["answer"] == batch["targets"]) == pytest.approx(accuracy)
    assert accuracy > 0.5, "an untrained network has 0.1"


def test_a_frame_of_lists_is_a_batch(champion: Any) -> None:
    """It is what MLflow's server makes of JSON."""
    inputs = digits()["validation"]["inputs"][:4]
    answers = champion.predict(DataFrame({"inputs": inputs.tolist()}))
    assert np.array_equal(answers["answer"], champion.predict({"inputs": inputs})["answer"])


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (np.zeros((1, 64), np.float32), "must be a dict of arrays"),
        ({"x": np.zeros((1, 64), np.float32)}, "KeyError: 'inputs'"),
        ({"inputs": np.zeros((1, 63), np.float32)}, "must be a batch that the program can read"),
    ],
)
def test_what_is_no_batch_is_refused_with_a_reason(champion: Any, given: Any, reason: str) -> None:
    with pytest.raises(MlflowException, match=reason) as refused:
        champion.predict(given)
    assert refused.value.error_code == "INVALID_PARAMETER_VALUE"


def test_a_model_holds_its_code_and_no_pickle(champion: Any, destination: Destination) -> None:
    place = Path(source(destination))
    files = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}
    assert files >= {f"artifacts/program/{name}.py" for name in ("net", "width_of_the_net", "model")}
    assert "code/trainables/trained_program.py" in files
    assert not [name for name in files if name.endswith((".pkl", ".pickle"))]
    assert not [name for name in files if "orchestrator" in name]
    lines = (place / "requirements.txt").read_text().split()
    pinned = [line.partition("==")[0].lower() for line in lines]
    assert {"mlflow", "jax", "flax", "optax", "scikit-learn", "pyyaml"} <= set(pinned)
    assert len(pinned) == len(set(pinned))


def test_code_that_has_changed_since_is_not_registered(
    tmp_path: Path, destination: Destination, trained: tuple[CheckpointRecord, float]
) -> None:
    """The weights belong to the code that trained them."""
    code = written(tmp_path / "changed")
    arrays, facts = checkpoint.load(Path(trained[0].path), trained[0].digest)
    saved = checkpoint.save(tmp_path / "other", arrays, {**facts, "trial": "s-1"})
    sent = event(replace(trained[0], path=str(saved.folder), digest=saved.digest), code)
    (code / "width_of_the_net.py").write_text("WIDTH = 9\n")
    (refusal,) = deliver(destination, [sent])
    assert "is not the code that trained the best trial" in refusal.reason


def test_an_installed_package_is_a_requirement(tmp_path: Path) -> None:
    code = model_registry.kept_code(program(tmp_path, "optax.losses:Net"), tmp_path / "copy")
    assert code.folder is None
    assert [line.partition("==")[0] for line in code.requirements] == ["optax"]


def test_a_file_that_cannot_be_imported_needs_nothing(tmp_path: Path) -> None:
    code = written(tmp_path / "own")
    (code / "notes.py").write_text("import torch\nprint 'old'\n")
    kept = model_registry.kept_code(program(code), tmp_path / "copy")
    assert not [line for line in kept.requirements if "torch" in line]
