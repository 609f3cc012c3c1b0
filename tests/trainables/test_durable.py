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
    assert {tmp_path.name, "sweep"} <= set(flushed)
    (tmp_path / "sweep" / "trial" / "checkpoint").mkdir()
    flushed.clear()
    make_folder(tmp_path / "sweep" / "trial")
    assert flushed == [], "what is in the folder came after its name was flushed"


@pytest.mark.parametrize("second", ["sweep/trial-0", "sweep/trial-1"])
def test_the_names_of_folders_that_another_process_has_just_made_are_flushed_too(
    tmp_path: Path, flushed: list[str], monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    """It may not have flushed them yet: with the power they would be lost, and all that is in them."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        with pytest.raises(InterruptedError):
            make_folder(tmp_path / "sweep" / "trial-0")
    make_folder(tmp_path / second)
    assert {tmp_path.name, "sweep"} <= set(flushed)


def interrupted(descriptor: int) -> None:
    raise InterruptedError(f"before descriptor {descriptor} was flushed")


def test_a_file_is_flushed_before_it_gets_its_name(tmp_path: Path, flushed: list[str]) -> None:
    file = tmp_path / "ledger.id"
    file.write_bytes(b"old")
    replace_file(file, b"new")
    assert flushed == ["ledger.new", tmp_path.name]
    assert file.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.id"]
