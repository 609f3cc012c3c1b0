"""Optuna's samplers, one class each, with every argument written out.

A new sampler is built for each trial, seeded from the sweep's seed and the trial's number: its proposals
depend on the trials alone, not on how long this process has run.
"""

from __future__ import annotations

import random
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import (
    BaseGASampler,
    BaseSampler,
    CmaEsSampler,
    GPSampler,
    NSGAIISampler,
    QMCSampler,
    RandomSampler,
    TPESampler,
)
from optuna.study import Study
from optuna.trial import FrozenTrial

from orchestrator.config.declarations import Need, SamplerSettings, Setting
from orchestrator.config.feasible import FeasibleSpace
from orchestrator.config.space import active
from orchestrator.config.strategy import SAMPLERS, SCHEDULERS
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.errors import BadInput
from orchestrator.study.distributions import Grid, as_drawn, as_held, converted, settled

Space = dict[str, BaseDistribution]

MOST_DRAWS = 100_000
"""Largest number of random draws for a trial, after those of its sampler, until a space counts as
exhausted."""


@dataclass(frozen=True)
class Draw:
    """The arguments of a sampler for one trial.

    Attributes:
        options: Options of the sampler.
        seed: Seed of this trial's draws.
        conditional: Whether some hyperparameters are drawn only under conditions.
        stops_early: Whether trials may end PRUNED.
    """

    options: Mapping[str, Any]
    seed: int
    conditional: bool
    stops_early: bool


class SamplerAdapter(ABC):
    """Builds a sampler of Optuna from the options of a search-space file.

    Attributes:
        settings: Options that a file may set. The expression is read without importing this module, see
            `orchestrator.config.declarations`.
        history: Number of earlier trials that the sampler is shown, or None for all of them.
        lists_stopped: Whether it learns from the last value of a stopped trial, which Optuna calls pruned.
            Otherwise a stopped trial remains a running one to the sampler.
        joint: Kinds of distribution that it draws together.
        redraws: Largest number of draws for one trial. If all of them violate a relation, or have been tried,
            the trial is drawn at random.
    """

    settings: ClassVar[SamplerSettings]
    history: ClassVar[int | None] = None
    lists_stopped: ClassVar[bool] = True
    joint: ClassVar[tuple[type[BaseDistribution], ...]] = (BaseDistribution,)
    redraws: ClassVar[int] = 100

    @staticmethod
    @abstractmethod
    def build(draw: Draw) -> BaseSampler:
        """Return Optuna's sampler for one trial."""


class GridAdapter(ABC):
    """Lists every assignment before the first trial, instead of drawing one at a time.

    Attributes:
        settings: Settings as in `SamplerAdapter`.
    """

    settings: ClassVar[SamplerSettings]

    @staticmethod
    @abstractmethod
    def grid(sweep: SweepConfig) -> Grid:
        """Return every assignment in the order to try."""


class Tpe(SamplerAdapter):
    """Tree-structured Parzen estimator. Densities hardly change beyond some hundred trials, but cost time.

    Optuna calls the best tenth of complete and pruned trials together good. Under early stopping those are
    most of the complete ones: "good" would mean "passed the rungs" and favour early values over final ones.
    A stopped trial therefore stays RUNNING to the sampler, which keeps new trials away from it, and only
    complete trials count as observations (docs/search.md).
    """

    settings = SamplerSettings(
        summary="Tree-structured Parzen estimator: Optuna's TPESampler.",
        options={
            "n_startup_trials": Setting(
                "whole", "Complete trials before the model is used.", 4, at_least=0, at_most=100_000
            ),
            "n_ei_candidates": Setting("whole", "Candidates per proposal.", 24, at_least=1, at_most=10_000),
            "multivariate": Setting("flag", "Model hyperparameters together.", True),
            "group": Setting("flag", "Model each branch of a conditional space by itself.", True),
            "constant_liar": Setting("flag", "Keep away from running trials.", True),
        },
        needs=(
            Need(
                ("group", "multivariate"),
                lambda group, multivariate: multivariate or not group,
                "group must be false where multivariate is false",
            ),
        ),
        conditions=True,
        conditional_needs=(
            Need(
                ("group", "multivariate"),
                lambda group, multivariate: group or not multivariate,
                "group must be true for conditions (`when:`)",
            ),
        ),
        constraints=True,
        several_objectives=True,
        warm_start=True,
    )
    history = 400
    lists_stopped = False

    @staticmethod
    def build(draw: Draw) -> BaseSampler:
        """Return Optuna's sampler for one trial."""
        given = draw.options
        return TPESampler(
            n_startup_trials=given["n_startup_trials"],
            n_ei_candidates=given["n_ei_candidates"],
            multivariate=given["multivariate"],
            # A space without conditions is one group, and known without reading the trials.
            group=given["group"] and draw.conditional,
            constant_liar=given["constant_liar"],
            seed=draw.seed,
        )


