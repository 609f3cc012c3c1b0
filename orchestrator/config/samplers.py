"""Samplers by name, every default written out: Optuna's names, which the study hands on as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from orchestrator.config.sections import Flag, Number, Section, Whole, setting


@dataclass(frozen=True)
class Sampler:
    """How trials are proposed: a name of `SAMPLERS` and all of its options."""

    name: str
    options: Mapping[str, Any]

    @property
    def seed(self) -> int:
        """Return the seed that every draw of the sweep derives from."""
        return int(self.options["seed"])


def _startup(default: int) -> Any:
    return setting("Random trials before the model.", default, default, ge=0, le=100_000)


class _Seeded(Section):
    seed: Whole = setting("Seed of the sweep.", 0, 0, ge=0, lt=2**32)


class TpeOptions(_Seeded):
    """Tree-structured Parzen estimator: Optuna's TPESampler."""

    n_startup_trials: Whole = _startup(10)
    n_ei_candidates: Whole = setting("Candidates an ask.", 24, 24, ge=1, le=10_000)
    multivariate: Flag = setting("Model hyperparameters together.", True, True)
    group: Flag = setting("Model each branch of a conditional space by itself.", True, True)
    constant_liar: Flag = setting("Keep away from running trials.", True, True)

    @model_validator(mode="after")
    def _groups_are_multivariate(self) -> TpeOptions:
        if self.group and not self.multivariate:
            raise PydanticCustomError("must", "must have group: false where multivariate is false")
        return self


class GpOptions(_Seeded):
    """Gaussian process: Optuna's GPSampler."""

    n_startup_trials: Whole = _startup(10)
    deterministic_objective: Flag = setting("Whether equal trials give equal values.", False, False)


class CmaesOptions(_Seeded):
    """CMA-ES, for ranges of numbers: Optuna's CmaEsSampler."""

    n_startup_trials: Whole = _startup(1)
    sigma0: Number | None = setting("First step size; by the space if none.", 0.2, None, gt=0, le=100)
    popsize: Whole | None = setting("Trials a generation; by the space if none.", 8, None, ge=2, le=10_000)
    with_margin: Flag = setting("Keep discrete dimensions from collapsing.", True, False)
    lr_adapt: Flag = setting("Adapt its learning rate.", True, False)


class RandomOptions(_Seeded):
    """Independent draws."""


class GridOptions(_Seeded):
    """Every combination once."""


class QmcOptions(_Seeded):
    """Quasi-random points: Optuna's QMCSampler."""

    qmc_type: Literal["sobol", "halton"] = setting("Sequence.", "sobol", "sobol")
    scramble: Flag = setting("Scramble the sequence by the seed.", True, True)


class NsgaiiOptions(_Seeded):
    """Genetic, for several objectives: Optuna's NSGAIISampler."""

    population_size: Whole = setting("Trials a generation.", 50, 50, ge=2, le=10_000)
    mutation_prob: Number | None = setting(
        "Chance of a mutation; one over the dimensions if left out.", 0.1, None, ge=0, le=1
    )
    crossover_prob: Number = setting("Chance of a crossover.", 0.9, 0.9, ge=0, le=1)
    swapping_prob: Number = setting("Chance of a swap at a crossover.", 0.5, 0.5, ge=0, le=1)


@dataclass(frozen=True)
class SamplerKind:
    """What a sampler accepts and can do.

    Attributes:
        options: its options.
        conditions: whether it takes part in a space with `when:`.
        constraints: whether it learns from `constraints:`.
        objectives: whether it takes more than one objective.
        learns: whether trials of an earlier sweep mean anything to it.
        needs: packages beyond the locked ones that it must have; the extra of its name brings them.
    """

    options: type[Section]
    conditions: bool = False
    constraints: bool = False
    objectives: bool = False
    learns: bool = False
    needs: tuple[str, ...] = ()


SAMPLERS: dict[str, SamplerKind] = {
    "tpe": SamplerKind(TpeOptions, conditions=True, constraints=True, objectives=True, learns=True),
    "gp": SamplerKind(GpOptions, constraints=True, objectives=True, learns=True, needs=("torch", "scipy")),
    "cmaes": SamplerKind(CmaesOptions, needs=("cmaes",)),
    "qmc": SamplerKind(QmcOptions, objectives=True),
    "random": SamplerKind(RandomOptions, conditions=True, objectives=True),
    "grid": SamplerKind(GridOptions, objectives=True),
    "nsgaii": SamplerKind(NsgaiiOptions, constraints=True, objectives=True),
}
