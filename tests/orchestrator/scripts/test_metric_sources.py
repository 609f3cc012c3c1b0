"""Metrics that a script prints or writes anyway become its reports."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tensorboardX import SummaryWriter

from orchestrator.assignment import Logged
from orchestrator.scripts.metric_sources import (
    EventFiles,
    MetricTable,
    MlflowCalls,
    PendingMetrics,
    PrintedMetrics,
    scalars_of,
)
from orchestrator.scripts.mlflow_artifacts import MlflowArtifacts
from tests.orchestrator.scripts.test_script_attempt import Runs
from trainables.errors import Refusal

NEEDED = ["val/loss"]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    started = Runs(tmp_path)
    yield started
    started.own.release()


def read(lines: list[bytes]) -> list[tuple[int, dict[str, float]]]:
    return [(line["step"], line["metrics"]) for line in map(json.loads, lines)]


def printed(text: str, **patterns: str) -> list[tuple[int, dict[str, float]]]:
    """Return the reports of a printed text, a line at a time and all at once."""
    named = {name.replace("_", "/"): pattern for name, pattern in patterns.items()}
    at_once, by_line = PrintedMetrics(named, NEEDED, 10), PrintedMetrics(named, NEEDED, 10)
    at_once.print(text)
    found: list[bytes] = []
    for line in text.split("\n"):
        by_line.print(line)
        found += by_line.reports(ended=False)
    found += by_line.reports(ended=True)
    assert at_once.reports(ended=True) == found
    return read(found)


def test_a_line_with_everything_is_a_report() -> None:
    text = "start\nepoch 1: val_loss=0.5\nnoise\nepoch 2: val_loss=nan\n"
    found = printed(text, step=r"epoch (\d+)", val_loss=r"val_loss=(\S+)")
    assert found[0] == (1, {"val/loss": 0.5})
    assert found[1][0] == 2
    assert math.isnan(found[1][1]["val/loss"])


def test_a_report_waits_for_all_patterns_or_for_the_next_step() -> None:
    patterns = {"step": r"epoch (\d+)", "val_loss": r"loss (\S+)", "val_accuracy": r"acc (\S+)"}
    text = "epoch 1\nloss 0.5\nacc 0.1\nepoch 2\nacc 0.2\nepoch 3\nloss 0.3\nepoch 4\nloss 0.2"
    assert printed(text, **patterns) == [
        (1, {"val/loss": 0.5, "val/accuracy": 0.1}),
        (3, {"val/accuracy": 0.2, "val/loss": 0.3}),
        (4, {"val/loss": 0.2}),
    ]


def test_a_complete_step_is_reported_before_the_next_line() -> None:
    source = PrintedMetrics({"step": r"(\d+):", "val/loss": r"=(\S+)"}, NEEDED, 10)
    source.print("7: =0.25")
    assert read(source.reports(ended=False)) == [(7, {"val/loss": 0.25})]


def test_without_a_step_reports_are_an_interval_apart() -> None:
    assert printed("loss 3\nloss 2\nloss 1", val_loss=r"loss (\S+)") == [
        (10, {"val/loss": 3.0}),
        (20, {"val/loss": 2.0}),
        (30, {"val/loss": 1.0}),
    ]


@pytest.mark.parametrize(
    ("text", "must"),
    [
        ("epoch 1 loss 0.5,", r"the pattern of val/loss must match a number \(got '0.5,'"),
        ("epoch 1.5 loss 1", "must be a whole number"),
        ("epoch 2 loss 1\nepoch 1 loss 1", "must not be before step 2"),
    ],
)
def test_what_is_no_metric_is_refused(text: str, must: str) -> None:
    source = PrintedMetrics({"step": r"epoch (\S+)", "val/loss": r"loss (\S+)"}, NEEDED, 10)
    source.print(text)
    with pytest.raises(Refusal, match=must):
        source.reports(ended=True)


def test_steps_without_the_objective_are_merged_and_bounded() -> None:
    pending = PendingMetrics(NEEDED, NEEDED)
    for step in range(5_000):
        pending.add(step, {"train/loss": float(step)})
    assert len(pending._pending) == 1_000
    pending.add(5_000, {"val/loss": 0.5})
    assert read(list(pending.complete(ended=False))) == [(5_000, {"train/loss": 4999.0, "val/loss": 0.5})]


def test_rows_of_a_csv_file_are_reports_as_soon_as_they_are_whole(tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    source = MetricTable(file, "epoch", NEEDED)

    def written(text: str) -> list[tuple[int, dict[str, float]]]:
        with file.open("a") as opened:
            opened.write(text)
        source._looked_at = 0.0
        return read(source.reports(ended=False))

    assert read(source.reports(ended=False)) == [], "there is no file yet"
    assert written("epoch,val/loss") == []
    assert written(",note\n1,0.5,good\n2,0.") == [(1, {"val/loss": 0.5})]
    assert written('4,"a, b"\n3,,late\n') == [(2, {"val/loss": 0.4})]
    file.write_text("epoch,val/loss,new\n1,0.5,\n2,0.4,\n3,,1\n4,0.3,2\n")
    assert written("") == [(4, {"new": 2.0, "val/loss": 0.3})], "written again with another column"


def test_a_line_of_json_is_a_report(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    rows = [
        {"step": 1, "val/loss": 0.5, "name": "a", "ok": True},
        {"step": 2, "train": 3},
        [1],
        {"val/loss": 1},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 3, "val/loss": 0.25}\n{"st')
    source = MetricTable(file, "step", NEEDED)
    expected = [(1, {"val/loss": 0.5}), (3, {"train": 3.0, "val/loss": 0.25})]
    assert read(source.reports(ended=False)) == expected


def test_metrics_that_come_after_the_report_of_their_step_are_in_the_next_one(tmp_path: Path) -> None:
    """The CSV logger of Lightning, for example, writes two rows of a step."""
    file = tmp_path / "log.jsonl"
    table, events = MetricTable(file, "step", NEEDED), EventFiles(tmp_path / "runs", NEEDED)
    rows = [{"step": 1, "val/loss": 0.5}, {"step": 1, "train/loss": 0.75}, {"step": 2, "val/loss": 0.25}]
    found: list[tuple[int, dict[str, float]]] = []
    for number, row in enumerate(rows):
        with file.open("a") as opened:
            opened.write(json.dumps(row) + "\n")
        with SummaryWriter(str(tmp_path / "runs"), filename_suffix=f".{number}") as writer:
            writer.add_scalar(*list(row.items())[1], int(row["step"]))
        table._looked_at = events._looked_at = 0.0
        found += [*read(table.reports(ended=False)), *read(events.reports(ended=False))]
    first, second = (1, {"val/loss": 0.5}), (2, {"train/loss": 0.75, "val/loss": 0.25})
    assert found == [first, first, second, second]


@pytest.mark.parametrize("name", ["metrics.csv", "metrics.jsonl"])
def test_a_long_file_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """All of a file of any size was once read at a time, and its reports were kept in memory."""
    monkeypatch.setattr("orchestrator.scripts.metric_sources.LONGEST_READ", 200)
    rows = [
        f"{step},0.5" if name.endswith("csv") else f'{{"step": {step}, "val/loss": 0.5}}'
        for step in range(99)
    ]
    header = ["step,val/loss"] if name.endswith("csv") else []
    (tmp_path / name).write_text("\n".join([*header, *rows, ""]))
    for ended in (False, True):
        table = MetricTable(tmp_path / name, "step", NEEDED)
        pieces = list(iter(lambda: table.reports(ended=ended), []))  # noqa: B023
        assert max(map(len, pieces)) < 40
        assert read([line for piece in pieces for line in piece]) == [
            (step, {"val/loss": 0.5}) for step in range(99)
        ]


def test_the_end_of_a_long_file_without_metrics_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.scripts.metric_sources.LONGEST_READ", 200)
    other = '{"step": 1, "train/loss": 0.5}\n'
    (tmp_path / "metrics.jsonl").write_text(60 * other + '{"step": 2, "val/loss": 0.25}\n')
    table = MetricTable(tmp_path / "metrics.jsonl", "step", NEEDED)
    assert read(table.reports(ended=True)) == [(2, {"train/loss": 0.5, "val/loss": 0.25})]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("step,val/loss\n1,2\n")
    (tmp_path / "metrics.csv").symlink_to(tmp_path / "secret")
    with pytest.raises(Refusal, match="must be a regular file of the script"):
        MetricTable(tmp_path / "metrics.csv", "step", NEEDED).reports(ended=True)


def test_scalars_of_event_files_are_reports(tmp_path: Path) -> None:
    source = EventFiles(tmp_path / "runs", ["validation/loss"])
    assert source.reports(ended=False) == []
    with (
        SummaryWriter(str(tmp_path / "runs" / "train")) as train,
        SummaryWriter(str(tmp_path / "runs" / "validation")) as validation,
    ):
        for step in range(1, 6):
            train.add_scalar("loss", 1 / step, step)
        for step in (2, 4):
            validation.add_histogram("weights", [1.0, 2.0], step)
            validation.add_text("note", "text", step)
            validation.add_scalar("loss", 0.5 / step, step)
    (file,) = (tmp_path / "runs" / "validation").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-3])
    source._looked_at = 0.0
    assert read(source.reports(ended=False)) == [(2, {"train/loss": 1 / 2, "validation/loss": 0.25})]
    file.write_bytes(whole)
    source._looked_at = 0.0
    expected = {"train/loss": 0.25, "validation/loss": 0.125}
    assert read(source.reports(ended=False)) == [(4, expected)], "the record was incomplete before"
    with SummaryWriter(str(tmp_path / "runs" / "validation")) as another:
        another.add_scalar("loss", 0.5, 6)
    source._looked_at = 0.0
    assert read(source.reports(ended=True)) == [
        (6, {"train/loss": pytest.approx(0.2), "validation/loss": 0.5})
    ]


@pytest.mark.parametrize(
    "content", [b"\x44\x08\x01\x22\x04\x00\x00\x00\x3f", b"\x08\x01\x2a\x04\x00\x00\x00\x3f"]
)
def test_a_scalar_may_be_a_tensor(content: bytes) -> None:
    """As the writers of TensorFlow 2 and Keras write it: its bytes, or packed numbers."""
    tensor = b"\x08\x01" + content[-6:]
    value = b"\x0a\x01a" + b"\x42" + bytes([len(tensor)]) + tensor
    summary = b"\x0a" + bytes([len(value)]) + value
    assert scalars_of(b"\x10\xac\x02\x2a" + bytes([len(summary)]) + summary) == (300, {"a": 0.5})


def test_an_integer_of_an_event_has_at_most_ten_bytes() -> None:
    """Reading a longer one would take time that grows with the square of its length."""
    with pytest.raises(Refusal, match="more than ten bytes"):
        scalars_of(b"\x10" + 20 * b"\xff" + b"\x01")


@pytest.mark.parametrize("event", [b"\x10", b"\x2a\x09\x00", b"\x13"])
def test_a_damaged_event_is_refused(event: bytes) -> None:
    with pytest.raises(Refusal, match="must name a folder with TensorBoard's event files"):
        scalars_of(event)


PRINTS = """
import sys
for epoch in range(1, int(sys.argv[1]) + 1):
    print(f"epoch {epoch}: val_loss={1 / epoch}")
