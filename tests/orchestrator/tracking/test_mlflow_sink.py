"""The sink writes each event once to a real MLflow on SQLite, however often it is applied."""

from __future__ import annotations

import math
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST
from mlflow.tracking import MlflowClient

from orchestrator.assignment import Logged
from orchestrator.ledger.sweeps.records import Event, ReportRecord
from orchestrator.scripts.script_attempt import LONGEST_NAME
from orchestrator.tracking import events
from orchestrator.tracking.address import sqlite_path
from orchestrator.tracking.mlflow_private import trial_curves
from orchestrator.tracking.mlflow_sink import Destination, MlflowSink, _folder_of
from tests import sweeps
from tests.orchestrator.tracking.stored import NewDatabase, deliver, without_value


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, new_mlflow: NewDatabase) -> str:
    """Return the URI of one database for all tests, in a folder whose name has a space."""
    return new_mlflow(tmp_path_factory.mktemp("with a blank"))


@pytest.fixture
def destination(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    """Return a new experiment for each test."""
    return Destination(store, str(tmp_path / "artifacts"), request.node.name, sweeps.SWEEP_ID, "1.25")


@pytest.fixture
def sink(destination: Destination) -> MlflowSink:
    return MlflowSink(destination)


def whole_sweep() -> list[Event]:
    """Return the events of a sweep, from its start to its end."""
    batch = [events.sweep_started(sweeps.sweep_record(), sweeps.SPECIFICATION)]
    for trial in sweeps.trials():
        batch.append(events.trial_started(trial, sweeps.SPECIFICATION))
        for row in sweeps.reports(trial):
            batch += events.of_report(row)
        ended = events.milliseconds(trial.finished_at or 0.0)
        batch.append(events.trial_ended(trial.key, trial.state, trial.cause, trial.step, trial.value, ended))
    batch.append(
        events.sweep_ended(sweeps.SWEEP_ID, "COMPLETE", 1_790_000_360_000, results={"objective": 0.64})
    )
    return batch


def runs_of(destination: Destination) -> dict[str, Run]:
    """Return the runs of the experiment by `without_value` of their names."""
    client = MlflowClient(destination.uri)
    experiment = client.get_experiment_by_name(destination.experiment)
    runs = client.search_runs([experiment.experiment_id])
    assert len({run.info.run_name for run in runs}) == len(runs), "no run exists twice"
    return {without_value(run.info.run_name): run for run in runs}


def points_of(destination: Destination) -> list[tuple[str, str, int, float, int]]:
    """Return every stored point of the experiment, read from the table."""
    experiment = MlflowClient(destination.uri).get_experiment_by_name(destination.experiment)
    file = sqlite_path(destination.uri)
    assert file is not None
    with sqlite3.connect(file) as connection:
        rows = connection.execute(
            "select r.name, m.key, m.step, m.value, m.timestamp from metrics m join runs r using (run_uuid) "
            "where r.experiment_id = ? order by 1, 2, 3",
            (experiment.experiment_id,),
        ).fetchall()
    connection.close()
    return sorted((without_value(name), *rest) for name, *rest in rows)


def expected_points() -> list[tuple[str, str, int, float, int]]:
    points = []
    for trial in sweeps.trials():
        name = f"{trial.number:04d}"
        for row in sweeps.reports(trial):
            at = events.milliseconds(row.at)
            points += [
                (name, key.removeprefix("initial_"), 0 if key.startswith("initial_") else row.step, value, at)
                for key, value in row.metrics.items()
                if not key.startswith("seconds/")
            ]
        if trial.value is not None:
            ended = events.milliseconds(trial.finished_at or 0.0)
            points.append((name, "_objective", trial.step, trial.value, ended))
    points.append((sweeps.SWEEP_ID, "objective", 0, 0.64, 1_790_000_360_000))
    return sorted(points)


def test_a_sweep_is_a_parent_with_its_trials(sink: MlflowSink, destination: Destination) -> None:
    assert deliver(destination, whole_sweep(), sink) == []
    runs = runs_of(destination)
    parent = runs[sweeps.SWEEP_ID]
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["sweep.digest"] == sweeps.sweep_record().digest
    assert (parent.info.start_time, parent.info.end_time) == (1_790_000_000_250, 1_790_000_360_000)
    (data,) = parent.inputs.dataset_inputs
    assert data.dataset.name == "retrieval"
    assert sweeps.sweep_record().data_digest in data.dataset.source
    for trial in sweeps.trials():
        run = runs[f"{trial.number:04d}"]
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.data.tags["trial.key"] == trial.key
        assert run.data.tags["trial.state"] == trial.state
        value = "" if trial.value is None else f" · {trial.value:.4g}"
        assert run.info.run_name == f"{trial.number}{value}"
        assert run.data.params["learning_rate"] == repr(trial.params["learning_rate"])
        assert run.info.status == ("FAILED" if trial.state == "FAILED" else "FINISHED")
    assert points_of(destination) == expected_points()


def test_the_note_leads_to_the_curves_of_the_trials(sink: MlflowSink, destination: Destination) -> None:
    deliver(destination, whole_sweep(), sink)
    parent = runs_of(destination)[sweeps.SWEEP_ID]
    link = trial_curves(parent.info.experiment_id, sweeps.SWEEP_ID, minimize=False)
    assert parent.data.tags["mlflow.note.content"].endswith(f"[Curves of its trials]({link})")
    query = dict(parse_qsl(link.partition("?")[2]))
    runs = MlflowClient(destination.uri).search_runs([parent.info.experiment_id], query["searchFilter"])
    assert len(runs) == 8
    assert query["orderByAsc"] == "false"


def test_applying_events_again_in_another_process_changes_nothing(
    sink: MlflowSink, destination: Destination
) -> None:
    batch = whole_sweep()
    deliver(destination, batch, sink)
    for part in (batch, batch[3:9], batch[-4:]):
        deliver(destination, part)
    assert len(runs_of(destination)) == 9
    assert points_of(destination) == expected_points()
    assert len(runs_of(destination)[sweeps.SWEEP_ID].inputs.dataset_inputs) == 1


def test_events_that_are_interrupted_anywhere_and_applied_again_count_once(destination: Destination) -> None:
    batch = whole_sweep()
    for end in range(0, len(batch), 7):
        deliver(destination, batch[max(0, end - 5) : end + 7])
    deliver(destination, batch[-8:])
    assert points_of(destination) == expected_points()
    assert {run.info.status for run in runs_of(destination).values()} == {"FINISHED", "FAILED"}


def test_a_run_that_the_ledger_does_not_know_is_deleted(destination: Destination) -> None:
    """A driver that lost its lease created it; its id was never recorded."""
    batch = whole_sweep()
    MlflowSink(replace(destination, number=1)).create(batch[:3])
    following = replace(destination, number=2)
    assert deliver(following, batch) == []
    assert MlflowSink(following).recreated == {}
    assert points_of(destination) == expected_points()
    assert {run.data.tags["sweep.token"] for run in runs_of(destination).values()} == {"2"}


def test_a_run_whose_recording_was_refused_is_deleted_by_its_creator(
    sink: MlflowSink, destination: Destination
) -> None:
    sink.delete(sink.create(whole_sweep()))
    assert runs_of(destination) == {}


def test_a_parent_that_a_trial_needed_first_gets_its_tags_later(
    sink: MlflowSink, destination: Destination
) -> None:
    """MLflow has lost the sweep's run, and the next events are those of a trial."""
    batch = whole_sweep()
    deliver(destination, batch[1:3], sink)
    deliver(destination, batch[:1], sink)
    parent = runs_of(destination)[sweeps.SWEEP_ID]
    assert parent.data.tags["sweep.digest"] == sweeps.sweep_record().digest


def test_a_run_that_a_person_nests_under_the_sweep_is_left_alone(
    sink: MlflowSink, destination: Destination
) -> None:
    batch = whole_sweep()
    deliver(destination, batch, sink)
    parent = runs_of(destination)[sweeps.SWEEP_ID].info
    own = {"mlflow.parentRunId": parent.run_id}
    MlflowClient(destination.uri).create_run(parent.experiment_id, tags=own, run_name="my own")
    assert deliver(destination, batch) == []
    assert "my own" in runs_of(destination)


@pytest.mark.slow
def test_a_run_that_mlflow_has_lost_is_created_again(sink: MlflowSink, destination: Destination) -> None:
    batch = whole_sweep()
    deliver(destination, batch, sink)
    client = MlflowClient(destination.uri)
    lost = runs_of(destination)
    for run in lost.values():
        client.delete_run(run.info.run_id)
    assert deliver(destination, batch) == []
    again = runs_of(destination)
    assert {name: run.data.metrics for name, run in again.items()} == {
        name: run.data.metrics for name, run in lost.items()
    }
    assert sorted(destination.runs.values()) == sorted(run.info.run_id for run in again.values())


def _delete_parent(client: MlflowClient, runs: dict[str, Run]) -> None:
    client.delete_run(runs[sweeps.SWEEP_ID].info.run_id)


def _delete_child(client: MlflowClient, runs: dict[str, Run]) -> None:
    client.delete_run(runs["0001"].info.run_id)


def _delete_all(client: MlflowClient, runs: dict[str, Run]) -> None:
    for run in runs.values():
        client.delete_run(run.info.run_id)


def _move_child(client: MlflowClient, runs: dict[str, Run]) -> None:
    client.set_tag(runs["0001"].info.run_id, "mlflow.parentRunId", runs["0002"].info.run_id)
    client.delete_tag(runs["0003"].info.run_id, "mlflow.parentRunId")


def _take_names(client: MlflowClient, runs: dict[str, Run]) -> None:
    client.delete_tag(runs[sweeps.SWEEP_ID].info.run_id, "sweep.id")
    client.delete_tag(runs["0001"].info.run_id, "trial.key")


def _rename_runs(client: MlflowClient, runs: dict[str, Run]) -> None:
    for name in (sweeps.SWEEP_ID, "0001"):
        client.update_run(runs[name].info.run_id, name=f"my {name}")


def _rename_experiment(client: MlflowClient, runs: dict[str, Run]) -> None:
    experiment = runs[sweeps.SWEEP_ID].info.experiment_id
    client.rename_experiment(experiment, f"renamed {experiment}")


def _delete_experiment(client: MlflowClient, runs: dict[str, Run]) -> None:
    client.delete_experiment(runs[sweeps.SWEEP_ID].info.experiment_id)


def _rename_and_delete_experiment(client: MlflowClient, runs: dict[str, Run]) -> None:
    _rename_experiment(client, runs)
    _delete_experiment(client, runs)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("change", "noted"),
    [
        (_delete_parent, "The run of retrieval-laptop-0123abcd was deleted in MLflow, and has been restored"),
        (_delete_child, "The run of retrieval-laptop-0123abcd-1 was deleted"),
        (_delete_all, "was deleted"),
        (_move_child, "The run of retrieval-laptop-0123abcd-1 was moved in MLflow, and has its place again"),
        (_take_names, "was moved"),
        (_rename_runs, None),
        (_rename_experiment, None),
        (_delete_experiment, "was deleted in MLflow, and has been restored"),
        (_rename_and_delete_experiment, "was deleted in MLflow, and has been restored"),
    ],
)
def test_what_a_person_changes_in_mlflow_is_put_right(
    sink: MlflowSink,
    destination: Destination,
    change: Callable[[MlflowClient, dict[str, Run]], None],
    noted: str | None,
) -> None:
    """The next delivery, of one trial, writes to the runs that there were, each at its place."""
    batch = whole_sweep()
    deliver(destination, batch, sink)
    client, before = MlflowClient(destination.uri), runs_of(destination)
    experiment = before[sweeps.SWEEP_ID].info.experiment_id
    change(client, before)
    again = MlflowSink(destination)
    assert deliver(destination, batch[1:3], again) == []
    assert noted is None or any(noted in note for note in again.notes)
    assert (again.notes == []) is (noted is None)
    after = {run.info.run_id: run for run in client.search_runs([experiment])}
    assert set(after) == {run.info.run_id for run in before.values()}
    parent = before[sweeps.SWEEP_ID].info.run_id
    for run_id, run in after.items():
        assert run.data.tags.get("mlflow.parentRunId") == (None if run_id == parent else parent)
        assert ("sweep.id" if run_id == parent else "trial.key") in run.data.tags
    assert destination.runs == {key: run_id for key, run_id in destination.runs.items() if run_id in after}


