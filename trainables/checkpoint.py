"""Checkpoints on disk: arrays without pickle, beside a manifest that is written last and checked first.

    <stem>-<digest>/arrays.npz       the arrays by name
    <stem>-<digest>/manifest.json    {"files": {"arrays.npz": {"bytes": ..., "sha256": ...}}, "facts": {...}}

The name of the folder ends with the first digits of the manifest's SHA-256, so checkpoints with different
content never overwrite each other. A checkpoint is written to a hidden folder, flushed to disk, and then
renamed with one `os.replace`. After a crash, either the whole checkpoint exists or none of it.

The files that a function or a command saves are arrays of bytes in the same archive, written and read in
pieces. The facts hold the times and modes of these files and their folders.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import numpy as np

from trainables.durable import DIGITS, flush_folder, make_folder
from trainables.errors import DamagedCheckpoint

ARRAYS, MANIFEST = "arrays.npz", "manifest.json"

ATTRIBUTES = "attributes"
"""Name of the fact that holds the mode and the time of each file and folder, by path."""

PIECE = 1 << 20
"""Bytes of a file that are in memory at once."""

_BYTES = "//bytes/"
"""Prefix of the names, in hexadecimal, of files whose own names are not valid text."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was written.

    Attributes:
        folder: Folder of the checkpoint.
        digest: SHA-256 of `manifest.json`, and through it of everything in the folder.
        bytes: Size of all files.
    """

    folder: Path
    digest: str
    bytes: int


def prepare(folder: Path) -> Path:
    """Create the hidden folder of a checkpoint in advance; return it for `save`.

    On a large disk this takes as long as writing and flushing a small checkpoint. An unused folder must be
    deleted.

    Raises:
        OSError: The disk is full or fails; no folder is left then.
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
        stem: Its folder without the digest; parents are created.
        arrays: Arrays by name, of plain number types.
        facts: JSON values. Without times, the same state always has the same digest.
        prepared: Stage of `prepare`, which is used up; None to create one.

    Raises:
        OSError: The disk is full or fails; no folder of that name exists then, unless it was there before.
    """
    with stage_beside(stem, prepared) as stage:
        digest, size = _write(stage, arrays, facts)
        folder = named(stem, digest)
        publish(stage, folder, digest)
    return Saved(folder, digest, size)


@contextmanager
def packing(stem: Path, prepared: Path | None = None) -> Iterator[Packing]:
    """Begin a checkpoint of files, which is deleted unless `Packing.save` completes it; see `save`."""
    with stage_beside(stem, prepared) as stage, (stage / ARRAYS).open("wb") as file:
        packing = Packing(stem, stage, file)
        try:
            yield packing
        finally:
            with suppress(OSError):  # a full disk has been reported
                packing.close()


class Changed(Exception):
    """A file has become shorter while it was copied."""


class Packing:
    """A checkpoint of files that is being written.

    Args:
        stem: Stem of its folder.
        stage: Stage in which it is written.
        file: Archive there.
    """

    def __init__(self, stem: Path, stage: Path, file: BinaryIO) -> None:
        self._stem, self._stage, self._file = stem, stage, _Hashed(file)
        self._archive = zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED)  # type: ignore[call-overload]
        self._attributes: dict[str, dict[str, tuple[int, int]]] = {"files": {}, "folders": {}}

    def add_folder(self, name: str, facts: os.stat_result) -> None:
        """Record the mode and the time of a folder."""
        self._attributes["folders"][name] = (stat.S_IMODE(facts.st_mode) & 0o777, facts.st_mtime_ns)

    def add(self, name: str, file: BinaryIO, facts: os.stat_result) -> None:
        """Copy a file in pieces, up to the size that it has at the start.

        Raises:
            Changed: The file has become shorter during the copy.
        """
        header = {"descr": "|u1", "fortran_order": False, "shape": (facts.st_size,)}
        left = facts.st_size
        with self._archive.open(zipfile.ZipInfo(f"{_member(name)}.npy"), "w", force_zip64=True) as out:
            np.lib.format.write_array_header_1_0(out, header)
            while left and (piece := file.read(min(PIECE, left))):
                out.write(piece)
                left -= len(piece)
        if left:
            raise Changed(f"{name}: {facts.st_size - left} bytes, of {facts.st_size} when it was opened")
        self._attributes["files"][name] = (stat.S_IMODE(facts.st_mode) & 0o777, facts.st_mtime_ns)

    def close(self) -> None:
        """Write the end of the archive, once."""
        self._archive.close()

    def save(self, facts: Mapping[str, Any]) -> Saved:
        """Complete the checkpoint; see `save`."""
        self.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        claim = {"bytes": self._file.bytes, "sha256": self._file.sha256.hexdigest()}
        text = _text({"files": {ARRAYS: claim}, "facts": {**facts, ATTRIBUTES: self._attributes}})
        _write_flushed(self._stage, {MANIFEST: text})
        digest = hashlib.sha256(text).hexdigest()
        folder = named(self._stem, digest)
        publish(self._stage, folder, digest)
        return Saved(folder, digest, self._file.bytes + len(text))


class _Hashed:
    """A file that is written sequentially and hashed at the same time."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.sha256, self.bytes = file, hashlib.sha256(), 0
        self.flush, self.fileno = file.flush, file.fileno

    def write(self, piece: bytes) -> int:
        self.sha256.update(piece)
        self.bytes += len(piece)
        return self._file.write(piece)


