"""The cache builds an entry once, detects damage, and lets two processes share one build."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.programs import program
from trainables.data.cache import Cache, Writer, fingerprint
from trainables.errors import Refusal


class Builds:
    """A builder that counts its calls."""

    def __init__(self, value: int = 7) -> None:
        self.calls, self.value = 0, value

    def __call__(self, out: Writer) -> dict[str, Any]:
        self.calls += 1
        out.put("a", np.arange(1000) + self.value)
        out.array("b", (3, 2), np.uint8)[1] = 5
        return {"fact": [1, 2]}


def cache(root: Path, build: Callable[[Writer], dict[str, Any]], **key: Any) -> Cache:
    return Cache(root, "toy", key, build, lambda what, done, total: None)


def entry(root: Path) -> Path:
    (entry,) = (path for path in root.iterdir() if path.is_dir())
    return entry


def test_an_entry_is_built_once_and_read_only(tmp_path: Path) -> None:
    build = Builds()
    first, second = cache(tmp_path, build), cache(tmp_path, build)
    a, b = second.arrays(["a", "b"])
    assert build.calls == 1
    assert (a == np.arange(1000) + 7).all()
    assert b.tolist() == [[0, 0], [5, 5], [0, 0]]
    assert isinstance(a, np.memmap)
    assert not a.flags.writeable
    assert second.facts == {"fact": [1, 2]}
    assert first.digest == second.digest


def test_the_key_and_the_content_decide(tmp_path: Path) -> None:
    build = Builds()
    same = cache(tmp_path, build, option=1).digest
    assert cache(tmp_path, build, option=2).digest == same
    assert build.calls == 2
    assert cache(tmp_path, Builds(8), option=3).digest != same


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "a.npy").write_bytes((folder / "a.npy").read_bytes()[:-8]),
        lambda folder: (folder / "a.npy").write_bytes((folder / "a.npy").read_bytes()[:-8] + b"12345678"),
        lambda folder: (folder / "a.npy").unlink(),
        lambda folder: (folder / "manifest.json").unlink(),
        lambda folder: (folder / "manifest.json").write_text("{"),
        lambda folder: (folder / "manifest.json").write_text(
            (folder / "manifest.json").read_text().replace("[", "[0, ", 1)
        ),
    ],
    ids=["truncated", "altered", "missing", "no manifest", "half a manifest", "altered facts"],
)
def test_damage_is_detected_and_the_entry_built_again(tmp_path: Path, damage: Callable[[Path], Any]) -> None:
    build = Builds()
    digest = cache(tmp_path, build).digest
    damage(entry(tmp_path))
    again = cache(tmp_path, build)
    (a,) = again.arrays(["a"])
    assert build.calls == 2
    assert a[0] == 7
    assert again.digest == digest


def test_damage_after_opening_is_detected_when_an_array_is_read(tmp_path: Path) -> None:
    build = Builds()
    opened = cache(tmp_path, build)
    (entry(tmp_path) / "b.npy").write_bytes(b"")
    assert opened.arrays(["a"])[0][0] == 7
    assert build.calls == 1
    assert opened.arrays(["b"])[0][1, 0] == 5
    assert build.calls == 2


@pytest.mark.parametrize("content", [b"", b"no array", None], ids=["empty", "altered", "missing"])
def test_rows_of_a_damaged_array_are_counted_anew(tmp_path: Path, content: bytes | None) -> None:
    """Tasks count the rows of their splits before they open them."""
    build = Builds()
    rows = cache(tmp_path, build).rows("a")
    path = entry(tmp_path) / "a.npy"
    path.unlink() if content is None else path.write_bytes(content)
    assert cache(tmp_path, build).rows("a") == rows
    assert build.calls == 2


def test_a_builder_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fails(out: Writer) -> dict[str, Any]:
        out.put("a", np.ones(5))
        raise RuntimeError("disk on fire")

    with pytest.raises(RuntimeError, match="on fire"):
        cache(tmp_path, fails)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_files_of_a_dead_builder_are_deleted(tmp_path: Path) -> None:
    stage = tmp_path / f"{Path(entry_name(tmp_path)).name}.stage"
    stage.mkdir()
    (stage / "a.npy").write_bytes(b"half")
    assert cache(tmp_path, Builds(), option="x").arrays(["a"])[0][0] == 7
    assert not stage.exists()


def entry_name(root: Path) -> str:
    """Return the folder name of an entry, leaving none behind."""
    cache(root, Builds(), option="x")
    folder = entry(root)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return folder.name


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refusal, match="must be a folder that can be written"):
        cache(tmp_path / "file" / ".cache", Builds())


def _slow_build(out: Writer) -> dict[str, Any]:
    time.sleep(0.5)
    out.put("a", np.full(10, time.time_ns()))
    return {}


def _open(root: Path, answers: multiprocessing.Queue[int]) -> None:
    answers.put(int(cache(root, _slow_build).arrays(["a"])[0][0]))


@pytest.mark.slow
def test_two_processes_share_one_build(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[int] = context.Queue()
    processes = [context.Process(target=_open, args=(tmp_path, answers)) for _ in range(2)]
    for process in processes:
        process.start()
    values = [answers.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    assert values[0] == values[1]


def test_a_fingerprint_follows_names_sizes_and_times(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "x").write_text("one")
    seen = [fingerprint([folder])]
    (folder / "inner" / "x").write_text("three")
    seen.append(fingerprint([folder]))
    (folder / "inner" / "x").rename(folder / "inner" / "y")
    seen.append(fingerprint([folder]))
    (folder / "z").write_text("")
    seen.append(fingerprint([folder]))
    assert len(set(seen)) == 4
    assert fingerprint([folder]) == seen[-1]


def test_a_fingerprint_of_a_file_follows_its_content(tmp_path: Path) -> None:
    """Archives keep old times, so another file of the same size and time must count as another source."""
    file = tmp_path / "x"
    file.write_text("one")
    before, times = fingerprint([file]), file.stat()
    os.utime(file)
    assert fingerprint([file]) == before
    file.write_text("two")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert fingerprint([file]) != before


@pytest.mark.slow
@pytest.mark.parametrize(("last", "code"), [("load()", 1), ("if __name__ == '__main__':\n    load()", 0)])
def test_script_without_main(tmp_path: Path, last: str, code: int) -> None:
    """A script that loads at its top level ends with a reason instead of waiting for itself."""
    script = tmp_path / "script.py"
    script.write_text(program("cached_data") + last)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert ("if __name__ == '__main__':" in done.stderr) == (code == 1)
