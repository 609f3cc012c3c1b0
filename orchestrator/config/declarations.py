"""Declarations of samplers and schedulers: their options and abilities.

A sampler class assigns one `SamplerSettings` to its attribute `settings`, a scheduler class one
`SchedulerSettings`. In this package the expression uses only literals and the names of this module, so that
`trainables.declare` can copy it to a module without Optuna and Ray.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import create_model

from orchestrator.config.sections import Flag, Number, Pair, Section, Whole, Word, setting
from trainables.settings import Need

__all__ = ["COMPARED", "Need", "SamplerSettings", "SchedulerSettings", "Setting"]

REQUIRED = ...
Kind = Literal["whole", "number", "flag", "word", "words", "pair"]

_TYPES: Mapping[Kind, Any] = {
    "whole": Whole,
    "number": Number,
    "flag": Flag,
    "word": Word,
    "words": list[Word],
    "pair": Pair,
}


@dataclass(frozen=True)
class Setting:
    """An option of a sampler or a scheduler.

    Attributes:
        kind: Type of its values; `pair` is a list of two numbers, `words` a list of words.
        summary: One sentence for the reference page and for editors.
        default: Value used where a file gives none; if left out, a file must give one.
        example: Value that errors show; the default if left out.
        at_least: Smallest legal number; for `words`, the smallest number of them.
        above: Exclusive lower bound of a number.
        at_most: Largest legal number; for `words`, the largest number of them.
        below: Exclusive upper bound of a number.
        choices: Legal words.
        optional: Whether None is legal too.
    """

    kind: Kind
    summary: str
    default: Any = REQUIRED
    example: Any = None
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False

    def field(self) -> tuple[Any, Any]:
        """Return the type and the field of a section that has this option."""
        kind = Literal[self.choices] if self.choices else _TYPES[self.kind]
        low, high = ("min_length", "max_length") if self.kind == "words" else ("ge", "le")
        bounds = {low: self.at_least, "gt": self.above, high: self.at_most, "lt": self.below}
        given = {name: bound for name, bound in bounds.items() if bound is not None}
        example = self.default if self.example is None else self.example
        return (kind | None if self.optional else kind), setting(self.summary, example, self.default, **given)


COMPARED: Mapping[str, Setting] = {
    "metric": Setting(
        "word", "Metric that is compared; the objective if left out.", None, "val/loss", optional=True
    ),
    "direction": Setting(
        "word",
        "Direction in which `metric` improves; left out for an objective.",
        None,
        "minimize",
        choices=("maximize", "minimize"),
        optional=True,
    ),
}
"""Options of every scheduler that compares trials."""


@dataclass(frozen=True)
class SamplerSettings:
    """Options and abilities of a sampler. Every sampler also has the option `seed`.

    Attributes:
        summary: One sentence for the reference page.
        options: Its options by name.
        needs: Constraints between its options.
        conditions: Whether it takes spaces with conditions (`when:`).
        conditional_needs: Further rules for a space with conditions.
        constraints: Whether it learns from `constraints:`.
        several_objectives: Whether it takes more than one objective.
        warm_start: Whether it learns from trials of earlier sweeps.
        finite: Whether every distribution must have finitely many values; each combination is one trial.
        ranges: Smallest number of searched ranges of numbers.
        packages: Packages that must be installed beside the locked ones.
        under_stopping: Drawback under a scheduler that stops trials early, in words; '' if there is none.
    """

    summary: str
    options: Mapping[str, Setting] = field(default_factory=dict)
    needs: tuple[Need, ...] = ()
    conditions: bool = False
    conditional_needs: tuple[Need, ...] = ()
    constraints: bool = False
    several_objectives: bool = False
    warm_start: bool = False
    finite: bool = False
    ranges: int = 0
    packages: tuple[str, ...] = ()
    under_stopping: str = ""

    def section(self) -> type[Section]:
        """Return the options as a section of the file."""
        seed = Setting("whole", "Seed of the sweep.", 0, at_least=0, below=2**32)
        return _section(self.summary, {"seed": seed, **self.options})


@dataclass(frozen=True)
class SchedulerSettings:
    """Options and behaviour of a scheduler.

    Attributes:
        summary: One sentence for the reference page.
        options: Its options by name.
        needs: Constraints between its options.
        stops_trials: Whether it may end a trial before its last step.
        mutations: Name of the option that lists hyperparameters which it changes while trials run, or None.
        resumes: Options with which it continues trials from their checkpoints, which scripts must then save
            with each report; empty if it always does, None if it never does.
    """

    summary: str
    options: Mapping[str, Setting] = field(default_factory=dict)
    needs: tuple[Need, ...] = ()
    stops_trials: bool = True
    mutations: str | None = None
    resumes: Mapping[str, Any] | None = None

    def section(self) -> type[Section]:
        """Return the options as a section of the file."""
        return _section(self.summary, self.options)


def _section(summary: str, options: Mapping[str, Setting]) -> type[Section]:
    fields: dict[str, Any] = {name: option.field() for name, option in options.items()}
    return create_model("Options", __base__=Section, __doc__=summary, **fields)
