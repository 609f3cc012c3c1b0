"""Checkpoints on disk: arrays without pickle, beside a manifest that is written last and checked first.

    <stem>-<digest>/arrays.npz       the arrays by name
    <stem>-<digest>/manifest.json    {"files": {"arrays.npz": {"bytes": ..., "sha256": ...}}, "facts": {...}}

The folder's name ends in the first digits of the manifest's SHA-256: two checkpoints with different content
never have one name, and none overwrites another. A checkpoint is staged in a hidden folder beside its own and
appears under its name by one `os.replace`, all of it flushed to disk before: a process or a machine that dies
leaves the whole checkpoint or none.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainables.durable import flush_folder, make_folder
from trainables.errors import DamagedCheckpoint

ARRAYS, MANIFEST = "arrays.npz", "manifest.json"

DIGITS = 12
"""Hexadecimal digits of the manifest's digest in the name of a folder."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was written.

    Attributes:
        folder: its folder.
        digest: SHA-256 of `manifest.json`, and through it of everything in the folder.
        bytes: size of all files.
    """

    folder: Path
    digest: str
    bytes: int


def prepare(folder: Path) -> Path:
    """Create the stage of a checkpoint before its content is there; return it for a `save` into the folder.

    On a large disk that takes as long as it takes to write and flush a small checkpoint. A stage that is not
    used must be deleted.

    Raises:
        OSError: if the disk is full or fails; no stage is left then.
    """
    stage = _make_stage(folder, "prepared")
    try:
        for name in (ARRAYS, MANIFEST):
            (stage / name).touch()
    except OSError:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    return stage


def save(
    stem: Path, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any], prepared: Path | None = None
) -> Saved:
    """Write a checkpoint to the folder `<stem>-<digest>`.

    Args:
        stem: its folder without the digest; parents are created.
        arrays: by name, of plain number types.
        facts: JSON values. Without times, the same state always has the same digest.
        prepared: a stage of `prepare`, which is used up; None to create one.

    Raises:
        OSError: if the disk is full or fails; no folder of that name exists then, unless it was there before.
    """
    with stage_beside(stem, prepared) as stage:
        digest, size = _write(stage, arrays, facts)
        folder = named(stem, digest)
        publish(stage, folder, digest)
    return Saved(folder, digest, size)


def copy(source: Path, stem: Path, digest: str, trial: str) -> Saved:
    """Copy a checkpoint to the folder `<stem>-<digest>` of another trial.

    Raises:
        DamagedCheckpoint: the source is not the checkpoint whose manifest has this SHA-256.
        OSError: if the disk is full or fails; no folder of that name exists then, unless it was there before.
    """
    _, contents = _verified_files(source, digest)
    contents[MANIFEST] = handed_over(source, contents[MANIFEST], digest, trial)
    own = hashlib.sha256(contents[MANIFEST]).hexdigest()
    with stage_beside(stem) as stage:
        _write_flushed(stage, contents)
        folder = named(stem, own)
        publish(stage, folder, own)
    return Saved(folder, own, sum(map(len, contents.values())))


def handed_over(source: Path, manifest: bytes, digest: str, trial: str) -> bytes:
    """Return the manifest of a copy for another trial: a checkpoint says whose it is, and whose it was.

    Args:
        source: folder of the checkpoint.
        manifest: of the checkpoint.
        digest: SHA-256 of the manifest, as the ledger records it.
        trial: key of the trial that gets the copy.

    Raises:
        DamagedCheckpoint: the manifest is another one.
    """
    document = _manifest(source / MANIFEST, manifest, digest)
    facts = {**document["facts"], "trial": trial, "copied_from": document["facts"].get("trial")}
    return _text({**document, "facts": facts})


def named(stem: Path, digest: str) -> Path:
    """Return the folder of a checkpoint: its stem, and the first digits of its manifest's SHA-256."""
    return stem.with_name(f"{stem.name}-{digest[:DIGITS]}")


