"""The digest of a trainable's code: what changes it, and what does not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from trainables import sources
from trainables.sources import digest_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a script, a neighbour, a compiled program, and much that is no code."""
    files = {
        "train.py": "RATE = 1",
        "parts/layer.py": "WIDTH = 2",
        "walk": "\x7fELF",
        "notes.txt": "",
        "data/prepare.py": "",
        "mlruns/saved.py": "",
        ".git/hook.py": "",
        "own/pyvenv.cfg": "",
        "own/lib/module.py": "",
        "exports/digits-0a1b2c3d-7/trial.json": "",
        "exports/digits-0a1b2c3d-7/run.sh": "",
        "exports/digits-0a1b2c3d-7/code/train.py": "",
    }
    for name, text in files.items():
        (tmp_path / "code" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "code" / name).write_text(text)
    return tmp_path / "code"


@pytest.mark.parametrize("target", ["train.py:train", "parts.layer:build", ("python", "train.py", "{rate}")])
def test_the_code_decides_and_nothing_else(folder: Path, target: str | tuple[str, ...]) -> None:
    before = digest_of(target, folder)
    shutil.copytree(folder, folder.parent / "copy")
    assert digest_of(target, folder.parent / "copy") == before
    no_code = ("notes.txt", "data/prepare.py", "mlruns/saved.py", ".git/hook.py", "own/lib/module.py")
    for name in (*no_code, "exports/digits-0a1b2c3d-7/code/train.py"):
        (folder / name).write_text("changed")
    assert digest_of(target, folder) == before
    for name in ("train.py", "parts/layer.py"):
        kept = (folder / name).read_text()
        (folder / name).write_text("changed")
        assert digest_of(target, folder) != before
        (folder / name).write_text(kept)
    (folder / "parts" / "more.py").touch()
    assert digest_of(target, folder) != before


def test_a_program_that_a_command_names_counts(folder: Path) -> None:
    before = digest_of(("./walk", "{rate}"), folder)
    (folder / "walk").write_text("changed")
    assert digest_of(("./walk", "{rate}"), folder) != before


def test_of_an_installed_package_its_own_files_count(tmp_path: Path) -> None:
    assert digest_of("json:loads", tmp_path) == digest_of("json.decoder:JSONDecoder", tmp_path)
    assert digest_of("json:loads", tmp_path) != digest_of("no_such_package:f", tmp_path)


def test_a_large_folder_is_not_read_to_its_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST", 3)
    for number in range(9):
        (folder / f"folder-{number}").mkdir()
        (folder / f"folder-{number}" / "a.py").touch()
    before = digest_of("train.py:train", folder)
    (folder / "folder-8" / "a.py").write_text("changed")
    assert digest_of("train.py:train", folder) == before


def test_what_is_too_large_for_code_or_no_file_is_not_read(folder: Path) -> None:
    """A member's folder may hold a pipe, or a hole of any size; a command may name a large data set."""
    target = ("python", "train.py", "numbers")
    os.mkfifo(folder / "pipe.py")
    with (folder / "numbers").open("wb") as file:
        file.truncate(1 << 40)
    before = digest_of(target, folder)
    with (folder / "numbers").open("r+b") as file:
        file.truncate((1 << 40) + 1)
    assert digest_of(target, folder) != before
