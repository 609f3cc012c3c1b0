"""Between the search space of a file and Optuna's distributions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import Trial

from orchestrator.config.space import Distribution, active


def to_optuna(distribution: Distribution) -> BaseDistribution:
    """Return Optuna's form of a distribution."""
    if distribution.kind == "choice":
        return CategoricalDistribution(distribution.choices)
    assert distribution.low is not None
    assert distribution.high is not None
    low, high, log = distribution.low, distribution.high, distribution.kind.startswith("log_")
    if distribution.kind in {"int", "log_int"}:
        return IntDistribution(int(low), int(high), log=log, step=int(distribution.step or 1))
    return FloatDistribution(float(low), float(high), log=log, step=distribution.step)


def converted(search: Mapping[str, Distribution]) -> dict[str, BaseDistribution]:
    """Return Optuna's form of every distribution of a space."""
    return {name: to_optuna(distribution) for name, distribution in search.items()}


def draw(trial: Trial, search: Mapping[str, Distribution]) -> dict[str, Any]:
    """Draw the hyperparameters that are active, in the order of the space."""
    drawn: dict[str, Any] = {}
    for name, distribution in search.items():
        if active(distribution, drawn):
            drawn[name] = _suggest(trial, name, distribution)
    return drawn


def _suggest(trial: Trial, name: str, distribution: Distribution) -> Any:
    form = to_optuna(distribution)
    if isinstance(form, CategoricalDistribution):
        return trial.suggest_categorical(name, form.choices)
    if isinstance(form, IntDistribution):
        return trial.suggest_int(name, form.low, form.high, step=form.step, log=form.log)
    assert isinstance(form, FloatDistribution)
    return trial.suggest_float(name, form.low, form.high, step=form.step, log=form.log)


def fits(search: Mapping[str, Distribution], params: Mapping[str, Any]) -> bool:
    """Tell whether `params` is one assignment of the space, all of it and nothing else."""
    expected: dict[str, Any] = {}
    for name, distribution in search.items():
        if active(distribution, expected):
            if name not in params or not distribution.holds(params[name]):
                return False
            expected[name] = params[name]
    return expected.keys() == params.keys()
