"""Checkpoints load again exactly, or are refused by the name of the damaged file."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainables import checkpoint
from trainables.errors import DamagedCheckpoint

ARRAYS = {"params/head/bias": np.arange(3, dtype=np.float32), "step": np.array(7, np.int32)}
FACTS = {"step": 7, "metrics": {"val/accuracy": 0.5}}


def _saved(stem: Path, **facts: Any) -> checkpoint.Saved:
    return checkpoint.save(stem, ARRAYS, FACTS | facts)


def _names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_loads_what_was_saved(tmp_path: Path) -> None:
    """Arrays keep names, shapes, types and bits, and facts are unchanged."""
    saved = _saved(tmp_path / "deep" / "step-7")
    arrays, facts = checkpoint.load(saved.folder, saved.digest)
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)
    assert facts == FACTS
    assert saved.bytes == sum(file.stat().st_size for file in saved.folder.iterdir())
    assert _names(tmp_path / "deep") == [saved.folder.name]


def test_equal_content_has_an_equal_digest(tmp_path: Path) -> None:
    """A digest depends on the content, not on the time or the folder of its writing."""
    assert _saved(tmp_path / "a").digest == _saved(tmp_path / "b").digest
    assert _saved(tmp_path / "c", step=8).digest != _saved(tmp_path / "d").digest


def test_a_name_ends_in_the_digest_so_no_other_content_takes_its_place(tmp_path: Path) -> None:
    """Two writers of one stem leave two checkpoints, both whole."""
    first, second = _saved(tmp_path / "a"), _saved(tmp_path / "a", step=8)
    assert first.folder.name == f"a-{first.digest[:12]}"
    assert checkpoint.load(first.folder, first.digest)[1]["step"] == 7
    assert checkpoint.load(second.folder, second.digest)[1]["step"] == 8


def test_the_same_content_replaces_a_damaged_one(tmp_path: Path) -> None:
    damaged = _saved(tmp_path / "a")
    (damaged.folder / "arrays.npz").write_bytes(b"")
    assert _saved(tmp_path / "a") == damaged
    assert checkpoint.load(damaged.folder, damaged.digest)[1]["step"] == 7
    assert _names(tmp_path) == [damaged.folder.name]


def test_a_prepared_stage_becomes_the_checkpoint(tmp_path: Path) -> None:
    stage = checkpoint.prepare(tmp_path / "trial")
    prepared = stage.stat().st_ino
    saved = checkpoint.save(tmp_path / "trial" / "a", ARRAYS, FACTS, stage)
    assert saved.folder.stat().st_ino == prepared
    assert _names(tmp_path / "trial") == [saved.folder.name]
    assert checkpoint.load(saved.folder, saved.digest)[1] == FACTS
    assert saved.digest == _saved(tmp_path / "b").digest


def test_no_stage_is_left_when_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "touch", fail)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.prepare(tmp_path / "trial")
    assert not _names(tmp_path / "trial")


def test_a_copy_is_whole_under_its_own_name_and_says_whose_it_is_and_was(tmp_path: Path) -> None:
    saved = _saved(tmp_path / "a")
    arrays, before = checkpoint.load(saved.folder, saved.digest)
    first = checkpoint.copy(saved.folder, tmp_path / "deep" / "b", saved.digest, "s-1")
    assert first.folder.name == f"b-{first.digest[:12]}" != f"b-{saved.digest[:12]}"
    assert checkpoint.is_whole(first.folder, first.digest)
    assert _names(first.folder.parent) == [first.folder.name]
    assert sum(file.stat().st_size for file in first.folder.iterdir()) == first.bytes
    second = checkpoint.copy(first.folder, tmp_path / "c", first.digest, "s-2")
    copied, after = checkpoint.load(second.folder, second.digest)
    assert {name: array.tobytes() for name, array in copied.items()} == {
        name: array.tobytes() for name, array in arrays.items()
    }
    assert after == {**before, "trial": "s-2", "copied_from": "s-1"}
    checkpoint.check_trial(second.folder, after, "s-2")
    with pytest.raises(DamagedCheckpoint, match=r"must be a checkpoint of s-1 \(got one of s-2 at step"):
        checkpoint.check_trial(second.folder, after, "s-1")


def test_a_checkpoint_of_another_step_is_refused(tmp_path: Path) -> None:
    facts = {"trial": "s-1", "step": 10}
    checkpoint.check_trial(tmp_path, facts, "s-1", 10)
    with pytest.raises(DamagedCheckpoint, match=r"of s-1 at step 20 \(got one of s-1 at step 10\)"):
        checkpoint.check_trial(tmp_path, facts, "s-1", 20)


def test_a_damaged_checkpoint_is_not_copied(tmp_path: Path) -> None:
    saved = _saved(tmp_path / "a")
    _flip(saved.folder / "arrays.npz")
    with pytest.raises(DamagedCheckpoint, match="arrays"):
        checkpoint.copy(saved.folder, tmp_path / "b", saved.digest, "s-1")
    assert _names(tmp_path) == [saved.folder.name]


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "one bit": _flip,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_arrays_are_refused(tmp_path: Path, damage: str) -> None:
    """The refusal names the file of the arrays."""
    saved = _saved(tmp_path / "a")
    DAMAGE[damage](saved.folder / "arrays.npz")
    with pytest.raises(DamagedCheckpoint, match=r"/arrays\.npz (must have|does not exist)"):
        checkpoint.load(saved.folder, saved.digest)


MANIFESTS = (None, "", "[]", "{}", '{"files": {}}', '{"files": {"arrays.npz": {}}, "facts": {}}')


@pytest.mark.parametrize("text", MANIFESTS)
def test_damaged_manifest_is_refused(tmp_path: Path, text: str | None) -> None:
    """A folder without a readable manifest is refused, even if the manifest is the recorded one."""
    saved = _saved(tmp_path / "a")
    manifest = saved.folder / "manifest.json"
    manifest.unlink() if text is None else manifest.write_text(text)
    for digest in (saved.digest, hashlib.sha256((text or "").encode()).hexdigest()):
        with pytest.raises(DamagedCheckpoint, match=r"/manifest\.json (must|does not exist)"):
            checkpoint.load(saved.folder, digest)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    """The path of the manifest names the missing checkpoint."""
    with pytest.raises(DamagedCheckpoint, match=r"nowhere/manifest\.json does not exist"):
        checkpoint.load(tmp_path / "nowhere", "0" * 64)


def test_pickles_are_not_written(tmp_path: Path) -> None:
    """An array of objects is refused, and nothing is left behind."""
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        checkpoint.save(tmp_path / "a", {"x": np.array([{}])}, {})
    assert _names(tmp_path) == []


@pytest.mark.parametrize("call", range(1, 8))
def test_whole_or_absent_whatever_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """If the n-th flush or rename fails, a checkpoint is whole or absent, and the previous one is whole."""
    before = _saved(tmp_path / "a", step=1)
    calls = 0

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == call:
                raise OSError(28, "No space left on device")
            return real(*arguments)

        return wrapped

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(os.fsync))
        patch.setattr(Path, "replace", failing(Path.replace))
        try:
            _saved(tmp_path / "b", step=2)
            failed = False
        except OSError:
            failed = True
    assert failed == (calls >= call)
    digest = _saved(tmp_path / "elsewhere" / "b", step=2).digest
    written = checkpoint.named(tmp_path / "b", digest)
    assert checkpoint.is_whole(before.folder, before.digest)
    assert checkpoint.is_whole(written, digest) if written.exists() else failed


def test_the_manifest_is_json_with_sizes_and_digests(tmp_path: Path) -> None:
    """A manifest holds the sizes and digests by which another program can verify the files."""
    folder = _saved(tmp_path / "a").folder
    document = json.loads((folder / "manifest.json").read_text())
    claim = document["files"]["arrays.npz"]
    assert claim["bytes"] == (folder / "arrays.npz").stat().st_size
    assert len(claim["sha256"]) == 64
    assert document["facts"] == FACTS


@pytest.mark.parametrize("part", ["arrays.npz", "."])
def test_a_link_is_not_followed(tmp_path: Path, part: str) -> None:
    """The target of a link could be replaced between the check and the reading."""
    saved = checkpoint.save(tmp_path / "step-1", {"w": np.ones(2)}, {})
    moved = tmp_path / "elsewhere"
    (saved.folder / part).resolve().rename(moved)
    (saved.folder / part if part != "." else saved.folder).symlink_to(moved)
    with pytest.raises(DamagedCheckpoint, match="symbolic link"):
        checkpoint.load(saved.folder, saved.digest)


def test_a_changed_fact_is_refused_by_the_digest(tmp_path: Path) -> None:
    """The arrays are as the manifest says; only its own digest shows that it names another step."""
    saved = _saved(tmp_path / "a")
    manifest = saved.folder / checkpoint.MANIFEST
    manifest.write_text(manifest.read_text().replace('"step": 7', '"step": 3'))
    with pytest.raises(DamagedCheckpoint, match=r"manifest\.json must have SHA-256"):
        checkpoint.load(saved.folder, saved.digest)


# ------------------------------------------------------------------ files


def _packed(folder: Path, **members: bytes) -> checkpoint.Saved:
    """Save a checkpoint of files, and then rename them in its archive, with all digests right."""
    with checkpoint.packing(folder / "step-1") as packing:
        for name in members:
            content = folder / name
            content.write_bytes(members[name])
            with content.open("rb") as file:
                packing.add(name, file, os.fstat(file.fileno()))
        return packing.save({"step": 1})


def _with_archive(saved: checkpoint.Saved, content: bytes) -> str:
    """Replace the archive of a checkpoint and its manifest; return the digest of the new one."""
    (saved.folder / "arrays.npz").write_bytes(content)
    document = json.loads((saved.folder / "manifest.json").read_bytes())
    document["files"]["arrays.npz"] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    text = json.dumps(document, sort_keys=True).encode()
    (saved.folder / "manifest.json").write_bytes(text)
    return hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize(
    ("name", "compression", "must"),
    [
        ("../out.npy", zipfile.ZIP_STORED, "must hold files of one folder"),
        ("a/../../out.npy", zipfile.ZIP_STORED, "must hold files of one folder"),
        ("/tmp/out.npy", zipfile.ZIP_STORED, "must hold files of one folder"),
        (f"//bytes/{b'../out'.hex()}.npy", zipfile.ZIP_STORED, "must hold files of one folder"),
        ("bomb.npy", zipfile.ZIP_DEFLATED, "must not be compressed"),
    ],
)
def test_no_file_of_a_checkpoint_leads_out_of_its_folder(
    tmp_path: Path, name: str, compression: int, must: str
) -> None:
    """And none takes more than the archive: it may be what a hostile owner of the disk has made."""
    saved = _packed(tmp_path, state=b"content")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        content = io.BytesIO()
        np.save(content, np.zeros(1 << 20, np.uint8))
        archive.writestr(name, content.getvalue())
    digest = _with_archive(saved, packed.getvalue())
    with pytest.raises(DamagedCheckpoint, match=must):
        checkpoint.extract(saved.folder, digest, tmp_path / "below" / "target")
    assert not list(tmp_path.rglob("out*"))


def test_files_are_loaded_and_extracted_by_their_own_names(tmp_path: Path) -> None:
    names = {"state": b"1", "state.npy": b"2", "state.npy.npy": b"3", "file": b"4"}
    saved = _packed(tmp_path, **names)
    arrays, _ = checkpoint.load(saved.folder, saved.digest)
    assert {name: array.tobytes() for name, array in arrays.items()} == names
    checkpoint.extract(saved.folder, saved.digest, tmp_path / "target")
    assert {file.name: file.read_bytes() for file in (tmp_path / "target").iterdir()} == names
    copied = checkpoint.copy(saved.folder, tmp_path / "copy" / "step-1", saved.digest, "s-2")
    assert checkpoint.is_whole(copied.folder, copied.digest)
    assert copied.bytes == sum(file.stat().st_size for file in copied.folder.iterdir())


def test_a_checkpoint_of_files_that_is_not_completed_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with checkpoint.packing(tmp_path / "kept" / "step-1"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list((tmp_path / "kept").iterdir())