"""


def test_an_unchanged_script_reports_by_what_it_prints(runs: Runs) -> None:
    metrics = {"step": r"epoch (\d+)", "val/loss": r"val_loss=(\S+)"}
    outcomes = runs.all(runs.command(PRINTS, "{steps}", steps=4, interval=1, metrics=metrics))
    assert [(one.step, one.metrics["val/loss"], one.done) for one in outcomes] == [
        (1, 1.0, False),
        (2, 0.5, False),
        (3, pytest.approx(1 / 3), False),
        (4, 0.25, True),
    ]


def test_a_script_whose_prints_match_nothing_fails_with_the_reason(runs: Runs) -> None:
    metrics = {"step": r"epoch (\d+)", "val/loss": r"test_loss=(\S+)"}
    assigned = runs.command(PRINTS, "{steps}", steps=4, interval=1, metrics=metrics)
    (outcome,) = runs.all(replace(assigned, observed=("val/loss",)))
    assert outcome.failure == "error"
    assert "Correct `trainable.metrics`" in str(outcome.message)


WRITES = """
import csv, sys
with open(sys.argv[1], "w") as file:
    rows = csv.writer(file)
    rows.writerow(["step", "val/loss"])
    for epoch in range(1, 4):
        rows.writerow([epoch, 1 / epoch])
        file.flush()
