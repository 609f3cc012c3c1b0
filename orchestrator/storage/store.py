"""The checkpoint store that every node can reach: a folder with a URL, which mirrors the local one.

    <url>/<ledger>/<sweep>/<trial>/step-000000500-1-0123456789ab/arrays.npz, manifest.json

A worker writes a checkpoint to its own disk and uploads it, the manifest last, before it reports it. Another
machine that needs the checkpoint downloads it, and compares every byte with the manifest and the manifest
with the ledger's digest. A name contains the attempt and the first digits of the digest, so no attempt
overwrites the checkpoint of another, and two ledgers never share a folder. Only this module imports fsspec.
Each client finds its own credentials (a role of the machine, ~/.aws, AWS_ENDPOINT_URL), so URLs contain no
secrets.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import fsspec
import numpy as np
from fsspec.implementations.local import LocalFileSystem

from orchestrator.errors import DISK_FULL, DISK_LOST, BadInput, NoStore
from orchestrator.storage.paths import Paths
from trainables import checkpoint
from trainables.checkpoint import ARRAYS, MANIFEST
from trainables.durable import make_folder
from trainables.errors import DamagedCheckpoint, in_one_line

Result = TypeVar("Result")

FILES = (ARRAYS, MANIFEST)
"""Files of a checkpoint in the order of their upload, so that a manifest never exists without its arrays."""

PROBE_BYTES = 2**20
"""Size of the file that must fit on a disk that is not full."""

TIMEOUTS: Mapping[str, Mapping[str, Any]] = {
    "s3": {"config_kwargs": {"connect_timeout": 5, "read_timeout": 30, "retries": {"max_attempts": 3}}},
    "gs": {"timeout": 30},
}
"""Options of each client that limit the wait for a store that does not answer, in seconds."""


def check(url: str) -> None:
    """Refuse an invalid URL of a store.

    Raises:
        BadInput: The URL has no scheme, contains a secret, or needs a client that is not installed.
    """
    parts = urlsplit(url)
    if not parts.scheme or parts.username or parts.password:
        got = "a user name or a password" if parts.username or parts.password else f"`{url}`"
        remedy = "Write s3://bucket/sweeps, gs://bucket/sweeps or file:///shared/sweeps."
        raise BadInput("SWEEP_CHECKPOINTS", "must be a URL without a secret", got, remedy)
    try:
        fsspec.get_filesystem_class(parts.scheme)
    except (ImportError, ValueError) as error:
        remedy = "Install the extra `s3` for s3://, the package gcsfs for gs://."
        must = f"needs a client of {parts.scheme}://"
        raise BadInput("SWEEP_CHECKPOINTS", must, str(error), remedy) from None


def keep(folder: Path, url: str) -> None:
    """Upload a local checkpoint to its trial's folder in the store, where it exists once its manifest does.

    Raises:
        NoStore: The store cannot be written to.
    """
    with _reached(f"{url}/{folder.name}") as (files, root):
        files.makedirs(root, exist_ok=True)
        for name in FILES:
            files.put_file(str(folder / name), f"{root}/{name}")


def fetch(folder: Path, url: str, digest: str) -> None:
    """Download a checkpoint, unless it is complete on this machine.

    If the store lacks the checkpoint, nothing is raised here; loading it fails.

    Args:
        folder: Folder of the checkpoint on this machine.
        url: URL of its trial's folder in the store.
        digest: SHA-256 of its manifest, as the ledger records it. Content with another digest is ignored.

    Raises:
        NoStore: The store cannot be read.
    """
    if checkpoint.is_whole(folder, digest):
        return
    with (
        _reached(f"{url}/{folder.name}") as (files, root),
        suppress(FileNotFoundError),
        checkpoint.stage_beside(folder) as stage,
    ):
        for name in FILES:
            files.get_file(f"{root}/{name}", str(stage / name))
        if checkpoint.is_whole(stage, digest):
            checkpoint.publish(stage, folder, digest)


def load(folder: Path, url: str | None, digest: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return a checkpoint's arrays and facts, after downloading it if necessary.

    Args:
        folder: Folder of the checkpoint on this machine.
        url: URL of its trial's folder in the store, or None without a store.
        digest: SHA-256 of its manifest, as the ledger records it.

    Raises:
        DamagedCheckpoint: A file of the checkpoint differs from what was recorded.
        NoStore: The store cannot be read, or the folder of the trial's checkpoints is missing, because its
            disk is not mounted.
    """
    return _read(folder, url, digest, partial(checkpoint.load, folder, digest))


