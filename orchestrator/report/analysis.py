"""Hyperparameter importances, and the other findings of a sweep while it runs.

PED-ANOVA compares the distribution of good trials with that of all trials, as Optuna's
`PedAnovaImportanceEvaluator` does. It is repeated on resampled trials, and the interval of an importance is
the 5th to 95th percentile of these repetitions. Optuna's class takes 2 s of a processor for 1,000 trials of
12 hyperparameters, most of it for the studies of the repetitions; arrays of all repetitions take 0.1 s.

Pruned trials count. PED-ANOVA needs only the order of the trials, so a complete trial is before a pruned
one, and a pruned one before those that were pruned at an earlier step. Trials that were pruned at the same
step, the rung of a scheduler, are ordered by their values: at that rung all of them were worse than the
trials that went on.

Source: S. Watanabe, A. Bansal, F. Hutter, "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in
Arbitrary Subspaces", IJCAI 2023; K. Kaito et al., "Conditional PED-ANOVA", KDD 2026, for hyperparameters that
some trials lack; B. Efron, "Bootstrap Methods", Annals of Statistics 7, 1979.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from scipy.special import ndtr

from orchestrator.assignment import INITIAL_NORM, NORM
from orchestrator.config.space import recorded_space
from orchestrator.ledger.sweeps.records import TrialRecord
from orchestrator.ledger.sweeps.selection import best_trial
from orchestrator.report.history import History
from orchestrator.report.summary import TimeSpent, spending
from orchestrator.study.distributions import as_held, to_optuna

FEWEST = 10
"""Minimum number of complete and pruned trials with a value."""

_RESAMPLES = 40

_CELLS = 50
"""Maximum number of cells into which a range is divided."""


@dataclass(frozen=True)
class Importance:
    """The importance of one hyperparameter, with the interval of 90 % of the resampled sweeps."""

    name: str
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Analysis:
    """The findings and costs of a sweep so far.

    Attributes:
        importances: Importance of each hyperparameter, largest first; empty for too few trials.
        counted: Number of trials that count for the importances.
        pruned: Number of pruned trials among them.
        fewest: Smallest number of counted trials that importances require.
        spent: Time of the attempts by purpose.
        best: Key of the best trial, or None.
        norms: Norms of the hidden states of the best trial: pairs of step and value by metric.
    """

    importances: Sequence[Importance]
    counted: int
    pruned: int
    fewest: int
    spent: TimeSpent
    best: str | None
    norms: Mapping[str, Sequence[tuple[int, float]]]


def analyse(history: History) -> Analysis:
    """Return the findings and costs of a sweep so far."""
    best = None
    if history.has_best:
        best = best_trial(history.search(), maximize=history.maximize, violations=history.violations())
    norms: dict[str, list[tuple[int, float]]] = {}
    for report in history.reports.get(best.key, ()) if best else ():
        for name, value in report.metrics.items():
            if name.startswith(INITIAL_NORM):
                norms[NORM + name.removeprefix(INITIAL_NORM)] = [(0, value)]
        for name, value in report.metrics.items():
            if name.startswith(NORM):
                norms.setdefault(name, []).append((report.step, value))
    counted = counted_trials(history.search())
    pruned = sum(trial.state == "PRUNED" for trial in counted)
    return Analysis(
        importances_of(history),
        len(counted),
        pruned,
        FEWEST,
        spending(history),
        best.key if best else None,
        norms,
    )


def importances_of(history: History) -> list[Importance]:
    """Return the importance of each hyperparameter of a sweep, largest first; empty for too few trials."""
    return importances(history.search(), history.sweep.document["search"], maximize=history.maximize)


def counted_trials(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return the trials that count for the importances: complete and pruned ones with a value."""
    return [trial for trial in trials if trial.state in ("COMPLETE", "PRUNED") and trial.value is not None]


