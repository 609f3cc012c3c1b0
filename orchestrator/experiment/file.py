"""Experiment files: from a file and a profile to a validated experiment."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.config.document import Violation, nearest
from orchestrator.config.objectives import reported_metrics, tested_metrics
from orchestrator.config.resolve import choose_profile, from_tree
from orchestrator.config.sections import validated
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.config.yaml_reader import read_document
from orchestrator.errors import BadInput
from orchestrator.experiment.arms import ExperimentSource, check_names, families_of, space_of
from orchestrator.experiment.departures import changes
from orchestrator.experiment.file_format import (
    ArmSection,
    CompareSection,
    ExperimentFile,
    PaperSection,
)
from orchestrator.experiment.verdict import StatedFigure
from trainables.tasks import TASKS

_NORMS = "hidden_norm/head/layer_*"
"""The metric of the hidden norms of all layers."""

Measure = Callable[..., Mapping[str, Any]]
"""A function of an arm's arguments and `seed` that returns `value`, and `steps` and `values` of a curve."""


@dataclass(frozen=True)
class Arm:
    """One arm of an experiment.

    Attributes:
        name: Name within the experiment.
        sweep: Sweep of the arm; None if the experiment measures a function.
        arguments: Arguments of the measured function.
        published: Published figure or bound, or None.
        departure: Departure from the paper that rules out a comparison; '' if there is none.
        cell: Row and column of the paper's table, or None.
        hypothesis: Whether `published` is the file's own bound instead of a paper's.
        changes: Changes of the profile to data, network and training, such as `depth 2 instead of 6`.
    """

    name: str
    sweep: SweepConfig | None
    arguments: Mapping[str, Any]
    published: StatedFigure | None
    departure: str
    cell: tuple[str, str] | None
    hypothesis: bool = False
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class OrderClaim:
    """A claim that one arm is better than another, by the paper or as a hypothesis of the file."""

    better: str
    than: str
    hypothesis: bool = False


