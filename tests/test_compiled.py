"""The kept programs of tests: one folder for each compiler, without incomplete and old entries."""

from __future__ import annotations

import os
import time
import zlib
from pathlib import Path

from tests import compiled

PROGRAM = zlib.compress(b"program" * 1000)


def entry(folder: Path, name: str, content: bytes, *, age: float) -> Path:
    path = folder / name
    path.write_bytes(content)
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_other_flags_have_another_folder(tmp_path: Path) -> None:
    one = compiled.folder("--a", tmp_path)
    assert one.is_dir()
    assert one == compiled.folder("--a", tmp_path)
    assert one != compiled.folder("--b", tmp_path)


def test_an_entry_whose_writer_was_killed_is_deleted(tmp_path: Path) -> None:
    """One that may still be being written is kept, and checked by the next run."""
    folder = compiled.folder("", tmp_path)
    whole = entry(folder, "whole", PROGRAM, age=300)
    partly = entry(folder, "partly", PROGRAM[:-5], age=300)
    recent = entry(folder, "recent", PROGRAM[:-5], age=1)
    compiled.clean(folder)
    assert (whole.exists(), partly.exists(), recent.exists()) == (True, False, True)
    until = (folder / ".checked").stat().st_mtime
    assert until < recent.stat().st_mtime, "the next run checks it"


def test_the_entries_that_were_used_least_recently_are_deleted_first(tmp_path: Path) -> None:
    folder = compiled.folder("", tmp_path)
    ages = [400, 100, 300, 200]
    paths = [entry(folder, f"{age}", zlib.compress(os.urandom(2**19)), age=age) for age in ages]
    compiled.clean(folder, mebibytes=1.2)
    assert [path.exists() for path in paths] == [False, True, False, True]


def test_programs_of_another_compiler_are_deleted_once_they_are_old(tmp_path: Path) -> None:
    folder, recent, old = (compiled.folder(flags, tmp_path) for flags in ("", "--recent", "--old"))
    entry(old, "program", PROGRAM, age=300)
    past = time.time() - (compiled.DAYS + 1) * 86_400
    os.utime(old, (past, past))
    compiled.clean(folder)
    assert recent.exists()
    assert not old.exists()
