"""The callbacks of docs/frameworks.md with the real packages, none of which this project installs.

In an environment with pytest, scikit-learn and some of the packages, without this project:
`python -m pytest --noconftest -p no:cacheprovider -o addopts= tests/orchestrator/scripts/test_callbacks.py`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import runpy
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "frameworks.md"
STEPS, STOPPED_AT = 6, 4

CLIENT = Path(__file__).parents[3] / "orchestrator" / "scripts" / "client" / "sweep_client" / "__init__.py"

# The packages' own deprecations are not ours to mend.
pytestmark = pytest.mark.filterwarnings("default")


@dataclass
class Trial:
    """A trial that is stopped after some reports, and keeps them and its last checkpoint."""

    folder: Path
    kept: Path
    stop_at: int = STEPS
    resume: Path | None = None
    start: int = 0
    steps: int = STEPS
    seed: int = 0
    reports: dict[int, Mapping[str, float]] = field(default_factory=dict)

    def report(self, step: int, metrics: Mapping[str, float], checkpoint: Path) -> bool:
        self.reports[step] = {name: float(value) for name, value in metrics.items()}
        shutil.rmtree(self.kept, ignore_errors=True)
        shutil.copytree(checkpoint, self.kept)
        return step < self.stop_at


def digits() -> tuple[Any, Any, Any, Any]:
    """Return inputs and classes of 1,400 examples for training, then of 397 for validation."""
    datasets = pytest.importorskip("sklearn.datasets", reason="needs scikit-learn")
    inputs, classes = datasets.load_digits(return_X_y=True)
    inputs = (inputs / 16).astype("float32")
    return inputs[:1400], classes[:1400], inputs[1400:], classes[1400:]


def of_xgboost(package: ModuleType) -> dict[str, Any]:
    inputs, classes, others, their_classes = digits()
    return {
        "training": package.DMatrix(inputs, classes > 4),
        "validation": package.DMatrix(others, their_classes > 4),
    }


def of_lightgbm(package: ModuleType) -> dict[str, Any]:
    inputs, classes, others, their_classes = digits()
    training = package.Dataset(inputs, classes > 4)
    return {"training": training, "validation": training.create_valid(others, their_classes > 4)}


def of_keras(package: ModuleType) -> dict[str, Any]:
    inputs, classes, others, their_classes = digits()

    def built() -> Any:
        model = package.Sequential([package.layers.Input((64,)), package.layers.Dense(10)])
        loss = package.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
        return model

    return {"built": built, "training": {"x": inputs, "y": classes}, "validation": (others, their_classes)}


def of_lightning(package: ModuleType) -> dict[str, Any]:
    torch = importlib.import_module("torch")
    inputs, classes, others, their_classes = digits()

    class Module(package.pytorch.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(64, 10)

        def training_step(self, batch: Any, index: int) -> Any:
            return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val/loss", torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1]))

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), 1e-3)

    def loader(*arrays: Any) -> Any:
        tensors = [torch.as_tensor(array) for array in arrays]
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*tensors), batch_size=100)

    training, validation = loader(inputs, classes), loader(others, their_classes)
    return {"module": Module(), "training": training, "validation": validation}


def of_transformers(package: ModuleType) -> dict[str, Any]:
    torch = importlib.import_module("torch")
    pytest.importorskip("accelerate", reason="needs accelerate")
    inputs, classes, others, their_classes = digits()

    class Model(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(64, 10)

        def forward(self, inputs: Any, labels: Any) -> Any:
            answers = self.layer(inputs)
            return {"loss": torch.nn.functional.cross_entropy(answers, labels), "logits": answers}

    def rows(arrays: Any, answers: Any) -> list[dict[str, Any]]:
        return [
            {"inputs": array, "labels": int(answer)} for array, answer in zip(arrays, answers, strict=True)
        ]

    return {"model": Model(), "training": rows(inputs, classes), "validation": rows(others, their_classes)}


PACKAGES: dict[str, tuple[Callable[[ModuleType], dict[str, Any]], str]] = {
    "xgboost": (of_xgboost, "val/loss"),
    "lightgbm": (of_lightgbm, "val/binary_logloss"),
    "keras": (of_keras, "val_loss"),
    "lightning": (of_lightning, "val/loss"),
    "transformers": (of_transformers, "eval_loss"),
}


def block_of(name: str) -> str:
    """Return the only block of the page that uses a package."""
    [code] = [
        block
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        if f"{name}." in block and "trial.resume" in block
    ]
    return code


@pytest.mark.parametrize("name", PACKAGES)
def test_a_callback_uses_what_a_trial_has(name: str) -> None:
    """Without the package: the code is valid, and every attribute and every report of a trial exists."""
    client = runpy.run_path(str(CLIENT))
    used = {node for node in ast.walk(ast.parse(block_of(name))) if _is_of_trial(node)}
    assert {node.attr for node in used} >= {"folder", "report", "resume", "steps"}
    assert all(hasattr(client["trial"](), node.attr) for node in used)
    signature = inspect.signature(client["Trial"].report)
    calls = [node for node in ast.walk(ast.parse(block_of(name))) if _is_report(node)]
    assert calls
    for call in calls:
        signature.bind("the trial", *call.args, **{word.arg: word.value for word in call.keywords})


def _is_of_trial(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "trial"


def _is_report(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and _is_of_trial(node.func) and node.func.attr == "report"


OF_CLIENT = ("keras", "lightning", "transformers")
"""Packages whose callbacks `sweep_client` has."""


def with_client(code: str) -> str:
    """Return a block with the callback of `sweep_client` in the place of its own class."""
    tree = ast.parse(code)
    tree.body = [node for node in tree.body if not isinstance(node, ast.ClassDef)]
    return ast.unparse(tree)


@pytest.mark.parametrize("name", OF_CLIENT)
def test_a_callback_of_the_client_has_at_most_20_lines(name: str) -> None:
    tree = ast.parse(CLIENT.with_name(f"{name}.py").read_text())
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    assert found.end_lineno is not None
    assert found.end_lineno - found.lineno < 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "of_client"), [*((name, False) for name in PACKAGES), *((name, True) for name in OF_CLIENT)]
)
def test_a_callback_reports_stops_and_goes_on(
    name: str, of_client: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    pytest.importorskip(name, reason=f"{name} is no dependency of this project")
    package = importlib.import_module(name)
    values, metric = PACKAGES[name]
    code, trials = block_of(name), []
    monkeypatch.syspath_prepend(CLIENT.parents[1])
    client = importlib.import_module("sweep_client")
    own = {"Report": getattr(client, name).Report} if of_client else {}
    code = with_client(code) if of_client else code
    for number, stop_at in enumerate((STOPPED_AT, STEPS)):
        folder = tmp_path / f"folder-{number}"
        folder.mkdir()
        trial = Trial(folder, tmp_path / f"kept-{number}", stop_at)
        if trials:
            trial.resume, trial.start = trials[-1].kept, STOPPED_AT
        monkeypatch.setattr(client, "_current", trial)
        exec(code, {name: package, "trial": trial, **own, **values(package)})
        trials.append(trial)
    first, second = trials
    assert list(first.reports) == [1, 2, 3, 4]
    assert list(second.reports) == [5, 6]
    losses = [report[metric] for report in (*first.reports.values(), *second.reports.values())]
    assert losses == sorted(losses, reverse=True)
