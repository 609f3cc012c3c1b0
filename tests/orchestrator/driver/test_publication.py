"""The end of a sweep in MLflow: events for its results and files, and a model with a card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.driver.publication import card, conclude, model_of
from orchestrator.driver.sweep_rows import CODE
from orchestrator.ledger.ledger import Ledger
from orchestrator.report.history import History
from orchestrator.report.summary import summarise
from orchestrator.storage.paths import Paths
from orchestrator.tracking.events import OBJECTIVE
from tests import sweeps
from tests.orchestrator.ledger.examples import SetClock


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return sweeps.filled(tmp_path / "mlruns")


@pytest.fixture
def ledger(paths: Paths) -> Iterator[Ledger]:
    with closing(Ledger.open(paths.ledger_url)) as ledger:
        yield ledger


def test_the_card_states_data_splits_metrics_and_limits() -> None:
    history = sweeps.history(
        facts={**sweeps.sweep_record().facts, "examples": {"train": 4000, "validation": 512}}
    )
    summary = summarise(history)
    text = card(history, summary, "rotrnn-retrieval")
    assert summary.chosen is not None
    for part in (
        "# rotrnn-retrieval",
        "Retrieval: are two documents related?",
        f"`{summary.chosen.row.key}`",
        "embedded English passages",
        "train (4,000 examples): gradients.",
        f"| test/accuracy | {summary.chosen.test['test/accuracy']:.4f} |",
        "Not comparable with published figures",
        "Chosen among 5 complete trials",
        "streaming, step by step, is refused",
        'load_model("models:/rotrnn-retrieval@champion")',
    ):
        assert part in text, part
    assert "\n\n\n" not in text


def test_the_model_is_the_chosen_checkpoint() -> None:
    """One event has the tags that decide between versions; there is none while the choice can change."""
    history = sweeps.history()
    summary = summarise(history)
    event = model_of(history, summary, 7)
    assert event is not None
    assert summary.chosen is not None
    assert (event.kind, event.run, event.at_ms) == ("model", summary.chosen.row.key, 7)
    assert event.payload["name"] == "rotrnn-retrieval"
    assert event.payload["digest"] == "beef" * 16
    assert event.payload["checkpoint"].endswith(summary.chosen.checkpoint)
    assert event.payload["tags"]["value"] == repr(summary.chosen.row.value)
    running = sweeps.history(state="INTERRUPTED")
    assert model_of(running, summarise(running), 7) is None


NET = """
class Net(Linen):
    free = ('learning_rate',)
    def predict(self, state, batch):
        return {}
