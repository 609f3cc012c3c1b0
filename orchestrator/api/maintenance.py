"""Keep a root in order: check that its stores agree, delete garbage, rebuild what is damaged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.api.workspace import Workspace
from orchestrator.client.names import one_of
from orchestrator.errors import Busy
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue.submissions import submissions
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import SweepRecord
from orchestrator.storage import store
from orchestrator.storage.paths import Paths
from orchestrator.tracking.address import sqlite_path
from orchestrator.upkeep import orphans
from orchestrator.upkeep.check import Finding, check_submissions, leftovers
from orchestrator.upkeep.check import check as check_ledger
from orchestrator.upkeep.log_check import check_logs
from orchestrator.upkeep.mlflow_copy import disagreements, set_aside
from orchestrator.upkeep.mlflow_copy import redeliver as redeliver_sweep
from orchestrator.upkeep.orphans import Garbage
from orchestrator.upkeep.recovery import Recovery
from orchestrator.upkeep.recovery import recover as rebuild

REDELIVERY_SECONDS = 600.0


@dataclass(frozen=True)
class Checked:
    """What a check has found.

    Attributes:
        sweeps: Ids of the sweeps that were checked.
        submissions: Ids of the submissions that were checked.
        findings: Everything that is not as it must be; empty if all stores agree.
        waiting: Number of records that MLflow has not taken yet, by sweep. MLflow is not compared with the
            ledger before it has taken them.
        leftovers: Paths of what killed processes have left among the checkpoints of an unfinished sweep, by
            sweep; its next run deletes them, and so does `collect_garbage`.
    """

    sweeps: Sequence[str]
    submissions: Sequence[str]
    findings: Sequence[Finding]
    waiting: Mapping[str, int]
    leftovers: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Collected:
    """What a garbage collection has found.

    Attributes:
        garbage: Files and folders that no row refers to.
        busy: For each sweep that is being driven, and so was left alone, the refusal of its lease.
        unknown: Checkpoint folders of sweeps that this ledger does not know; never deleted.
    """

    garbage: Sequence[Garbage]
    busy: Sequence[Busy]
    unknown: Sequence[Path]


@dataclass(frozen=True)
class Redelivery:
    """The records of one sweep, sent to MLflow once more.

    Attributes:
        sweep: Id of the sweep.
        records: Number of records.
        waiting: Number of them that MLflow has not taken yet.
    """

    sweep: str
    records: int
    waiting: int


def check(name: str | None = None, *, root: str | Path | None = None) -> Checked:
    """Check that ledger, submissions, checkpoints, leases, MLflow and logs agree. Nothing is repaired.

    With `SWEEP_CHECKPOINTS`, checkpoints that are not on this machine are copied from the shared store.

    Args:
        name: Id of a sweep or submission, or its beginning; all of them if None.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: There is no ledger, or `name` does not name one sweep of it.
        NoStore: The shared store does not answer.
    """
    workspace = Workspace.at(root)
    with workspace.ledger() as ledger:
        records = {record.id: record for record in ledger.sweeps()}
        submitted = {entry.sweep_id: entry for entry in submissions(ledger)}
        if name is not None:
            chosen = one_of(records.keys() | submitted.keys(), name)
            records = {sweep_id: record for sweep_id, record in records.items() if sweep_id == chosen}
            submitted = {sweep_id: entry for sweep_id, entry in submitted.items() if sweep_id == chosen}
        findings = check_submissions(ledger, list(submitted.values()))
        for record in records.values():
            findings += _findings(ledger, record, workspace.paths)
        findings += check_logs(ledger, list(records.values()), workspace.paths)
        waiting = {sweep_id: count for sweep_id in records if (count := ledger.backlog(sweep_id))}
        left = {
            sweep_id: [str(path) for path in paths]
            for sweep_id in records
            if (paths := leftovers(ledger, sweep_id, workspace.paths.checkpoints(sweep_id)))
        }
    return Checked(list(records), list(submitted), findings, waiting, left)


def _findings(ledger: Ledger, record: SweepRecord, paths: Paths) -> Iterator[Finding]:
    at_hand = partial(store.at_hand, paths, ledger.id, record.id)
    yield from check_ledger(ledger, record.id, paths.checkpoints(record.id), at_hand)
    if database := sqlite_path(paths.tracking_uri):
        yield from disagreements(ledger, record, Path(database))


def collect_garbage(
    *, delete: bool = False, caches: bool = False, root: str | Path | None = None
) -> Collected:
    """Find the files that no row of the ledger refers to, on this machine and in the store.

    Args:
        delete: Whether to delete them.
        caches: Whether the compiled programs under the root count as garbage too.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: There is no ledger.
        NoStore: The shared store does not answer.
    """
    workspace = Workspace.at(root)
    paths = workspace.paths
    garbage: list[Garbage] = []
    busy: list[Busy] = []
    with workspace.ledger() as ledger:
        for record in ledger.sweeps():
            try:
                # Under the lease no checkpoint can appear between the search and the deletion.
                with Lease(ledger, record.id):
                    orphaned = orphans.garbage_of(ledger, record.id, paths)
                    ledger.flush()  # after a power failure no row may refer to what was deleted
                    garbage += _deleted(orphaned, delete)
            except Busy as refusal:
                busy.append(refusal)
        if caches:
            garbage += _deleted(orphans.compiled_programs(paths), delete)
        return Collected(garbage, busy, orphans.unknown_sweeps(ledger, paths))


def _deleted(garbage: list[Garbage], delete: bool) -> list[Garbage]:
    for entry in garbage if delete else ():
        orphans.collect(entry)
    return garbage


def recover(*, root: str | Path | None = None) -> Recovery:
    """Rebuild a damaged ledger from its backup, up to the last commit; the damaged file is kept beside it.

    Args:
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The address of the ledger is wrong.
        Busy: A driver uses the ledger.
        Damaged: There is no backup to rebuild it from.
    """
    return rebuild(Workspace.at(root).paths.ledger_url)


def set_tracking_aside(*, root: str | Path | None = None) -> Path | None:
    """Rename the MLflow database under the root if it cannot be read; return its new name, else None."""
    return set_aside(Workspace.at(root).paths)


def redeliver(*, seconds: float = REDELIVERY_SECONDS, root: str | Path | None = None) -> Iterator[Redelivery]:
    """Send every record of the ledger to MLflow again, sweep by sweep, for an MLflow that has lost them.

    Args:
        seconds: How long to wait for MLflow, a sweep.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: There is no ledger.
        Busy: A driver is running, which delivers by itself.
    """
    workspace = Workspace.at(root)
    with workspace.ledger() as ledger:
        for record in ledger.sweeps():
            records, waiting = redeliver_sweep(ledger, record.id, workspace.paths, seconds)
            yield Redelivery(record.id, records, waiting)
