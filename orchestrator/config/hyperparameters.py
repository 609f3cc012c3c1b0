"""Searchable hyperparameters: fields of model and training, options and initialisation ranges of a layer."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

import annotated_types
from pydantic import BaseModel

from orchestrator.config import space
from orchestrator.config.sections import OWN_FIELDS, ModelSection, TrainingSection
from trainables.layers import LAYERS
from trainables.settings import Option, Range, range_ends

Kind = Literal["real", "whole", "flag", "word"]

_WORDS: Mapping[Kind, str] = {
    "real": "a number",
    "whole": "a whole number",
    "flag": "true or false",
    "word": "a word",
}
_DISTRIBUTIONS: Mapping[Kind, tuple[space.Kind, ...]] = {
    "real": ("uniform", "log_uniform", "normal", "log_normal", "choice"),
    "whole": ("int", "log_int", "power_of_two", "choice"),
    "flag": ("choice",),
    "word": ("choice",),
}
_BOUNDS: tuple[tuple[type, str, Callable[[Any, Any], bool], str], ...] = (
    (annotated_types.Ge, "ge", operator.ge, "at least"),
    (annotated_types.Gt, "gt", operator.gt, "above"),
    (annotated_types.Le, "le", operator.le, "at most"),
    (annotated_types.Lt, "lt", operator.lt, "below"),
)
# Name, section, kind, whether a running trial can take another value.
_FIELDS: tuple[tuple[str, type[BaseModel], Kind, bool], ...] = (
    ("depth", ModelSection, "whole", False),
    ("d_model", ModelSection, "whole", False),
    ("d_state", ModelSection, "whole", False),
    ("bidirectional", ModelSection, "flag", False),
    ("dropout", ModelSection, "real", True),
    ("pooling", ModelSection, "word", False),
    ("mixing", ModelSection, "word", False),
    ("short_conv", ModelSection, "whole", False),
    ("gate", ModelSection, "word", False),
    ("norm", ModelSection, "word", False),
    ("norm_position", ModelSection, "word", False),
    ("encoder", ModelSection, "word", False),
    ("batch_size", TrainingSection, "whole", False),
    ("learning_rate", TrainingSection, "real", True),
    ("recurrent_learning_rate", TrainingSection, "real", True),
    ("weight_decay", TrainingSection, "real", True),
    ("warmup", TrainingSection, "real", False),
    ("warmup_epochs", TrainingSection, "real", False),
    ("groups", TrainingSection, "word", False),
    ("optimizer", TrainingSection, "word", False),
    ("clip", TrainingSection, "real", True),
    ("label_smoothing", TrainingSection, "real", True),
    ("schedule", TrainingSection, "word", False),
)

_OPTIONAL = frozenset({"clip", "label_smoothing", "warmup_epochs"})
"""Fields that a trial need not have. The rates must be given, although their fields may be left out."""


@dataclass(frozen=True)
class Hyperparameter:
    """A name that `search` may hold, or an option.

    Attributes:
        kind: Type of its values.
        mutable: Whether it can change in a running trial: it is free, and not only used at the start.
        must: Its type and bounds in words.
        allows: Returns True if a value of the right type is within its bounds.
        sample: Legal value, for errors.
        most: Largest legal number. It is far above any useful number, so `must` does not mention it.
        optional: Whether null is a value too, which means no limit or no smoothing.
    """

    kind: Kind
    mutable: bool
    must: str
    allows: Callable[[Any], bool]
    sample: Any
    most: float = math.inf
    optional: bool = False

    @property
    def distributions(self) -> tuple[space.Kind, ...]:
        """Return the kinds of distribution it can be drawn from."""
        return _DISTRIBUTIONS[self.kind]

    def holds(self, value: Any) -> bool:
        """Return True if `value` has the right type and is within the bounds."""
        if value is None:
            return self.optional
        return _is(self.kind, value) and not self._is_too_large(value) and self.allows(value)

    def must_of(self, value: Any) -> str:
        """Return the broken requirement of an illegal value."""
        too_large = _is(self.kind, value) and self._is_too_large(value)
        return f"at most {self.most:,}" if too_large else self.must

    def _is_too_large(self, value: Any) -> bool:
        return self.most < math.inf and bool(value > self.most)

    def cast(self, value: Any) -> Any:
        """Convert a legal value to the type that training expects."""
        if value is None:
            return None
        return {"real": float, "whole": int, "flag": bool, "word": str}[self.kind](value)

    def example(self, name: str) -> str:
        """Return a remedy with a legal value."""
        sample = str(self.sample).lower() if isinstance(self.sample, bool) else self.sample
        return f"For example {name}: {sample}."


_SEED = Hyperparameter("whole", False, "a whole number from 0 to 2147483647", range(2**31).__contains__, 0)


@cache
def searchable(layer: str) -> dict[str, Hyperparameter]:
    """Return every hyperparameter of a trial with this layer, by its name in `search`.

    One that may differ by layer has two names: `theta_init.max`, and `rotrnn.theta_init.max` for one layer.
    """
    own = own_hyperparameters(layer)
    known = {field[0]: _field(*field) for field in _FIELDS}
    known["seed"] = _SEED
    known["layer"] = option_hyperparameter(Option(layer, "", choices=tuple(LAYERS)))
    return known | own | {f"{layer}.{name}": hyperparameter for name, hyperparameter in own.items()}


@cache
def own_hyperparameters(layer: str) -> dict[str, Hyperparameter]:
    """Return the hyperparameters that may differ by layer, by name: sizes, options, ends of ranges."""
    declared = LAYERS.settings(layer)
    own = {field[0]: _field(*field) for field in _FIELDS if field[0] in OWN_FIELDS}
    own |= {name: option_hyperparameter(option) for name, option in declared.options.items()}
    for name, spec in declared.ranges.items():
        for end, default in zip(range_ends(name), spec.default, strict=True):
            own[end] = _range_end(spec, default)
    return own


def option_hyperparameter(option: Option) -> Hyperparameter:
    """Return an option, of a layer or of a task, as a hyperparameter."""
    kind = _kind_of(option.default)
    if option.choices is not None:
        must = f"one of {', '.join(str(choice) for choice in option.choices)}"
        return Hyperparameter(kind, False, must, option.choices.__contains__, option.default)
    most = option.at_most if kind == "whole" else math.inf
    if option.at_least is None:
        return Hyperparameter(kind, False, _WORDS[kind], lambda value: True, option.default, most)
    least = option.at_least
    must = f"{_WORDS[kind]}, at least {least:g}"
    return Hyperparameter(kind, False, must, lambda value: bool(value >= least), option.default, most)


def _range_end(spec: Range, default: float) -> Hyperparameter:
    return Hyperparameter("real", False, f"a number {spec.phrase}", spec.holds, f"{default:g}")


def _field(name: str, section: type[BaseModel], kind: Kind, mutable: bool) -> Hyperparameter:
    """Return a hyperparameter with the bounds of the section's field."""
    field = section.model_fields[name]
    sample = field.examples[0] if field.examples else field.default
    if words := _literals(field.annotation):
        return option_hyperparameter(Option(sample, "", choices=words))
    bounds = [
        (compare, getattr(bound, attribute), words)
        for bound in field.metadata
        for kind_of_bound, attribute, compare, words in _BOUNDS
        if isinstance(bound, kind_of_bound)
    ]
    must = ", ".join((_WORDS[kind], *(f"{words} {limit}" for _, limit, words in bounds)))

    def allows(value: Any) -> bool:
        return all(compare(value, limit) for compare, limit, _ in bounds)

    return Hyperparameter(kind, mutable, must, allows, sample, optional=name in _OPTIONAL)


def _literals(annotation: Any) -> tuple[Any, ...]:
    """Return the words of a `Literal`, which may be optional."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return tuple(word for part in get_args(annotation) for word in _literals(part))


def _kind_of(default: Any) -> Kind:
    if isinstance(default, bool):
        return "flag"
    if isinstance(default, int):
        return "whole"
    return "real" if isinstance(default, float) else "word"


def _is(kind: Kind, value: Any) -> bool:
    if isinstance(value, bool) or kind == "flag":
        return isinstance(value, bool) and kind == "flag"
    if kind == "word":
        return isinstance(value, str)
    return isinstance(value, int | float) and (kind == "real" or value == int(value))