"""


BEFORE, LATER = {"digest": "aa", "at": 0.0}, {"digest": "bb", "at": 9e9}
"""The codes of a sweep, from the times at which trials could start with them."""


def history_of(trainable: Mapping[str, Any], codes: Sequence[Mapping[str, Any]] = (BEFORE, LATER)) -> History:
    """Return the history of a sweep whose file names a trainable."""
    document = sweeps.sweep_record().document
    kept = {name: value for name, value in document.items() if name not in {"task", "model", "published"}}
    facts = {**sweeps.sweep_record().facts, CODE: codes}
    changes = {"name": "digits.v2", "task": "model.py:Net", "facts": facts}
    return sweeps.history(**changes, document={**kept, "trainable": trainable})


def test_the_model_of_a_program_is_named_after_its_sweep_and_its_class(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(NET)
    history = history_of({"program": "model.py:Net", "free": ["learning_rate"], "folder": str(tmp_path)})
    summary = summarise(history)
    event = model_of(history, summary, 7)
    assert event is not None
    assert summary.chosen is not None
    assert event.payload["name"] == "digits-v2-Net"
    assert event.payload["program"] == {
        "target": "model.py:Net",
        "folder": str(tmp_path),
        "code": "aa",
    }
    for part in (
        "# digits-v2-Net",
        f"The program `model.py:Net`. Trial `{summary.chosen.row.key}`.",
        'load_model("models:/digits-v2-Net@champion").predict(examples)',
        f"| test/accuracy | {summary.chosen.test['test/accuracy']:.4f} |",
        "a dict of arrays",
    ):
        assert part in event.payload["card"], part


@pytest.mark.parametrize("source", [NET.replace("predict", "answer"), NET.replace("Net", "Other"), "class"])
def test_a_program_without_a_predictor_registers_nothing(source: str, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(source)
    history = history_of({"program": "model.py:Net", "free": ["learning_rate"], "folder": str(tmp_path)})
    assert model_of(history, summarise(history), 7) is None


def test_a_program_of_unknown_code_registers_nothing(tmp_path: Path) -> None:
    """Earlier versions did not record it."""
    (tmp_path / "model.py").write_text(NET)
    section = {"program": "model.py:Net", "free": ["learning_rate"], "folder": str(tmp_path)}
    history = history_of(section, codes=())
    assert model_of(history, summarise(history), 7) is None


@pytest.mark.parametrize(
    ("section", "name"),
    [({"function": "train.py:train"}, "train"), ({"command": ["python", "train.py", "--x"]}, "train")],
)
def test_what_a_script_has_saved_is_registered_with_its_predictor(
    section: dict[str, Any], name: str, tmp_path: Path
) -> None:
    history = history_of({**section, "predictor": "model.py:load", "folder": str(tmp_path)})
    event = model_of(history, summarise(history), 7)
    assert event is not None
    assert event.payload["name"] == f"digits-v2-{name}"
    (trained,) = section.values()
    known = {"target": "model.py:load", "folder": str(tmp_path), "code": "aa"}
    assert event.payload["program"] == {**known, "trained": trained}
    assert "has saved, loaded by `model.py:load`." in event.payload["card"]
    assert "reads what the function reads that `model.py:load` returns" in event.payload["card"]


def test_a_function_registers_nothing(tmp_path: Path) -> None:
    history = history_of({"function": "train.py:train", "folder": str(tmp_path)})
    assert model_of(history, summarise(history), 7) is None


def test_a_finished_sweep_is_published_with_its_files_and_its_model(ledger: Ledger, paths: Paths) -> None:
    published = conclude(ledger, sweeps.SWEEP_ID, paths, "COMPLETE")
    sweeps.writer_of(ledger).set_sweep_state("COMPLETE", events=published)
    kept = {Path(event.payload["path"]).name for event in published if event.kind == "artifact"}
    assert kept == {"report.html", "report.md", "leaderboard.csv", "hidden_norms.html"}
    (model,) = [event for event in published if event.kind == "model"]
    assert Path(model.payload["checkpoint"]).name == "step-000000200"
    (end,) = [event for event in published if event.kind == "end"]
    assert end.payload["status"] == "FINISHED"
    assert end.payload["values"] == {
        OBJECTIVE: sweeps.trial(7).value,
        **sweeps.evaluation(sweeps.trial(7)).metrics,
    }
    assert "COMPLETE" not in (paths.report(sweeps.SWEEP_ID) / "report.md").read_text()
    (note,) = [
        event.payload["tags"] for event in published if "mlflow.note.content" in event.payload.get("tags", {})
    ]
    assert note["mlflow.note.content"].startswith("Trial 7 reaches **0.6469** val/accuracy")


def test_the_end_of_a_sweep_has_the_time_of_the_ledgers_clock(paths: Paths) -> None:
    with closing(Ledger.open(paths.ledger_url, system=SetClock(1_790_000_500.25))) as ledger:
        published = conclude(ledger, sweeps.SWEEP_ID, paths, "COMPLETE")
    assert {event.at_ms for event in published} == {1_790_000_500_250}


def test_an_interrupted_sweep_is_killed_in_mlflow(ledger: Ledger, paths: Paths) -> None:
    published = conclude(ledger, sweeps.SWEEP_ID, paths, "INTERRUPTED", "SIGTERM")
    assert published[-1].payload["values"] == {}, "results are published once, at the end"
    assert published[-1].payload["status"] == "KILLED"
    assert published[-1].payload["tags"] == {"sweep.state": "INTERRUPTED", "sweep.reason": "SIGTERM"}