def extract(folder: Path, url: str | None, digest: str, target: Path) -> dict[str, Any]:
    """Write the files of a checkpoint to a folder, and return its facts; see `load`."""
    return _read(folder, url, digest, partial(checkpoint.extract, folder, digest, target))


def _read(folder: Path, url: str | None, digest: str, read: Callable[[], Result]) -> Result:
    """Return the result of `read`, after downloading the checkpoint if necessary.

    A whole copy on this machine may vanish before it is read: a worker of the trial deletes it, or a file
    server loses it. It is then downloaded once more.
    """
    if url is None:
        with _mounted(folder.parent.as_uri()):
            return read()
    with _mounted(url):
        fetch(folder, url, digest)
        try:
            return read()
        except DamagedCheckpoint:
            fetch(folder, url, digest)
            return read()


@contextmanager
def _mounted(url: str) -> Iterator[None]:
    """Raise NoStore in place of DamagedCheckpoint if the folder with a trial's checkpoints is missing."""
    try:
        yield
    except DamagedCheckpoint:
        _check_mounted(url)
        raise


def _check_mounted(url: str) -> None:
    """Raise NoStore if the folder of a trial with checkpoints is missing on a disk."""
    if not is_mounted(url):
        root = fsspec.url_to_fs(url)[1]
        must = "the folder of the trial's checkpoints is missing"
        remedy = "Mount its disk again. If its files are lost, create the folder: the trial then starts over."
        raise NoStore(root, must, "no such folder", remedy)


def is_mounted(url: str) -> bool:
    """Return False if the folder of a trial with checkpoints is missing on a disk.

    An object store has no folders, and counts as mounted.

    Raises:
        NoStore: The store cannot be read.
    """
    with _reached(url) as (files, root):
        return not isinstance(files, LocalFileSystem) or files.exists(root)


def at_hand(where: Paths, ledger_id: str, sweep_id: str, trial_key: str, recorded: str, digest: str) -> Path:
    """Return the local folder of a recorded checkpoint, after downloading it if necessary.

    Raises:
        NoStore: The store cannot be read.
    """
    folder = where.at_hand(sweep_id, trial_key, recorded)
    if url := where.stored(ledger_id, sweep_id, trial_key):
        fetch(folder, url, digest)
    return folder


def holds(where: Paths, ledger_id: str, sweep_id: str, trial_key: str, recorded: str) -> bool:
    """Return True if a recorded checkpoint is on this machine or in the store.

    Raises:
        NoStore: The store cannot be read.
    """
    folder = where.at_hand(sweep_id, trial_key, recorded)
    url = where.stored(ledger_id, sweep_id, trial_key)
    if url is None or folder.exists():
        return folder.exists()
    with _reached(f"{url}/{folder.name}") as (files, root):
        return bool(files.exists(f"{root}/{MANIFEST}"))


def copy(
    source: Path, stem: Path, digest: str, trial: str, urls: tuple[str | None, str | None]
) -> checkpoint.Saved:
    """Copy a checkpoint to another trial, with a manifest of that trial.

    With a store the copy exists only there: a worker of the first trial may delete the source from this
    machine at any moment, and the machine that needs the copy downloads it.

    Args:
        source: Folder of the checkpoint on this machine.
        stem: Folder of the copy on this machine, without its digest.
        digest: SHA-256 of the checkpoint's manifest.
        trial: Key of the trial that gets the copy.
        urls: URLs of the folders of the two trials in the store; None without a store.

    Raises:
        DamagedCheckpoint: The manifest has another digest, or, without a store, a file is damaged.
        NoStore: The store cannot be read or written, or lacks the checkpoint.
    """
    donor, heir = urls
    if donor is None or heir is None:
        return checkpoint.copy(source, stem, digest, trial)
    with _reached(f"{donor}/{source.name}") as (files, root):
        before = files.cat_file(f"{root}/{MANIFEST}")
    manifest = checkpoint.handed_over(source, before, digest, trial)
    own = hashlib.sha256(manifest).hexdigest()
    folder = checkpoint.named(stem, own)
    with (
        _reached(f"{donor}/{source.name}") as (files, root),
        _reached(f"{heir}/{folder.name}") as (_, target),
    ):
        files.makedirs(target, exist_ok=True)
        files.cp_file(f"{root}/{ARRAYS}", f"{target}/{ARRAYS}")
        files.pipe_file(f"{target}/{MANIFEST}", manifest)
        size = files.size(f"{target}/{ARRAYS}")
    return checkpoint.Saved(folder, own, size + len(manifest))


