"""A deleted sweep is removed with its files, runs and rows, also by a collection that was killed before."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from mlflow.entities import LoggedModelOutput, LoggedModelStatus, ViewType
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from sqlalchemy import select

from orchestrator.api import maintenance
from orchestrator.api.local import LocalBackend
from orchestrator.errors import Busy, NotFound, WrongState
from orchestrator.ledger.backup import has_backup
from orchestrator.ledger.connect import parse
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.tables import AUDIT, METADATA
from orchestrator.storage.paths import Paths
from orchestrator.tracking import events
from orchestrator.tracking.database import connect
from orchestrator.tracking.run_removal import remove_runs
from tests import sweeps
from tests.s3 import BUCKET, bucket, objects

MOMENTS = {"file": ("runs", "files", "log", "rows"), "server": ("runs", "files", "objects", "rows")}
"""Moments of a removal at which a collection is killed, with a SQLite ledger, and with PostgreSQL and S3."""

COLLECT = """
import os, signal, sys
from pathlib import Path
from orchestrator.api import maintenance
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger import erasure
from orchestrator.storage import store
from orchestrator.upkeep import orphans, sweep_removal

def killing(function):
    def call(*arguments, **options):
        function(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)
    return call

root, moment = sys.argv[1:]
if moment == "runs":
    sweep_removal.remove_runs = killing(sweep_removal.remove_runs)
elif moment == "files":
    orphans.delete = killing(orphans.delete)
elif moment == "objects":
    store.delete = killing(store.delete)
elif moment == "log":
    erasure.backup_file = lambda *given, of=erasure.backup_file: Removed(of(*given))
    class Removed:
        def __init__(self, path):
            self.path = path
        def unlink(self, missing_ok):
            self.path.unlink(missing_ok=missing_ok)
            os.kill(os.getpid(), signal.SIGKILL)
elif moment == "rows":
    Ledger.transact = lambda ledger, write, of=Ledger.transact: (
        killing(of)(ledger, write) if write.__name__ == "forget" else of(ledger, write)
    )
maintenance.collect_garbage(delete=True, root=root)
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database of MLflow, which takes seconds to create."""
    file = tmp_path_factory.mktemp("template") / "mlflow.db"
    connect(f"sqlite:///{file}")
    return file


@pytest.fixture(params=["file"])
def paths(
    request: pytest.FixtureRequest, tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> Paths:
    """A root with a finished sweep, its runs in MLflow, its logs, its report and its note.

    With the parameter `server`, the ledger is on PostgreSQL and the checkpoints are in S3, too.
    """
    root = tmp_path / "mlruns"
    if request.param == "server":
        monkeypatch.setenv("SWEEP_LEDGER", request.getfixturevalue("postgres_url"))
        monkeypatch.setenv("SWEEP_CHECKPOINTS", request.getfixturevalue("s3"))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    paths = Paths.at(root)
    paths.create()
    ledger = Ledger.open(paths.ledger_url)
    sweeps.fill(ledger, paths.checkpoints(sweeps.SWEEP_ID))
    if paths.store:
        for sweep_id in (sweeps.SWEEP_ID, "another"):
            name = (
                f"{paths.store.removeprefix(f's3://{BUCKET}/')}/{ledger.id}/{sweep_id}/0/step/manifest.json"
            )
            boto3.client("s3").put_object(Bucket=BUCKET, Key=name, Body=b"{}")
    shutil.copy(template, paths.root / "mlflow.db")
    client = MlflowClient(paths.tracking_uri)
    experiment = client.create_experiment("retrieval", str(paths.artifacts / "1"))
    runs = {}
    for name in (sweeps.SWEEP_ID, f"{sweeps.SWEEP_ID}-0"):
        run = client.create_run(experiment)
        client.log_text(run.info.run_id, "what it is", "card.md")
        runs[name] = run.info.run_id
    kept = client.create_run(experiment)
    client.log_text(kept.info.run_id, "another sweep", "card.md")
    writer = sweeps.writer_of(ledger)
    writer.record_mlflow_runs(runs)
    facts = {"sweep.id": sweeps.SWEEP_ID}
    saved = ledger.checkpoints(sweeps.SWEEP_ID)[0]
    model = events.model(saved.trial_key, "rotrnn-retrieval", saved, "", facts, 1)
    writer.set_sweep_state("COMPLETE", events=[model])
    ledger.close()
    for file in (paths.log(sweeps.SWEEP_ID, "0"), paths.report(sweeps.SWEEP_ID) / "report.html"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("text\n")
    LocalBackend(paths.root).note(sweeps.SWEEP_ID, "0", text="A note")
    return paths


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Run an S3 server; return the URL of a folder in a bucket."""
    with bucket() as url:
        yield url


def left(paths: Paths) -> dict[str, Any]:
    """Return what mentions the sweep under the root, except for the audit log."""
    ledger = Ledger.open(paths.ledger_url)
    with ledger.reader() as connection:
        rows = {
            table.name: len(found)
            for table in METADATA.sorted_tables
            if table is not AUDIT
            and (found := [row for row in connection.execute(select(table)) if sweeps.SWEEP_ID in str(row)])
        }
    ledger.close()
    files = [str(path.relative_to(paths.root)) for path in paths.root.rglob(f"*{sweeps.SWEEP_ID}*")]
    client = MlflowClient(paths.tracking_uri)
    runs = client.search_runs(["1"], run_view_type=ViewType.ALL)
    artifacts = len(list(paths.artifacts.glob("*/*")))
    return {"rows": rows, "files": files, "runs": len(runs), "artifacts": artifacts}