"""


def test_a_script_reports_by_the_file_that_it_writes(runs: Runs) -> None:
    metrics = {"file": "{folder}/metrics.csv"}
    outcomes = runs.all(runs.command(WRITES, "{folder}/metrics.csv", steps=3, interval=1, metrics=metrics))
    assert [one.step for one in outcomes] == [1, 2, 3]


LOGS = """
import time
import mlflow

mlflow.log_params({"rate": 0.5, "heads": [1, 2]})
mlflow.set_tag("kind", "first")
mlflow.set_tag("mlflow.note.content", "of the script")
for epoch in range(1, 4):
    mlflow.log_metric("val/loss", 1 / epoch, step=epoch)
    mlflow.log_metrics({"val/accuracy": epoch / 4, "train/loss": float("nan")}, step=epoch)
    mlflow.log_metric("looks", 1)
    mlflow.log_text("a note", "notes.txt")
    mlflow.set_tag("epoch", epoch)
    time.sleep(0.3)
mlflow.log_param("last", True)
print("where:", mlflow.active_run().info.run_id, mlflow.get_artifact_uri())
"""


@pytest.mark.slow
def test_metrics_that_a_script_logs_with_mlflow_are_its_reports(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "not for scripts")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assigned = runs.command(LOGS, steps=3, interval=1, metrics={"source": "mlflow"})
    outcomes = runs.all(replace(assigned, observed=("val/loss",)))
    assert [(one.step, one.metrics["val/loss"], one.metrics["val/accuracy"]) for one in outcomes] == [
        (1, 1.0, 0.25),
        (2, 0.5, 0.5),
        (3, pytest.approx(1 / 3), 0.75),
    ], runs.log
    assert math.isnan(outcomes[0].metrics["train/loss"])
    assert outcomes[0].metrics["looks"] == 1
    assert outcomes[-1].done
    first, *_, last = (replace(one.logged, files={}) for one in outcomes if one.logged is not None)
    assert first == Logged({"rate": "0.5", "heads": "[1, 2]"}, {"kind": "first", "epoch": "1"})
    assert last == Logged({"last": "True"}, {"epoch": "3"})


KEEPS = """
import pathlib, time
import mlflow
import mlflow.sklearn
import numpy
from sklearn.linear_model import LinearRegression