def test_trials_whose_parent_is_gone_for_good_get_another_one(
    sink: MlflowSink, destination: Destination
) -> None:
    batch = whole_sweep()
    deliver(destination, batch, sink)
    destination.runs[sweeps.SWEEP_ID] = "0" * 32  # type: ignore[index]
    before = runs_of(destination)
    MlflowClient(destination.uri).delete_run(before[sweeps.SWEEP_ID].info.run_id)
    again = MlflowSink(destination)
    assert deliver(destination, batch[:1], again) == []
    assert again.notes[-1].startswith("MLflow has lost 1 of 9 runs")
    after = runs_of(destination)
    parent = after[sweeps.SWEEP_ID].info.run_id
    assert destination.runs[sweeps.SWEEP_ID] == parent
    assert len(after) == len(before)
    assert {run.data.tags.get("mlflow.parentRunId") for run in after.values()} == {None, parent}


def test_nothing_is_written_after_the_lease_has_ended(destination: Destination) -> None:
    def may_write() -> None:
        raise TimeoutError("the lease may have ended")

    sink = MlflowSink(destination, may_write)
    with pytest.raises(TimeoutError):
        sink.create(whole_sweep())
    assert runs_of(destination) == {}


def test_a_resumed_trial_runs_again(sink: MlflowSink, destination: Destination) -> None:
    trial = sweeps.trial(0)
    start = events.trial_started(trial, sweeps.SPECIFICATION)
    deliver(destination, [start], sink)
    deliver(
        destination,
        [events.trial_ended(trial.key, "PREEMPTED", "interrupted", 40, None, 1_790_000_100_000)],
        sink,
    )
    assert runs_of(destination)["0000"].info.status == "KILLED"
    deliver(destination, [start], sink)
    assert runs_of(destination)["0000"].info.status == "RUNNING"


