"""Search for all mistakes of a file: each mistake is corrected in a copy, which is then read again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from orchestrator.config.document import LocatedValue, Mistake, Path, tree_of
from orchestrator.config.sections import SpaceFile, TrainableFile, example_of
from orchestrator.errors import BadInput

Read = TypeVar("Read")

MOST = 20
"""Largest number of mistakes of a file that are looked for."""

_TRIES = 200
_HARMLESS: dict[Path, tuple[Any, ...]] = {
    ("trainable", "command"): (["true"],),
    ("scheduler",): ("none",),
    ("sampler",): ("random",),
    ("budget",): ({"trials": 1},),
    ("objective",): ({"minimize": "val/loss"},),
}
_SEARCHED: dict[str, Any] = {
    "uniform": {"uniform": [0.25, 0.75]},
    "log_uniform": {"log_uniform": [0.25, 0.75]},
    "int": {"int": [1, 2]},
    "log_int": {"log_int": [1, 2]},
    "choice": {"choice": [1, 2]},
}
_STRATEGY = ("sampler", "scheduler", "published", "known")
_DEPENDENT: dict[str, tuple[str, ...]] = {
    "task": ("data", "model", "training", "evaluate", "objective", "constraints", *_STRATEGY),
    "model": ("model", "search", "training", *_STRATEGY),
    "search": ("search", "model", "published", "known"),
    "objective": ("objective", "published", "known"),
    "trainable": ("search", "training", "resources", *_STRATEGY),
}
"""By section: the sections in which the correction of a mistake of this one may cause an error."""


def read_with_all_mistakes(read: Callable[[LocatedValue], Read], root: LocatedValue) -> Read:
    """Read a file; report all of its mistakes at once.

    Args:
        read: Function that validates the sections of a file.
        root: Sections of the file.

    Raises:
        BadInput: The first mistake, with the others as its `more`.
    """
    try:
        return read(root)
    except Mistake as first:
        first.more = tuple(_others(read, root, first))
        raise


def _others(read: Callable[[LocatedValue], Any], root: LocatedValue, first: Mistake) -> Iterator[BadInput]:
    """Yield the further mistakes of a file that has one."""
    pending, tries, reported = [first, *first.same_check], dict[Path, int](), {str(first)}
    corrected, removed = set[str](), set[Path]()
    for _ in range(_TRIES):
        known, earlier = set(corrected), set(tries)
        for mistake in pending:
            path = mistake.path
            if not path:
                return
            section = str(path[0])
            is_missing = not mistake.got and not mistake.must.startswith("is not ")
            caused = path in removed or (is_missing and path[:-1] in removed)
            # A value whose part was replaced is not that of the user any more.
            caused = caused or any(one[: len(path)] == path for one in earlier)
            caused = caused or any(section in _DEPENDENT.get(one, ()) for one in known)
            if not caused and str(mistake) not in reported:
                reported.add(str(mistake))
                yield mistake
            if len(reported) > MOST:
                return
            if mistake.is_unknown_key:
                removed.add(path[:-1])
            else:
                corrected.add(
                    section if section != "trainable" or len(path) == 1 else ".".join(map(str, path))
                )
        for path, is_unknown in {mistake.path: mistake.is_unknown_key for mistake in pending}.items():
            if tries.get(path, 0) > len(_values(path)):
                return
            root = _corrected(root, path, tries.get(path, 0), is_unknown=is_unknown)
            tries[path] = tries.get(path, 0) + 1
        try:
            repaired = read(root)
        except Mistake as mistake:
            pending = [mistake, *mistake.same_check]
        except BadInput:
            return
        else:
            code = ("trainable", "trainable.command", "trainable.function", "trainable.program")
            first.repaired = repaired if corrected.isdisjoint(code) else None
            return


def _corrected(root: LocatedValue, path: Path, tried: int, *, is_unknown: bool) -> LocatedValue:
    """Return a file with another value at a path, or with the value removed."""
    if path[0] == "search" and len(path) > 1 and not is_unknown:
        path = path[:2]
        given = root.at(path).value
        kinds = [kind for kind in _SEARCHED if isinstance(given, dict) and kind in given] or ["uniform"]
        return _with(root, path, tree_of({"value": _SEARCHED[kinds[0]]}).entries["value"])
    if path[0] in _STRATEGY:
        path = path[:1]
    values = () if is_unknown else _values(path)
    value = tree_of({"value": values[tried]}).entries["value"] if tried < len(values) else None
    return _with(root, path, value)


def _values(path: Path) -> tuple[Any, ...]:
    """Return values that may be right at a path, the likeliest first."""
    if path[0] in ("published", "known"):
        return ()
    names = tuple(part for part in path if isinstance(part, str))
    examples = [example_of(model, names) for model in (SpaceFile, TrainableFile)]
    known = tuple(example for example in examples if example is not None)[:1]
    return (*_HARMLESS.get(names, ()), *known, 1)


def _with(node: LocatedValue, path: Path, value: LocatedValue | None) -> LocatedValue:
    """Return a tree with a value set or removed at a path. A list is replaced as a whole."""
    key = path[0]
    entries = dict(node.value) if isinstance(node.value, dict) else {}
    if len(path) == 1 or not isinstance(path[1], str):
        if value is None:
            entries.pop(str(key), None)
        else:
            entries[str(key)] = value
    else:
        entries[str(key)] = _with(entries.get(str(key), LocatedValue({}, node.where)), path[1:], value)
    return LocatedValue(entries, node.where)
