"""Files and folders that survive a loss of power are flushed with their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainables.durable import make_folder, replace_file


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the files and folders that are flushed, in order."""
    names: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return names


def test_the_name_of_each_new_folder_is_flushed(tmp_path: Path, flushed: list[str]) -> None:
    make_folder(tmp_path / "sweep" / "trial")
    assert sorted(flushed) == sorted([tmp_path.name, "sweep"])
    make_folder(tmp_path / "sweep" / "trial")
    assert len(flushed) == 2


def test_a_file_is_flushed_before_it_gets_its_name(tmp_path: Path, flushed: list[str]) -> None:
    file = tmp_path / "ledger.id"
    file.write_bytes(b"old")
    replace_file(file, b"new")
    assert flushed == ["ledger.new", tmp_path.name]
    assert file.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.id"]