class GaussianProcess(SamplerAdapter):
    """Gaussian process, whose cost grows with the cube of the number of trials."""

    settings = SamplerSettings(
        summary="Gaussian process: Optuna's GPSampler.",
        options={
            "n_startup_trials": Setting(
                "whole", "Random trials before the model is used.", 10, at_least=0, at_most=100_000
            ),
            "deterministic_objective": Setting("flag", "Whether equal trials give equal values.", False),
        },
        constraints=True,
        several_objectives=True,
        warm_start=True,
        packages=("torch", "scipy"),
        under_stopping="learns only from complete trials, so it ignores most trials",
    )
    history = 250
    redraws = 4  # it proposes the same point again and again, and each proposal takes 50 ms

    @staticmethod
    def build(draw: Draw) -> BaseSampler:
        """Return Optuna's sampler for one trial."""
        return GPSampler(
            n_startup_trials=draw.options["n_startup_trials"],
            deterministic_objective=draw.options["deterministic_objective"],
            independent_sampler=RandomSampler(seed=draw.seed),
            warn_independent_sampling=False,
            seed=draw.seed,
        )


class Cmaes(SamplerAdapter):
    """CMA-ES, which draws numbers together and everything else independently."""

    settings = SamplerSettings(
        summary="CMA-ES, for ranges of numbers: Optuna's CmaEsSampler.",
        options={
            "n_startup_trials": Setting(
                "whole", "Random trials before the model is used.", 1, at_least=0, at_most=100_000
            ),
            "sigma0": Setting(
                "number",
                "Initial step size; derived from the space if left out.",
                None,
                example=0.2,
                above=0,
                at_most=100,
                optional=True,
            ),
            "popsize": Setting(
                "whole",
                "Trials per generation; derived from the space if left out.",
                None,
                example=8,
                at_least=2,
                at_most=10_000,
                optional=True,
            ),
            "with_margin": Setting("flag", "Keep discrete dimensions from collapsing.", False, example=True),
            "lr_adapt": Setting("flag", "Adapt its learning rate.", False, example=True),
        },
        ranges=2,
        packages=("cmaes",),
        under_stopping="treats the last value of a stopped trial as final, so it favours early values",
    )
    joint = (FloatDistribution, IntDistribution)

    @staticmethod
    def build(draw: Draw) -> BaseSampler:
        """Return Optuna's sampler for one trial."""
        given = draw.options
        return CmaEsSampler(
            n_startup_trials=given["n_startup_trials"],
            sigma0=given["sigma0"],
            popsize=given["popsize"],
            with_margin=given["with_margin"],
            lr_adapt=given["lr_adapt"],
            # A generation is filled by finished trials; with early stopping most of them are PRUNED.
            consider_pruned_trials=draw.stops_early,
            independent_sampler=RandomSampler(seed=draw.seed),
            warn_independent_sampling=False,
            seed=draw.seed,
        )