def urls_under(url: str | None) -> Callable[[Path], str] | None:
    """Return a function that maps a local checkpoint folder to its URL below `url`; None without a store."""
    return (lambda folder: f"{url}/{folder.name}") if url else None


@dataclass(frozen=True)
class Stored:
    """A checkpoint in the store.

    Attributes:
        url: URL of its folder.
        bytes: Size of its files.
        age: Seconds since its newest file was written.
    """

    url: str
    bytes: int
    age: float


def stored(url: str) -> list[Stored]:
    """Return the checkpoints of a sweep in the store, in the order of their URLs.

    Args:
        url: URL of the sweep, `<store>/<ledger>/<sweep>`.

    Raises:
        NoStore: The store cannot be read.
    """
    with _reached(url) as (files, root):
        if not files.exists(root):
            return []
        infos = files.find(root, detail=True)
        folders: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for path, info in infos.items():
            folder = path.rpartition("/")[0].removeprefix(root).strip("/")
            folders[folder].append((int(info["size"]), _modified(info)))
    now = time.time()
    return [
        Stored(f"{url}/{folder}", sum(size for size, _ in parts), now - max(at for _, at in parts))
        for folder, parts in sorted(folders.items())
    ]


def _modified(info: Mapping[str, Any]) -> float:
    """Return the time of a file's last change: S3 gives a datetime, a local disk seconds since the epoch."""
    at = info.get("LastModified") or info.get("mtime") or info.get("updated")
    return at.timestamp() if isinstance(at, datetime) else float(at or time.time())


def delete(url: str) -> None:
    """Delete a checkpoint in the store, if it exists.

    Raises:
        NoStore: The store cannot be written to.
    """
    with _reached(url) as (files, root), suppress(FileNotFoundError):
        files.rm(root, recursive=True)
        files.invalidate_cache()


def answers(url: str) -> bool:
    """Return True if a small object can be written to the store, read and deleted."""
    name, content = f".probe-{uuid.uuid4().hex}", b"sweep"
    try:
        with _reached(url) as (files, root):
            files.makedirs(root, exist_ok=True)
            files.pipe_file(f"{root}/{name}", content)
            read = files.cat_file(f"{root}/{name}")
            files.rm_file(f"{root}/{name}")
    except (NoStore, OSError):
        return False
    return bool(read == content)


def has_space(folder: Path) -> bool:
    """Return True if a mebibyte can be written to the disk of a folder of this machine."""
    try:
        _write_mebibyte(folder)
    except OSError:
        return False
    return True


def check_space(folder: Path) -> None:
    """Check that a mebibyte can be written to the disk of a folder of this machine; create the folder.

    Raises:
        OSError: The disk is full or fails.
    """
    make_folder(folder)
    _write_mebibyte(folder)


def _write_mebibyte(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(PROBE_BYTES))
        file.flush()
        os.fsync(file.fileno())


def outage_of(error: BaseException) -> str | None:
    """Return the cause of the outage that an exception shows, `store lost` or `disk full`, or None."""
    if isinstance(error, NoStore):
        return "store lost"
    if not isinstance(error, OSError):
        return None
    return "disk full" if error.errno in DISK_FULL else "store lost" if error.errno in DISK_LOST else None


@contextmanager
def _reached(url: str) -> Iterator[tuple[Any, str]]:
    """Yield the client of a URL and the path in it; raise NoStore for any exception but a full local disk."""
    try:
        # A client may change its options.
        yield fsspec.url_to_fs(url, **deepcopy(dict(TIMEOUTS.get(urlsplit(url).scheme, {}))))
    except Exception as error:
        if outage_of(error) == "disk full":
            raise
        must = "the checkpoint store cannot be read or written"
        raise NoStore(url, must, in_one_line(error), "The sweep goes on once it answers.") from error
