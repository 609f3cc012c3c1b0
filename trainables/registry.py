"""Registries of classes, from this package and from installed packages.

A registry maps a name to a reference "module:Class" and imports the class when the name is used. An installed
package adds a name with one entry point:

    [project.entry-points."trainables.tasks"]
    parity = "my_package.parity:Parity"

A layer, a sampler and a scheduler declare their settings in one attribute of the class:

    class Fading(Layer):
        settings = LayerSettings(summary="...", ranges={"decay_init": Range(...)})
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from trainables.errors import Refusal, in_one_line

Entry = TypeVar("Entry")
Settings = TypeVar("Settings")

_REMEDY = "Repair or uninstall the package that declares it."


class Registry(Mapping[str, Entry]):
    """Entries of this package, and entries that installed packages declare as entry points.

    Args:
        own: References "module:Class" of this package's entries, by name.
        group: Name of the entry point group through which other packages add entries.
        accept: Function that turns the imported object into an entry, or raises TypeError with the reason.
    """

    def __init__(self, own: Mapping[str, str], group: str, accept: Callable[[object], Entry]) -> None:
        self._own = {name: EntryPoint(name, reference, group) for name, reference in own.items()}
        self._group, self._accept = group, accept
        self._loaded: dict[str, Entry] = {}

    def __getitem__(self, name: str) -> Entry:
        """Return an entry, imported at the first use of its name.

        Raises:
            KeyError: No entry has this name.
            Refusal: The name is declared by an installed package, but cannot be imported from it.
        """
        if name not in self._loaded:
            self._loaded[name] = self._load(self._point(name))
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._foreign

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from self._foreign

    def __len__(self) -> int:
        return len(self._own) + len(self._foreign)

    def package(self, name: str) -> str | None:
        """Return the `package==version` that declares an entry, or None for an entry of this package."""
        distribution = self._point(name).dist
        return f"{distribution.name}=={distribution.version}" if distribution else None

    def _point(self, name: str) -> EntryPoint:
        return self._own[name] if name in self._own else self._foreign[name]

    @cached_property
    def _foreign(self) -> dict[str, EntryPoint]:
        points: dict[str, EntryPoint] = {}
        for point in entry_points(group=self._group):
            if point.name in self._own or point.name in points:
                raise Refusal(_where(point), "must have a unique name", repr(point.name), _REMEDY)
            points[point.name] = point
        return points

    def _load(self, point: EntryPoint) -> Entry:
        if point.name in self._own:
            return self._accept(point.load())
        try:
            return self._accept(point.load())
        except Exception as error:
            raise Refusal(_where(point), "cannot be loaded", in_one_line(error), _REMEDY) from error


class DeclaredRegistry(Registry[Entry], Generic[Entry, Settings]):
    """Registry of classes with an attribute `settings`.

    The settings of this package's classes are known without importing them (see `trainables.declare`).

    Args:
        own: References "module:Class" of this package's classes, by name.
        group: Entry point group through which other packages add classes.
        accept: Check of an imported class, as in `Registry`.
        declared: Type of the attribute `settings`.
        generated: Settings of this package's classes by reference.
    """

    def __init__(
        self,
        own: Mapping[str, str],
        group: str,
        accept: Callable[[object], Entry],
        *,
        declared: type[Settings],
        generated: Mapping[str, Settings],
    ) -> None:
        super().__init__(own, group, accept)
        self.own, self.declared, self._generated = own, declared, generated

    def settings(self, name: str) -> Settings:
        """Return the settings of a class. The class of another package is imported for it.

        Raises:
            KeyError: The name is unknown.
            Refusal: The class cannot be imported, or has no settings of the declared type.
        """
        if name in self.own:
            return self._generated[self.own[name]]
        settings = getattr(self[name], "settings", None)
        if not isinstance(settings, self.declared):
            kind = self.declared.__name__
            must, remedy = f"`settings` must be a {kind}", f"Write `settings = {kind}(...)`."
            raise Refusal(_where(self._point(name)), must, type(settings).__name__, remedy)
        return settings


def subclass_of(*bases: str) -> Callable[[object], Any]:
    """Return an `accept` for subclasses of any of some classes, each given as "module:Class".

    A subclass must define every abstract method. The bases are imported with the first entry, so that a
    registry of JAX modules does not itself import JAX.
    """

    def accept(entry: object) -> Any:
        expected = tuple(EntryPoint("base", base, "").load() for base in bases)
        if not (isinstance(entry, type) and issubclass(entry, expected)):
            raise TypeError(f"it must be a subclass of {' or '.join(bases).replace(':', '.')}")
        if missing := sorted(getattr(entry, "__abstractmethods__", ())):
            raise TypeError(f"it must define {', '.join(missing)}")
        return entry

    return accept


def _where(point: EntryPoint) -> str:
    package = f" of {point.dist.name}" if point.dist else ""
    return f"entry point {point.group}: {point.name} = {point.value}{package}"
