"""Removal of a deleted sweep: its checkpoints, its runs in MLflow, its files, and last its rows.

Everything is deleted under the lease of the sweep, whose deletion stays in the ledger until nothing else is
left, so a collection that is killed is completed by the next one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import NoServer
from orchestrator.ledger.erasure import erase
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.shelf import begin_removal
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.process_secrets import redacted
from orchestrator.storage import store
from orchestrator.storage.paths import Paths
from orchestrator.tracking.address import environment, shown
from orchestrator.upkeep import orphans


@dataclass(frozen=True)
class Contents:
    """What a sweep occupies outside the ledger.

    Attributes:
        paths: Files and folders on this machine, and URLs of checkpoints in the store.
        bytes: Size of all of them together.
        runs: IDs of its runs in MLflow.
    """

    paths: Sequence[str]
    bytes: int
    runs: Sequence[str]


def contents_of(ledger: Ledger, sweep_id: str, paths: Paths) -> Contents:
    """Return what a sweep occupies outside the ledger.

    Raises:
        NoStore: The store cannot be read.
    """
    runs = sorted(ledger.mlflow_runs(sweep_id).values())
    local = [path for path in _folders(ledger, sweep_id, paths, runs) if path.exists()]
    url = f"{paths.store.rstrip('/')}/{ledger.id}/{sweep_id}" if paths.store else None
    stored = store.stored(url) if url else []
    size = sum(map(orphans.size, local)) + sum(each.bytes for each in stored)
    return Contents([*map(str, local), *([url] if stored and url else [])], size, runs)


def _folders(ledger: Ledger, sweep_id: str, paths: Paths, runs: Sequence[str]) -> Iterator[Path]:
    checkpoints = paths.checkpoints(sweep_id)
    if orphans.owner_of(checkpoints) in (None, ledger.id):
        yield checkpoints
    yield paths.driver_log(sweep_id).parent
    yield paths.report(sweep_id)
    yield paths.ray / sweep_id
    for run in runs:
        yield from paths.artifacts.glob(f"*/{run}")


def remove_runs(uri: str, runs: Sequence[str]) -> None:
    """Delete runs of MLflow in a process of their own; see `orchestrator.tracking.run_removal`.

    Raises:
        NoServer: MLflow has not deleted all of them.
    """
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.tracking.run_removal"],
        input=json.dumps({"uri": uri, "runs": list(runs)}),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = redacted((done.stderr.strip().splitlines() or [""])[-1])
        raise NoServer(shown(uri), "has not deleted the MLflow runs", last, "Run `gc --delete` again.")


def remove(lease: Lease, ledger: Ledger, sweep_id: str, paths: Paths) -> bool:
    """Remove a deleted sweep; return False, and change nothing, if a user has undone the deletion.

    Args:
        lease: Lease of the sweep.
        ledger: Ledger of the sweep.
        sweep_id: ID of the sweep.
        paths: Paths of its files.

    Raises:
        NoStore: The store cannot be written to.
        NoServer: MLflow has not deleted the runs.
    """
    if not begin_removal(ledger, sweep_id):
        return False
    contents = contents_of(ledger, sweep_id, paths)
    if contents.runs:
        remove_runs(paths.tracking_uri, contents.runs)
    for path in contents.paths:
        lease.check()
        if "://" in path:
            store.delete(path)
        else:
            orphans.delete(Path(path))
    erase(lease, ledger, sweep_id, contents.bytes)
    return True