@dataclass(frozen=True, kw_only=True)
class Statement:
    """The statement of a published table or figure, which an experiment tests.

    Attributes:
        name: Stem of the experiment file.
        profile: Name of the applied profile, or None.
        is_published_size: Whether figures of this size compare with published ones.
        title: Title of the page.
        source: Paper, and table or figure.
        claim: Claim of the paper.
        metric: Metric that arms are compared by.
        reduction: Reduction of a curve to a value, a name of `orchestrator.experiment.collected.REDUCTIONS`.
        maximize: Whether a higher value is better.
        claims: Orders of arms that the paper states.
        not_shown: Limits of the results, or ''.
        paired: Whether arms are compared by the differences of each seed.
        solved: Value from which a seed counts as having solved the task, or None.
        positive: Names of the positive controls, or None if the file states no controls.
        negative: Names of the negative controls.
        families: Names of the arms of each declared family of comparisons; all others are one family.
    """

    name: str
    profile: str | None
    is_published_size: bool
    title: str
    source: str
    claim: str
    metric: str
    reduction: str
    maximize: bool
    claims: tuple[OrderClaim, ...]
    not_shown: str = ""
    paired: bool = False
    solved: float | None = None
    positive: tuple[str, ...] | None = None
    negative: tuple[str, ...] = ()
    families: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Name of the files of the results: the stem of the experiment file and the profile."""
        return f"{self.name}-{self.profile}" if self.profile else self.name


@dataclass(frozen=True, kw_only=True)
class Experiment(Statement):
    """An experiment that is ready to run.

    Attributes:
        seeds: Number of seeds of every arm.
        measure: `module:function`, or None for sweeps.
        arms: Arms in the order of the file.
    """

    seeds: int
    measure: str | None
    arms: tuple[Arm, ...]


def load(path: Path, *, profile: str | None, gpus: int, overrides: Sequence[str] = ()) -> Experiment:
    """Read and validate an experiment file, and the search-space file of every arm.

    Args:
        path: Path of the file.
        profile: Profile of the file. None or `full` selects none, `auto` selects `laptop` without a GPU.
        gpus: Number of GPUs, which decides `auto`.
        overrides: Overrides of `resources` as `key=value`; they are not part of an arm's specification.

    Raises:
        BadInput: The file, the profile, an override or a search-space file is wrong.
    """
    _check_overrides(overrides)
    root, _ = read_document(path)
    with root.pointing():
        file = validated(ExperimentFile, root.plain())
        check_names(file)
        if file.measure is None:
            _check_comparison(file.compare)
    if overrides and file.measure is not None:
        must = f"must be left out: {path.stem} calls a function and trains nothing"
        raise BadInput("--set", must, f"`{overrides[0]}`", "Give a value to the function, under `arguments`.")
    source = ExperimentSource(
        path, root, file, choose_profile(file.profiles, profile, gpus), tuple(overrides)
    )
    with root.pointing():
        kept = dict(source.arms())
        arms = tuple(_arm(source, name, arm) for name, arm in kept.items())
    return Experiment(
        name=path.stem,
        profile=source.profile,
        is_published_size=not any(arm.changes for arm in arms),
        title=file.title,
        source=file.source,
        claim=file.claim,
        seeds=source.seeds,
        metric=file.compare.metric,
        maximize=file.compare.better == "higher",
        reduction=file.compare.of,
        paired=file.compare.paired,
        positive=tuple(file.controls.positive) if file.controls else None,
        negative=tuple(file.controls.negative) if file.controls else (),
        families=families_of(file, kept),
        solved=None if file.compare.solved is None else file.compare.solved.at,
        measure=file.measure,
        arms=arms,
        claims=tuple(
            OrderClaim(claim.better, claim.than, _either(claim.hypothesis, file))
            for claim in file.claims
            if {claim.better, claim.than} <= kept.keys()
        ),
        not_shown=file.not_shown or "",
    )


def selected(experiment: Experiment, names: Sequence[str]) -> Experiment:
    """Return an experiment with some of its arms, and the claims about them.

    Raises:
        BadInput: The experiment has no such arm.
    """
    known = [arm.name for arm in experiment.arms]
    for name in names:
        if name not in known:
            must = f"must name arms of {experiment.id}"
            raise BadInput("--only", must, f"`{name}`", nearest(name, known))
    kept = tuple(arm for arm in experiment.arms if arm.name in names)
    claims = tuple(claim for claim in experiment.claims if {claim.better, claim.than} <= set(names))
    return replace(experiment, arms=kept, claims=claims)


def function_of(measure: str) -> Measure:
    """Import the function named by `measure`.

    Raises:
        BadInput: The module or the function does not exist.
    """
    module, _, name = measure.partition(":")
    remedy = "For example benchmarks.teacher:error, with the repository as the working directory."
    try:
        function: Measure = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput("measure", "must be module:function", f"{measure} ({error})", remedy) from None
    return function


def _either(own: bool | None, file: ExperimentFile) -> bool:
    return file.hypothesis if own is None else own


def _check_overrides(overrides: Sequence[str]) -> None:
    """Check that overrides change resources only."""
    for override in overrides:
        if not override.startswith("resources."):
            must = "must override a key of `resources`"
            remedy = "For example resources.gpu=1/4. Edit the file to change anything else."
            raise BadInput("--set", must, f"`{override[:80]}`", remedy)


def _check_comparison(compare: CompareSection) -> None:
    if compare.paired:
        must = "requires `measure`: arms that are sweeps share no random draws"
        raise Violation(("compare", "paired"), must, "Leave it out.")
    if compare.of != "value" and compare.metric.startswith("test/"):
        must = "must be `value` for a metric of the test split, which is evaluated once"
        raise Violation(("compare", "of"), must, "Leave `of` out, or compare a metric that trials report.")


def _arm(source: ExperimentSource, name: str, section: ArmSection) -> Arm:
    file = source.file
    if section.arguments and file.measure is None:
        must = "requires `measure`"
        raise Violation(("arms", name, "arguments"), must, "Write sections of a search-space file instead.")
    sweep = None if file.measure else _sweep(source, name)
    return Arm(
        name=name,
        sweep=sweep,
        arguments=section.arguments,
        published=_published(source, name, section.paper),
        departure=section.departure or "",
        cell=(section.cell[0], section.cell[1]) if section.cell else None,
        hypothesis=_either(section.hypothesis, file),
        changes=_changes(source, name, sweep),
    )


def _changes(source: ExperimentSource, arm: str, sweep: SweepConfig | None) -> tuple[str, ...]:
    """Return the changes that a profile makes to an arm and that rule out a comparison."""
    if source.profile is None or sweep is None:
        return ()
    return changes(_sweep(replace(source, profile=None), arm).document(), sweep.document())


def _sweep(source: ExperimentSource, arm: str) -> SweepConfig:
    tree = space_of(source, arm)
    name = f"{source.file.shares or source.path.stem}-{arm}"
    sweep = from_tree(tree, name=name, profile=source.profile, overrides=source.overrides)
    metric, score = source.file.compare.metric, TASKS[sweep.task].metric
    known = [*tested_metrics(sweep.task, sweep.task_options), *reported_metrics(score), _NORMS]
    if metric not in known and not re.fullmatch(r"hidden_norm/(head|state|expected)/layer_\d+", metric):
        must = f"must be a metric of {sweep.task}, the task of {arm}"
        raise Violation(("compare", "metric"), must, nearest(metric, known), f"`{metric}`")
    return sweep


def _published(source: ExperimentSource, arm: str, paper: PaperSection | None) -> StatedFigure | None:
    if paper is None:
        return None
    tolerance = paper.tolerance or source.file.compare.tolerance
    bounds: Sequence[float | None] = (paper.at_least, paper.at_most)
    given = sum(figure is not None for figure in (paper.value, *bounds))
    path = ("arms", arm, "paper")
    if given != 1:
        must = "must have exactly one of value, at_least and at_most"
        raise Violation(path, must, "For example paper: 0.611.", f"{given} of them")
    if paper.value is not None and tolerance is None:
        must = "must have a tolerance, here or in `compare`"
        raise Violation(path, must, "For example {value: 0.611, tolerance: 0.01}.", "")
    return StatedFigure(
        value=paper.value,
        error=paper.error,
        tolerance=tolerance,
        at_least=paper.at_least,
        at_most=paper.at_most,
        source=paper.source or source.file.source,
        note=paper.note or "",
        layer_parameters=paper.layer_parameters,
    )
