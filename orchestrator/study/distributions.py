"""Conversion of a search space to Optuna's distributions, and drawing from them."""

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
    """Return a distribution as Optuna's."""
    if distribution.kind == "choice":
        return CategoricalDistribution(distribution.choices)
    assert distribution.low is not None
    assert distribution.high is not None
    low, high, log = distribution.low, distribution.high, distribution.kind.startswith("log_")
    if distribution.kind in {"int", "log_int"}:
        return IntDistribution(int(low), int(high), log=log, step=int(distribution.step or 1))
    return FloatDistribution(float(low), float(high), log=log, step=distribution.step)


def converted(search: Mapping[str, Distribution]) -> dict[str, BaseDistribution]:
    """Return every distribution of a space as Optuna's."""
    return {name: to_optuna(distribution) for name, distribution in search.items()}


def draw(trial: Trial, search: Mapping[str, Distribution]) -> dict[str, Any]:
    """Draw the active hyperparameters, in the order of the space."""
    drawn: dict[str, Any] = {}
    for name, distribution in search.items():
        if active(distribution, drawn):
            drawn[name] = _suggest(trial, name, distribution)
    return drawn


def _suggest(trial: Trial, name: str, distribution: Distribution) -> Any:
    of_optuna = to_optuna(distribution)
    if isinstance(of_optuna, CategoricalDistribution):
        return trial.suggest_categorical(name, of_optuna.choices)
    if isinstance(of_optuna, IntDistribution):
        return trial.suggest_int(name, of_optuna.low, of_optuna.high, step=of_optuna.step, log=of_optuna.log)
    assert isinstance(of_optuna, FloatDistribution)
    return trial.suggest_float(name, of_optuna.low, of_optuna.high, step=of_optuna.step, log=of_optuna.log)


def fits(search: Mapping[str, Distribution], params: Mapping[str, Any]) -> bool:
    """Return True if `params` has a value of each active hyperparameter, and no other."""
    expected: dict[str, Any] = {}
    for name, distribution in search.items():
        if active(distribution, expected):
            if name not in params or not distribution.holds(params[name]):
                return False
            expected[name] = params[name]
    return expected.keys() == params.keys()