def importances(
    trials: Sequence[TrialRecord], search: Mapping[str, Mapping[str, Any]], *, maximize: bool
) -> list[Importance]:
    """Return the importance of each hyperparameter, largest first; empty for too few trials.

    Complete and pruned trials with a value count, in the order that the module describes.

    Args:
        trials: Trials of the search.
        search: Section of that name of the sweep's document.
        maximize: Whether a larger value is better.
    """
    usable = counted_trials(trials)
    if len(usable) < FEWEST or len({trial.value for trial in usable}) < 3 or len(search) < 2:
        return []
    random = np.random.default_rng(0)
    count = len(usable)
    weights = np.ones((1 + _RESAMPLES, count))
    for row in weights[1:]:
        row[:] = np.bincount(random.integers(0, count, count), minlength=count)
    good = weights * _good(_ranks(usable, maximize=maximize), weights)
    space = recorded_space(search)
    unscaled: dict[str, np.ndarray] = {}
    for name in search:
        has = np.array([name in trial.params for trial in usable])
        of_optuna = to_optuna(space[name])
        if of_optuna.single() or not has.any():
            continue
        held = [as_held(space[name], trial.params[name]) for trial in usable if name in trial.params]
        places, cells = _cells(of_optuna, held)
        unscaled[name] = _importance(
            _counts(good[:, has], places, cells),
            _counts(weights[:, has], places, cells),
            good.sum(1) / weights.sum(1),
            is_choice=isinstance(of_optuna, CategoricalDistribution),
        )
    total = sum(unscaled.values())
    results = []
    for name, values in unscaled.items():
        shares = np.divide(values, total, out=np.zeros_like(values), where=total > 0)
        low, high = np.quantile(shares[1:], (0.05, 0.95))
        share = float(shares[0])
        results.append(Importance(name, share, float(min(low, share)), float(max(high, share))))
    return sorted(results, key=lambda importance: -importance.share)


def _ranks(trials: Sequence[TrialRecord], *, maximize: bool) -> np.ndarray:
    """Return the place of each trial, from 0 for the best; equal trials have the same place."""
    sign = -1.0 if maximize else 1.0
    keys = [
        (0, 0, sign * (trial.value or 0.0))
        if trial.state == "COMPLETE"
        else (1, -trial.step, sign * (trial.value or 0.0))
        for trial in trials
    ]
    places = {key: place for place, key in enumerate(sorted(set(keys)))}
    return np.array([places[key] for key in keys])


