"""What functions, commands and programs can do: a file is read or refused as the page says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.config import load
from orchestrator.errors import BadInput

PAGE = Path(__file__).parents[3] / "docs" / "trainables.md"
FILE = """
trainable: {TRAINABLE}
search: {learning_rate: {log_uniform: [1e-4, 1e-1]}, width: {choice: [8, 16]}}
training: {steps: 100, interval: 10REPRODUCIBLE}
OBJECTIVE
budget: {trials: 4}
MORE
"""
KINDS = {
    "function": "function: train.py:train",
    "command": 'command: [python, train.py, --lr, "{learning_rate}"]',
    "program": "program: model.py:Net",
}
ONE = "objective: {minimize: val/loss}"
PBT = "scheduler: {pbt: {mutations: [learning_rate]}}"
SECTIONS = {
    "`profiles`": "profiles: {small: {budget: {trials: 2}}}",
    "`confirm`": "confirm: {seeds: 2}",
    "`published`": "published: {source: a paper, values: {learning_rate: 1e-3, width: 8}}",
    "`constraints`": "constraints: {val/seconds: {at_most: 3}}",
    "several objectives": "objective: {minimize: val/loss, maximize: val/accuracy}\nscheduler: none",
    "`warm_start`": "warm_start: [digits-1a2b3c4d]",
    "early stopping": "scheduler: {asha: {reduction: 2}}",
    "population based training": PBT,
    "`slots`": "resources: {gpu: 1, slots: 4}",
    "`gpu: 1/4`": "resources: {gpu: 1/4}",
    "`gpu: 4`, `nodes: 2`": "resources: {gpu: 4, nodes: 2}",
    "`training.reproducible`": "reproducible: bits",
    "`memory`, `minutes`, `disk`": "resources: {memory: 4, minutes: 5, disk: 1}",
    "`mlflow: true`": "mlflow: true",
}
"""Sections of a file that make use of an ability, by its name on the page."""


def rows() -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the cells of every row of the page's table of abilities."""
    _, _, rest = PAGE.read_text().partition("| | function | command | program |\n|---|---|---|---|\n")
    for line in rest.partition("\n\n")[0].splitlines():
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        yield name, cells


def text_of(kind: str, ability: str) -> str:
    """Return a file that makes use of an ability."""
    trainable, more, objective, reproducible = KINDS[kind], SECTIONS[ability], ONE, ""
    if ability == "`mlflow: true`":
        trainable, more = f"{trainable}, {more}", ""
    if ability == "`training.reproducible`":
        reproducible, more = f", {more}", ""
    if more == PBT and kind != "program":
        trainable = f"{trainable}, mutable: [learning_rate]"
    if more.startswith("objective"):
        objective = ""
    filled = FILE.replace("TRAINABLE", trainable).replace("REPRODUCIBLE", reproducible)
    return filled.replace("OBJECTIVE", objective).replace("MORE", more)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ability", SECTIONS)
def test_an_ability_is_there_or_refused_when_the_file_is_read(
    ability: str, kind: str, tmp_path: Path
) -> None:
    cells = dict(rows())[ability]
    (tmp_path / "model.py").write_text("class Net(Linen):\n    free = ('learning_rate',)\n")
    file = tmp_path / "digits.yaml"
    file.write_text(text_of(kind, ability))
    if cells[list(KINDS).index(kind)].startswith("no"):
        with pytest.raises(BadInput) as refused:
            load(file, profile=None, gpus=1)
        assert file.name in refused.value.where
        assert all((refused.value.must, refused.value.got, refused.value.remedy))
    else:
        profile = "small" if ability == "`profiles`" else None
        assert load(file, profile=profile, gpus=1).budget.trials == (2 if profile else 4)


def test_what_no_file_declares_mutable_cannot_be_changed(tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(
        text_of("function", "population based training").replace(", mutable: [learning_rate]", "")
    )
    with pytest.raises(BadInput, match=r"trainable\.mutable"):
        load(file, profile=None, gpus=1)


@pytest.mark.parametrize(
    ("kind", "body", "target", "why"),
    [
        ("function", "", None, "a function offers no predictor"),
        ("command", "", None, "a command offers no predictor"),
        ("program", "    width = 8\n", None, "class Net does not define `predict`"),
        ("program", "    def predict(self, state, batch): ...\n", None, None),
        ("program", "    def predict(self, state, batch): ...\n", "HERE/model.py:Net", "is not below"),
        ("program", "    def predict(self, state, batch): ...\n", "model:Net", None),
    ],
)
def test_a_model_is_registered_as_the_page_says(
    kind: str, body: str, target: str | None, why: str | None, tmp_path: Path
) -> None:
    cell = dict(rows())["registered model in MLflow"][list(KINDS).index(kind)]
    assert cell == (
        "if its class defines `predict`" if kind == "program" else "if `predictor` names a function"
    )
    (tmp_path / "model.py").write_text(f"class Net(Linen):\n    free = ('learning_rate',)\n{body}")
    file = tmp_path / "digits.yaml"
    text = text_of(kind, "`confirm`")
    file.write_text(text.replace("model.py:Net", target.replace("HERE", str(tmp_path))) if target else text)
    trainable = load(file, profile=None, gpus=1).trainable
    assert trainable is not None
    found = trainable.why_not_registered()
    assert found is None if why is None else why in str(found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_predictor_stands_beside_a_function_or_a_command(kind: str, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("class Net:\n    def predict(self): ...\n")
    file = tmp_path / "digits.yaml"
    text = text_of(kind, "`confirm`")
    file.write_text(text.replace(f"{{{kind}: ", f"{{predictor: 'model.py:load', {kind}: "))
    if kind == "program":
        with pytest.raises(BadInput, match=r"trainable\.predictor requires a function or a command"):
            load(file, profile=None, gpus=1)
        return
    trainable = load(file, profile=None, gpus=1).trainable
    assert trainable is not None
    assert trainable.why_not_registered() is None
    assert trainable.document()["predictor"] == "model.py:load"
    file.write_text(file.read_text().replace("model.py:load", "load"))
    with pytest.raises(BadInput, match=r"trainable\.predictor must be package.module:name, or file.py:name"):
        load(file, profile=None, gpus=1)


def test_the_page_has_a_row_for_every_ability() -> None:
    assert SECTIONS.keys() < dict(rows()).keys()