class Qmc(SamplerAdapter):
    """Quasi-random points of one sequence, which belongs to the sweep: every trial takes the next point."""

    settings = SamplerSettings(
        summary="Quasi-random points: Optuna's QMCSampler.",
        options={
            "qmc_type": Setting("word", "Sequence.", "sobol", choices=("sobol", "halton")),
            "scramble": Setting("flag", "Scramble the sequence by the seed.", True),
        },
        several_objectives=True,
    )

    @staticmethod
    def build(draw: Draw) -> BaseSampler:
        """Return Optuna's sampler for one trial."""
        return QMCSampler(
            qmc_type=draw.options["qmc_type"],
            scramble=draw.options["scramble"],
            seed=draw.options["seed"],
            independent_sampler=RandomSampler(seed=draw.seed),
            warn_asynchronous_seeding=False,
            warn_independent_sampling=False,
        )


class Random(SamplerAdapter):
    """Independent draws."""

    settings = SamplerSettings(summary="Independent draws.", conditions=True, several_objectives=True)
    joint = ()

    @staticmethod
    def build(draw: Draw) -> BaseSampler:
        """Return Optuna's sampler for one trial."""
        return RandomSampler(seed=draw.seed)


class EveryCombination(GridAdapter):
    """Every combination once, in an order determined by the seed."""

    settings = SamplerSettings(summary="Every combination once.", several_objectives=True, finite=True)

    @staticmethod
    def grid(sweep: SweepConfig) -> Grid:
        """Return every combination."""
        return Grid.of(sweep.search, sweep.sampler.seed)


class Nsgaii(SamplerAdapter):
    """NSGA-II, a genetic algorithm."""

    settings = SamplerSettings(
        summary="Genetic, for several objectives: Optuna's NSGAIISampler.",
        options={
            "population_size": Setting("whole", "Trials per generation.", 50, at_least=2, at_most=10_000),
            "mutation_prob": Setting(
                "number",
                "Probability of a mutation; 1 / dimensions if left out.",
                None,
                example=0.1,
                at_least=0,
                at_most=1,
                optional=True,
            ),
            "crossover_prob": Setting("number", "Probability of a crossover.", 0.9, at_least=0, at_most=1),
            "swapping_prob": Setting(
                "number", "Probability of a swap at a crossover.", 0.5, at_least=0, at_most=1
            ),
        },
        constraints=True,
        several_objectives=True,
        under_stopping="selects parents only among complete trials, so it ignores most trials",
    )

    @staticmethod
    def build(draw: Draw) -> BaseSampler:
        """Return Optuna's sampler for one trial."""
        given = draw.options
        return NSGAIISampler(
            population_size=given["population_size"],
            mutation_prob=given["mutation_prob"],
            crossover_prob=given["crossover_prob"],
            swapping_prob=given["swapping_prob"],
            seed=draw.seed,
        )


