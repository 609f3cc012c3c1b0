"""`check` compares MLflow's database with the ledger, and `mlflow rebuild` restores it."""

from __future__ import annotations

import hashlib
import shutil
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import mlflow.artifacts
import pytest
from mlflow.tracking import MlflowClient

from orchestrator.api import maintenance
from orchestrator.cli import look
from orchestrator.cli.app import run_command
from orchestrator.cli.machine_verbs import check as print_check
from orchestrator.errors import Exit
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import Event
from orchestrator.storage.paths import Paths
from orchestrator.tracking import events, ui
from orchestrator.tracking.address import environment, is_reached, sqlite_path
from orchestrator.tracking.database import connect
from orchestrator.upkeep.mlflow_copy import disagreements, redeliver, set_aside
from orchestrator.upkeep.recovery import recover
from tests import sweeps
from tests.orchestrator.tracking.proxy import command_on


@pytest.fixture(scope="module")
def delivered_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root whose MLflow has a sweep of three trials."""
    paths = sweeps.filled(tmp_path_factory.mktemp("delivered"), [sweeps.trial(number) for number in range(3)])
    with closing(Ledger.open(paths.ledger_url)) as ledger:
        assert redeliver(ledger, sweeps.SWEEP_ID, paths, 120.0) == (23, 0)
    return paths.root


@pytest.fixture
def delivered(delivered_once: Path, tmp_path: Path) -> Paths:
    """Return a copy of that root."""
    shutil.copytree(delivered_once, tmp_path / "root")
    return Paths(tmp_path / "root")


def findings(paths: Paths) -> list[str]:
    with closing(Ledger.open(paths.ledger_url)) as ledger:
        record = ledger.sweep(sweeps.SWEEP_ID)
        assert record is not None
        return [difference.problem for difference in disagreements(ledger, record, paths.root / "mlflow.db")]


def changed(statement: str) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(statement)

    return change


ONCE_MORE = "SELECT key, value, timestamp + 1, run_uuid, step, is_nan FROM metrics WHERE step = 40"
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (Path.unlink, "unable to open"),
    "a point lost": (changed("DELETE FROM metrics WHERE step = 80"), "reported points in MLflow"),
    "a point twice": (changed(f"INSERT INTO metrics {ONCE_MORE}"), "repeated point"),
    "a run lost": (changed("DELETE FROM tags WHERE key = 'trial.key'"), "0 runs in MLflow instead of one"),
    "a run not ended": (changed("UPDATE runs SET status = 'RUNNING'"), "is RUNNING in MLflow instead of"),
}


@pytest.mark.slow
def test_a_complete_mlflow_agrees(delivered: Paths) -> None:
    assert findings(delivered) == []


@pytest.mark.parametrize("name", DAMAGE)
def test_each_difference_is_reported(delivered: Paths, name: str) -> None:
    damage, expected = DAMAGE[name]
    damage(delivered.root / "mlflow.db")
    assert any(expected in problem for problem in findings(delivered))


def test_a_driver_that_goes_on_meanwhile_is_no_finding(
    delivered: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that begins while its sweep is compared has no run in MLflow yet."""
    with closing(Ledger.open(delivered.ledger_url)) as ledger, Lease(ledger, sweeps.SWEEP_ID) as lease:
        backlog = ledger.backlog

        def counted(sweep_id: str) -> int:
            count = backlog(sweep_id)
            sweeps.run_trial(lease.writer, sweeps.trial(3), delivered.checkpoints(sweep_id))
            return count

        monkeypatch.setattr(ledger, "backlog", counted)
        record = ledger.sweep(sweeps.SWEEP_ID)
        assert record is not None
        assert disagreements(ledger, record, delivered.root / "mlflow.db") == []
        assert len(ledger.trials(sweeps.SWEEP_ID)) == 4


