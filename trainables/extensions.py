"""Tasks and layers of other packages, found by their entry points.

A package that declares `[project.entry-points."trainables.tasks"]` with `parity = "my_package:Parity"` adds a
task by that name wherever it is installed. It is imported when the name is used, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from trainables.errors import Refusal

Entry = TypeVar("Entry")

_REMEDY = "Mend or uninstall the package that declares it."


class Registry(Mapping[str, Entry]):
    """Our own entries, and those that installed packages declare in a group.

    Args:
        own: entries of this package.
        group: name of the entry points' group.
        accept: turns what an entry point names into an entry; a TypeError says why it cannot.
    """

    def __init__(self, own: Mapping[str, Entry], group: str, accept: Callable[[object], Entry]) -> None:
        self._own, self._group, self._accept = dict(own), group, accept
        self._loaded: dict[str, Entry] = {}

    def __getitem__(self, name: str) -> Entry:
        """Return an entry by name.

        Raises:
            KeyError: no entry has this name.
            Refusal: an entry point has it, but cannot be loaded.
        """
        if name in self._own:
            return self._own[name]
        if name not in self._loaded:
            self._loaded[name] = self._load(self._foreign[name])
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._foreign

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from self._foreign

    def __len__(self) -> int:
        return len(self._own) + len(self._foreign)

    def package(self, name: str) -> str | None:
        """Return the `package==version` that declares an entry, or None for one of our own."""
        point = None if name in self._own else self._foreign[name]
        return f"{point.dist.name}=={point.dist.version}" if point and point.dist else None

    @cached_property
    def _foreign(self) -> dict[str, EntryPoint]:
        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=self._group):
            if point.name in self._own or point.name in found:
                raise Refusal(_where(point), "must have a name of its own", repr(point.name), _REMEDY)
            found[point.name] = point
        return found

    def _load(self, point: EntryPoint) -> Entry:
        try:
            return self._accept(point.load())
        except Exception as error:
            got = f"{type(error).__name__}: {error}".splitlines()[0]
            raise Refusal(_where(point), "must load", got, _REMEDY) from error


def _where(point: EntryPoint) -> str:
    package = f" of {point.dist.name}" if point.dist else ""
    return f"entry point {point.group}: {point.name} = {point.value}{package}"
