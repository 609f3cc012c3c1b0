"""Checkpoints where every node reaches them: a folder by URL that mirrors the local one.

    <url>/<sweep>/<trial>/step-000000500/arrays.npz, manifest.json

A worker writes a checkpoint to its own disk first, and brings it here before it reports it; the manifest
comes last. Whoever needs it elsewhere fetches it, and compares every byte with the manifest and that with the
ledger's digest. The one module that imports fsspec; what signs in to a store is its client's own affair (a
role of the machine, ~/.aws, AWS_ENDPOINT_URL), so that no URL holds a secret.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec

from orchestrator.errors import BadInput, NoStore
from orchestrator.storage.paths import Paths
from trainables.checkpoint import ARRAYS, MANIFEST

FILES = (ARRAYS, MANIFEST)
"""In the order in which they are written: a manifest that is there has its arrays."""


_dropping = ThreadPoolExecutor(4, thread_name_prefix="store")


def check(url: str) -> None:
    """Refuse a URL that cannot be that of a store.

    Raises:
        BadInput: no scheme, a secret in it, or no client for it.
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
    """Bring a checkpoint to the store; until its manifest is there, there is none.

    Args:
        folder: of the checkpoint, on this machine.
        url: of its trial's folder in the store.

    Raises:
        NoStore: the store does not take it.
    """
    with _reached(url) as (files, place):
        files.makedirs(f"{place}/{folder.name}", exist_ok=True)
        for name in FILES:
            files.put_file(str(folder / name), f"{place}/{folder.name}/{name}")


def fetch(folder: Path, url: str) -> None:
    """Bring a checkpoint from the store, unless it is here; one that is nowhere is left to whoever loads it.

    Raises:
        NoStore: the store does not answer.
    """
    if (folder / MANIFEST).exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        _reached(url) as (files, place),
        suppress(FileNotFoundError),
        tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as stage,
    ):
        whole = Path(stage) / folder.name
        whole.mkdir()
        for name in FILES:
            files.get_file(f"{place}/{folder.name}/{name}", str(whole / name))
        shutil.rmtree(folder, ignore_errors=True)
        whole.rename(folder)


def at_hand(where: Paths, sweep_id: str, trial_key: str, recorded: str) -> Path:
    """Return the folder of a recorded checkpoint on this machine, fetched if need be.

    Raises:
        NoStore: the store does not answer.
    """
    folder = where.at_hand(sweep_id, trial_key, recorded)
    if url := where.stored(sweep_id, trial_key):
        fetch(folder, url)
    return folder


def holds(where: Paths, sweep_id: str, trial_key: str, recorded: str) -> bool:
    """Tell whether a recorded checkpoint is on this machine, or in the store.

    Raises:
        NoStore: the store does not answer.
    """
    folder = where.at_hand(sweep_id, trial_key, recorded)
    url = where.stored(sweep_id, trial_key)
    if url is None or folder.exists():
        return folder.exists()
    with _reached(url) as (files, place):
        return bool(files.exists(f"{place}/{folder.name}/{MANIFEST}"))


def discard(folder: Path, url: str | None) -> None:
    """Delete a checkpoint that no row refers to any more, wherever it is.

    The store's is deleted when there is time: no report may wait for it.

    Args:
        folder: of the checkpoint, on this machine.
        url: of its trial's folder in the store, or None without one.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if url:
        _dropping.submit(drop, folder, url)


def drop(folder: Path, url: str) -> None:
    """Delete a checkpoint of the store; what cannot be deleted stays, for no row refers to it."""
    with suppress(NoStore), _reached(url) as (files, place), suppress(FileNotFoundError):
        files.rm(f"{place}/{folder.name}", recursive=True)


@contextmanager
def _reached(url: str) -> Iterator[tuple[Any, str]]:
    """Give the client of a URL and the path there; the clients raise what they like."""
    try:
        yield fsspec.url_to_fs(url)
    except Exception as error:
        got = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise NoStore(url, "must take and give checkpoints", got, "The trial is tried again.") from error
