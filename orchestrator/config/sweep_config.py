"""The validated and frozen configuration of a sweep, with its profile and overrides applied."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from orchestrator.config.feasible import FeasibleSpace
from orchestrator.config.hyperparameters import searchable
from orchestrator.config.relations import Relation
from orchestrator.config.sections import (
    BudgetSection,
    ClockSection,
    ConfirmSection,
    EvaluateSection,
    ModelSection,
    ResourcesSection,
    TrainingSection,
)
from orchestrator.config.space import Distribution, active, combinations
from orchestrator.config.trainable import Trainable
from orchestrator.errors import counted
from trainables.layers import LAYERS
from trainables.settings import range_ends
from trainables.trial import (
    Clock,
    ModelSettings,
    Settings,
    TrainingSettings,
    TrialSettings,
)

Direction = Literal["maximize", "minimize"]

_SETTINGS = 200
"""Number of random settings among which the largest one is looked for."""

CHANGEABLE = frozenset({"budget", "resources", "notify"})
"""Sections that may change between two runs of one sweep and are therefore not part of its identity."""

_MODEL = ("pooling", "mixing", "short_conv", "gate", "norm", "norm_position", "encoder")
_TRAINING = ("optimizer", "schedule", "groups", "plateau_factor", "plateau_patience", "carry_state")
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "model": {"layers": {}, "match": None, **{name: getattr(ModelSettings, name) for name in _MODEL}},
    "training": {name: getattr(TrainingSettings, name) for name in _TRAINING},
}
"""By section: values that are not part of a sweep's identity, because they are the defaults."""

FIRST = "first"
"""Key of a document in its section `objective`: the direction that decides, if it is not `maximize`."""


def better(metric: str) -> Direction:
    """Return the direction in which a metric of a task is better."""
    return "maximize" if metric.endswith("/accuracy") or metric == "tokens_per_second" else "minimize"


