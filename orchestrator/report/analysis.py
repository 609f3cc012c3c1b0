"""Hyperparameter importances, and the other findings of a sweep while it runs.

Optuna's PED-ANOVA compares the distribution of good trials with that of all trials. It is repeated on
resampled trials, and the interval of an importance is the 5th to 95th percentile of these repetitions.

Source: S. Watanabe, A. Bansal, F. Hutter, "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in
Arbitrary Subspaces", IJCAI 2023; B. Efron, "Bootstrap Methods", Annals of Statistics 7, 1979.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from orchestrator.assignment import INITIAL_NORM, NORM
from orchestrator.config.space import Distribution, recorded_space
from orchestrator.ledger.sweeps.records import TrialRecord
from orchestrator.ledger.sweeps.selection import best_trial
from orchestrator.report.history import History
from orchestrator.report.summary import TimeSpent, spending
from orchestrator.study.distributions import as_held, to_optuna

_FEWEST = 10
"""Minimum number of complete trials."""

_RESAMPLES = 40


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
        spent: Time of the attempts by purpose.
        best: Key of the best trial, or None.
        norms: Norms of the hidden states of the best trial: pairs of step and value by metric.
    """

    importances: Sequence[Importance]
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
    return Analysis(importances_of(history), spending(history), best.key if best else None, norms)


def importances_of(history: History) -> list[Importance]:
    """Return the importance of each hyperparameter of a sweep, largest first; empty for too few trials."""
    return importances(history.search(), history.sweep.document["search"], maximize=history.maximize)


def importances(
    trials: Sequence[TrialRecord], search: Mapping[str, Mapping[str, Any]], *, maximize: bool
) -> list[Importance]:
    """Return the importance of each hyperparameter, largest first; empty for too few trials.

    Only complete trials count, because pruned ones have trained for fewer steps. `search` is the section of
    that name of the sweep's document.
    """
    known = recorded_space(search)
    space = {name: known[name] for name in search}
    distributions = {name: to_optuna(distribution) for name, distribution in space.items()}
    usable = [trial for trial in trials if trial.state == "COMPLETE" and trial.value is not None]
    if len(usable) < _FEWEST or len({trial.value for trial in usable}) < 3 or len(distributions) < 2:
        return []
    frozen = [_frozen(trial, space, distributions) for trial in usable]
    full = _shares(frozen, maximize=maximize)
    random = np.random.default_rng(0)
    resampled = [
        _shares([frozen[n] for n in random.integers(0, len(frozen), len(frozen))], maximize=maximize)
        for _ in range(_RESAMPLES)
    ]
    results = []
    for name, share in full.items():
        low, high = np.quantile([shares.get(name, 0.0) for shares in resampled], (0.05, 0.95))
        results.append(Importance(name, share, float(min(low, share)), float(max(high, share))))
    return sorted(results, key=lambda importance: -importance.share)


class _Finished(FrozenTrial):
    """An immutable trial, whose shallow copies the studies share.

    With 5,000 trials, deep copies take four fifths of the time of all importances.
    """

    def __deepcopy__(self, _: dict[int, Any]) -> _Finished:
        return copy.copy(self)


def _frozen(
    trial: TrialRecord, space: Mapping[str, Distribution], distributions: Mapping[str, BaseDistribution]
) -> FrozenTrial:
    ended = datetime.fromtimestamp(trial.finished_at or trial.created_at)
    return _Finished(
        number=trial.number,
        trial_id=trial.number,
        state=TrialState.COMPLETE,
        value=trial.value,
        datetime_start=ended,
        datetime_complete=ended,
        params={name: as_held(space[name], value) for name, value in trial.params.items()},
        distributions={name: distributions[name] for name in trial.params},
        user_attrs={},
        system_attrs={},
        intermediate_values={},
    )


def _shares(trials: Sequence[FrozenTrial], *, maximize: bool) -> dict[str, float]:
    # Imported here because it loads scikit-learn, which would delay the start of a driver by two seconds.
    from optuna.importance import PedAnovaImportanceEvaluator

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize" if maximize else "minimize")
    study.add_trials(trials)
    # At least five trials count as good: an estimate from one or two would be noise.
    target = min(0.5, max(0.1, 5 / len(trials)))
    importances = PedAnovaImportanceEvaluator(target_quantile=target).evaluate(study)
    total = sum(importances.values())
    return {name: value / total if total else 0.0 for name, value in importances.items()}
