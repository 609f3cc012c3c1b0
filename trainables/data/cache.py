"""Arrays encoded once and memory-mapped afterwards.

An entry is a folder `<task>-<key>` with one `.npy` file an array and a `manifest.json` that names their sizes
and SHA-256 sums. It is written to a temporary folder and renamed under a lock, so that readers never see an
incomplete entry. Every array is verified when it is opened; a damaged entry is built again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from trainables.errors import Refusal

if TYPE_CHECKING:
    import numpy as np

_MANIFEST = "manifest.json"
_FORMAT = 1


class Writer:
    """Creates the arrays of an entry that is being built."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._arrays: dict[str, np.memmap] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return a new array of zeros, on disk, to be filled in place."""
        import numpy as np  # a tenth of a second, which a process that only reads files need not wait

        assert name not in self._arrays, name
        path = self._folder / f"{name}.npy"
        self._arrays[name] = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
        return self._arrays[name]

    def put(self, name: str, values: np.ndarray) -> None:
        """Write a whole array."""
        self.array(name, values.shape, values.dtype)[...] = values

    def written(self, name: str) -> np.ndarray:
        """Return an array that was created before."""
        return self._arrays[name]

    def close(self) -> dict[str, dict[str, Any]]:
        """Flush the arrays; return the size in bytes and the SHA-256 of each file, by file name."""
        for array in self._arrays.values():
            array.flush()
        names = sorted(f"{name}.npy" for name in self._arrays)
        self._arrays.clear()
        return {name: _measured(self._folder / name) for name in names}


class Cache:
    """One entry of the cache, built when it is missing or damaged.

    Args:
        root: Folder of all entries.
        task: First part of the entry's name.
        key: All values on which the content depends, as JSON values.
        build: Function that writes the arrays and returns facts (JSON values) to store beside them.
        report: Function that is called with progress, also while another process builds the entry.

    Raises:
        Refusal: `root` cannot be written.
    """

    def __init__(
        self,
        root: Path,
        task: str,
        key: Mapping[str, Any],
        build: Callable[[Writer], Mapping[str, Any]],
        report: Callable[[str, int, int], None],
    ) -> None:
        self._folder = _entry(root, task, key)
        self._build = build
        self._report = report
        self._manifest = _read(self._folder) or self._make()

    @staticmethod
    def built_facts(root: Path, task: str, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the facts of an entry that was built before, or None; nothing is built or written."""
        manifest = _read(_entry(root, task, key))
        return None if manifest is None else dict(manifest["facts"])

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that `build` returned."""
        return self._manifest["facts"]

    @property
    def digest(self) -> str:
        """SHA-256 of the content: of the name and the sum of every array."""
        return _digest(self._manifest["files"])

    def arrays(self, names: Iterable[str]) -> list[np.ndarray]:
        """Verify arrays and open them read-only; build the entry again if one is damaged."""
        import numpy as np

        wanted = [f"{name}.npy" for name in names]
        if not all(self._sound(name) for name in wanted):
            self._manifest = self._make(damaged=True)
        return [np.load(self._folder / name, mmap_mode="r", allow_pickle=False) for name in wanted]

    def rows(self, name: str) -> int:
        """Return the number of rows of an array after verifying it; a damaged entry is built again."""
        return len(self.arrays([name])[0])

    def _sound(self, name: str) -> bool:
        path = self._folder / name
        expected = self._manifest["files"][name]
        # The size first: it reveals a truncated file without reading gigabytes.
        return path.is_file() and path.stat().st_size == expected["bytes"] and _measured(path) == expected

    def _make(self, *, damaged: bool = False) -> dict[str, Any]:
        """Build the entry, or use the one that another process has just built."""
        _refuse_in_script_of_a_worker(self._folder)
        with self._locked():
            manifest = _read(self._folder)
            if manifest is not None and not (damaged and not self._all_sound(manifest)):
                return manifest
            return self._built()

    def _all_sound(self, manifest: dict[str, Any]) -> bool:
        self._manifest = manifest
        return all(self._sound(name) for name in manifest["files"])

    def _built(self) -> dict[str, Any]:
        stage = self._folder.with_name(f"{self._folder.name}.stage")
        # This process holds the lock, so an existing stage was left behind by a process that died.
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir()
        try:
            writer = Writer(stage)
            facts = json.loads(json.dumps(self._build(writer)))
            manifest = {"facts": facts, "files": writer.close()}
            manifest["digest"] = _manifest_digest(manifest)
            (stage / _MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))
            # A damaged entry is removed first; other readers keep the pages that they have mapped.
            shutil.rmtree(self._folder, ignore_errors=True)
            stage.replace(self._folder)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
        return manifest

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = FileLock(self._folder.with_name(f"{self._folder.name}.lock"))
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                held = lock.acquire(blocking=False)
            except Timeout:
                self._report("waiting for another process", 0, 1)
                held = lock.acquire()
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            remedy = "Choose another data folder with --data or SWEEP_DATA; it may link to shared files."
            must = "must be a folder that can be written"
            raise Refusal(str(self._folder.parent), must, str(error), remedy) from error
        with held:
            yield


def _refuse_in_script_of_a_worker(folder: Path) -> None:
    """Raise Refusal if this is a worker process that is still running the script of its parent.

    The parent holds the lock of the entry and waits for its workers, so that waiting here would never end.
    """
    # How multiprocessing itself recognises it when such a worker starts a process.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise Refusal(
            str(folder),
            "a script must load data below `if __name__ == '__main__':`",
            "a load at its top level, which every worker process runs again",
            "Move what the script does into a function, and call it below that line.",
        )


def _entry(root: Path, task: str, key: Mapping[str, Any]) -> Path:
    text = json.dumps({**key, "format": _FORMAT}, sort_keys=True)
    return root / f"{task}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _read(entry: Path) -> dict[str, Any] | None:
    """Return the manifest of an entry, or None if it is missing or damaged."""
    try:
        manifest = json.loads((entry / _MANIFEST).read_text())
        return manifest if manifest["digest"] == _manifest_digest(manifest) else None
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None


def fingerprint(paths: Iterable[Path]) -> str:
    """Return a digest of the content of files and of the listings of folders.

    A listing has names, sizes and modification times: a folder may hold 200,000 files of 18 GB in all, whose
    content the digest of the encoded arrays covers.
    """
    total = hashlib.sha256()
    for path in paths:
        if path.is_dir():
            for name, size, modified in sorted(_listing(path, path.name)):
                total.update(f"{name}\0{size}\0{modified}\n".encode())
        else:
            total.update(f"{path.name}\0{_measured(path)['sha256']}\n".encode())
    return total.hexdigest()


def _listing(folder: Path, name: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _listing(Path(entry.path), f"{name}/{entry.name}")
            else:
                stat = entry.stat()
                yield f"{name}/{entry.name}", stat.st_size, stat.st_mtime_ns


def _measured(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _manifest_digest(manifest: Mapping[str, Any]) -> str:
    return _digest([manifest["facts"], manifest["files"]])