def identity(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the parts of a document that identify a sweep."""
    kept = {key: value for key, value in document.items() if key not in CHANGEABLE}
    if trainable := kept.get("trainable"):
        # The same files in another folder, such as a copy on a cluster, are the same sweep. `free` is part of
        # the code, whose changes a sweep records by themselves.
        kept["trainable"] = {
            name: value for name, value in trainable.items() if name not in {"folder", "free"}
        }
    for name in _DEFAULTS.keys() & kept.keys():
        defaults = _DEFAULTS[name]
        kept[name] = {key: value for key, value in kept[name].items() if defaults.get(key) != value}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True)
class Objective:
    """A reported metric and its direction."""

    metric: str
    direction: Direction


@dataclass(frozen=True)
class Constraint:
    """Bounds of a metric of feasible trials."""

    metric: str
    at_least: float | None
    at_most: float | None


@dataclass(frozen=True)
class Sampler:
    """A sampler of `orchestrator.config.strategy.SAMPLERS` with all its options."""

    name: str
    options: Mapping[str, Any]

    @property
    def seed(self) -> int:
        """Return the seed of all draws of the sweep."""
        return int(self.options["seed"])


@dataclass(frozen=True)
class Scheduler:
    """A scheduler of `orchestrator.config.strategy.SCHEDULERS` with all its options.

    Attributes:
        name: Name of the scheduler.
        options: All of them.
        is_default: Whether the file names none.
    """

    name: str
    options: Mapping[str, Any]
    is_default: bool = field(default=False, compare=False)

    def grace(self, training: TrainingSection | ClockSection) -> int | None:
        """Return the steps before the first stop: a share of all, at least one interval. None without any."""
        if "grace" not in self.options:
            return None
        steps = training.steps
        grace = float(self.options["grace"])
        return min(max(round(grace * steps), training.interval, 1), steps)

    def rungs(self, training: TrainingSection | ClockSection) -> list[float]:
        """Return the steps at which successive halving compares trials, rising; empty for other schedulers.

        They are those of all brackets, computed as Ray Tune does.
        """
        step, reduction = self.grace(training), self.options.get("reduction")
        if step is None or reduction is None:
            return []
        rungs, power = [], 0
        while step * reduction**power <= training.steps:
            rungs.append(step * reduction**power)
            power += 1
        return rungs

    def phrase(self, training: TrainingSection | ClockSection) -> str:
        """Return the scheduler in words, such as `asha, grace 3 of 12 steps (default)`."""
        grace = self.grace(training)
        steps = "" if grace is None else f", grace {grace} of {training.steps} steps"
        return f"{self.name}{steps}{' (default)' if self.is_default else ''}"


@dataclass(frozen=True)
class Published:
    """Published values of a paper.

    Attributes:
        source: Paper and table.
        values: Value for every hyperparameter that these values make active; empty where none are known.
        results: Published figures by metric, such as `test/accuracy`; comparable without a profile only.
    """

    source: str
    values: Mapping[str, Any]
    results: Mapping[str, float]


@dataclass(frozen=True)
class KnownResults:
    """Results that others have measured.

    Attributes:
        source: File, address or name of the results.
        results: Hyperparameters and objectives of each result; None while the source is not read.
        left_out: Number of results of the source that are not used, by reason.
        run: Number of its best settings that the first trials run.
    """

    source: str
    results: tuple[Mapping[str, Any], ...] | None
    left_out: Mapping[str, int]
    run: int = 0

    @property
    def phrase(self) -> str:
        """Describe the results, such as `results.csv: 12 results; left out: 2 without dropout`."""
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        count = counted(len(self.results or ()), "result")
        run = (
            f", of which the best {min(self.run, len(self.results or ()))} are run first" if self.run else ""
        )
        return f"{self.source}: {count}{run}{f'; left out: {reasons}' if reasons else ''}"


@dataclass(frozen=True)
class SweepConfig:
    """Complete configuration of one sweep.

    Attributes:
        name: Stem of the file, a slug.
        profile: Name of the applied profile, or None for the whole file as it stands.
        task: Name of `trainables.tasks.TASKS`; of a trainable, its own name.
        task_options: Options of the task that the file sets.
        model: Settings of the network, where the search has no value; None if the file has a trainable.
        training: Settings of training, where the search has no value.
        evaluate: Examples that an evaluation reads.
        search: Space, in which a hyperparameter follows those that its condition names.
        require: Relations that every trial satisfies.
        first: Values to try first, each for some hyperparameters; the sampler completes them.
        repeat: Whether a setting may be tried more than once.
        objectives: Optimised metrics; the first one decides which trial is best.
        reports: Reports that are the value of a trial: `best`, `last` or `mean of last N`.
        prefers: Whether the file says that the first one of several objectives decides which trial is best.
        constraints: Bounds of the metrics of a feasible trial.
        sampler: Sampler that proposes trials.
        scheduler: Rule that stops trials early.
        budget: Limits that end the search.
        resources: Resources of one trial.
        confirm: Retrainings of the best trial.
        published: Values tried first, or None.
        warm_start: Ids of earlier sweeps to learn from.
        known: Results of others to learn from.
        source_text: File as it was read.
        trainable: Function, command or program that trials run, or None: they train a network.
        fixed: Further hyperparameters of a trainable, with the value that every trial gets.
        edition: Number of this sweep among those of the same file, from 1.
        recorded_id: Id of the sweep in the ledger, or None if it has neither run nor been submitted.
    """

    name: str
    profile: str | None
    task: str
    task_options: Mapping[str, Any]
    model: ModelSection | None
    training: TrainingSection | ClockSection
    evaluate: EvaluateSection
    search: Mapping[str, Distribution]
    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...]
    sampler: Sampler
    scheduler: Scheduler
    budget: BudgetSection
    resources: ResourcesSection
    confirm: ConfirmSection
    published: Published | None
    warm_start: tuple[str, ...]
    known: tuple[KnownResults, ...]
    source_text: str
    trainable: Trainable | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    require: tuple[Relation, ...] = ()
    first: tuple[Mapping[str, Any], ...] = ()
    repeat: bool = False
    edition: int = 1
    recorded_id: str | None = None
    reports: str = "best"
    prefers: bool = False
    notify: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def network(self) -> ModelSection:
        """Return the network; only sweeps without a trainable have one."""
        assert self.model is not None, f"{self.id} trains {self.task}, no network of this package"
        return self.model

    @property
    def kind(self) -> str:
        """Return the layer that the file names, or the kind of its trainable."""
        return self.network.layer if self.trainable is None else self.trainable.kind

    @property
    def subject(self) -> str:
        """Describe what is trained, such as `rotrnn on listops` or `the function train.py:train`."""
        return f"{self.kind} on {self.task}" if self.trainable is None else f"the {self.kind} {self.task}"

    @property
    def evaluates_test(self) -> bool:
        """Return True if the service itself can evaluate a checkpoint."""
        return self.trainable is None or self.trainable.kind == "program"

    @property
    def objective(self) -> Objective:
        """Return the objective that ranks the trials."""
        return self.objectives[0]

    @property
    def metric(self) -> str:
        """Return the metric that ranks the trials, such as `val/accuracy`."""
        return self.objective.metric

    @property
    def direction(self) -> Direction:
        """Return `maximize` or `minimize`."""
        return self.objective.direction

    @property
    def compared(self) -> Objective:
        """Return the metric that the scheduler compares: the one that the file names, or the objective."""
        metric, direction = (self.scheduler.options.get(name) for name in ("metric", "direction"))
        if metric is None:
            return self.objective
        known = {objective.metric: objective.direction for objective in self.objectives}
        return Objective(metric, direction or known.get(metric) or better(metric))

    @property
    def has_best(self) -> bool:
        """Return True if one trial can be the best: with several objectives, only by a preference."""
        return len(self.objectives) == 1 or self.prefers

    @property
    def finite_metrics(self) -> tuple[str, ...]:
        """Return the metrics that must be finite in every report: the objectives and the compared one."""
        return tuple(dict.fromkeys([*self.objective_metrics, self.compared.metric]))

    @property
    def objective_metrics(self) -> tuple[str, ...]:
        """Return the metrics of the objectives. The first one ranks the trials."""
        return tuple(objective.metric for objective in self.objectives)

    @property
    def observed_metrics(self) -> tuple[str, ...]:
        """Return the metrics that rank, stop or constrain trials, those that must be finite first."""
        constrained = (constraint.metric for constraint in self.constraints)
        return tuple(dict.fromkeys([*self.finite_metrics, *constrained]))

    @cached_property
    def digest(self) -> str:
        """Return the identity of the document."""
        return identity(self.document())

    @cached_property
    def id(self) -> str:
        """Return the current or future id in the ledger: stem, profile, digest and edition."""
        if self.recorded_id is not None:
            return self.recorded_id
        edition = str(self.edition) if self.edition > 1 else None
        return "-".join(part for part in (self.name, self.profile, self.digest[:8], edition) if part)

    @cached_property
    def feasible(self) -> FeasibleSpace:
        """The settings that trials may have."""
        return FeasibleSpace.of(self.search, self.require, self.document() if self.require else {})

    def document(self) -> dict[str, Any]:
        """Return the sweep as plain JSON values, defaults included; `from_document` reads it back."""
        return {
            "name": self.name,
            **({"profile": self.profile} if self.profile else {}),
            **self._subject_document(),
            "training": self.training.model_dump(mode="json", exclude_none=True),
            "search": {name: distribution.document() for name, distribution in self.search.items()},
            **({"require": [relation.text for relation in self.require]} if self.require else {}),
            **({"try": [dict(point) for point in self.first]} if self.first else {}),
            **({"repeat": True} if self.repeat else {}),
            "objective": self._objective_document(),
            "constraints": {bound.metric: _bounds_document(bound) for bound in self.constraints},
            "sampler": {self.sampler.name: _given(self.sampler.options)},
            "scheduler": {self.scheduler.name: _given(self.scheduler.options)},
            "budget": self.budget.model_dump(mode="json", exclude_none=True),
            "resources": self.resources.model_dump(mode="json", exclude_none=True),
            "confirm": self.confirm.model_dump(mode="json", exclude_none=True),
            **({"published": _published_document(self.published)} if self.published else {}),
            "warm_start": list(self.warm_start),
            **({"known": [_known_document(each) for each in self.known]} if self.known else {}),
            **({"notify": self._notify_document()} if self.notify else {}),
        }

    def _notify_document(self) -> dict[str, Any]:
        return {target: list(events) or "all" for target, events in self.notify.items()}

    def _subject_document(self) -> dict[str, Any]:
        if self.trainable is not None:
            return {
                "trainable": self.trainable.document(),
                **({"fixed": dict(self.fixed)} if self.fixed else {}),
            }
        return {
            "task": self.task,
            "data": dict(self.task_options),
            "model": self.network.model_dump(mode="json"),
            "evaluate": self.evaluate.model_dump(mode="json", exclude_none=True),
        }

    def _objective_document(self) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for objective in self.objectives:
            document.setdefault(objective.direction, []).append(objective.metric)
        if self.trainable is not None and list(document) == ["minimize", "maximize"]:
            # A ledger sorts the keys. Earlier versions let `maximize` decide wherever it stood in the file.
            document[FIRST] = "minimize"
        if self.prefers:
            document["prefer"] = self.metric
        if self.reports != "best":
            document["of"] = self.reports
        return document

    def settings(self, params: Mapping[str, Any], seed: int, steps: int | None = None) -> Settings:
        """Return the settings of a trial with these hyperparameters.

        Args:
            params: Value for every active hyperparameter of the search, as the study drew them.
            seed: Seed of the trial.
            steps: Length of the schedule, if it is not that of the file.
        """
        assert set(params) == self.active(params), f"{sorted(params)} is not an assignment of the space"
        if self.trainable is not None:
            clock = Clock(**self.training.model_dump())
            if steps is not None:
                clock = replace(clock, steps=steps)
            meant = {name: self.search[name].meaning(value) for name, value in params.items()}
            return self.trainable.settings({**self.fixed, **meant}, clock, seed, self.resources)
        settings = self.network_settings(params, seed)
        if steps is not None:
            settings = replace(settings, training=replace(settings.training, steps=steps))
        return settings

    def network_settings(self, params: Mapping[str, Any], seed: int) -> TrialSettings:
        """Return the settings of a trial with these hyperparameters. The sweep must train a network."""
        known = searchable(str(params.get("layer", self.network.layer)))
        drawn = {name: known[name].cast(value) for name, value in params.items()}
        assert isinstance(self.training, TrainingSection)
        return TrialSettings(
            task=self.task,
            model=model_settings(self.network, drawn),
            training=_training_settings(self.training, drawn),
            seed=seed,
            task_options=dict(self.task_options),
            evaluate_examples=self.evaluate.examples,
        )

    def active(self, params: Mapping[str, Any]) -> set[str]:
        """Return the names of the hyperparameters whose conditions hold for these values."""
        drawn: dict[str, Any] = {}
        for name, distribution in self.search.items():
            if active(distribution, drawn):
                drawn[name] = params.get(name)
        return set(drawn)

    def largest(self, lowest: Collection[str] = ()) -> dict[str, Any]:
        """Return the hyperparameters of the largest trial: the upper ends of the space.

        Args:
            lowest: Hyperparameters to give their lower ends instead.
        """
        drawn: dict[str, Any] = {}
        for name, distribution in self.search.items():
            if active(distribution, drawn):
                drawn[name] = distribution.ends()[name not in lowest]
        if self.feasible.broken(drawn) is None:
            return drawn
        return self._largest_found(lowest)

    def _largest_found(self, lowest: Collection[str]) -> dict[str, Any]:
        """Return the one of several random feasible settings that is closest to these ends."""
        rng = random.Random(0)
        found = [self.feasible.found(rng) for _ in range(_SETTINGS)]
        every = [params for params in found if params is not None]
        assert every, "a file without a setting that satisfies its relations is refused"
        return max(every, key=lambda params: self._closeness(params, lowest))

    def _closeness(self, params: Mapping[str, Any], lowest: Collection[str]) -> float:
        """Return the closeness of a setting to its ends: the sum over its numbers, each from 0 to 1."""
        total = 0.0
        for name, value in params.items():
            low, high = self.search[name].ends()
            if all(isinstance(number, int | float) for number in (low, high, value)) and low < high:
                share = (value - low) / (high - low)
                total += 1 - share if name in lowest else share
        return total

    def networks(self, names: frozenset[str]) -> Iterator[ModelSettings]:
        """Yield a network for every combination of static choices that satisfies the relations."""
        for drawn in combinations(self.search, names):
            if self.feasible.broken(drawn) is None:
                yield model_settings(self.network, drawn)

    def trial_seed(self, number: int, params: Mapping[str, Any]) -> int:
        """Return the seed of trial `number`, which determines initialisation, data order and dropout.

        A searched seed takes precedence.
        """
        return int(params.get("seed", self._seed("trial", number)))

    def confirmation_seed(self, number: int) -> int:
        """Return the fresh seed of confirmation `number`."""
        return self._seed("confirmation", number)

    def _seed(self, role: str, number: int) -> int:
        text = f"{self.sampler.seed}/{role}/{number}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:4]) >> 1

    @cached_property
    def points(self) -> tuple[Mapping[str, Any], ...]:
        """Return the settings of the first trials: the published values, then the entries of `try`."""
        published = self.published_params()
        return self.first if published is None else (published, *self.first)

    def published_params(self) -> dict[str, Any] | None:
        """Return the published values as an assignment of the search, or None without any."""
        return dict(self.published.values) if self.published and self.published.values else None


def model_settings(section: ModelSection, drawn: Mapping[str, Any]) -> ModelSettings:
    """Return the network of a trial.

    Drawn values take precedence over the file's values for the layer, these over its values for all layers,
    and these over the defaults of the layer.

    Args:
        section: Section of the file, with its pooling.
        drawn: Values of searched hyperparameters by name.
    """
    layer = drawn.get("layer", section.layer)
    drawn = {name.removeprefix(f"{layer}."): value for name, value in drawn.items()}
    section = section.of(layer)
    names = ModelSection.model_fields.keys() - {"layers", "match"}
    fields = {name: drawn.get(name, getattr(section, name)) for name in names}
    declared, extras = LAYERS.settings(layer), section.extras
    return ModelSettings(
        **fields,
        options={
            name: drawn.get(name, extras.get(name, option.default))
            for name, option in declared.options.items()
        },
        ranges={
            name: _range(name, extras.get(name, spec.default), drawn)
            for name, spec in declared.ranges.items()
        },
    )


def _range(name: str, fixed: Sequence[float], drawn: Mapping[str, Any]) -> tuple[float, float]:
    low, high = range_ends(name)
    return drawn.get(low, fixed[0]), drawn.get(high, fixed[1])


def _training_settings(section: TrainingSection, drawn: Mapping[str, Any]) -> TrainingSettings:
    fields = {name: drawn.get(name, getattr(section, name)) for name in TrainingSection.model_fields}
    if fields["recurrent_learning_rate"] is None:  # the layer has no parameters of this rate
        fields["recurrent_learning_rate"] = fields["learning_rate"]
    return TrainingSettings(**fields)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _bounds_document(constraint: Constraint) -> dict[str, float]:
    return _given({"at_least": constraint.at_least, "at_most": constraint.at_most})


def _known_document(known: KnownResults) -> dict[str, Any]:
    document: dict[str, Any] = {"source": known.source}
    if known.results is not None:
        document["results"] = [dict(result) for result in known.results]
    if known.run:
        document["run"] = known.run
    return {**document, "left_out": dict(known.left_out)} if known.left_out else document


def _published_document(published: Published) -> dict[str, Any]:
    return {"source": published.source, "values": dict(published.values), **published.results}
