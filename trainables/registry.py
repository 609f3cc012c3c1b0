"""Registries: classes by name, of this package and of installed packages, and what the classes declare.

A registry maps a name to a reference "module:Class" and imports the class when the name is used, not before.
An installed package adds a name with one entry point:

    [project.entry-points."trainables.tasks"]
    parity = "my_package.parity:Parity"

What a class accepts is declared in the class, as one attribute:

    class Fading(Layer):
        settings = LayerSettings(summary="...", ranges={"decay_init": Range(...)})

`DeclaredRegistry.settings` reads that attribute from the source of the class, without importing its module,
so that a search-space file is validated in milliseconds although the module imports JAX, Optuna or Ray.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Generic, TypeVar

from trainables.errors import Refusal
from trainables.parsing import parsed

Entry = TypeVar("Entry")
Settings = TypeVar("Settings")

_ATTRIBUTE = "settings"
_REMEDY = "Repair or uninstall the package that declares it."


class Registry(Mapping[str, Entry]):
    """The entries of this package, and those that installed packages declare as entry points.

    Args:
        own: references "module:Class" of this package's entries, by name.
        group: name of the entry point group through which other packages add entries.
        accept: turns the imported object into an entry; raises TypeError with the reason if it cannot.
    """

    def __init__(self, own: Mapping[str, str], group: str, accept: Callable[[object], Entry]) -> None:
        self._own = {name: EntryPoint(name, reference, group) for name, reference in own.items()}
        self._group, self._accept = group, accept
        self._loaded: dict[str, Entry] = {}

    def __getitem__(self, name: str) -> Entry:
        """Return an entry, imported at the first use of its name.

        Raises:
            KeyError: no entry has this name.
            Refusal: the name is declared by an installed package, but cannot be imported from it.
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
                raise Refusal(_where(point), "must have a name of its own", repr(point.name), _REMEDY)
            points[point.name] = point
        return points

    def _load(self, point: EntryPoint) -> Entry:
        if point.name in self._own:
            return self._accept(point.load())
        try:
            return self._accept(point.load())
        except Exception as error:
            raise Refusal(_where(point), "must load", _summary(error), _REMEDY) from error


class DeclaredRegistry(Registry[Entry], Generic[Entry, Settings]):
    """A registry of classes whose attribute `settings` can be read without importing them.

    Args:
        own: as for `Registry`.
        group: as for `Registry`.
        accept: as for `Registry`.
        declared: the type of the attribute.
        vocabulary: the module whose `__all__` lists the names that the attribute's expression may use.
    """

    def __init__(
        self,
        own: Mapping[str, str],
        group: str,
        accept: Callable[[object], Entry],
        *,
        declared: type[Settings],
        vocabulary: ModuleType,
    ) -> None:
        super().__init__(own, group, accept)
        self._declared, self._vocabulary = declared, vocabulary
        self._settings: dict[str, Settings] = {}

    def settings(self, name: str) -> Settings:
        """Return what the class of an entry declares, read from its source without importing it.

        Raises:
            KeyError: no entry has this name.
            Refusal: the class has no such attribute, or its expression is not a declaration.
        """
        if name not in self._settings:
            self._settings[name] = self._read(self._point(name))
        return self._settings[name]

    def _read(self, point: EntryPoint) -> Settings:
        expression = _expression(point)
        value = _evaluated(point, expression, self._vocabulary)
        if not isinstance(value, self._declared):
            must = f"`{_ATTRIBUTE}` must be a {self._declared.__name__}"
            example = f"Write `{_ATTRIBUTE} = {self._declared.__name__}(...)`."
            raise Refusal(_where(point, expression), must, type(value).__name__, example)
        return value


def subclass_of(*bases: str) -> Callable[[object], Any]:
    """Return an `accept` that admits subclasses of any of some classes, each given as "module:Class".

    A subclass must define every abstract method. The bases are imported with the first entry: a registry of
    JAX modules does not import JAX itself.
    """

    def accept(entry: object) -> Any:
        expected = tuple(EntryPoint("base", base, "").load() for base in bases)
        if not (isinstance(entry, type) and issubclass(entry, expected)):
            raise TypeError(f"it must be a subclass of {' or '.join(bases).replace(':', '.')}")
        if missing := sorted(getattr(entry, "__abstractmethods__", ())):
            raise TypeError(f"it must define {', '.join(missing)}")
        return entry

    return accept


def _expression(point: EntryPoint) -> ast.expr:
    """Return the expression that the class of an entry point assigns to its attribute `settings`."""
    for node in parsed(_source(point)).body:
        if isinstance(node, ast.ClassDef) and node.name == point.attr:
            for statement in node.body:
                if (value := _assigned(statement)) is not None:
                    return value
            must = f"the class must assign `{_ATTRIBUTE}` in its own body"
            raise Refusal(_where(point, node), must, "no such assignment", "Declare what the class accepts.")
    must = f"{point.module} must define the class {point.attr}"
    remedy = "Name the module that defines the class, not one that imports it."
    raise Refusal(_where(point), must, "no such class", remedy)


def _assigned(statement: ast.stmt) -> ast.expr | None:
    """Return the value of `settings = value` or `settings: Type = value`, or None for other statements."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    else:
        return None
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return statement.value if _ATTRIBUTE in names else None


def _evaluated(point: EntryPoint, expression: ast.expr, vocabulary: ModuleType) -> object:
    names = {name: getattr(vocabulary, name) for name in vocabulary.__all__}
    bound = {node.arg for node in ast.walk(expression) if isinstance(node, ast.arg)}
    for node in ast.walk(expression):
        if isinstance(node, ast.Name) and node.id not in names and node.id not in bound:
            must = f"`{_ATTRIBUTE}` must use literals and the names of {vocabulary.__name__} alone"
            remedy = f"Its names are {', '.join(sorted(names))}."
            raise Refusal(_where(point, node), must, f"the name `{node.id}`", remedy)
    code = compile(ast.Expression(expression), point.value, "eval")
    try:
        return eval(code, {"__builtins__": {}, **names})
    except Exception as error:
        must, remedy = f"`{_ATTRIBUTE}` must be a valid declaration", "Correct the expression."
        raise Refusal(_where(point, expression), must, _summary(error), remedy) from error


def _source(point: EntryPoint) -> str:
    """Return the source of an entry point's module; neither it nor its parent packages are imported."""
    try:
        loader = _spec(point.module).loader
        source = loader.get_source(point.module) if isinstance(loader, InspectLoader) else None
    except ImportError as error:
        raise Refusal(_where(point), "must name an installed module", str(error), _REMEDY) from error
    if source is None:
        remedy = "Install the package with its source."
        raise Refusal(_where(point), "must name a module with its source", "compiled code alone", remedy)
    return source


def _spec(module: str) -> ModuleSpec:
    """Find a module. Unlike `importlib.util.find_spec`, import no parent package on the way."""
    parent, _, _ = module.rpartition(".")
    path = _spec(parent).submodule_search_locations if parent else None
    specs = (finder.find_spec(module, path) for finder in sys.meta_path)
    spec = next((spec for spec in specs if spec is not None), None)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {module!r}")
    return spec


def _where(point: EntryPoint, node: ast.AST | None = None) -> str:
    package = f" of {point.dist.name}" if point.dist else ""
    line = f", line {node.lineno}" if node is not None and hasattr(node, "lineno") else ""
    return f"entry point {point.group}: {point.name} = {point.value}{package}{line}"


def _summary(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
