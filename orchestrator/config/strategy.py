"""Samplers, which propose trials, and schedulers, which stop or change trials early."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

from orchestrator.config.declarations import SamplerSettings, SchedulerSettings
from orchestrator.config.declared import DECLARED
from orchestrator.config.document import Path, Violation, flow, nearest
from orchestrator.config.feasible import FeasibleSpace
from orchestrator.config.sections import Section, StudySections, TrainableFile, validated
from orchestrator.config.space import Distribution
from orchestrator.config.sweep_config import Sampler, Scheduler, SweepConfig
from trainables.registry import DeclaredRegistry, subclass_of
from trainables.settings import Need

Space = Mapping[str, Distribution]

SAMPLERS: DeclaredRegistry[Any, SamplerSettings] = DeclaredRegistry(
    {
        "tpe": "orchestrator.study.samplers:Tpe",
        "gp": "orchestrator.study.samplers:GaussianProcess",
        "cmaes": "orchestrator.study.samplers:Cmaes",
        "qmc": "orchestrator.study.samplers:Qmc",
        "random": "orchestrator.study.samplers:Random",
        "grid": "orchestrator.study.samplers:EveryCombination",
        "nsgaii": "orchestrator.study.samplers:Nsgaii",
    },
    "orchestrator.samplers",
    subclass_of("orchestrator.study.samplers:SamplerAdapter", "orchestrator.study.samplers:GridAdapter"),
    declared=SamplerSettings,
    generated=DECLARED,
)
"""Samplers by the names of a search-space file. `SAMPLERS.settings(name)` does not import Optuna."""

SCHEDULERS: DeclaredRegistry[Any, SchedulerSettings] = DeclaredRegistry(
    {
        "asha": "orchestrator.schedule.schedulers:Asha",
        "hyperband": "orchestrator.schedule.schedulers:Hyperband",
        "median": "orchestrator.schedule.schedulers:Median",
        "none": "orchestrator.schedule.schedulers:RunToTheEnd",
        "pbt": "orchestrator.schedule.schedulers:PopulationBasedTraining",
    },
    "orchestrator.schedulers",
    subclass_of("orchestrator.schedule.schedulers:SchedulerAdapter"),
    declared=SchedulerSettings,
    generated=DECLARED,
)
"""Schedulers by the names of a search-space file. `SCHEDULERS.settings(name)` does not import Ray."""

_REGISTRIES: Mapping[str, DeclaredRegistry[Any, Any]] = {"sampler": SAMPLERS, "scheduler": SCHEDULERS}
_FEWEST_REPORTS = 4
_GRACE_OF_SCRIPTS = 0.25
_ABILITIES = {
    "several_objectives": "takes one objective only",
    "constraints": "does not learn from constraints",
    "conditions": "takes no conditions (`when:`)",
    "warm_start": "learns nothing from earlier results (`warm_start:`, `known:`)",
}


def read_strategy(
    file: StudySections, space: Space, objectives: int, mutable: frozenset[str]
) -> tuple[Sampler, Scheduler]:
    """Return the sampler and the scheduler of a file, every option with a value.

    Args:
        file: Validated file.
        space: Space of the search.
        objectives: Number of its objectives.
        mutable: Hyperparameters that can have other values when a trial resumes.

    Raises:
        Violation: A name or an option is unknown, or the strategy does not suit the rest of the file.
    """
    is_default = "scheduler" not in file.model_fields_set
    chosen = _default_scheduler(file, objectives) if is_default else file.scheduler
    scheduler = Scheduler(*_read("scheduler", chosen), is_default)
    declared = SCHEDULERS.settings(scheduler.name)
    _check_needs(("scheduler", scheduler.name), declared.needs, scheduler.options)
    named = declared.mutations is None or "sampler" in file.model_fields_set
    sampler = Sampler(*_read("sampler", file.sampler if named else "random"))
    if declared.mutations is not None:
        _check_mutations(mutable, space, sampler, scheduler, declared.mutations)
    if objectives > 1 and declared.stops_trials and "metric" not in scheduler.options:
        must = "must be none when there are several objectives: it cannot compare trials by a named metric"
        raise Violation(("scheduler",), must, "Write scheduler: none.", f"`{scheduler.name}`")
    _check_sampler(file, space, sampler, objectives)
    return sampler, scheduler


def read_scheduler(value: Any) -> Scheduler:
    """Return a scheduler by itself, every option with a value.

    Args:
        value: Name, or {name: {options}}, as a file writes it.

    Raises:
        Violation: The name or an option is unknown.
    """
    scheduler = Scheduler(*_read("scheduler", value))
    _check_needs(("scheduler", scheduler.name), SCHEDULERS.settings(scheduler.name).needs, scheduler.options)
    return scheduler


def _default_scheduler(file: StudySections, objectives: int) -> Any:
    """Return the scheduler of a file that names none.

    Trials of a network or a program are compared from a tenth of their steps on. First reports of scripts are
    less reliable: their trials are compared from a quarter of their steps on, and never if they report
    seldom. Trials with several objectives are never compared.
    """
    if objectives > 1:
        return "none"
    if not isinstance(file, TrainableFile) or file.trainable.program is not None:
        return file.scheduler
    is_seldom = file.training.steps < _FEWEST_REPORTS * file.training.interval
    return "none" if is_seldom else {"asha": {"grace": _GRACE_OF_SCRIPTS}}


def check_installed(sampler: Sampler) -> None:
    """Check that the packages of a sampler are installed.

    Raises:
        Violation: A package is missing.
    """
    packages = SAMPLERS.settings(sampler.name).packages
    if missing := [package for package in packages if find_spec(package) is None]:
        must = f"{sampler.name} needs the package {' and '.join(missing)}"
        extra = "" if SAMPLERS.package(sampler.name) else f", or this package's extra `{sampler.name}`"
        raise Violation(("sampler",), must, f"pip install {' '.join(missing)}{extra}.", "")


def check_mutations(space: Space, scheduler: Scheduler) -> None:
    """Check that a scheduler changes no hyperparameter on which others depend.

    A trial would continue with hyperparameters of another branch.

    Raises:
        Violation: It changes one.
    """
    option = SCHEDULERS.settings(scheduler.name).mutations
    if option is None:
        return
    for name in scheduler.options[option]:
        if dependent := next((other for other in space if name in space[other].when), None):
            must = f"must not include {name}: {dependent} is drawn only for some of its values"
            remedy = f"Take {name} out of the mutations, or search {dependent} without `when:`."
            raise Violation(("scheduler", scheduler.name, option), must, remedy, "")


@cache
def options_section(kind: str, name: str) -> type[Section]:
    """Return the options of a sampler or a scheduler as a section of the file.

    Args:
        kind: `sampler` or `scheduler`.
        name: Its name.
    """
    section: type[Section] = _REGISTRIES[kind].settings(name).section()
    return section


def most_trials(document: Mapping[str, Any]) -> int:
    """Return the largest number of trials: the budget, or the number of settings if that is smaller.

    Args:
        document: Document of the sweep in the ledger.
    """
    budget = int(document["budget"]["trials"])
    (sampler,) = document["sampler"]
    scheduler = next(iter(document.get("scheduler", ())), "none")
    searched = document["search"]
    if _repeats(sampler, scheduler, searched, repeat=document.get("repeat", False)):
        return budget
    return min(budget, FeasibleSpace.of_document(document).count or budget)


def repeats(sweep: SweepConfig) -> bool:
    """Return True if a sweep may try a setting more than once.

    Trials with the same setting differ if it has a seed, or if a scheduler changes them while they run.
    """
    return _repeats(sweep.sampler.name, sweep.scheduler.name, sweep.search, repeat=sweep.repeat)


def _repeats(sampler: str, scheduler: str, search: Collection[str], *, repeat: bool) -> bool:
    if sampler in SAMPLERS and SAMPLERS.settings(sampler).finite:
        return False
    changes = scheduler in SCHEDULERS and SCHEDULERS.settings(scheduler).mutations is not None
    return repeat or "seed" in search or changes


def _read(kind: str, value: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the complete options of `name` or `{name: {options}}`."""
    known = _REGISTRIES[kind]
    given = {value: {}} if isinstance(value, str) else value
    if not isinstance(given, dict) or len(given) != 1:
        must = "must be one name, or {name: {options}}"
        raise Violation((kind,), must, f"Names: {', '.join(known)}.")
    ((name, options),) = given.items()
    if name not in known:
        raise Violation((kind, name), f"must name a {kind}", nearest(name, known), f"`{name}`")
    if not isinstance(options, dict):
        raise Violation((kind, name), "must be a mapping of options", f"Write {kind}: {name}.")
    return name, validated(options_section(kind, name), options, (kind, name)).model_dump(mode="json")