def _good(ranks: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return whether each trial is good, shape `(repetitions, trials)`.

    The best tenth of the trials is good, and at least five trials: an estimate from one or two would be
    noise.
    """
    count = len(ranks)
    wanted = math.ceil(min(0.5, max(0.1, 5 / count)) * count)
    order = np.argsort(ranks, kind="stable")
    last = np.argmax(np.cumsum(weights[:, order], axis=1) >= wanted, axis=1)
    good: np.ndarray = ranks <= ranks[order][last][:, None]
    return good


def _cells(of_optuna: BaseDistribution, held: Sequence[Any]) -> tuple[np.ndarray, int]:
    """Return the cell of each value, shape `(values,)`, and the number of cells of the distribution."""
    if isinstance(of_optuna, CategoricalDistribution):
        return np.array([int(of_optuna.to_internal_repr(value)) for value in held]), len(of_optuna.choices)
    assert isinstance(of_optuna, FloatDistribution | IntDistribution)
    cells, low, high = _CELLS, float(of_optuna.low), float(of_optuna.high)
    if isinstance(of_optuna, IntDistribution) and of_optuna.log:
        cells = min(cells, math.ceil(math.log2(high - low + 1)) + 1)
    elif of_optuna.step is not None:
        cells = min(cells, round((high - low) / of_optuna.step) + 1)
    values = np.array(held, dtype=float)
    if of_optuna.log:
        low, high, values = math.log(low), math.log(high), np.log(values)
    places = np.ceil((values - low) / ((high - low) / (cells - 1)) - 0.5)
    return np.clip(places, 0, cells - 1).astype(int), cells


def _counts(weights: np.ndarray, places: np.ndarray, cells: int) -> np.ndarray:
    """Return the sum of the weights of the trials in each cell, shape `(repetitions, cells)`.

    A product of matrices would start a thread on each core, which takes several times as long.

    Args:
        weights: Weight of each trial, shape `(repetitions, trials)`.
        places: Cell of each trial, shape `(trials,)`.
        cells: Number of cells.
    """
    repetitions = len(weights)
    bins = np.arange(repetitions)[:, None] * cells + places
    sums = np.bincount(bins.ravel(), weights.ravel(), repetitions * cells)
    return sums.reshape(repetitions, cells)


def _importance(good: np.ndarray, every: np.ndarray, share: np.ndarray, *, is_choice: bool) -> np.ndarray:
    """Return the Pearson divergence of the good trials from all trials, shape `(repetitions,)`.

    Args:
        good: Number of good trials in each cell, shape `(repetitions, cells)`.
        every: Number of all trials in each cell, of the same shape.
        share: Share of the good trials among all trials, also those without the hyperparameter.
        is_choice: Whether the cells are choices without an order.
    """
    density = _choice_density if is_choice else _density
    of_good, of_every = density(good) + 1e-12, density(every) + 1e-12
    divergence = (of_every * (of_good / of_every - 1.0) ** 2).sum(1)
    count, count_good = every.sum(1), good.sum(1)
    # The share of good trials with the hyperparameter, squared, by the share of all trials with it. Factors
    # that all hyperparameters have in common are left out.
    scale = np.divide(count_good**2, count * share, out=np.zeros_like(count), where=count >= 2)
    result: np.ndarray = scale * divergence
    return result


def _density(counts: np.ndarray) -> np.ndarray:
    """Return a Parzen estimate of the density over the cells of a range, shape `(repetitions, cells)`.

    Each trial contributes a truncated normal distribution whose width follows Scott's rule; the prior is one
    as wide as the range.
    """
    cells, places, count = counts.shape[1], np.arange(counts.shape[1]), counts.sum(1)
    known = np.maximum(count, 1.0)
    mean = counts @ places / known
    deviation = np.sqrt((counts * (places - mean[:, None]) ** 2).sum(1) / np.maximum(1.0, count - 1.0))
    below = np.cumsum(counts, axis=1)
    first = np.argmax(below >= np.maximum(1, count // 4)[:, None], axis=1)
    third = np.argmax(below > (count * 3 // 4)[:, None], axis=1)
    width = 1.059 * np.minimum((third - first) / 1.34, deviation) * known**-0.2
    kernels = _kernels(cells, places, np.maximum(width, 0.5 / 1.64))
    prior = _kernels(cells, np.array([(cells - 1) / 2]), np.array([float(cells)]))
    smooth = (kernels * counts[:, None, :]).sum(2)
    density: np.ndarray = (smooth + prior[0, :, 0]) / (count + 1.0)[:, None]
    return density


def _kernels(cells: int, centres: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Return the mass of normal distributions in each cell, shape `(widths, cells, centres)`."""
    edges = np.arange(cells + 1) - 0.5
    below = ndtr((edges[None, :, None] - centres) / widths[:, None, None])
    mass: np.ndarray = np.diff(below, axis=1) / (below[:, -1:] - below[:, :1])
    return mass


def _choice_density(counts: np.ndarray) -> np.ndarray:
    """Return a smoothed share of each choice, shape `(repetitions, choices)`."""
    choices, count = counts.shape[1], counts.sum(1, keepdims=True)
    kernels = (counts > 0).sum(1, keepdims=True) + 1.0
    density: np.ndarray = ((counts + count / kernels) / (1.0 + choices / kernels) + 1.0 / choices) / (
        count + 1.0
    )
    return density
