"""From what is wrong in a tree to one line: `file:line: key: what must hold, got this. Do that.`"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from orchestrator.config.document import Node
from orchestrator.config.numbers import NotFiniteError, parse_number
from orchestrator.errors import BadInput

Path = tuple[str | int, ...]

_MUST = {
    "missing": "must be given",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_long": "must be at most {max_length} characters",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must be letters, digits, - and _, at most 64",
    "too_short": "must have at least {min_length} values",
    "too_long": "must have at most {max_length} values",
    "tuple_type": "must be a list of two numbers",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "literal_error": "must be {expected}",
    "finite_number": "must be a finite number",
}


def complaint(root: Node, path: Path, must: str, remedy: str, got: str | None = None) -> BadInput:
    """Return the error about the value at `path`, or about its absence from the deepest level that exists."""
    node = root.at(path)
    key = dotted(path)
    places = (node.where,) if node.where == f"--set {key}" else (node.where, key)
    where = ": ".join(place for place in places if place)
    return BadInput(where, must, node.shown() if got is None else got, remedy)


def dotted(path: Path) -> str:
    """Return a path as a person writes it: `search.learning_rate.uniform`."""
    return ".".join(str(part) for part in path if not isinstance(part, int))


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the remedy for a name that does not exist: the one that was meant, or all of them."""
    known = sorted(names)
    close = difflib.get_close_matches(name[:100], known, n=1, cutoff=0.6)
    if close:
        return f"Did you mean `{close[0]}`?"
    listed = ", ".join(known) or "none"
    return f"There {'is' if len(known) == 1 else 'are'}: {listed}."


def from_pydantic(error: ValidationError, model: type[BaseModel], root: Node, prefix: Path = ()) -> BadInput:
    """Return one of the errors: an unknown key first, for it often explains what is missing."""
    found = error.errors(include_url=False, include_input=False)
    first = min(found, key=lambda each: each["type"] != "extra_forbidden")
    path = (*prefix, *_of_file(first["loc"], root, prefix))
    if first["type"] == "extra_forbidden":
        siblings = _fields(model, tuple(first["loc"][:-1]))
        return complaint(
            root, path, "must be a known key", nearest(str(path[-1]), siblings), got=f"`{path[-1]}`"
        )
    kind, context = first["type"], first.get("ctx", {})
    if context.get("field_type") == "Tuple" or (kind == "missing" and isinstance(first["loc"][-1], int)):
        kind, path = "tuple_type", tuple(part for part in path if isinstance(part, str))
    template = _MUST.get(kind)
    shown = {name: flow(value) for name, value in context.items()}
    must = template.format(**shown) if template else first["msg"]
    got = "nothing" if kind == "missing" else None
    return complaint(root, path, must, _remedy(model, first["loc"], root.at(path).value), got)


def _of_file(location: Path, root: Node, prefix: Path) -> Path:
    """Drop what pydantic adds to a path (branches of a union, indices of single values)."""
    kept: list[str | int] = []
    for part in location:
        node = root.at((*prefix, *kept))
        if isinstance(part, int) and not isinstance(node.value, tuple):
            continue
        kept.append(part)
    return tuple(kept)


def _fields(model: type[BaseModel], location: Path) -> list[str]:
    target = _model_at(model, location)
    return list(target.model_fields) if target else []


def _model_at(model: type[BaseModel], location: Path) -> type[BaseModel] | None:
    current: type[BaseModel] | None = model
    for part in location:
        field = current.model_fields.get(str(part)) if current else None
        if field is None:
            continue  # a key of a dict: its values are of the model found so far
        current = _inner(field)
    return current


def _inner(field: FieldInfo) -> type[BaseModel] | None:
    pending: list[Any] = [field.annotation]
    while pending:
        annotation = pending.pop()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return annotation
        pending.extend(getattr(annotation, "__args__", ()))
    return None


def _remedy(model: type[BaseModel], location: Path, given: Any) -> str:
    if isinstance(given, str) and _spells_number(given):
        return "Remove the quotes."
    names = tuple(part for part in location if isinstance(part, str))
    owner = _model_at(model, names[:-1])
    field = owner.model_fields.get(names[-1]) if owner and names else None
    if field is None or not field.examples:
        return "See docs/search-space.md."
    return f"For example {names[-1]}: {flow(field.examples[0])}."


def _spells_number(text: str) -> bool:
    try:
        return parse_number(text) is not None
    except NotFiniteError:
        return False


def flow(value: Any) -> str:
    """Return a value as YAML writes it on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(flow(item) for item in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= 10_000:
        return f"{value:_}"
    return f"{value:g}" if isinstance(value, float) else str(value)
