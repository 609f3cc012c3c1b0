"""Optuna's samplers by the names of a search-space file, with every argument written out.

A sampler is made anew for each trial, seeded from the sweep's seed and the trial's number: what it proposes
depends on the trials alone, never on how long this process has lived.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import (
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

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.study.distributions import converted

Space = dict[str, BaseDistribution]


@dataclass(frozen=True)
class Draw:
    """What a sampler is made from, for one trial.

    Attributes:
        options: of the sampler, from the file.
        seed: of this trial's draws.
        conditional: whether some hyperparameters are drawn only under conditions.
        stops_early: whether trials may end PRUNED.
    """

    options: Mapping[str, Any]
    seed: int
    conditional: bool
    stops_early: bool


@dataclass(frozen=True)
class Method:
    """How the study uses a sampler.

    Attributes:
        build: makes it for one trial.
        history: how many earlier trials it is shown, or None for all of them.
        joint: kinds of distribution that it draws together.
    """

    build: Callable[[Draw], BaseSampler]
    history: int | None = None
    joint: tuple[type[BaseDistribution], ...] = (BaseDistribution,)


def trial_seed(seed: int, number: int) -> int:
    """Return the seed of the draws of trial `number`, 32 bits, independent of its neighbours'."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def _tpe(draw: Draw) -> BaseSampler:
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


def _gp(draw: Draw) -> BaseSampler:
    return GPSampler(
        n_startup_trials=draw.options["n_startup_trials"],
        deterministic_objective=draw.options["deterministic_objective"],
        independent_sampler=RandomSampler(seed=draw.seed),
        warn_independent_sampling=False,
        seed=draw.seed,
    )


def _cmaes(draw: Draw) -> BaseSampler:
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


def _qmc(draw: Draw) -> BaseSampler:
    # The sequence belongs to the sweep: every trial takes the next point of the same one.
    return QMCSampler(
        qmc_type=draw.options["qmc_type"],
        scramble=draw.options["scramble"],
        seed=draw.options["seed"],
        independent_sampler=RandomSampler(seed=draw.seed),
        warn_asynchronous_seeding=False,
        warn_independent_sampling=False,
    )


def _random(draw: Draw) -> BaseSampler:
    return RandomSampler(seed=draw.seed)


def _nsgaii(draw: Draw) -> BaseSampler:
    given = draw.options
    return NSGAIISampler(
        population_size=given["population_size"],
        mutation_prob=given["mutation_prob"],
        crossover_prob=given["crossover_prob"],
        swapping_prob=given["swapping_prob"],
        seed=draw.seed,
    )


# TPE's densities hardly change beyond some hundred trials, and cost time for each; a Gaussian process costs
# time for the cube of their number.
METHODS: dict[str, Method] = {
    "tpe": Method(_tpe, history=400),
    "gp": Method(_gp, history=250),
    "cmaes": Method(_cmaes, joint=(FloatDistribution, IntDistribution)),
    "qmc": Method(_qmc),
    "random": Method(_random, joint=()),
    "nsgaii": Method(_nsgaii),
}


class KnownSpace(BaseSampler):
    """A sampler that is told the joint space instead of reading it off the finished trials.

    Optuna's own samplers draw independently until a trial is finished, so that what they propose first would
    depend on how fast the first trials were.
    """

    def __init__(self, sampler: BaseSampler, joint: Space | None) -> None:
        self._sampler, self._joint = sampler, joint

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> Space:
        """Return the joint space, or what the sampler reads off the trials where conditions rule it."""
        if self._joint is None:
            return self._sampler.infer_relative_search_space(study, trial)
        return dict(self._joint)

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: Space) -> dict[str, Any]:
        """Draw from the joint space."""
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw what is not in the joint space."""
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Prepare the draw."""
        self._sampler.before_trial(study, trial)


def build(sweep: SweepConfig, number: int) -> BaseSampler:
    """Return the sampler of a sweep for trial `number`."""
    method = METHODS[sweep.sampler.name]
    conditional = any(distribution.when for distribution in sweep.search.values())
    draw = Draw(
        options=sweep.sampler.options,
        seed=trial_seed(sweep.sampler.seed, number),
        conditional=conditional,
        stops_early=sweep.scheduler.name != "none",
    )
    with warnings.catch_warnings():
        # Arguments are written out here, also those that Optuna calls experimental.
        warnings.simplefilter("ignore", ExperimentalWarning)
        warnings.simplefilter("ignore", FutureWarning)
        return KnownSpace(method.build(draw), None if conditional else _joint(sweep, method))


def _joint(sweep: SweepConfig, method: Method) -> Space:
    if not sweep.sampler.options.get("multivariate", True):
        return {}
    forms = converted(sweep.search)
    return {name: forms[name] for name in sorted(forms) if _is_joint(forms[name], method)}


def _is_joint(form: BaseDistribution, method: Method) -> bool:
    return isinstance(form, method.joint) and not form.single()