def test_a_deletion_says_how_much_it_is_and_what_refers_to_it(paths: Paths) -> None:
    backend = LocalBackend(paths.root)
    found = backend.deletion(sweeps.SWEEP_ID)
    assert (found.trials, found.mlflow_runs) == (8, 2)
    assert found.referred_by == [
        "a version of the registered model rotrnn-retrieval is its checkpoint, and is removed with it"
    ]
    assert found.bytes > 0
    assert [use.sweep for use in backend.disk()] == [sweeps.SWEEP_ID]
    assert backend.disk()[0].bytes == found.bytes


def test_an_archived_or_deleted_sweep_is_hidden_until_that_is_undone(paths: Paths) -> None:
    backend = LocalBackend(paths.root)
    for shelf in ("archived", "deleted"):
        assert backend.shelve(sweeps.SWEEP_ID, shelf).shelf == shelf  # type: ignore[arg-type]
        assert not backend.sweeps()
        assert [each.id for each in backend.sweeps(archived=True)] == [sweeps.SWEEP_ID]
    with pytest.raises(WrongState, match="must not be deleted to run"):
        backend.retry(sweeps.SWEEP_ID)
    backend.shelve(sweeps.SWEEP_ID, None)
    assert [each.id for each in backend.sweeps()] == [sweeps.SWEEP_ID]
    assert maintenance.collect_garbage(delete=True, root=paths.root).busy == []
    assert backend.status(sweeps.SWEEP_ID).state == "COMPLETE"
    with pytest.raises(WrongState, match="is neither archived nor deleted"):
        backend.shelve(sweeps.SWEEP_ID, None)
    log = [(entry.action, entry.detail.get("shelf")) for entry in backend.audit_log()]
    assert log[:3] == [("shelve", None), ("shelve", "deleted"), ("shelve", "archived")]


def test_a_running_sweep_is_neither_archived_nor_deleted(paths: Paths) -> None:
    ledger = Ledger.open(paths.ledger_url)
    with Lease(ledger, sweeps.SWEEP_ID):
        for shelf in ("archived", "deleted"):
            with pytest.raises(Busy, match="must not be queued or running"):
                LocalBackend(paths.root).shelve(sweeps.SWEEP_ID, shelf)  # type: ignore[arg-type]
    ledger.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("paths", "moment"),
    [
        pytest.param(place, moment, marks=pytest.mark.slow if moment in ("files", "log", "rows") else ())
        for place, moments in MOMENTS.items()
        for moment in (None, *moments)
    ],
    indirect=["paths"],
)
def test_a_collection_that_was_killed_leaves_nothing_after_the_next_one(
    paths: Paths, moment: str | None
) -> None:
    """The other run of MLflow and its artifact stay."""
    backend = LocalBackend(paths.root)
    backend.shelve(sweeps.SWEEP_ID, "deleted")
    if moment is not None:
        killed = subprocess.run(
            [sys.executable, "-c", COLLECT, str(paths.root), moment],
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
            capture_output=True,
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
        if moment != "rows":
            with pytest.raises(WrongState, match="is being removed"):
                backend.shelve(sweeps.SWEEP_ID, None)
    collected = maintenance.collect_garbage(delete=True, root=paths.root)
    assert not collected.busy
    assert left(paths) == {"rows": {}, "files": [], "runs": 1, "artifacts": 1}
    with pytest.raises(NotFound):
        backend.status(sweeps.SWEEP_ID)
    assert maintenance.collect_garbage(delete=True, root=paths.root).garbage == []
    (entry,) = [entry for entry in backend.audit_log() if entry.action == "removed"]
    assert entry.target == sweeps.SWEEP_ID
    if paths.store:
        assert {name.split("/")[2] for name in objects()} == {"another"}
    assert not has_backup(parse(paths.ledger_url)), "a recovery does not bring it back"


@pytest.mark.slow
def test_a_removal_leaves_what_others_have_deleted_and_registered(paths: Paths) -> None:
    """What somebody has deleted in MLflow can still be restored; versions of other runs stay."""
    client = MlflowClient(paths.tracking_uri)
    deleted = client.create_experiment("somebody's", str(paths.artifacts / "2"))
    inside = client.create_run(deleted)
    client.delete_experiment(deleted)
    own, other = (_registered(client, paths, name) for name in ("own", "other"))
    kept, _ = _registered(client, paths, "own")
    remove_runs(paths.tracking_uri, [own[0], other[0]])
    remove_runs(paths.tracking_uri, [own[0], other[0]])
    assert client.get_experiment(deleted).lifecycle_stage == "deleted"
    client.restore_experiment(deleted)
    assert client.get_run(inside.info.run_id).info.lifecycle_stage == "active"
    assert [version.run_id for version in client.search_model_versions()] == [kept]
    assert [model.name for model in client.search_registered_models()] == ["own"]
    for run_id, model_id in (own, other):
        assert not list(paths.artifacts.rglob(f"*{run_id}*"))
        assert not list(paths.artifacts.rglob(f"*{model_id}*"))
        with pytest.raises(MlflowException, match="not found"):
            client.get_logged_model(model_id)


def _registered(client: MlflowClient, paths: Paths, name: str) -> tuple[str, str]:
    """Register a model of a new run; return the IDs of both."""
    experiment = client.get_experiment_by_name("retrieval")
    run_id = client.create_run(experiment.experiment_id).info.run_id
    client.log_text(run_id, "text", "card.md")
    logged = client.create_logged_model(experiment.experiment_id, name, run_id)
    (paths.root / "model").mkdir(exist_ok=True)
    (paths.root / "model" / "MLmodel").write_text("{}")
    client.log_model_artifacts(logged.model_id, str(paths.root / "model"))
    client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step=0)])
    client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name)
    client.create_model_version(name, logged.artifact_location, run_id, model_id=logged.model_id)
    return run_id, logged.model_id
