"""What a function has saved as a registered model: it needs nothing of what trained it, and answers alike."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

from orchestrator.ledger.sweeps.records import CheckpointRecord, Event
from orchestrator.tracking import events
from orchestrator.tracking.mlflow_sink import Destination
from tests.orchestrator.tracking.stored import NewDatabase, deliver
from trainables import checkpoint
from trainables.sources import digest_of

FACTS = {"data.digest": "", "data.comparable": False, "metric": "val/accuracy", "direction": "maximize"}
TRAIN = """
import numpy
from sklearn.linear_model import SGDClassifier
from scale import SCALE

def train(trial): ...

def load(folder):
    saved = numpy.load(folder / "model.npz")
    model = SGDClassifier()
    for name in ("classes_", "coef_", "intercept_"):
        setattr(model, name, saved[name])
    return lambda given: model.predict(numpy.asarray(given) / SCALE)
"""


def written(folder: Path) -> Path:
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    (folder / "scale.py").write_text("SCALE = 16\n")
    return folder


def saved(folder: Path, files: dict[str, bytes], *, resumable: bool = True) -> CheckpointRecord:
    arrays = {name: np.frombuffer(content, np.uint8) for name, content in files.items()}
    facts = {"resumable": resumable, "step": 1, "metrics": {}}
    kept = checkpoint.save(folder / "step", arrays, facts)
    return CheckpointRecord("s-0", 1, "best", str(kept.folder), kept.digest, kept.bytes, {})


def event(record: CheckpointRecord, code: Path, name: str = "digits-train") -> Event:
    known = {"target": "train.py:load", "folder": str(code), "trained": "train.py:train"}
    program = {**known, "code": digest_of("train.py:train", code)}
    return events.model("s-0", name, record, "# A card", {**FACTS, "value": 0.5}, 1, program)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[SGDClassifier, dict[str, bytes]]:
    """Return a model, and the files that a function would have handed over."""
    numbers, classes = load_digits(return_X_y=True)
    model = SGDClassifier(random_state=0).fit(numbers / 16, classes)
    file = tmp_path_factory.mktemp("saved") / "model.npz"
    np.savez(file, classes_=model.classes_, coef_=model.coef_, intercept_=model.intercept_)
    return model, {"model.npz": file.read_bytes()}


@pytest.fixture(scope="module")
def destination(tmp_path_factory: pytest.TempPathFactory, new_mlflow: NewDatabase) -> Destination:
    folder = tmp_path_factory.mktemp("registered")
    return Destination(new_mlflow(folder), str(folder / "artifacts"), "digits", "s", "1")


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, destination: Destination, trained: tuple[Any, dict[str, bytes]]
) -> Path:
    """Return the folder of the registered model, after the code and the checkpoint have gone."""
    folder = tmp_path_factory.mktemp("trained")
    code = written(folder / "code")
    assert deliver(destination, [event(saved(folder, trained[1]), code)]) == []
    shutil.rmtree(folder)
    version = MlflowClient(destination.uri).get_model_version_by_alias("digits-train", "champion")
    return Path(str(version.source).removeprefix("file://"))


def test_a_model_answers_as_the_one_that_was_saved(
    place: Path, trained: tuple[Any, dict[str, bytes]]
) -> None:
    numbers, _ = load_digits(return_X_y=True)
    champion = mlflow.pyfunc.load_model(str(place))
    assert np.array_equal(champion.predict(numbers), trained[0].predict(numbers / 16))
    with pytest.raises(
        MlflowException, match=r"cannot be processed by the predictor \(got ValueError"
    ) as refused:
        champion.predict(numbers[:, :3])
    assert refused.value.error_code == "INVALID_PARAMETER_VALUE"


def test_it_holds_its_code_and_asks_for_what_that_imports(place: Path) -> None:
    """Not for JAX, which a script need not use."""
    assert {path.name for path in (place / "artifacts" / "program").rglob("*.py")} == {"train.py", "scale.py"}
    pinned = {line.partition("==")[0].lower() for line in (place / "requirements.txt").read_text().split()}
    assert {"mlflow", "numpy", "scikit-learn"} <= pinned
    assert not pinned & {"jax", "flax"}


def test_reports_without_files_are_refused(tmp_path: Path, destination: Destination) -> None:
    record = saved(tmp_path, {}, resumable=False)
    (refusal,) = deliver(destination, [event(record, written(tmp_path / "code"), "digits-empty")])
    assert "has no files to predict with" in refusal.reason