def _member(name: str) -> str:
    """Return the name of a file in an archive, without `.npy`."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return _BYTES + os.fsencode(name).hex()
    return name


def _name(member: str) -> str:
    name = member.removesuffix(".npy")
    return os.fsdecode(bytes.fromhex(name.removeprefix(_BYTES))) if name.startswith(_BYTES) else name


def extract(folder: Path, digest: str, target: Path) -> dict[str, Any]:
    """Write the files of a checkpoint to a folder, in pieces, with their times and modes; return its facts.

    Args:
        folder: Folder of the checkpoint.
        digest: SHA-256 of its manifest, as the ledger records it.
        target: Folder of the files, created if necessary. No file is written outside it.

    Raises:
        DamagedCheckpoint: A file was changed, or the checkpoint does not hold files.
    """
    document = _manifest(folder / MANIFEST, _read(folder / MANIFEST), digest)
    facts: dict[str, Any] = document["facts"]
    attributes = facts.get(ATTRIBUTES, {"files": {}, "folders": {}})
    with _verified(folder / ARRAYS, **document["files"][ARRAYS]) as file, zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            path = _inside(target, name := _name(info.filename), folder)
            if info.compress_type != zipfile.ZIP_STORED:
                raise _damaged(folder / ARRAYS, "must not be compressed", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(info) as source, path.open("wb") as out:
                np.lib.format.read_magic(source)
                np.lib.format.read_array_header_1_0(source)
                shutil.copyfileobj(source, out, PIECE)
            _set_attributes(path, attributes["files"].get(name))
    target.mkdir(parents=True, exist_ok=True)
    for name in attributes["folders"]:
        _inside(target, name, folder).mkdir(parents=True, exist_ok=True)
    for name, known in sorted(attributes["folders"].items(), reverse=True):
        # The account that gets the files must be able to remove them.
        _set_attributes(target / name, (known[0] | stat.S_IRWXU, known[1]))
    return facts


def _inside(target: Path, name: str, folder: Path) -> Path:
    if ".." in PurePosixPath(name).parts or PurePosixPath(name).is_absolute():
        raise _damaged(folder / ARRAYS, "must hold files of one folder", repr(name))
    return target / name


def _set_attributes(path: Path, known: tuple[int, int] | None) -> None:
    """Set the mode and the time of a file, if they were recorded."""
    if known is not None:
        path.chmod(known[0])
        os.utime(path, ns=(known[1], known[1]))


def copy(source: Path, stem: Path, digest: str, trial: str) -> Saved:
    """Copy a checkpoint to the folder `<stem>-<digest>` of another trial.

    Raises:
        DamagedCheckpoint: The source is not the checkpoint whose manifest has this SHA-256.
        OSError: The disk is full or fails; no folder of that name exists then, unless it was there before.
    """
    content = _read(source / MANIFEST)
    claims = _manifest(source / MANIFEST, content, digest)["files"]
    manifest = handed_over(source, content, digest, trial)
    own = hashlib.sha256(manifest).hexdigest()
    with stage_beside(stem) as stage:
        for name, claim in claims.items():
            with _verified(source / name, **claim) as file, (stage / name).open("wb") as out:
                shutil.copyfileobj(file, out, PIECE)
                out.flush()
                os.fsync(out.fileno())
        _write_flushed(stage, {MANIFEST: manifest})
        folder = named(stem, own)
        publish(stage, folder, own)
    return Saved(folder, own, len(manifest) + sum(claim["bytes"] for claim in claims.values()))


def handed_over(source: Path, manifest: bytes, digest: str, trial: str) -> bytes:
    """Return the manifest of a copy for another trial, which names both trials.

    Args:
        source: Folder of the checkpoint.
        manifest: Manifest of the checkpoint.
        digest: SHA-256 of the manifest, as the ledger records it.
        trial: Key of the trial that gets the copy.

    Raises:
        DamagedCheckpoint: The manifest is another one.
    """
    document = _manifest(source / MANIFEST, manifest, digest)
    facts = {**document["facts"], "trial": trial, "copied_from": document["facts"].get("trial")}
    return _text({**document, "facts": facts})


def named(stem: Path, digest: str) -> Path:
    """Return the folder of a checkpoint: its stem, and the first digits of its manifest's SHA-256."""
    return stem.with_name(f"{stem.name}-{digest[:DIGITS]}")