def test_records_that_wait_are_counted_and_no_finding(
    delivered: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(Ledger.open(delivered.ledger_url)) as ledger, Lease(ledger, sweeps.SWEEP_ID) as lease:
        sweeps.run_trial(lease.writer, sweeps.trial(3), delivered.checkpoints(sweeps.SWEEP_ID))
        count = ledger.backlog(sweeps.SWEEP_ID)
    checked = maintenance.check(root=delivered.root)
    assert checked.waiting == {sweeps.SWEEP_ID: count}
    assert not any("MLflow" in finding.problem for finding in checked.findings)
    print_check(None, delivered.root, as_json=False)
    waits = f"{count} records wait for MLflow;"
    how = f"`sweep resume {sweeps.SWEEP_ID}` delivers them, and `serve` by itself"
    assert f"{waits} unless it is driven, {how}" in capsys.readouterr().out
    look.list_sweeps(root=delivered.root, as_json=False)
    assert f"{sweeps.SWEEP_ID}: {waits} {how}" in capsys.readouterr().out
    look.status(None, watch=False, plain=True, root=delivered.root, as_json=False)
    assert f"  {waits} {how}" in capsys.readouterr().out


def test_what_killed_workers_have_left_is_listed_and_no_finding(
    delivered: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = delivered.trial_checkpoints(sweeps.SWEEP_ID, f"{sweeps.SWEEP_ID}-0") / ".step-000000010-1-staged"
    stage.mkdir(parents=True)
    with closing(Ledger.open(delivered.ledger_url)) as ledger, Lease(ledger, sweeps.SWEEP_ID) as lease:
        lease.writer.set_sweep_state("INTERRUPTED", "stopped by SIGINT")
    checked = maintenance.check(root=delivered.root)
    assert str(stage) in checked.leftovers[sweeps.SWEEP_ID]
    assert not any(str(stage) in finding.where for finding in checked.findings)
    print_check(None, delivered.root, as_json=False)
    assert (
        f"{stage}: no trial refers to it; the next run of {sweeps.SWEEP_ID} deletes it"
        in capsys.readouterr().out
    )
    maintenance.collect_garbage(delete=True, root=delivered.root)
    assert maintenance.check(root=delivered.root).leftovers == {}


@pytest.mark.slow
def test_a_damaged_database_is_put_aside_and_restored(delivered: Paths) -> None:
    content = b"no database" * 1000
    for part in delivered.root.glob("mlflow.db*"):
        part.write_bytes(content)
    assert any("file is not a database" in problem for problem in findings(delivered))
    aside = set_aside(delivered)
    assert aside is not None
    assert aside.read_bytes() == content
    with closing(Ledger.open(delivered.ledger_url)) as ledger:
        assert redeliver(ledger, sweeps.SWEEP_ID, delivered, 120.0) == (23, 0)
    assert findings(delivered) == []


@pytest.mark.slow
def test_runs_that_an_older_database_lacks_are_delivered_again(delivered: Paths) -> None:
    """Somebody has restored a copy from before the last trial, and before the end of the one before it."""
    file = delivered.root / "mlflow.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        named = "SELECT run_uuid FROM runs WHERE name LIKE '2 · %'"
        for table in ("latest_metrics", "metrics", "params", "tags", "runs"):
            connection.execute(f"DELETE FROM {table} WHERE run_uuid IN ({named})")
        connection.execute("UPDATE runs SET status = 'RUNNING' WHERE name LIKE '1 · %'")
        connection.execute("DELETE FROM metrics WHERE step > 80")
    assert any("0 runs in MLflow instead of one" in problem for problem in findings(delivered))
    with closing(Ledger.open(delivered.ledger_url)) as ledger:
        assert redeliver(ledger, sweeps.SWEEP_ID, delivered, 120.0)[1] == 0
    assert findings(delivered) == []


@pytest.mark.slow
def test_mlflow_takes_the_events_of_a_ledger_that_was_rebuilt(delivered: Paths) -> None:
    """Runs are marked with the numbers of leases; those of the rebuilt ledger are higher."""
    (delivered.root / "sweeps.db").write_bytes(b"")
    recover(delivered.ledger_url)
    with closing(Ledger.open(delivered.ledger_url)) as ledger:
        assert redeliver(ledger, sweeps.SWEEP_ID, delivered, 120.0) == (23, 0)
    assert findings(delivered) == []


@pytest.mark.slow
def test_only_what_is_missing_is_added_to_a_database_that_has_lost_points(delivered: Paths) -> None:
    """The points are made again from the reports, each at the time that it had."""
    damage, _ = DAMAGE["a point lost"]
    damage(delivered.root / "mlflow.db")
    with closing(Ledger.open(delivered.ledger_url)) as ledger:
        assert redeliver(ledger, sweeps.SWEEP_ID, delivered, 120.0) == (23, 0)
    assert findings(delivered) == []


OF_DELIVERY = {"sweep.batch", "sweep.token", "mlflow.parentRunId"}
"""Tags that say how a run was delivered, or refer to a run by an ID that MLflow draws."""


def stored(uri: str, folder: Path) -> dict[str, Any]:
    """Return everything that MLflow has of each run of the sweep, by sweep ID and trial key."""
    folder.mkdir()
    if path := sqlite_path(uri):
        # MLflow keeps a database open in this process, also after it was deleted: it reads a copy.
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(folder / "copy.db")) as copy:
            source.backup(copy)
        uri = f"sqlite:///{folder / 'copy.db'}"
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("retrieval")
    assert experiment is not None
    found: dict[str, Any] = {}
    runs = client.search_runs([experiment.experiment_id])
    keys = {run.info.run_id: run.data.tags.get("trial.key", sweeps.SWEEP_ID) for run in runs}
    for run in runs:
        points = [
            (point.key, point.step, point.value, point.timestamp)
            for name in run.data.metrics
            for point in client.get_metric_history(run.info.run_id, name)
        ]
        local = folder / run.info.run_id
        local.mkdir(parents=True)
        mlflow.artifacts.download_artifacts(run_id=run.info.run_id, dst_path=str(local), tracking_uri=uri)
        files = {
            str(file.relative_to(local)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in local.rglob("*")
            if file.is_file()
        }
        found[keys[run.info.run_id]] = {
            "name": run.info.run_name,
            "times": (run.info.status, run.info.start_time, run.info.end_time),
            "parameters": run.data.params,
            "tags": {name: value for name, value in run.data.tags.items() if name not in OF_DELIVERY},
            "parent": keys.get(run.data.tags.get("mlflow.parentRunId", "")),
            "points": sorted(points),
            "artifacts": files,
            "data": [each.dataset.digest for each in run.inputs.dataset_inputs],
        }
    assert len(found) == len(runs), "each run is there once"
    return found


@contextmanager
def of_file(root: Path) -> Iterator[tuple[Paths, Callable[[], None]]]:
    """Yield paths whose MLflow is a SQLite file, and a function that deletes all of it."""
    paths = Paths(root)

    def empty() -> None:
        for part in root.glob("mlflow.db*"):
            part.unlink()
        shutil.rmtree(paths.artifacts)

    yield paths, empty


@contextmanager
def of_server(root: Path) -> Iterator[tuple[Paths, Callable[[], None]]]:
    """Yield paths whose MLflow is a server, and a function that empties it and starts it again."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    paths = Paths(root, tracking=f"http://127.0.0.1:{port}")
    database, artifacts = root / "server" / "mlflow.db", root / "server" / "artifacts"
    running: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        connect(f"sqlite:///{database}")
        variables = {**environment(), ui.STORE: f"sqlite:///{database}"}
        command = command_on(port, artifacts)
        running.append(subprocess.Popen(command, env=variables, start_new_session=True))
        deadline = time.monotonic() + 120.0
        while not is_reached(paths.tracking_uri):
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def empty() -> None:
        ui.stop(running.pop())
        shutil.rmtree(database.parent)
        start()

    start()
    try:
        yield paths, empty
    finally:
        ui.stop(running.pop())


@pytest.mark.slow  # a server of MLflow starts in ten seconds
@pytest.mark.parametrize("kind", [of_file, of_server])
def test_mlflow_is_rebuilt_as_it_was(
    kind: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also texts, files, tags and descriptions, which no report holds."""
    states = ["COMPLETE", "PRUNED", "FAILED"]
    filled = sweeps.filled(tmp_path / "root", [sweeps.trial(*each) for each in enumerate(states)])
    key, kept = sweeps.trial(0).key, tmp_path / "kept" / "weights.txt"
    kept.parent.mkdir()
    kept.write_text("0.25")
    at = events.milliseconds(sweeps.CREATED + 400.0)
    end = [
        events.artifact(key, kept, "logged", at),
        events.text(sweeps.SWEEP_ID, "<p>done</p>", "report/report.html", at),
        Event("tags", key, {"tags": {"mood": "calm"}, "parameters": {"of.script": "7"}}, at),
        events.sweep_ended(sweeps.SWEEP_ID, "COMPLETE", at, results={"test/accuracy": 0.75}),
    ]
    with closing(Ledger.open(filled.ledger_url)) as ledger, Lease(ledger, sweeps.SWEEP_ID) as lease:
        lease.writer.set_sweep_state("COMPLETE", None, events=end)
    with kind(filled.root) as (paths, empty):
        if paths.tracking:
            monkeypatch.setenv("MLFLOW_TRACKING_URI", paths.tracking)
        assert run_command(["mlflow", "rebuild", "--root", str(paths.root)]) == 0
        before = stored(paths.tracking_uri, tmp_path / "before")
        assert before[key]["artifacts"].keys() == {"logged/weights.txt"}
        assert before[sweeps.SWEEP_ID]["artifacts"].keys() >= {"report/report.html", "search-space.yaml"}
        assert [before[f"{sweeps.SWEEP_ID}-{n}"]["times"][0] for n in range(3)] == [
            "FINISHED",
            "FINISHED",
            "FAILED",
        ]
        empty()
        assert run_command(["mlflow", "rebuild", "--root", str(paths.root)]) == 0
        assert stored(paths.tracking_uri, tmp_path / "after") == before
        assert run_command(["mlflow", "rebuild", "--root", str(paths.root)]) == 0
        assert stored(paths.tracking_uri, tmp_path / "again") == before, "nothing is stored twice"


def test_a_sweep_that_is_driven_is_left_to_its_driver(
    delivered: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(Ledger.open(delivered.ledger_url)) as ledger, Lease(ledger, sweeps.SWEEP_ID):
        assert run_command(["mlflow", "rebuild", "--root", str(delivered.root)]) == Exit.BUSY
        assert ledger.backlog(sweeps.SWEEP_ID) == 0, "nothing is taken for undelivered"
    printed = capsys.readouterr()
    assert printed.out == ""
    assert sweeps.SWEEP_ID in printed.err
