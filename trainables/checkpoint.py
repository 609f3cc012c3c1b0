"""Checkpoints on disk: arrays without pickle, beside a manifest that is written last and checked first.

    <folder>/arrays.npz       the arrays by name
    <folder>/manifest.json    {"files": {"arrays.npz": {"bytes": ..., "sha256": ...}}, "facts": {...}}

A checkpoint is staged in a hidden folder, flushed to disk, and then given its name by one `os.replace`: a
process or a machine that dies leaves the whole checkpoint or none.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainables.errors import DamagedCheckpoint

ARRAYS, MANIFEST = "arrays.npz", "manifest.json"


@dataclass(frozen=True)
class Manifest:
    """Facts about a checkpoint that has been written.

    Attributes:
        digest: SHA-256 of `manifest.json`, and through it of everything in the folder.
        bytes: size of all files.
        facts: what was saved beside the arrays.
    """

    digest: str
    bytes: int
    facts: Mapping[str, Any]


def save(folder: Path, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> Manifest:
    """Write a checkpoint; a checkpoint that is in `folder` is replaced once the new one is whole.

    Args:
        folder: the folder of the checkpoint; parents are created.
        arrays: by name, of plain number types.
        facts: JSON values.

    Raises:
        OSError: the disk is full or fails; `folder` is then as it was.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    stage = _hidden_beside(folder)
    stage.mkdir()
    try:
        manifest = _write(stage, arrays, facts)
        _publish(stage, folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return manifest


def load(folder: Path, digest: str | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read a checkpoint's arrays and facts, having compared every byte with the manifest.

    Args:
        folder: the folder of the checkpoint.
        digest: of its manifest, if it is known: without it, a changed fact may go unnoticed.

    Raises:
        DamagedCheckpoint: a file is missing, or has another size or digest than the manifest says; names it.
    """
    document = _manifest(folder, digest)
    contents = {name: _verified(folder / name, **claim) for name, claim in document["files"].items()}
    with np.load(io.BytesIO(contents[ARRAYS]), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}, document["facts"]


def _write(stage: Path, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> Manifest:
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **dict(arrays))
    content = packed.getvalue()
    _flushed(stage / ARRAYS, content)
    claim = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    text = json.dumps({"files": {ARRAYS: claim}, "facts": dict(facts)}, indent=1, sort_keys=True).encode()
    _flushed(stage / MANIFEST, text)
    _flush_folder(stage)
    return Manifest(hashlib.sha256(text).hexdigest(), len(content) + len(text), dict(facts))


def _publish(stage: Path, folder: Path) -> None:
    """Give a whole stage its name; a folder cannot be replaced unless empty, so an old one steps aside."""
    with _stepped_aside(folder):
        stage.replace(folder)
    _flush_folder(folder.parent)


@contextmanager
def _stepped_aside(folder: Path) -> Iterator[None]:
    """Move a folder aside; restore it if the body fails, else remove it."""
    if not folder.exists():
        yield
        return
    aside = _hidden_beside(folder)
    folder.replace(aside)
    try:
        yield
    except BaseException:
        aside.replace(folder)
        raise
    shutil.rmtree(aside)


def _hidden_beside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")


def _flushed(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    """Make a folder's entries durable: `os.replace` alone survives a dead process, not a dead machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _manifest(folder: Path, digest: str | None) -> dict[str, Any]:
    path = folder / MANIFEST
    content = _read(path)
    if digest is not None and (actual := hashlib.sha256(content).hexdigest()) != digest:
        raise _damaged(path, f"must have SHA-256 {digest[:12]}...", f"{actual[:12]}...")
    try:
        document = json.loads(content)
        claims = document["files"][ARRAYS]
        whole = set(claims) == {"bytes", "sha256"} and isinstance(document["facts"], dict)
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, "must be a checkpoint's manifest", f"an unreadable file ({error!r})") from error
    if not whole:
        raise _damaged(path, "must give sizes, digests and facts", f"{claims}")
    return document


def _verified(path: Path, *, bytes: int, sha256: str) -> bytes:
    content = _read(path)
    if len(content) != bytes:
        raise _damaged(path, f"must have {bytes} bytes", str(len(content)))
    if (digest := hashlib.sha256(content).hexdigest()) != sha256:
        raise _damaged(path, f"must have SHA-256 {sha256[:12]}...", f"{digest[:12]}...")
    return content


def _read(path: Path) -> bytes:
    if path.is_symlink() or path.parent.is_symlink():
        raise _damaged(path, "must lie in its own folder", "a symbolic link")
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _damaged(path, "must exist", "no such file") from error


def _damaged(path: Path, must: str, got: str) -> DamagedCheckpoint:
    return DamagedCheckpoint(
        str(path), must, got, "Use the checkpoint before it; this one was not written whole."
    )
