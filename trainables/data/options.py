"""Checks the options that a search-space file gives a task."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from trainables.errors import Refusal
from trainables.settings import Option

LARGEST = 2**32 - 1
"""What a whole number may be: every seed, and more examples than anybody has."""


def completed(task: str, declared: Mapping[str, Option], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return every declared option, defaults filled in, in the declared order.

    Raises:
        Refusal: an unknown name, another type than the default's, or a value out of bounds.
    """
    for name in given:
        if name not in declared:
            near = difflib.get_close_matches(name, declared, 1)
            remedy = f"Did you mean {near[0]}?" if near else f"Options: {', '.join(declared) or 'none'}."
            raise Refusal(f"task {task}: options.{name}", "must be an option of the task", repr(name), remedy)
    return {
        name: _value(task, name, option, given.get(name, option.default)) for name, option in declared.items()
    }


def _value(task: str, name: str, option: Option, value: Any) -> Any:
    where = f"task {task}: options.{name}"
    kind = type(option.default)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise Refusal(
            where, f"must be a value of type {kind.__name__}", repr(value), f"For example {option.default!r}."
        )
    if option.choices is not None and value not in option.choices:
        legal = ", ".join(map(str, option.choices))
        raise Refusal(where, f"must be one of {legal}", repr(value), option.summary)
    if option.at_least is not None and value < option.at_least:
        raise Refusal(where, f"must be at least {option.at_least}", repr(value), option.summary)
    if kind is int and value > LARGEST:
        raise Refusal(where, f"must be at most {LARGEST}", repr(value), option.summary)
    if kind is int and value > LARGEST:
        raise Refusal(where, f"must be at most {LARGEST}", repr(value), option.summary)
    return value