def test_a_sweep_of_the_same_id_from_another_ledger_keeps_apart(
    sink: MlflowSink, destination: Destination
) -> None:
    batch = whole_sweep()
    deliver(destination, batch, sink)
    other = Destination(**{**vars(destination), "sweep_created": "2.5", "runs": {}})
    deliver(other, batch[:2])
    experiment = MlflowClient(destination.uri).get_experiment_by_name(destination.experiment)
    assert len(MlflowClient(destination.uri).search_runs([experiment.experiment_id])) == 11


def test_values_beyond_the_limits_are_written(sink: MlflowSink, destination: Destination) -> None:
    start = events.trial_started(
        sweeps.trial(0, params={"long": "x" * 7000, "odd%name": 1, **{f"p{n}": n for n in range(150)}}),
        sweeps.SPECIFICATION,
    )
    values = {f"m{n}": 1.0 for n in range(1100)} | {"loss": float("inf"), "50%": 0.5}
    assert deliver(destination, [start, events.metrics(start.run, 1, values, 7)], sink) == []
    run = runs_of(destination)["0000"]
    assert len(run.data.params) == 154
    assert len(run.data.params["long"]) == 6000
    assert len(run.data.metrics) == 1101
    assert run.data.tags["non-finite.loss"] == "inf at step 1"


