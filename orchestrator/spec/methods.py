"""Samplers and schedulers by name, with every default written out; the study and the schedule interpret them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from orchestrator.spec.complaints import complaint, from_pydantic, nearest
from orchestrator.spec.document import Node
from orchestrator.spec.sections import Flag, Number, Pair, Section, Whole, Word


@dataclass(frozen=True)
class Sampler:
    """How trials are proposed: a name of `SAMPLERS` and all of its options."""

    name: str
    options: Mapping[str, Any]

    @property
    def seed(self) -> int:
        """Return the seed that every draw of the sweep derives from."""
        return int(self.options["seed"])


@dataclass(frozen=True)
class Scheduler:
    """Which trials are stopped early: a name of `SCHEDULERS` and all of its options."""

    name: str
    options: Mapping[str, Any]


class Seeded(Section):
    """Options that every sampler has."""

    seed: Whole = Field(0, ge=0, lt=2**32, description="Seed of the sweep.", examples=[0])


class TpeOptions(Seeded):
    """Optuna's TPESampler."""

    n_startup_trials: Whole = Field(
        10, ge=0, le=100_000, description="Random trials before the model.", examples=[10]
    )
    n_ei_candidates: Whole = Field(24, ge=1, le=10_000, description="Candidates an ask.", examples=[24])
    multivariate: Flag = Field(True, description="Model hyperparameters together.", examples=[True])
    group: Flag = Field(True, description="Model each branch of a conditional space.", examples=[True])
    constant_liar: Flag = Field(True, description="Keep away from running trials.", examples=[True])

    @model_validator(mode="after")
    def _groups_are_multivariate(self) -> TpeOptions:
        if self.group and not self.multivariate:
            raise PydanticCustomError("must", "must have multivariate: true, or group: false")
        return self


class GpOptions(Seeded):
    """Optuna's GPSampler."""

    n_startup_trials: Whole = Field(
        10, ge=0, le=100_000, description="Random trials before the model.", examples=[10]
    )
    deterministic_objective: Flag = Field(
        False, description="Whether equal trials give equal values.", examples=[False]
    )


class CmaesOptions(Seeded):
    """Optuna's CmaEsSampler."""

    n_startup_trials: Whole = Field(
        1, ge=0, le=100_000, description="Random trials before the model.", examples=[1]
    )
    sigma0: Number | None = Field(
        None, gt=0, le=100, description="Initial step size; by the space if left out.", examples=[0.2]
    )
    popsize: Whole | None = Field(None, ge=2, le=10_000, description="Trials a generation.", examples=[8])
    with_margin: Flag = Field(False, description="Keep discrete dimensions from collapsing.", examples=[True])
    lr_adapt: Flag = Field(False, description="Adapt its learning rate.", examples=[True])


class QmcOptions(Seeded):
    """Optuna's QMCSampler."""

    qmc_type: Literal["sobol", "halton"] = Field("sobol", description="Sequence.", examples=["sobol"])
    scramble: Flag = Field(True, description="Scramble the sequence by the seed.", examples=[True])


class NsgaiiOptions(Seeded):
    """Optuna's NSGAIISampler."""

    population_size: Whole = Field(50, ge=2, le=10_000, description="Trials a generation.", examples=[50])
    mutation_prob: Number | None = Field(
        None, ge=0, le=1, description="Chance of a mutation; 1/dimensions if left out.", examples=[0.1]
    )
    crossover_prob: Number = Field(0.9, ge=0, le=1, description="Chance of a crossover.", examples=[0.9])
    swapping_prob: Number = Field(
        0.5, ge=0, le=1, description="Chance of a swap at a crossover.", examples=[0.5]
    )


class NoOptions(Section):
    """Nothing to set."""


def _grace(default: float) -> Any:
    return Field(default, gt=0, le=1, description="Share of the steps before the first stop.", examples=[0.1])


class AshaOptions(Section):
    """Asynchronous successive halving."""

    reduction: Number = Field(
        4.0, gt=1, le=100, description="One in this many goes on at each rung.", examples=[4]
    )
    grace: Number = _grace(0.1)


class HyperbandOptions(Section):
    """Asynchronous Hyperband: successive halving with several first rungs."""

    reduction: Number = Field(
        3.0, gt=1, le=100, description="One in this many goes on at each rung.", examples=[3]
    )
    grace: Number = _grace(0.1)
    brackets: Whole = Field(3, ge=1, le=20, description="Different first rungs.", examples=[3])


class MedianOptions(Section):
    """Stop what is below the median of the others."""

    grace: Number = _grace(0.1)
    trials: Whole = Field(
        3, ge=1, le=10_000, description="Trials to compare with before anything stops.", examples=[3]
    )


