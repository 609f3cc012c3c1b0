"""What was recorded can be read for ever, also after the code of the trials has gone."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Sweep, status
from orchestrator.api import serving
from orchestrator.config import from_document
from orchestrator.driver.user_code import check_code
from orchestrator.errors import BadInput
from tests.orchestrator.session.sessions import Sessions, launch, train

FILE = """
trainable: {TRAINABLE, folder: code}
search: {learning_rate: {log_uniform: [1e-4, 1e-1]}, width: {choice: [8, 16]}}
training: {steps: 30, interval: 10}
objective: {maximize: val/accuracy}
scheduler: {pbt: {mutations: [learning_rate], period: 0.34}}
budget: {trials: 2}
"""
NET = "class Net(Linen):\n    free = ('learning_rate', 'dropout')\n"
KINDS = {
    "function": "function: train.py:train, mutable: [learning_rate]",
    "command": "command: [python, train.py], mutable: [learning_rate]",
    "program": 'program: "model.py:Net"',
}


@pytest.fixture(params=KINDS)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the text of a file of each kind, whose code is in `code`."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("def train(trial): ...\n")
    (tmp_path / "code" / "model.py").write_text(NET)
    return FILE.replace("TRAINABLE", KINDS[request.param])


@pytest.mark.slow_after(2)
def test_a_sweep_without_its_code_is_shown_reported_and_exported(tmp_path: Path, file: str) -> None:
    sessions = Sessions(tmp_path)
    specification = sessions.of(file)
    session = sessions.open(specification)
    for _ in range(2):
        train(session, launch(session))
    shutil.rmtree(tmp_path / "code")
    sweep = Sweep.find(specification.id, root=sessions.paths.root)
    assert sweep.status().metric == "val/accuracy"
    assert sweep.specification.document() == specification.document()
    assert len(sweep.trials) == 2
    assert sweep.export_study(tmp_path / "study.db") == 2
    assert sweep.extended(trials=4).specification.budget.trials == 4
    assert sweep.write_report().markdown.exists()


def test_a_budget_of_fewer_trials_than_a_sweep_has_is_refused(tmp_path: Path, file: str) -> None:
    """`--extend trials=1` may be meant as one more, while the budget is the number of all trials."""
    sessions = Sessions(tmp_path)
    session = sessions.open(sessions.of(file))
    for _ in range(2):
        launch(session)
    sweep = Sweep.find(session.sweep.id, root=sessions.paths.root)
    with pytest.raises(BadInput) as refused:
        sweep.extended(trials=1)
    assert refused.value.must == "must be at least 2, the number of its trials"
    assert refused.value.remedy == "It counts all trials: trials=3 adds 1."
    assert sweep.extended(trials=2).specification.budget.trials == 2


def test_a_submission_without_its_code_is_shown(tmp_path: Path, file: str) -> None:
    root, space = tmp_path / "mlruns", tmp_path / "space.yaml"
    space.write_text(file)
    sweep = Sweep.load(space, root=root)
    serving.submit(sweep)
    shutil.rmtree(tmp_path / "code")
    assert status(root=root).metric == "val/accuracy"
    assert Sweep.find(sweep.id, root=root).specification.document() == sweep.specification.document()


# ------------------------------------------------------------------ what a program declares as free


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    """Return the record of a program's sweep."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "model.py").write_text(NET)
    document: dict[str, Any] = json.loads(
        json.dumps(Sessions(tmp_path).of(FILE.replace("TRAINABLE", KINDS["program"])).document())
    )
    return document


def test_a_record_says_what_was_free(tmp_path: Path, document: dict[str, Any]) -> None:
    (tmp_path / "code" / "model.py").write_text("class Net(Linen):\n    free = ('other',)\n")
    trainable = from_document(document).trainable
    assert trainable is not None
    assert trainable.free == ("learning_rate", "dropout")
    with pytest.raises(BadInput) as refused:
        check_code(trainable)
    assert "learning_rate, dropout" in str(refused.value)
    check_code(replace(trainable, free=("other",)))