def load(folder: Path, digest: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read a checkpoint's arrays and facts, after comparing every byte with what was written.

    Args:
        folder: of the checkpoint.
        digest: SHA-256 of its manifest, as the ledger records it.

    Raises:
        DamagedCheckpoint: a file is missing, or has another size or digest than was written; names it.
    """
    document, contents = _verified_files(folder, digest)
    with np.load(io.BytesIO(contents[ARRAYS]), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}, document["facts"]


def check_trial(folder: Path, facts: Mapping[str, Any], trial: str, step: int | None = None) -> None:
    """Check that a checkpoint that was read is one of a trial.

    The digest proves that the files are what was recorded; this, that what was recorded is the trial's.

    Args:
        folder: of the checkpoint.
        facts: of its manifest.
        trial: key of the trial.
        step: that it holds; None for any.

    Raises:
        DamagedCheckpoint: it is one of another trial or step.
    """
    if facts.get("trial") != trial or step not in (None, facts.get("step")):
        at = "" if step is None else f" at step {step}"
        got = f"one of {facts.get('trial')} at step {facts.get('step')}"
        remedy = "Train the trial again: what was recorded as its own is another's."
        raise DamagedCheckpoint(str(folder), f"must be a checkpoint of {trial}{at}", got, remedy)


def is_whole(folder: Path, digest: str) -> bool:
    """Return True if a folder holds exactly the checkpoint whose manifest has this SHA-256."""
    try:
        _verified_files(folder, digest)
    except DamagedCheckpoint:
        return False
    return True


@contextmanager
def stage_beside(folder: Path, prepared: Path | None = None) -> Iterator[Path]:
    """Create a hidden folder beside another, or take a prepared one that is there; delete it on exit."""
    stage = prepared or _make_stage(folder.parent, folder.name)
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _make_stage(folder: Path, name: str) -> Path:
    make_folder(folder)
    stage = folder / f".{name}-{uuid.uuid4().hex}"
    stage.mkdir()
    return stage


def publish(stage: Path, folder: Path, digest: str) -> None:
    """Rename a whole, flushed stage to the folder of its checkpoint, unless that checkpoint exists.

    Args:
        stage: on the same file system as `folder`.
        folder: of the checkpoint. A damaged checkpoint in it is replaced.
        digest: SHA-256 of the manifest.
    """
    if not os.path.lexists(folder):
        stage.replace(folder)
    elif not is_whole(folder, digest):
        shutil.rmtree(folder, ignore_errors=True)
        stage.replace(folder)
    flush_folder(folder.parent)


def _write(stage: Path, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> tuple[str, int]:
    """Write and flush both files; return the digest of the manifest and the bytes of both."""
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **dict(arrays))
    content = packed.getvalue()
    claim = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    text = _text({"files": {ARRAYS: claim}, "facts": dict(facts)})
    _write_flushed(stage, {ARRAYS: content, MANIFEST: text})
    return hashlib.sha256(text).hexdigest(), len(content) + len(text)


def _text(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _write_flushed(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a new folder, then flush all of them: the file system commits them together."""
    with ExitStack() as opened:
        files = [opened.enter_context((folder / name).open("wb")) for name in contents]
        for file, content in zip(files, contents.values(), strict=True):
            file.write(content)
            file.flush()
        for file in files:
            os.fsync(file.fileno())
    flush_folder(folder)


def _verified_files(folder: Path, digest: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the manifest of a checkpoint, and the content of all its files by name."""
    content = _read(folder / MANIFEST)
    document = _manifest(folder / MANIFEST, content, digest)
    others = {name: _verified(folder / name, **claim) for name, claim in document["files"].items()}
    return document, {MANIFEST: content, **others}


def _manifest(path: Path, content: bytes, digest: str) -> dict[str, Any]:
    if (actual := hashlib.sha256(content).hexdigest()) != digest:
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