def trial_seed(seed: int, number: int) -> int:
    """Return the seed of the draws of trial `number`: 32 bits, independent of those of other trials."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


@dataclass(frozen=True)
class Wanted:
    """Requirements of a trial.

    Attributes:
        given: Values that are not drawn.
        accepts: Returns True for a setting that may be tried.
    """

    given: Mapping[str, Any] = field(default_factory=dict)
    accepts: Callable[[Mapping[str, Any]], bool] = lambda params: True


ANYTHING = Wanted()


class KnownSpace(BaseSampler):
    """A sampler with a given joint space, which Optuna's samplers infer from the finished trials.

    They draw independently until a trial is finished, so their first proposals would depend on how fast the
    first trials are. Its draws are exact values of the search, such as multiples of a step, which those of
    the Gaussian process are not: a rebuilt study would have other values than the first one.

    A whole setting is drawn at once, and again until it may be tried.

    Args:
        sampler: Sampler of Optuna.
        joint: Joint space; None for a space with conditions.
        feasible: Settings that trials may have.
        wanted: Requirements of the trial.
        redraws: Largest number of draws by `sampler`.
        rng: Source of the draws after that.
    """

    def __init__(
        self,
        sampler: BaseSampler,
        joint: Space | None,
        feasible: FeasibleSpace,
        wanted: Wanted,
        redraws: int,
        rng: random.Random,
    ) -> None:
        self._sampler, self._joint, self._feasible, self._wanted = sampler, joint, feasible, wanted
        self._redraws, self._rng = redraws, rng
        self._distributions = converted(feasible.search)
        self._held: dict[str, Any] = {}

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> Space:
        """Return the joint space; for a space with conditions, the one that the sampler infers."""
        if self._joint is None:
            return self._sampler.infer_relative_search_space(study, trial)
        return dict(self._joint)

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: Space) -> dict[str, Any]:
        """Draw a whole setting; return its part in the joint space.

        Raises:
            BadInput: No setting that may be tried has been found.
        """
        search = self._feasible.search
        drawn = self._drawn(study, trial, search_space)
        self._held = {name: as_held(search[name], value) for name, value in drawn.items()}
        return {name: value for name, value in self._held.items() if name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the value of a hyperparameter outside the joint space."""
        return self._held[param_name]

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Prepare the draw."""
        self._sampler.before_trial(study, trial)

    def mark(self, study: Study, trial: FrozenTrial) -> None:
        """Set the generation of a trial with given values, if the sampler is genetic.

        Optuna sets it only when it draws values. A trial without a generation is never a parent.
        """
        if isinstance(self._sampler, BaseGASampler):
            self._sampler.get_trial_generation(study, trial)

    def _drawn(self, study: Study, trial: FrozenTrial, search_space: Space) -> dict[str, Any]:
        for _ in range(self._redraws):
            params = self._by_sampler(study, trial, search_space)
            if self._feasible.broken(params) is None and self._wanted.accepts(params):
                return params
        given, accepts = self._wanted.given, self._wanted.accepts
        found = self._feasible.found(self._rng, given, accepts, most=MOST_DRAWS)
        if found is None:
            must = f"no untried setting satisfies the relations in {MOST_DRAWS:,} random draws"
            relations = ", ".join(relation.text for relation in self._feasible.relations)
            raise BadInput("require", must, relations, "Widen the search, or write `repeat: true`.")
        return found

    def _by_sampler(self, study: Study, trial: FrozenTrial, search_space: Space) -> dict[str, Any]:
        """Return one draw of the sampler, with the given values instead of drawn ones."""
        joint = self._sampler.sample_relative(study, trial, search_space)
        params: dict[str, Any] = {}
        for name, distribution in self._feasible.search.items():
            if not active(distribution, params):
                continue
            of_optuna = self._distributions[name]
            if name in self._wanted.given:
                params[name] = self._wanted.given[name]
            elif of_optuna.single():
                params[name] = distribution.ends()[0]
            elif name in joint:
                params[name] = as_drawn(distribution, settled(distribution, joint[name]))
            else:
                held = self._sampler.sample_independent(study, trial, name, of_optuna)
                params[name] = as_drawn(distribution, settled(distribution, held))
        return params


def build(sweep: SweepConfig, number: int, wanted: Wanted = ANYTHING) -> KnownSpace:
    """Return the sampler of a sweep for trial `number`; the sweep must not have a grid."""
    adapter: type[SamplerAdapter] = SAMPLERS[sweep.sampler.name]
    conditional = any(distribution.when for distribution in sweep.search.values())
    draw = Draw(
        options=sweep.sampler.options,
        seed=trial_seed(sweep.sampler.seed, number),
        conditional=conditional,
        stops_early=SCHEDULERS.settings(sweep.scheduler.name).stops_trials,
    )
    joint = None if conditional else _joint(sweep, adapter)
    rng = random.Random(f"{sweep.sampler.seed}/{number}")
    with warnings.catch_warnings():
        # Some of the arguments above are called experimental by Optuna.
        warnings.simplefilter("ignore", ExperimentalWarning)
        warnings.simplefilter("ignore", FutureWarning)
        return KnownSpace(adapter.build(draw), joint, sweep.feasible, wanted, adapter.redraws, rng)


def _joint(sweep: SweepConfig, adapter: type[SamplerAdapter]) -> Space:
    if not sweep.sampler.options.get("multivariate", True):
        return {}
    distributions = converted(sweep.search)
    names = sorted(name for name, kind in distributions.items() if isinstance(kind, adapter.joint))
    return {name: distributions[name] for name in names if not distributions[name].single()}
