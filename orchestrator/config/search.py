"""The `search` section: every entry a distribution, every condition on another entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.config.document import Node
from orchestrator.config.sections import SearchEntry
from orchestrator.config.space import KINDS, Distribution, UnsoundError, chosen, ordered, ranged
from orchestrator.config.validation_errors import complaint, flow, nearest


def read_space(root: Node, section: Mapping[str, SearchEntry]) -> dict[str, Distribution]:
    """Return the space of the file, in canonical order.

    Raises:
        BadInput: a distribution or a condition that cannot be drawn from.
    """
    found = {name: _distribution(root, name, entry) for name, entry in section.items()}
    whole = {name: _conditioned(root, name, section[name].when or {}, found) for name in found}
    try:
        return ordered(whole)
    except UnsoundError as error:
        circle = next(name for name, each in whole.items() if each.when)
        raise complaint(root, ("search", circle, "when"), error.must, error.remedy) from None


def _distribution(root: Node, name: str, entry: SearchEntry) -> Distribution:
    path = ("search", name)
    given = [kind for kind in KINDS if getattr(entry, kind) is not None]
    if len(given) != 1:
        must = f"must have exactly one of {', '.join(KINDS)}"
        raise complaint(root, path, must, f"For example {name}: {{uniform: [0.1, 0.9]}}.")
    kind = given[0]
    value = getattr(entry, kind)
    try:
        if kind != "choice":
            low, high = value
            return ranged(kind, low, high, entry.step)
        if entry.step is not None:
            raise UnsoundError("a choice has no step", "Leave the step out.")
        return chosen(value)
    except UnsoundError as error:
        raise complaint(root, (*path, kind), error.must, error.remedy) from None


def _conditioned(
    root: Node, name: str, when: Mapping[str, Any], found: Mapping[str, Distribution]
) -> Distribution:
    conditions = {}
    for parent, given in when.items():
        path = ("search", name, "when", parent)
        others = [other for other in found if other != name and found[other].kind in {"choice", "int"}]
        if parent not in others:
            must = "must name another searched choice or int"
            raise complaint(root, path, must, nearest(parent, others), f"`{parent}`")
        values = tuple(given) if isinstance(given, list | tuple) else (given,)
        if not values or not all(found[parent].holds(value) for value in values):
            listed = flow(list(found[parent].choices[:12]) or [found[parent].low, found[parent].high])
            raise complaint(root, path, f"must be values of {parent}", f"They are {listed}.")
        conditions[parent] = values
    return replace(found[name], when=conditions)
