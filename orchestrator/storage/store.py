"""The checkpoint store, which every node reaches: a folder named by a URL, which mirrors the local one.

    <url>/<sweep>/<trial>/step-000000500-1-0123456789ab/arrays.npz, manifest.json

A worker writes a checkpoint to its own disk first, and uploads it before it reports it, the manifest last.
Another machine that needs the checkpoint downloads it, compares every byte with the manifest, and the
manifest with the ledger's digest. A name holds the attempt and the first digits of the digest, so no attempt
ever overwrites the checkpoint of another. Only this module imports fsspec. Each client finds its own
credentials (a role of the machine, ~/.aws, AWS_ENDPOINT_URL), so that no URL holds a secret.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec

from orchestrator.errors import BadInput, NoStore
from orchestrator.storage.paths import Paths
from trainables import checkpoint
from trainables.checkpoint import ARRAYS, MANIFEST

FILES = (ARRAYS, MANIFEST)
"""In the order of their upload: if the manifest exists, so do its arrays."""

_TIMEOUTS: Mapping[str, Mapping[str, Any]] = {
    "s3": {"config_kwargs": {"connect_timeout": 5, "read_timeout": 30, "retries": {"max_attempts": 3}}},
    "gs": {"timeout": 30},
}
"""Options of each client that bound how long a store that does not answer may block, in seconds."""

_dropping = ThreadPoolExecutor(4, thread_name_prefix="store")


def check(url: str) -> None:
    """Refuse a URL that cannot be a store's.

    Raises:
        BadInput: the URL has no scheme, holds a secret, or no client for it is installed.
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
    """Upload a checkpoint. It exists in the store once its manifest does.

    Args:
        folder: of the checkpoint, on this machine.
        url: of its trial's folder in the store.

    Raises:
        NoStore: the store cannot be written to.
    """
    with _reached(url) as (files, root):
        files.makedirs(f"{root}/{folder.name}", exist_ok=True)
        for name in FILES:
            files.put_file(str(folder / name), f"{root}/{folder.name}/{name}")


def fetch(folder: Path, url: str, digest: str) -> None:
    """Download a checkpoint, unless it is whole on this machine. If the store lacks it, loading it will fail.

    Args:
        folder: of the checkpoint, on this machine.
        url: of its trial's folder in the store.
        digest: SHA-256 of its manifest, as the ledger records it. Other content under the same name, on this
            machine or in the store, is not taken for it.

    Raises:
        NoStore: the store cannot be read.
    """
    if checkpoint.is_whole(folder, digest):
        return
    with (
        _reached(url) as (files, root),
        suppress(FileNotFoundError),
        checkpoint.stage_beside(folder) as stage,
    ):
        for name in FILES:
            files.get_file(f"{root}/{folder.name}/{name}", str(stage / name))
        if checkpoint.is_whole(stage, digest):
            checkpoint.publish(stage, folder, digest)


def at_hand(where: Paths, sweep_id: str, trial_key: str, recorded: str, digest: str) -> Path:
    """Return the local folder of a recorded checkpoint, after downloading it if need be.

    Raises:
        NoStore: the store cannot be read.
    """
    folder = where.at_hand(sweep_id, trial_key, recorded)
    if url := where.stored(sweep_id, trial_key):
        fetch(folder, url, digest)
    return folder


def holds(where: Paths, sweep_id: str, trial_key: str, recorded: str) -> bool:
    """Return True if a recorded checkpoint is on this machine or in the store.

    Raises:
        NoStore: the store cannot be read.
    """
    folder = where.at_hand(sweep_id, trial_key, recorded)
    url = where.stored(sweep_id, trial_key)
    if url is None or folder.exists():
        return folder.exists()
    with _reached(url) as (files, root):
        return bool(files.exists(f"{root}/{folder.name}/{MANIFEST}"))


def copy(source: Path, stem: Path, digest: str, urls: tuple[str | None, str | None]) -> Path:
    """Copy a checkpoint of one trial to another trial; return the folder of the copy.

    With a store the copy exists only there: a worker of the first trial may delete the source from this
    machine at any moment, and the machine that needs the copy will download it.

    Args:
        source: folder of the checkpoint, on this machine.
        stem: folder of the copy on this machine, without its digest.
        digest: SHA-256 of the checkpoint's manifest.
        urls: of the folders of the two trials in the store; None without a store.

    Raises:
        DamagedCheckpoint: without a store, if the source is not the checkpoint with this digest.
        NoStore: the store cannot be read or written, or lacks the checkpoint.
    """
    donor, heir = urls
    if donor is None or heir is None:
        return checkpoint.copy(source, stem, digest)
    folder = checkpoint.named(stem, digest)
    with _reached(donor) as (files, root), _reached(heir) as (_, target):
        files.makedirs(f"{target}/{folder.name}", exist_ok=True)
        for name in FILES:
            files.cp_file(f"{root}/{source.name}/{name}", f"{target}/{folder.name}/{name}")
    return folder


def discard(folder: Path, url: str | None) -> None:
    """Delete a checkpoint that no row refers to any more, on this machine and in the store.

    A background thread deletes it in the store, so that no report waits for the deletion.

    Args:
        folder: of the checkpoint, on this machine.
        url: of its trial's folder in the store, or None without a store.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if url:
        _dropping.submit(drop, folder, url)


def drop(folder: Path, url: str) -> None:
    """Delete a checkpoint in the store. If that fails it stays there: no row refers to it."""
    with suppress(NoStore), _reached(url) as (files, root), suppress(FileNotFoundError):
        files.rm(f"{root}/{folder.name}", recursive=True)


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
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(2**20))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        return False
    return True


@contextmanager
def _reached(url: str) -> Iterator[tuple[Any, str]]:
    """Yield the client of a URL and the path in it; raise NoStore for any exception but a full local disk."""
    try:
        yield fsspec.url_to_fs(url, **_TIMEOUTS.get(urlsplit(url).scheme, {}))
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        got = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise NoStore(
            url, "checkpoint store must be readable and writable", got, "The sweep goes on once it answers."
        ) from error