class Twice(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return 2 * model_input

pathlib.Path("table.csv").write_text("a,b")
pathlib.Path("empty.txt").touch()
for epoch in range(1, 4):
    mlflow.log_text(f"epoch {epoch}", "notes/last.txt")
    mlflow.log_dict({"epoch": epoch}, f"epoch {epoch}.json")
    mlflow.log_metric("val/loss", 1 / epoch, step=epoch)
    time.sleep(0.5)
mlflow.log_artifact("table.csv")
mlflow.log_artifact("empty.txt", "tables")
fitted = LinearRegression().fit(numpy.array([[0.0], [1.0]]), numpy.array([0.0, 3.0]))
info = mlflow.sklearn.log_model(fitted, name="line", pip_requirements=["numpy"])
mlflow.pyfunc.log_model(name="twice", python_model=Twice(), pip_requirements=["numpy"])
print("again:", mlflow.sklearn.load_model(info.model_uri).predict([[2.0]])[0].round(6))
print("read:", mlflow.artifacts.load_text(mlflow.get_artifact_uri("notes/last.txt")))
client, run = mlflow.MlflowClient(), mlflow.active_run().info.run_id
print("listed:", [one.path for one in client.list_artifacts(run)])
"""


@pytest.mark.slow
def test_artifacts_and_models_come_with_the_next_report(runs: Runs) -> None:
    assigned = runs.command(KEEPS, steps=3, interval=1, metrics={"source": "mlflow"})
    all_of_them = runs.all(replace(assigned, observed=("val/loss",)))
    outcomes = [one for one in all_of_them if not one.training]
    assert [one.step for one in outcomes] == [1, 2, 3], runs.log
    first, second, last = (one.logged for one in outcomes)
    assert first is not None
    assert second is not None
    assert last is not None
    assert set(first.files) == {"notes/last.txt", "epoch 1.json"}
    assert set(second.files) == {"notes/last.txt", "epoch 2.json"}
    assert set(last.files) > {"table.csv", "tables/empty.txt", "line/MLmodel", "twice/MLmodel"}
    assert Path(last.files["notes/last.txt"]).read_text() == "epoch 3"
    assert Path(last.files["tables/empty.txt"]).read_text() == ""
    assert "again: 6.0" in runs.log
    assert "read: epoch 3" in runs.log
    names = ["epoch 1.json", "epoch 2.json", "epoch 3.json", "line", "notes", "table.csv", "tables", "twice"]
    assert f"listed: {names}" in runs.log


@pytest.mark.slow
def test_artifacts_after_the_last_report_of_a_failed_attempt_are_left_to_the_next_one(runs: Runs) -> None:
    text = """
    import os, time
    import mlflow
    mlflow.log_text("kept", "kept.txt")
    mlflow.log_metric("val/loss", 1, step=1)
    time.sleep(0.5)
    mlflow.log_text("newer", "kept.txt")
    mlflow.log_text("lost", "lost.txt")
    os._exit(3)
    """
    assigned = runs.command(text, steps=3, interval=1, metrics={"source": "mlflow"})
    outcomes = runs.all(replace(assigned, observed=("val/loss",)))
    assert outcomes[-1].failure == "error"
    assert outcomes[-1].logged is None
    assert outcomes[0].logged is not None
    [(name, path)] = outcomes[0].logged.files.items()
    assert (name, Path(path).read_text()) == ("kept.txt", "kept")
    assert [*Path(path).parent.parent.rglob("*.txt")] == [Path(path)], "nothing else is left"


OWN_RUN = """
import mlflow

client = mlflow.MlflowClient()
mlflow.set_experiment("mine")
experiment = client.get_experiment_by_name("mine")
created = client.create_run(experiment.experiment_id, run_name="a logger's")
client.set_tag(created.info.run_id, "kind", "own")
client.log_metric(created.info.run_id, "val/loss", 0.5, step=2)
with mlflow.start_run(run_name="another"):
    mlflow.set_tags({"a": 1})
    mlflow.log_metric("val/loss", 0.25, step=4)
client.set_terminated(created.info.run_id)
"""


@pytest.mark.slow
def test_runs_that_a_script_creates_are_the_run_of_its_trial(runs: Runs) -> None:
    """The logger of Lightning creates one, for example."""
    assigned = runs.command(OWN_RUN, steps=4, interval=2, metrics={"source": "mlflow"})
    outcomes = runs.all(replace(assigned, observed=("val/loss",)))
    assert [(one.step, one.metrics["val/loss"]) for one in outcomes] == [(2, 0.5), (4, 0.25)], runs.log
    tags = {name: tag for one in outcomes if one.logged for name, tag in one.logged.tags.items()}
    assert tags == {"kind": "own", "a": "1"}


@pytest.mark.slow
def test_the_first_value_of_a_step_counts_and_a_repeated_one_is_logged(runs: Runs) -> None:
    """Without `step=`, MLflow logs everything at step 0."""
    text = """
    import mlflow
    for value in (3.0, 2.0, 1.0):
        mlflow.log_metric("val/loss", value)
    """
    assigned = runs.command(text, steps=4, interval=1, metrics={"source": "mlflow"})
    outcomes = runs.all(replace(assigned, observed=("val/loss",)))
    assert [(one.step, one.metrics.get("val/loss")) for one in outcomes] == [(0, 3.0), (0, None)], runs.log
    assert "step 0 was reported before" in runs.log


def _called(calls: MlflowCalls, call: str, **document: object) -> int:
    address = f"{calls.variables['MLFLOW_TRACKING_URI']}/api/2.0/mlflow/{call}"
    headers = {"Authorization": f"Bearer {calls.token}"}
    request = urllib.request.Request(address, json.dumps(document).encode() if document else None, headers)
    return _status(request)


def _sent(calls: MlflowCalls, path: str, content: bytes, token: str | None = None) -> int:
    """Upload a file as the artifact of a path."""
    place = f"{calls.variables['MLFLOW_TRACKING_URI']}/api/2.0/mlflow-artifacts/artifacts"
    headers = {"Authorization": f"Bearer {token or calls.token}"}
    return _status(urllib.request.Request(f"{place}/{path}", content, headers, method="PUT"))


def _status(request: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_another_user_of_the_machine_reports_nothing(tmp_path: Path) -> None:
    calls = MlflowCalls(tmp_path / "mlflow", NEEDED)
    other, own = {"run_id": 32 * "0"}, {"run_id": calls.run}
    metric = {"key": "val/loss", "value": 1.0, "step": 1}
    try:
        address = f"{calls.variables['MLFLOW_TRACKING_URI']}/api/2.0/mlflow"
        for call in ("runs/create", "experiments/get", "logged-models", f"runs/get?run_id={calls.run}"):
            assert _status(urllib.request.Request(f"{address}/{call}", b"{}")) == 401, "its id stays secret"
        assert _status(urllib.request.Request(f"{address}/experiments/get")) == 401
        assert _sent(calls, f"{calls.run}/a.txt", b"a", token="another") == 401
        assert _called(calls, f"runs/get?run_id={32 * '0'}") == 404
        assert _called(calls, "runs/log-metric", **other, **metric) == 200
        assert calls.reports(ended=True) == []
        assert _called(calls, "runs/log-metric", **own, **metric | {"value": "a word"}) == 400
        assert _called(calls, "runs/log-metric", **own, value=1) == 400
        assert _called(calls, "runs/log-batch", **own, metrics=[metric, {**metric, "step": "3"}]) == 200
        assert read(calls.reports(ended=True)) == [(1, {"val/loss": 1.0}), (3, {"val/loss": 1.0})]
        assert _called(calls, "runs/set-tag", **other, key="a", value="b") == 200
        assert calls.logged() is None
        assert _called(calls, "runs/log-parameter", **own, key="rate", value="1") == 200
        assert _called(calls, "runs/log-parameter", **own, key="rate", value="2") == 400
        assert _called(calls, "runs/log-batch", **own, tags=[{"key": "a", "value": "b"}, {"key": "a"}]) == 400
        assert calls.logged() == Logged({"rate": "1"})
    finally:
        calls.close()


def test_calls_without_end_keep_a_bounded_number_of_names(tmp_path: Path) -> None:
    calls = MlflowCalls(tmp_path / "mlflow", NEEDED)
    try:
        for name in range(5_000):
            calls.log([{"key": f"m{name}", "value": 1.0, "step": 1}])
            calls.log_texts([{"key": f"p{name}", "value": 9_000 * "a"}], [{"key": f"t{name}", "value": ""}])
        calls.log([{"key": "val/loss", "value": 1.0, "step": 1}])
        with pytest.raises(ValueError, match="at most 250 characters"):
            calls.log([{"key": 251 * "a", "value": 1.0}])
        ((_, metrics),) = read(calls.reports(ended=True))
    finally:
        calls.close()
    assert len(metrics) == 2_001
    assert metrics["val/loss"] == 1.0
    texts = calls.logged()
    assert texts is not None
    assert (len(texts.parameters), len(texts.tags)) == (200, 200)
    assert max(map(len, texts.parameters.values())) == 8_000


def test_artifacts_stay_inside_their_folder_and_their_run(tmp_path: Path) -> None:
    folder = tmp_path / "of the attempt"
    calls = MlflowCalls(folder, NEEDED)
    hostile = [
        "../a",
        "a/../../b",
        "%2e%2e/a",
        "a//b",
        "./a",
        "a/%00",
        "a%0ab",
        "",
        f"{251 * 'a'}",
        600 * "a/",
    ]
    try:
        for name in hostile:
            assert _sent(calls, f"{calls.run}/{name}", b"content") == 400, name
        assert _sent(calls, f"{32 * '0'}/a", b"content") == 400
        assert _called(calls, "logged-models", name="../model") == 400
        assert _called(calls, "logged-models", name="model") == 200
        assert _sent(calls, f"{calls.run}/a%2Fb", b"content") == 200
        assert _sent(calls, f"{calls.run}/a", b"a file where a folder is") == 400
        assert _sent(calls, f"{calls.run}/a/b/c", b"a folder where a file is") == 400
        logged = calls.logged()
    finally:
        calls.close()
    assert logged == Logged(files={"a/b": str(folder / "kept" / "a" / "b")})
    assert [*tmp_path.rglob("*.*"), *tmp_path.iterdir()] == [folder], "nothing elsewhere"
    assert [path.name for path in folder.iterdir()] == ["kept"]


def test_artifacts_beyond_a_limit_are_left_out(tmp_path: Path) -> None:
    artifacts = MlflowArtifacts(tmp_path / "mlflow", most=10)
    for name, content in (("a", 6 * b"a"), ("b", 5 * b"b"), ("a", 10 * b"c")):
        artifacts.write(name, io.BytesIO(content), len(content))
    with pytest.raises(ValueError, match="got 1 of 2 bytes"):
        artifacts.write("a", io.BytesIO(b"d"), 2)
    assert artifacts.take() == ["a"]
    assert artifacts.left_out() == ["b"]
    assert artifacts.kept("a").read_bytes() == 10 * b"c", "a file that was not sent whole replaces none"
    many = MlflowArtifacts(tmp_path / "many")
    for number in range(1_002):
        many.write(f"{number}", io.BytesIO(), 0)
    assert (len(many.take()), many.left_out()) == (1_000, ["1000", "1001"])


def test_no_import_of_a_vendor_reads_event_files() -> None:
    code = "import orchestrator.scripts.metric_sources, sys; assert 'tensorboardX' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
