"""Maintenance of a root: check its stores, delete garbage, rebuild a damaged ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.api.workspace import Workspace
from orchestrator.client.answers import Deletion, DiskUse
from orchestrator.client.names import one_of
from orchestrator.errors import Busy, counted
from orchestrator.ledger.erasure import renew_shelf
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.shelf import shelved
from orchestrator.ledger.queue.submissions import submissions
from orchestrator.ledger.sweeps.index import known_sweeps
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import SweepRecord
from orchestrator.storage import store
from orchestrator.storage.paths import Paths
from orchestrator.tracking.address import sqlite_path
from orchestrator.upkeep import orphans, sweep_removal
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
    """Result of a check.

    Attributes:
        sweeps: IDs of the checked sweeps.
        submissions: IDs of the checked submissions.
        findings: Differences between the stores, one sentence each; empty if they agree.
        waiting: Number of records that are not in MLflow yet, by sweep. Such a sweep is not compared with
            MLflow.
        leftovers: Paths of incomplete checkpoints that killed processes have left, by unfinished sweep; its
            next run deletes them, and so does `collect_garbage`.
    """

    sweeps: Sequence[str]
    submissions: Sequence[str]
    findings: Sequence[Finding]
    waiting: Mapping[str, int]
    leftovers: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Collected:
    """Result of a garbage collection.

    Attributes:
        garbage: Files and folders without a row of the ledger.
        busy: Refusal of the lease of each sweep with a driver, whose files were skipped.
        unknown: Checkpoint folders of sweeps that are not in this ledger; never deleted.
    """

    garbage: Sequence[Garbage]
    busy: Sequence[Busy]
    unknown: Sequence[Path]


@dataclass(frozen=True)
class Redelivery:
    """Records of a sweep that were sent to MLflow again.

    Attributes:
        sweep: ID of the sweep.
        records: Number of records.
        waiting: Number of records that are not in MLflow yet.
        busy: Refusal of the lease of a sweep with a driver, of which nothing was sent.
    """

    sweep: str
    records: int
    waiting: int
    busy: Busy | None = None


def check(name: str | None = None, *, root: str | Path | None = None) -> Checked:
    """Check that ledger, submissions, checkpoints, leases, MLflow and logs agree, without repairing them.

    With `SWEEP_CHECKPOINTS`, missing checkpoints are copied from the shared store to this machine.

    Args:
        name: ID of a sweep or submission, or its beginning; all of them if None.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The ledger does not exist, or not exactly one sweep matches.
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
    """Find deleted sweeps, and the files without a row of the ledger, on this machine and in the store.

    Args:
        delete: Whether to remove them.
        caches: Whether to include the compiled programs under the root.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The ledger does not exist.
        NoStore: The shared store does not answer.
    """
    workspace = Workspace.at(root)
    paths = workspace.paths
    garbage: list[Garbage] = []
    busy: list[Busy] = []
    with workspace.ledger() as ledger:
        renew_shelf(ledger)
        deleted = [entry.sweep_id for entry in shelved(ledger).values() if entry.shelf == "deleted"]
        for sweep_id in deleted:
            try:
                with Lease(ledger, sweep_id) as lease:
                    contents = sweep_removal.contents_of(ledger, sweep_id, paths)
                    if not delete or sweep_removal.remove(lease, ledger, sweep_id, paths):
                        runs = counted(len(contents.runs), "run of MLflow", "runs of MLflow")
                        why = f"a deleted sweep, with {runs}"
                        garbage.append(Garbage(sweep_id, why, contents.bytes))
            except Busy as refusal:
                busy.append(refusal)
        for record in [record for record in ledger.sweeps() if record.id not in deleted]:
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


def deletion(name: str, *, root: str | Path | None = None) -> Deletion:
    """Return what the deletion of a sweep removes, and what refers to the sweep.

    Args:
        name: ID of the sweep or the beginning of it.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The ledger does not exist, or several sweeps match.
        NotFound: No sweep matches.
        NoStore: The shared store does not answer.
    """
    workspace = Workspace.at(root)
    with workspace.ledger() as ledger:
        sweep_id = one_of(known_sweeps(ledger), name)
        contents = sweep_removal.contents_of(ledger, sweep_id, workspace.paths)
        trials = len(ledger.trials(sweep_id))
        phrases = list(_references(ledger, sweep_id))
    return Deletion(sweep_id, trials, len(contents.paths), contents.bytes, len(contents.runs), phrases)


def _references(ledger: Ledger, sweep_id: str) -> Iterator[str]:
    """Yield one phrase for each other sweep, and each extension, that uses the trials of a sweep."""
    documents = {entry.sweep_id: entry.document for entry in submissions(ledger)}
    documents |= {record.id: record.document for record in ledger.sweeps()}
    for other, document in sorted(documents.items()):
        if sweep_id in document.get("warm_start", ()):
            yield f"warm_start of {other} learns from it"
        known = [str(each["source"]) for each in document.get("known", ())]
        yield from (f"known of {other} reads {source}" for source in known if sweep_id in source)
    for name in ledger.registered_models(sweep_id):
        yield f"a version of the registered model {name} is its checkpoint, and is removed with it"
    extended = sum(bool(trial.extensions) for trial in ledger.trials(sweep_id, role="search"))
    if extended:
        yield f"{counted(extended, 'trial was', 'trials were')} extended to more steps"


def disk(*, root: str | Path | None = None) -> list[DiskUse]:
    """Return the space that each sweep takes outside the ledger, the largest first.

    Args:
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The ledger does not exist.
        NoStore: The shared store does not answer.
    """
    workspace = Workspace.at(root)
    with workspace.ledger() as ledger:
        shelves = shelved(ledger)
        found = [
            DiskUse(
                sweep_id,
                known.owner,
                sweep_removal.contents_of(ledger, sweep_id, workspace.paths).bytes,
                shelves[sweep_id].shelf if sweep_id in shelves else None,
            )
            for sweep_id, known in known_sweeps(ledger).items()
        ]
    return sorted(found, key=lambda use: (-use.bytes, use.sweep))


def recover(*, root: str | Path | None = None) -> Recovery:
    """Rebuild a damaged ledger from its backup, up to the last commit; keep the damaged file beside it.

    Args:
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The address of the ledger is wrong.
        Busy: A driver uses the ledger.
        Damaged: The backup does not exist.
    """
    return rebuild(Workspace.at(root).paths.ledger_url)


def set_tracking_aside(*, root: str | Path | None = None) -> Path | None:
    """Rename an unreadable MLflow database under the root; return its new name, or None."""
    return set_aside(Workspace.at(root).paths)


def redeliver(*, seconds: float = REDELIVERY_SECONDS, root: str | Path | None = None) -> Iterator[Redelivery]:
    """Yield each sweep after sending its records to MLflow again, for an MLflow that has lost them.

    Args:
        seconds: Seconds to wait for MLflow for each sweep.
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The ledger does not exist.
    """
    workspace = Workspace.at(root)
    with workspace.ledger() as ledger:
        for record in ledger.sweeps():
            try:
                records, waiting = redeliver_sweep(ledger, record.id, workspace.paths, seconds)
            except Busy as refusal:
                yield Redelivery(record.id, 0, ledger.backlog(record.id), refusal)
            else:
                yield Redelivery(record.id, records, waiting)
