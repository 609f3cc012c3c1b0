"""The checkpoint store of a simulation: objects in memory that every machine reaches, until it vanishes."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import fsspec
from fsspec import AbstractFileSystem

from tests.simulation.kernel import Kernel

URL = "simulated://bucket"

OLD = 1.0
"""Write time of every object, old enough for `gc` to collect unreferenced ones."""


class Store:
    """The objects of one simulation.

    Args:
        kernel: Kernel of the simulation.

    Attributes:
        objects: Objects by name.
        down: Whether it does not answer.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.objects: dict[str, bytes] = {}
        self.down = False

    def __enter__(self) -> Store:
        SimulatedFileSystem.store = self
        return self

    def __exit__(self, *_: object) -> None:
        SimulatedFileSystem.store = None

    def reach(self) -> None:
        """Pass the point of a request.

        Raises:
            ConnectionError: The store has vanished.
        """
        if threading.get_ident() != self.kernel.thread:
            raise ConnectionError("a thread outside the simulation reaches no store")
        self.kernel.point()
        if self.down:
            raise ConnectionError("the store does not answer")


class SimulatedFileSystem(AbstractFileSystem):
    """The client of the store."""

    protocol = "simulated"
    cachable = False
    store: ClassVar[Store | None] = None

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return path.removeprefix("simulated://").rstrip("/")

    def _objects(self) -> dict[str, bytes]:
        assert self.store is not None, "a simulation runs"
        self.store.reach()
        return self.store.objects

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._objects()

    def put_file(self, lpath: str, rpath: str, **_: Any) -> None:
        with open(lpath, "rb") as file:  # noqa: PTH123 - the type of the path is fsspec's
            content = file.read()
        self._objects()[self._strip_protocol(rpath)] = content

    def get_file(self, rpath: str, lpath: str, **_: Any) -> None:
        content = self._objects().get(self._strip_protocol(rpath))
        if content is None:
            raise FileNotFoundError(rpath)
        with open(lpath, "wb") as file:  # noqa: PTH123 - the type of the path is fsspec's
            file.write(content)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        objects = self._objects()
        if (content := objects.get(self._strip_protocol(path1))) is None:
            raise FileNotFoundError(path1)
        objects[self._strip_protocol(path2)] = content

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        self._objects()[self._strip_protocol(path)] = value

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        content = self._objects().get(self._strip_protocol(path))
        if content is None:
            raise FileNotFoundError(path)
        return content[start:end]

    def rm_file(self, path: str) -> None:
        if self._objects().pop(self._strip_protocol(path), None) is None:
            raise FileNotFoundError(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        objects = self._objects()
        for target in [path] if isinstance(path, str) else path:
            name = self._strip_protocol(target)
            keys = [key for key in objects if key == name or key.startswith(f"{name}/")]
            if not keys:
                raise FileNotFoundError(target)
            for key in keys:
                self._objects().pop(key, None)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        name, objects = self._strip_protocol(path), self._objects()
        if name in objects:
            return {"name": name, "size": len(objects[name]), "type": "file", "mtime": OLD}
        if any(key.startswith(f"{name}/") for key in objects):
            return {"name": name, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        name, objects = self._strip_protocol(path), self._objects()
        below = sorted(key for key in objects if key.startswith(f"{name}/"))
        if not below:
            raise FileNotFoundError(path)
        parts = {key.removeprefix(f"{name}/").split("/")[0] for key in below}
        entries = [self._entry(f"{name}/{part}", objects) for part in sorted(parts)]
        return entries if detail else [entry["name"] for entry in entries]

    @staticmethod
    def _entry(name: str, objects: dict[str, bytes]) -> dict[str, Any]:
        if name in objects:
            return {"name": name, "size": len(objects[name]), "type": "file", "mtime": OLD}
        return {"name": name, "size": 0, "type": "directory"}


fsspec.register_implementation("simulated", SimulatedFileSystem, clobber=True)