def load(folder: Path, digest: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read the arrays and the facts of a checkpoint, after verifying every byte.

    Args:
        folder: Folder of the checkpoint.
        digest: SHA-256 of its manifest, as the ledger records it.

    Raises:
        DamagedCheckpoint: A file is missing or was changed.
    """
    document = _manifest(folder / MANIFEST, _read(folder / MANIFEST), digest)
    with _verified(folder / ARRAYS, **document["files"][ARRAYS]) as file:
        stored = np.load(file, allow_pickle=False)
        # By the whole name: NumPy takes `a.npy` for `a` if there is one.
        return {_name(f"{name}.npy"): stored[f"{name}.npy"] for name in stored.files}, document["facts"]


def facts_of(folder: Path, digest: str) -> dict[str, Any]:
    """Return the facts of a checkpoint, after verifying every byte; see `load`."""
    document = _manifest(folder / MANIFEST, _read(folder / MANIFEST), digest)
    for name, claim in document["files"].items():
        with _verified(folder / name, **claim):
            pass
    facts: dict[str, Any] = document["facts"]
    return facts


def check_trial(folder: Path, facts: Mapping[str, Any], trial: str, step: int | None = None) -> None:
    """Check that a checkpoint belongs to a trial; the digest proves only that its files are unchanged.

    Args:
        folder: Folder of the checkpoint.
        facts: Facts of its manifest.
        trial: Key of the trial.
        step: Step that it holds; None for any.

    Raises:
        DamagedCheckpoint: The checkpoint belongs to another trial or step.
    """
    if facts.get("trial") != trial or step not in (None, facts.get("step")):
        at = "" if step is None else f" at step {step}"
        got = f"one of {facts.get('trial')} at step {facts.get('step')}"
        remedy = "Train the trial again; this checkpoint is not its own."
        raise DamagedCheckpoint(str(folder), f"must be a checkpoint of {trial}{at}", got, remedy)


def is_whole(folder: Path, digest: str) -> bool:
    """Return True if a folder holds exactly the checkpoint whose manifest has this SHA-256."""
    try:
        facts_of(folder, digest)
    except DamagedCheckpoint:
        return False
    return True


@contextmanager
def stage_beside(folder: Path, prepared: Path | None = None) -> Iterator[Path]:
    """Create a hidden folder beside another one, or use a prepared one; delete it on exit."""
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
    """Rename a complete, flushed folder to that of its checkpoint, unless the checkpoint exists.

    Args:
        stage: Stage on the same file system as `folder`.
        folder: Folder of the checkpoint. A damaged checkpoint in it is replaced.
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


@contextmanager
def _verified(path: Path, *, bytes: int, sha256: str) -> Iterator[BinaryIO]:
    """Open a file, after verifying every byte."""
    _check_place(path)
    try:
        file = path.open("rb")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _damaged(path, "does not exist", "") from error
    with file:
        if (size := os.fstat(file.fileno()).st_size) != bytes:
            raise _damaged(path, f"must have {bytes} bytes", str(size))
        if (digest := hashlib.file_digest(file, "sha256").hexdigest()) != sha256:
            raise _damaged(path, f"must have SHA-256 {sha256[:12]}...", f"{digest[:12]}...")
        file.seek(0)
        yield file


def _check_place(path: Path) -> None:
    if path.is_symlink() or path.parent.is_symlink():
        raise _damaged(path, "must lie in its own folder", "a symbolic link")


def _read(path: Path) -> bytes:
    _check_place(path)
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _damaged(path, "does not exist", "") from error


def _damaged(path: Path, must: str, got: str) -> DamagedCheckpoint:
    return DamagedCheckpoint(
        str(path), must, got, "Use the checkpoint before it; this one is incomplete or damaged."
    )


_EMPTY = 22
"""Size of an archive without files, in bytes."""


def is_empty(folder: Path) -> bool:
    """Return True for a checkpoint without files, which a script may report."""
    try:
        return (folder / ARRAYS).stat().st_size <= _EMPTY
    except OSError:
        return False