def _pair(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class PbtOptions(Section):
    """Population based training: the worst go on from the best one's checkpoint, with other hyperparameters."""

    mutations: list[Word] = Field(
        min_length=1,
        max_length=20,
        description="Searched hyperparameters that change.",
        examples=[["learning_rate"]],
    )
    period: Number = Field(
        0.1, gt=0, lt=1, description="Share of the steps between two exploits.", examples=[0.1]
    )
    quantile: Number = Field(
        0.25, gt=0, le=0.5, description="Share that is replaced, and share that is copied.", examples=[0.25]
    )
    resample: Number = Field(
        0.25, ge=0, le=1, description="Chance of a fresh draw instead of a step.", examples=[0.25]
    )
    factors: Annotated[Pair, BeforeValidator(_pair)] = Field(
        (0.8, 1.2), description="What a step multiplies by.", examples=[[0.8, 1.2]]
    )


@dataclass(frozen=True)
class SamplerKind:
    """What a sampler accepts and can do.

    Attributes:
        options: its options.
        summary: one sentence for the reference page.
        conditions: whether it takes part in a space with `when:`.
        constraints: whether it learns from `constraints:`.
        objectives: whether it takes more than one objective.
        needs: packages that must be installed, and the extra that brings them.
    """

    options: type[Section]
    summary: str
    conditions: bool = False
    constraints: bool = False
    objectives: bool = False
    needs: tuple[str, ...] = ()
    extra: str = ""


@dataclass(frozen=True)
class SchedulerKind:
    """What a scheduler accepts."""

    options: type[Section]
    summary: str


SAMPLERS: dict[str, SamplerKind] = {
    "tpe": SamplerKind(TpeOptions, "Tree-structured Parzen estimator.", True, True, True),
    "gp": SamplerKind(GpOptions, "Gaussian process.", False, True, True, ("torch", "scipy"), "gp"),
    "cmaes": SamplerKind(CmaesOptions, "CMA-ES, for numbers.", needs=("cmaes",), extra="cmaes"),
    "qmc": SamplerKind(QmcOptions, "Quasi-random points.", objectives=True),
    "random": SamplerKind(Seeded, "Independent draws.", conditions=True, objectives=True),
    "grid": SamplerKind(Seeded, "Every combination once.", objectives=True),
    "nsgaii": SamplerKind(NsgaiiOptions, "Genetic, for several objectives.", False, True, True),
}

SCHEDULERS: dict[str, SchedulerKind] = {
    "asha": SchedulerKind(AshaOptions, "Asynchronous successive halving."),
    "hyperband": SchedulerKind(HyperbandOptions, "Asynchronous Hyperband."),
    "median": SchedulerKind(MedianOptions, "Stop what is below the running median."),
    "none": SchedulerKind(NoOptions, "Every trial runs to its end."),
    "pbt": SchedulerKind(PbtOptions, "Population based training."),
}


def read_sampler(root: Node, value: Any) -> Sampler:
    """Return the sampler that the file names, its defaults written out.

    Raises:
        BadInput: an unknown name, option or value.
    """
    name, given = _named(root, "sampler", value, SAMPLERS)
    return Sampler(name, _options(root, ("sampler", name), SAMPLERS[name].options, given))


def read_scheduler(root: Node, value: Any) -> Scheduler:
    """Return the scheduler that the file names, its defaults written out.

    Raises:
        BadInput: an unknown name, option or value.
    """
    name, given = _named(root, "scheduler", value, SCHEDULERS)
    return Scheduler(name, _options(root, ("scheduler", name), SCHEDULERS[name].options, given))


def check_installed(root: Node, sampler: Sampler) -> None:
    """Refuse a sampler whose packages are missing.

    Raises:
        BadInput: if one is.
    """
    kind = SAMPLERS[sampler.name]
    missing = [package for package in kind.needs if find_spec(package) is None]
    if missing:
        raise complaint(
            root,
            ("sampler",),
            f"{sampler.name} needs the package {missing[0]}",
            f"Install the extra `{kind.extra}`, or write sampler: tpe.",
            got="none installed",
        )


def _named(root: Node, section: str, value: Any, known: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    given = {value: {}} if isinstance(value, str) else value
    if not isinstance(given, dict) or len(given) != 1:
        raise complaint(
            root, (section,), "must be one name, or {name: {options}}", f"Names are: {', '.join(known)}."
        )
    ((name, options),) = given.items()
    if name not in known:
        must = f"must name a {section}"
        raise complaint(root, (section, name), must, nearest(name, known), got=f"`{name}`")
    if not isinstance(options, dict):
        raise complaint(
            root, (section, name), "must be a mapping of options", f"For example {section}: {name}."
        )
    return name, options


def _options(
    root: Node, path: tuple[str, str], model: type[Section], given: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        return model.model_validate(given).model_dump(mode="json")
    except ValidationError as error:
        raise from_pydantic(error, model, root, path) from None