def _check_needs(path: Path, needs: Iterable[Need], options: Mapping[str, Any]) -> None:
    for need in needs:
        values = [options[name] for name in need.of]
        if not need.holds(*values):
            got = ", ".join(f"{name} {flow(value)}" for name, value in zip(need.of, values, strict=True))
            raise Violation((*path, need.of[0]), need.must, "Change one of them.", got)


def _check_sampler(file: StudySections, space: Space, sampler: Sampler, objectives: int) -> None:
    declared = SAMPLERS.settings(sampler.name)
    conditional = any(distribution.when for distribution in space.values())
    wanted = {
        "several_objectives": objectives > 1,
        "constraints": bool(file.constraints),
        "conditions": conditional,
        "warm_start": bool(file.warm_start or file.known),
    }
    for ability, lack in _ABILITIES.items():
        if wanted[ability] and not getattr(declared, ability):
            able = ", ".join(name for name in SAMPLERS if getattr(SAMPLERS.settings(name), ability))
            must = f"{sampler.name} {lack}"
            raise Violation(("sampler",), must, f"Write one of: {able}.", f"`{sampler.name}`")
    _check_needs(("sampler", sampler.name), declared.needs, sampler.options)
    if conditional:
        _check_needs(("sampler", sampler.name), declared.conditional_needs, sampler.options)
    if declared.finite:
        _check_finite(space, sampler.name)
    _check_ranges(space, sampler.name, declared.ranges)


