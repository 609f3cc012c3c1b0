"""A deleted sweep is removed with its files, runs and rows, also by a collection that was killed before."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import ViewType
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
from orchestrator.tracking.database import connect
from tests import sweeps

MOMENTS = ("runs", "files", "log", "rows")
"""Moments of a removal at which a collection is killed."""

COLLECT = """
import os, signal, sys
from pathlib import Path
from orchestrator.api import maintenance
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger import erasure
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


@pytest.fixture
def paths(tmp_path: Path, template: Path) -> Paths:
    """A root with a finished sweep, its runs in MLflow, its logs, its report and its note."""
    paths = sweeps.filled(tmp_path / "mlruns")
    shutil.copy(template, paths.root / "mlflow.db")
    client = MlflowClient(paths.tracking_uri)
    experiment = client.create_experiment("retrieval", str(paths.artifacts / "1"))
    ledger = Ledger.open(paths.ledger_url)
    runs = {}
    for name in (sweeps.SWEEP_ID, f"{sweeps.SWEEP_ID}-0"):
        run = client.create_run(experiment)
        client.log_text(run.info.run_id, "what it is", "card.md")
        runs[name] = run.info.run_id
    kept = client.create_run(experiment)
    client.log_text(kept.info.run_id, "another sweep", "card.md")
    writer = sweeps.writer_of(ledger)
    writer.record_mlflow_runs(runs)
    writer.set_sweep_state("COMPLETE")
    ledger.close()
    for file in (paths.log(sweeps.SWEEP_ID, "0"), paths.report(sweeps.SWEEP_ID) / "report.html"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("text\n")
    LocalBackend(paths.root).note(sweeps.SWEEP_ID, "0", text="A note")
    return paths


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
    assert (found.trials, found.mlflow_runs, found.referred_by) == (8, 2, [])
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


@pytest.mark.parametrize("moment", [None, *MOMENTS])
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
    assert not has_backup(parse(paths.ledger_url)), "a recovery does not bring it back"
