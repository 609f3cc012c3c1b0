"""Checkpoints load again exactly, or are refused by the name of the damaged file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainables import checkpoint
from trainables.errors import DamagedCheckpoint

ARRAYS = {"params/head/bias": np.arange(3, dtype=np.float32), "step": np.array(7, np.int32)}
FACTS = {"step": 7, "metrics": {"val/accuracy": 0.5}}


def _saved(folder: Path, **facts: Any) -> checkpoint.Manifest:
    return checkpoint.save(folder, ARRAYS, FACTS | facts)


def _names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


def test_loads_what_was_saved(tmp_path: Path) -> None:
    """Arrays come back with names, shapes, types and bits, facts as they were."""
    manifest = _saved(tmp_path / "deep" / "step-7")
    arrays, facts = checkpoint.load(tmp_path / "deep" / "step-7")
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)
    assert facts == FACTS == manifest.facts
    files = list((tmp_path / "deep" / "step-7").iterdir())
    assert manifest.bytes == sum(file.stat().st_size for file in files)
    assert _names(tmp_path / "deep") == ["step-7"]


def test_equal_content_has_an_equal_digest(tmp_path: Path) -> None:
    """A digest names the content, not the time or place it was written."""
    assert _saved(tmp_path / "a").digest == _saved(tmp_path / "b").digest
    assert _saved(tmp_path / "c", step=8).digest != _saved(tmp_path / "d").digest


def test_saving_again_replaces(tmp_path: Path) -> None:
    """A retried attempt saves over what the one before left, even if that is damaged."""
    _saved(tmp_path / "a")
    (tmp_path / "a" / "arrays.npz").write_bytes(b"")
    _saved(tmp_path / "a", step=8)
    assert checkpoint.load(tmp_path / "a")[1]["step"] == 8
    assert _names(tmp_path) == ["a"]


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
    """Whatever happened to the arrays, their file is named."""
    _saved(tmp_path / "a")
    DAMAGE[damage](tmp_path / "a" / "arrays.npz")
    with pytest.raises(DamagedCheckpoint, match=r"a/arrays\.npz: must"):
        checkpoint.load(tmp_path / "a")


MANIFESTS = (None, "", "[]", "{}", '{"files": {}}', '{"files": {"arrays.npz": {}}, "facts": {}}')


@pytest.mark.parametrize("text", MANIFESTS)
def test_damaged_manifest_is_refused(tmp_path: Path, text: str | None) -> None:
    """A folder without a readable manifest is no checkpoint."""
    _saved(tmp_path / "a")
    manifest = tmp_path / "a" / "manifest.json"
    manifest.unlink() if text is None else manifest.write_text(text)
    with pytest.raises(DamagedCheckpoint, match=r"a/manifest\.json: must"):
        checkpoint.load(tmp_path / "a")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """The manifest's path tells which checkpoint is missing."""
    with pytest.raises(DamagedCheckpoint, match=r"nowhere/manifest\.json: must exist, got no such file"):
        checkpoint.load(tmp_path / "nowhere")


def test_pickles_are_not_written(tmp_path: Path) -> None:
    """An array of objects is refused, and nothing is left behind."""
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        checkpoint.save(tmp_path / "a", {"x": np.array([{}])}, {})
    assert _names(tmp_path) == []


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("call", range(1, 8))
def test_old_or_new_whatever_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int, existing: bool
) -> None:
    """If the n-th flush or rename fails, the folder holds the old checkpoint or the new one, whole."""
    folder = tmp_path / "a"
    if existing:
        _saved(folder, step=1)
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
            _saved(folder, step=2)
            failed = False
        except OSError:
            failed = True
    assert failed == (calls >= call)
    if folder.exists():
        assert checkpoint.load(folder)[1]["step"] in ((1, 2) if failed and existing else (2,))
    else:
        assert failed
        assert not existing


def test_the_manifest_is_json_with_sizes_and_digests(tmp_path: Path) -> None:
    """A manifest holds what another program needs to verify the files."""
    _saved(tmp_path / "a")
    document = json.loads((tmp_path / "a" / "manifest.json").read_text())
    claim = document["files"]["arrays.npz"]
    assert claim["bytes"] == (tmp_path / "a" / "arrays.npz").stat().st_size
    assert len(claim["sha256"]) == 64
    assert document["facts"] == FACTS


@pytest.mark.parametrize("part", ["arrays.npz", "."])
def test_a_link_is_not_followed(tmp_path: Path, part: str) -> None:
    """What lies elsewhere may be exchanged between the check and the reading."""
    folder = tmp_path / "step-1"
    checkpoint.save(folder, {"w": np.ones(2)}, {})
    moved = tmp_path / "elsewhere"
    (folder / part).resolve().rename(moved)
    (tmp_path / "step-1" / part if part != "." else folder).symlink_to(moved)
    with pytest.raises(DamagedCheckpoint, match="symbolic link"):
        checkpoint.load(folder)


def test_a_changed_fact_is_refused_by_the_digest(tmp_path: Path) -> None:
    """The arrays are as the manifest says; only its digest reveals that it names another step."""
    saved = _saved(tmp_path / "a")
    manifest = tmp_path / "a" / checkpoint.MANIFEST
    assert checkpoint.load(tmp_path / "a", saved.digest)[1]["step"] == 7
    manifest.write_text(manifest.read_text().replace('"step": 7', '"step": 3'))
    assert checkpoint.load(tmp_path / "a")[1]["step"] == 3
    with pytest.raises(DamagedCheckpoint, match=r"manifest\.json: must have SHA-256"):
        checkpoint.load(tmp_path / "a", saved.digest)
