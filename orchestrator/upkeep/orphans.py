"""Files that no row of the ledger refers to: orphaned checkpoints, Ray Tune's state, compiled programs.

A driver that dies between a commit and the deletion that the commit allows leaves an orphaned checkpoint, and
so does a worker that dies between its upload and its report.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import DISK_FULL, BadInput, NoSpace
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.storage import store
from orchestrator.storage.paths import Paths
from trainables.durable import flush_folder, make_folder, replace_file

_OWNER = "ledger"
"""Name of the file in the checkpoint folder of a sweep that holds the id of its ledger."""

_WRITTEN_SECONDS = 1.0
"""Longest time between the creation of that file and its content, unless the power was lost in between."""

YOUNG_SECONDS = 3600.0
"""Age up to which the report of a checkpoint in the store may still be pending."""


@dataclass(frozen=True)
class Garbage:
    """A file or folder that can be deleted.

    Attributes:
        path: Path of the file or folder, or URL of a checkpoint in the store.
        why: Reason why it is not needed, as a phrase.
        bytes: Total size of its files.
    """

    path: str
    why: str
    bytes: int


def garbage_of(ledger: Ledger, sweep_id: str, paths: Paths) -> list[Garbage]:
    """Return the garbage of a sweep; call it while no driver runs the sweep."""
    paths_and_reasons = [
        (path, "a checkpoint that no trial refers to")
        for path in orphans_of(ledger, sweep_id, paths.checkpoints(sweep_id))
    ]
    ledger.flush()  # after a power failure no row may refer to what is collected
    if (state := paths.ray / sweep_id).is_dir():
        paths_and_reasons.append((state, "Ray Tune's own state, which is never read"))
    local = [Garbage(str(path), why, size(path)) for path, why in paths_and_reasons]
    return [*local, *stored_garbage(ledger, sweep_id, paths)]


def stored_garbage(ledger: Ledger, sweep_id: str, paths: Paths) -> list[Garbage]:
    """Return the checkpoints of a sweep in the store that no row refers to and no worker may be writing.

    Raises:
        NoStore: The store cannot be read.
    """
    if not paths.store:
        return []
    url = f"{paths.store.rstrip('/')}/{ledger.id}/{sweep_id}"
    known = {f"{row.trial_key}/{Path(row.path).name}" for row in ledger.checkpoints(sweep_id)}
    return [
        Garbage(checkpoint.url, "a checkpoint in the store that no trial refers to", checkpoint.bytes)
        for checkpoint in store.stored(url)
        if checkpoint.url.removeprefix(f"{url}/") not in known and checkpoint.age > YOUNG_SECONDS
    ]


def compiled_programs(paths: Paths) -> list[Garbage]:
    """Return the compilation cache, if it is under the root; without it the next sweep compiles again."""
    folder = paths.compilations
    is_own = folder.is_dir() and folder.is_relative_to(paths.root)
    return [Garbage(str(folder), "compiled programs", size(folder))] if is_own else []


def unknown_sweeps(ledger: Ledger, paths: Paths) -> list[Path]:
    """Return the checkpoint folders of sweeps that are not in this ledger; they may be in another one."""
    known = {record.id for record in ledger.sweeps()}
    return [path for path in sorted(paths.checkpoints("").glob("*")) if path.name not in known]


def place_of(path: str | Path) -> str:
    """Return the path of a checkpoint relative to the folder of its sweep.

    Rows hold absolute paths, and the root may have been moved or mounted elsewhere since.
    """
    return "/".join(Path(path).parts[-2:])


def orphans(folder: Path, trials: Collection[str], known: Collection[str]) -> Iterator[Path]:
    """Yield the orphans under the checkpoint folder of a sweep.

    Args:
        folder: Folder with a folder for each trial and in it one for each step; need not exist.
        trials: Keys of the sweep's trials; the whole folder of any other trial is an orphan.
        known: Relative paths of the checkpoints with rows, as `place_of` returns them.
    """
    for trial in sorted(path for path in folder.glob("*") if path.is_dir()):
        if trial.name not in trials:
            yield trial
        else:
            yield from _unknown(trial, known)


def _unknown(trial: Path, known: Collection[str]) -> list[Path]:
    return [step for step in sorted(trial.glob("*")) if place_of(step) not in known]


def owner_of(folder: Path) -> str | None:
    """Return the id of the ledger that owns the checkpoint folder of a sweep, or None."""
    try:
        return (folder / _OWNER).read_text() or None  # empty while it is created, and after a loss of power
    except FileNotFoundError:
        return None


def own(folder: Path, ledger_id: str) -> None:
    """Record a ledger as the owner of the checkpoint folder of a sweep.

    The driver calls this right before its first trial, because a start that fails earlier must not block the
    folder for the right ledger.

    Raises:
        BadInput: It belongs to another ledger, whose checkpoints would count as orphans.
        NoSpace: The disk is full.
    """
    mark = folder / _OWNER
    if owner_of(folder) is None:
        try:
            make_folder(folder)
            with suppress(FileExistsError), mark.open("x") as created:
                created.write(ledger_id)
                created.flush()
                os.fsync(created.fileno())
            flush_folder(folder)
            until = time.monotonic() + _WRITTEN_SECONDS
            while owner_of(folder) is None and time.monotonic() < until:  # another driver is creating it
                time.sleep(0.05)
            if owner_of(folder) is None:
                replace_file(mark, ledger_id.encode())
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            must, got = "needs space", str(error.strerror)
            raise NoSpace(str(mark), must, got, "Free some space, and run the same command again.") from error
    _refuse_others(folder, ledger_id)


def _refuse_others(folder: Path, ledger_id: str) -> None:
    if (owner := owner_of(folder)) not in (None, ledger_id):
        raise BadInput(
            str(folder),
            f"must belong to the ledger that runs the sweep, {ledger_id}",
            f"checkpoints of the ledger {owner}",
            "Name that ledger (SWEEP_LEDGER), another --root, or move the folder away.",
        )


def orphans_of(ledger: Ledger, sweep_id: str, folder: Path) -> list[Path]:
    """Return the orphans of a sweep of the ledger; call it while no worker runs the sweep.

    A folder that belongs to another ledger has none.
    """
    if owner_of(folder) not in (None, ledger.id):
        return []
    trials = {trial.key for trial in ledger.trials(sweep_id)}
    known = {place_of(row.path) for row in ledger.checkpoints(sweep_id)}
    return list(orphans(folder, trials, known))


def clear(ledger: Ledger, sweep_id: str, folder: Path) -> list[Path]:
    """Delete the orphans of a sweep that no worker runs; return the deleted paths.

    The driver calls this under its lease, before it launches anything.

    Raises:
        BadInput: The folder belongs to another ledger, or may belong to one because it has checkpoints and
            this ledger lacks the sweep.
        NoSpace: The disk is full.
    """
    if is_new := ledger.sweep(sweep_id) is None:
        _refuse_unknown_checkpoints(ledger, sweep_id, folder)
    _refuse_others(folder, ledger.id)
    if is_new or not _has_checkpoints(folder):
        return []
    own(folder, ledger.id)  # an earlier version has filled it
    deleted = orphans_of(ledger, sweep_id, folder)
    ledger.flush()  # after a power failure no row may refer to what was deleted
    for path in deleted:
        delete(path)
    return deleted


def clear_trial(writer: SweepWriter, trial_key: str, folder: Path) -> None:
    """Delete the incomplete files of a worker that died while it saved a checkpoint of a trial.

    Raises:
        Busy: Another process has taken the lease, and its worker may be writing there.
    """
    known = {place_of(row.path) for row in writer.ledger.trial_checkpoints(trial_key)}
    writer.ledger.flush()  # after a power failure no row may refer to what was deleted
    writer.check()
    for path in _unknown(folder, known):
        # A worker that was cut off and not killed still writes here; the next driver deletes what is left.
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def collect(garbage: Garbage) -> None:
    """Delete garbage on this machine or in the store.

    Raises:
        NoStore: The store cannot be written to.
    """
    if "://" in garbage.path:
        store.delete(garbage.path)
    else:
        delete(Path(garbage.path))


def delete(path: Path) -> None:
    """Delete a file, a link or a folder, which another process may be deleting, too."""
    if path.is_dir() and not path.is_symlink():
        with suppress(FileNotFoundError):
            shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def size(path: Path) -> int:
    """Return the bytes of a file, or of all files under a folder; links are not followed."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(size(entry) for entry in path.iterdir())


def _has_checkpoints(folder: Path) -> bool:
    return any(path.is_dir() for path in folder.glob("*"))


def _refuse_unknown_checkpoints(ledger: Ledger, sweep_id: str, folder: Path) -> None:
    if _has_checkpoints(folder):
        raise BadInput(
            str(folder),
            f"must be empty before {sweep_id} starts in {ledger.where}",
            "checkpoints of a sweep that this ledger does not know",
            "Name the ledger that does (SWEEP_LEDGER), another --root, or move the folder away.",
        )