def _check_finite(space: Space, sampler: str) -> None:
    for name, distribution in space.items():
        if distribution.count() is None:
            must = f"must have finitely many values for the sampler {sampler}"
            remedy = "Write a choice, or give it a step."
            raise Violation(("search", name), must, remedy, f"`{distribution.kind}`")


def _check_ranges(space: Space, sampler: str, least: int) -> None:
    ranges = [distribution for distribution in space.values() if _is_range(distribution)]
    if len(ranges) < least:
        must = f"{sampler} needs at least {least} ranges of numbers"
        raise Violation(("sampler",), must, "Write sampler: tpe.", f"{len(ranges)}")


def _is_range(distribution: Distribution) -> bool:
    """Return True if the values of a distribution have distances, and there are several."""
    if distribution.kind == "choice":
        return distribution.is_scale and len(distribution.choices) > 1
    return distribution.low != distribution.high


def _check_mutations(
    mutable: frozenset[str], space: Space, sampler: Sampler, scheduler: Scheduler, option: str
) -> None:
    """Check the hyperparameters that a scheduler changes while trials run."""
    if sampler.name != "random":
        must = f"cannot be combined with {scheduler.name}, which changes trials while they run"
        raise Violation(("sampler",), must, "Leave it out.", f"`{sampler.name}`")
    path = ("scheduler", scheduler.name, option)
    for name in scheduler.options[option]:
        if name not in space:
            must = "must name searched hyperparameters"
            raise Violation(path, must, nearest(name, mutable & set(space)), f"`{name}`")
        if name not in mutable:
            must = "must name hyperparameters that can change during training"
            declare = (
                "If a function or a command can resume with another value, name it in `trainable.mutable`."
            )
            remedy = nearest(name, mutable & set(space)) if mutable else declare
            raise Violation(path, must, remedy, f"`{name}`")