NAMES = (
    *(
        "score",
        "Score",
        "SCORE",
        "a",
        "a/b",
        "a/b/c",
        "a//b",
        "a/",
        "./a",
        "../a",
        "/a",
        ".",
        "..",
        " a",
        "a ",
    ),
    *("loss: train", "accuracy %", "top-1 (%)", "précision", "度", "a:b", "a.b", "a_b", "a%b", "a\\b", "<b>"),
    *(
        "objective",
        "objective.reported ",
        "seconds/epoch",
        "size/batch",
        "step",
        "training",
        "x" * 250,
        "é" * 250,
    ),
    *("nan" * 80, "'; DROP TABLE metrics; --", "non-finite.score", "mlflow.runName", "😀"),
)


def test_any_name_that_a_script_may_report_is_delivered(sink: MlflowSink, destination: Destination) -> None:
    """Under a name of its own, and beside the value of the trial, which MLflow shows as `_objective`."""
    trial = sweeps.trial(0)
    assert all(name.isprintable() and len(name) <= LONGEST_NAME for name in NAMES)
    values = {name: float(number) for number, name in enumerate(NAMES)}
    report = ReportRecord(trial.key, 10, f"{trial.key}.1", values, 1_790_000_000.0)
    batch = [
        events.trial_started(trial, sweeps.SPECIFICATION),
        *events.of_report(report),
        events.metrics(trial.key, 11, dict.fromkeys(NAMES, math.nan), 1_790_000_001_000),
        events.trial_ended(trial.key, "COMPLETE", None, 10, 0.5, 1_790_000_002_000),
    ]
    assert deliver(destination, batch, sink) == []
    stored = [(name, value) for _, name, step, value, _ in points_of(destination) if step == 10]
    assert len(stored) == len({name for name, _ in stored}) == len(NAMES) + 1
    assert (events.OBJECTIVE, 0.5) in stored
    assert sorted(value for name, value in stored if name != events.OBJECTIVE) == sorted(values.values())


