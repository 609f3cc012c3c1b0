"""What may be searched: fields of the model and the training, options and initialisation ranges of a layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import annotated_types
from pydantic import BaseModel

from orchestrator.spec.sections import ModelSection, TrainingSection
from trainables.settings import LAYER_SETTINGS, Option, Range

Kind = Literal["real", "whole", "flag", "word"]


@dataclass(frozen=True)
class Hyperparameter:
    """A name that `search` may hold.

    Attributes:
        kind: the type of its values.
        static: whether another value needs another compiled program.
        mutable: whether a running trial can take another value: free, and not spent at its start.
        must: its bounds in words.
        allows: tells whether a value of the right type is within its bounds.
    """

    kind: Kind
    static: bool
    mutable: bool
    must: str
    allows: Callable[[Any], bool]

    def holds(self, value: Any) -> bool:
        """Tell whether `value` has the right type and is within the bounds."""
        return _is(self.kind, value) and self.allows(value)


_FIELDS: tuple[tuple[str, type[BaseModel], Kind, bool, bool], ...] = (
    ("depth", ModelSection, "whole", True, False),
    ("d_model", ModelSection, "whole", True, False),
    ("d_state", ModelSection, "whole", True, False),
    ("bidirectional", ModelSection, "flag", True, False),
    ("dropout", ModelSection, "real", False, True),
    ("batch_size", TrainingSection, "whole", True, False),
    ("learning_rate", TrainingSection, "real", False, True),
    ("recurrent_learning_rate", TrainingSection, "real", False, True),
    ("weight_decay", TrainingSection, "real", False, True),
    ("warmup", TrainingSection, "real", False, False),
)


def searchable(layer: str) -> dict[str, Hyperparameter]:
    """Return every hyperparameter of a trial with this layer, by its name in `search`."""
    found = {
        name: _field(model, name, kind, static, mutable) for name, model, kind, static, mutable in _FIELDS
    }
    found["layer"] = Hyperparameter(
        "word", True, False, f"one of {', '.join(LAYER_SETTINGS)}", LAYER_SETTINGS.__contains__
    )
    found |= {name: option_hyperparameter(option) for name, option in LAYER_SETTINGS[layer].options.items()}
    for name, spec in LAYER_SETTINGS[layer].ranges.items():
        found |= {f"{name}.{end}": _range_end(spec) for end in ("min", "max")}
    return found


def option_hyperparameter(option: Option) -> Hyperparameter:
    """Return an option, of a layer or of a task, as a hyperparameter."""
    kind = _kind_of(option)
    if option.choices is not None:
        listed = ", ".join(str(choice) for choice in option.choices)
        return Hyperparameter(kind, True, False, f"one of {listed}", option.choices.__contains__)
    if option.at_least is None:
        return Hyperparameter(kind, True, False, _KIND_WORDS[kind], lambda value: True)
    least = option.at_least
    must = f"{_KIND_WORDS[kind]}, at least {least:g}"
    return Hyperparameter(kind, True, False, must, lambda value: value >= least)


def _range_end(spec: Range) -> Hyperparameter:
    low, high = spec.within
    must = f"between {low:g} and {high:g}{', both excluded' if spec.open_ends else ''}"
    return Hyperparameter("real", False, False, must, spec.holds)


_KIND_WORDS: Mapping[Kind, str] = {
    "real": "a number",
    "whole": "a whole number",
    "flag": "true or false",
    "word": "a word",
}


def _kind_of(option: Option) -> Kind:
    sample = option.default if option.default is not None else next(iter(option.choices or ()), "")
    if isinstance(sample, bool):
        return "flag"
    if isinstance(sample, int):
        return "whole"
    return "real" if isinstance(sample, float) else "word"


def _is(kind: Kind, value: Any) -> bool:
    if isinstance(value, bool) or kind == "flag":
        return isinstance(value, bool) and kind == "flag"
    if kind == "word":
        return isinstance(value, str)
    return isinstance(value, int | float) and (kind == "real" or value == int(value))


def _field(model: type[BaseModel], name: str, kind: Kind, static: bool, mutable: bool) -> Hyperparameter:
    """Read the bounds where they are written once: in the section's field."""
    tests: list[Callable[[Any], bool]] = []
    words: list[str] = [_KIND_WORDS[kind]]
    for bound in model.model_fields[name].metadata:
        match bound:
            case annotated_types.Ge(ge):
                tests.append(lambda value, least=ge: value >= least)
                words.append(f"at least {ge}")
            case annotated_types.Gt(gt):
                tests.append(lambda value, over=gt: value > over)
                words.append(f"above {gt}")
            case annotated_types.Le(le):
                tests.append(lambda value, most=le: value <= most)
                words.append(f"at most {le}")
            case annotated_types.Lt(lt):
                tests.append(lambda value, under=lt: value < under)
                words.append(f"below {lt}")
    return Hyperparameter(
        kind, static, mutable, ", ".join(words), lambda value: all(test(value) for test in tests)
    )