def test_the_first_value_of_a_parameter_counts_and_a_tag_of_the_service_stays(
    sink: MlflowSink, destination: Destination
) -> None:
    """A script of two attempts logs parameters with other values, one of them a hyperparameter's name."""
    trial, name = sweeps.trials()[0], next(iter(sweeps.trials()[0].params))
    started = [
        events.sweep_started(sweeps.sweep_record(), sweeps.SPECIFICATION),
        events.trial_started(trial, sweeps.SPECIFICATION),
    ]
    attempts = [
        event
        for at, host in enumerate(("one", "two"))
        for event in events.logged(trial.key, Logged({name: host, "host": host}, {"task": host}), at)
    ]
    for batch in ([*started, *attempts], attempts):  # in one batch, and again
        assert deliver(destination, batch, sink) == []
    stored = MlflowClient(destination.uri).get_run(destination.runs[trial.key]).data
    assert stored.params["host"] == "one"
    assert stored.params[name] != "one"
    assert stored.tags["task"] == sweeps.SPECIFICATION.task
    assert stored.tags["reported:task"] == "two"


def test_artifacts_are_stored_with_their_run(
    sink: MlflowSink, destination: Destination, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    batch = [
        events.sweep_started(sweeps.sweep_record(), sweeps.SPECIFICATION),
        events.artifact(sweeps.SWEEP_ID, folder, "checkpoint", 1),
        events.artifact(sweeps.SWEEP_ID, folder / "manifest.json", "", 1),
        events.text(sweeps.SWEEP_ID, "hello", "notes.md", 1),
    ]
    assert deliver(destination, batch, sink) == []
    root = Path(runs_of(destination)[sweeps.SWEEP_ID].info.artifact_uri.removeprefix("file://"))
    assert root.is_relative_to(tmp_path / "artifacts")
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    kept = {"checkpoint/manifest.json", "manifest.json", "notes.md"}
    assert files == kept | {"search-space.yaml", "versions.json"}


def test_a_rejected_event_is_reported_and_delays_no_other(
    sink: MlflowSink, destination: Destination, tmp_path: Path
) -> None:
    first, second = sweeps.trial(0), sweeps.trial(1)
    changed = events.trial_started(sweeps.trial(0, params={"learning_rate": 0.5}), sweeps.SPECIFICATION)
    deliver(destination, [events.trial_started(first, sweeps.SPECIFICATION)], sink)
    refused = deliver(
        destination,
        [
            changed,
            events.metrics(first.key, 40, {"val/loss": 0.5}, 9),
            events.artifact(first.key, tmp_path / "gone", "", 1),
            events.trial_started(second, sweeps.SPECIFICATION),
        ],
        sink,
    )
    assert [(row.run, row.kind) for row in refused] == [(first.key, "start"), (first.key, "artifact")]
    assert "Changing param values" in refused[0].reason
    assert str(tmp_path / "gone") in refused[1].reason
    runs = runs_of(destination)
    assert runs["0000"].data.metrics == {"val/loss": 0.5}
    assert "0001" in runs


class Overloaded(MlflowClient):
    """A client of a server whose pool of connections is exhausted: it answers every request so."""

    def log_batch(self, *args: Any, **options: Any) -> Any:
        raise MlflowException("QueuePool limit of size 5 overflow 10 reached", BAD_REQUEST)

    set_tag = log_batch


def test_what_an_overloaded_server_rejects_is_delivered_later(
    sink: MlflowSink, destination: Destination
) -> None:
    start = events.trial_started(sweeps.trial(0), sweeps.SPECIFICATION)
    point = events.metrics(start.run, 40, {"val/loss": 0.5}, 9)
    deliver(destination, [start], sink)
    with pytest.raises(MlflowException, match="QueuePool"):
        deliver(destination, [point], MlflowSink(destination, client=Overloaded(destination.uri)))
    assert deliver(destination, [point], sink) == []
    assert runs_of(destination)["0000"].data.metrics == {"val/loss": 0.5}


def test_a_malformed_event_is_rejected(sink: MlflowSink, destination: Destination) -> None:
    start = events.trial_started(sweeps.trial(0), sweeps.SPECIFICATION)
    odd = [Event("explode", start.run, {}, 1), Event("metrics", start.run, {"step": 1}, 1)]
    refused = deliver(destination, [odd[0], start, odd[1]], sink)
    assert [row.kind for row in refused] == ["explode", "metrics"]
    assert runs_of(destination)["0000"].info.status == "RUNNING"


def test_an_unreachable_store_is_an_error_and_no_rejection(tmp_path: Path) -> None:
    destination = Destination("http://127.0.0.1:9", None, "x", sweeps.SWEEP_ID, "1.25")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        began = time.monotonic()
        with pytest.raises(MlflowException):
            MlflowSink(destination)
    assert time.monotonic() - began < 20


def test_an_unfinished_trial_is_killed_until_it_is_resumed(
    sink: MlflowSink, destination: Destination
) -> None:
    """No run is RUNNING in MLflow without a trial that trains."""
    trials = [replace(trial, state="PREEMPTED") for trial in sweeps.trials()[:2]]
    started = [events.trial_started(trial, sweeps.SPECIFICATION) for trial in trials]
    deliver(destination, [*started, *events.trials_left(trials, 5)], sink)
    assert {run.info.status for run in runs_of(destination).values()} == {"RUNNING", "KILLED"}
    left = [run for run in runs_of(destination).values() if run.info.status == "KILLED"]
    assert len(left) == len(trials)
    deliver(destination, events.trials_resumed(trials, 6), sink)
    assert {run.info.status for run in runs_of(destination).values()} == {"RUNNING"}


class Counting:
    """A client of MLflow that counts its requests by name."""

    def __init__(self, uri: str) -> None:
        self._client = MlflowClient(uri)
        self.requests: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        request = getattr(self._client, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            self.requests[name] += 1
            return request(*arguments, **options)

        return counted


@pytest.mark.parametrize("reports", [1, 25])
def test_a_batch_takes_one_request_for_each_run_however_many_reports_it_holds(
    destination: Destination, reports: int
) -> None:
    """A report of one run a batch costs a request, 25 cost 0.04 each."""
    client = Counting(destination.uri)
    sink = MlflowSink(destination, client=client)  # type: ignore[arg-type]
    first, second, *_ = sweeps.trials()
    began = [events.trial_started(trial, sweeps.SPECIFICATION) for trial in (first, second)]
    deliver(destination, [events.sweep_started(sweeps.sweep_record(), sweeps.SPECIFICATION), *began], sink)
    client.requests.clear()
    values = {f"layer_{number}/norm": 1.0 for number in range(9)}
    points = [
        events.metrics(trial.key, step, values, 1_790_000_000_000 + step)
        for step in range(reports)
        for trial in (first, second)
    ]
    assert sink.apply(points) == []
    assert client.requests == {"log_batch": 2}


def test_artifacts_of_every_experiment_have_a_folder_of_their_own_below_the_root() -> None:
    """Whatever the code of its trials is called."""
    names = [
        "../../code/train.py:train",
        "/etc/x.py:f",
        "..",
        ".",
        "a/../../b",
        "a#b",
        "a?b",
        "a%2e%2e",
        "a_b",
    ]
    names += ["A" * 500, "A" * 501, "listops", "a b", "é"]
    folders = [_folder_of(name) for name in names]
    assert len(set(folders)) == len(names)
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,100}", folder) for folder in folders)
    assert _folder_of("listops") == "listops"
