"""The importance of each hyperparameter, with its uncertainty over so few trials.

Optuna's PED-ANOVA compares the distribution of good trials with that of all trials. A single number does not
show its uncertainty, so it is also computed on resampled trials: the interval is the 5th to 95th percentile.

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

from orchestrator.config.space import KINDS, Distribution
from orchestrator.ledger.records import TrialRecord
from orchestrator.study.distributions import as_held, to_optuna

_FEWEST = 10
"""Number of trials below which an importance would be noise."""

_RESAMPLES = 40


@dataclass(frozen=True)
class Importance:
    """The share of one hyperparameter, with the interval that holds 90 % of the resampled sweeps."""

    name: str
    share: float
    low: float
    high: float


def importances(
    trials: Sequence[TrialRecord], search: Mapping[str, Mapping[str, Any]], *, maximize: bool
) -> list[Importance]:
    """Return the importance of each hyperparameter, the most important first; empty for too few trials.

    Only complete trials count, because the value of a pruned one is of fewer steps.

    Args:
        trials: of the search.
        search: the section `search` of the sweep's document.
        maximize: whether a larger value is better.
    """
    space = {name: _distribution(entry) for name, entry in search.items()}
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


def _distribution(entry: Mapping[str, Any]) -> Distribution:
    """Return the distribution of an entry that `Distribution.document` wrote, without its condition."""
    kind = next(kind for kind in KINDS if kind in entry)
    if kind == "choice":
        return Distribution(kind, choices=tuple(entry[kind]))
    low, high = entry[kind]
    return Distribution(kind, low, high, entry.get("step"))


class _Finished(FrozenTrial):
    """A trial that nobody changes, so that the copy that each of the studies makes may share its values.

    Of 5,000 trials, copying every value takes four fifths of the time of all importances.
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
    # It imports scikit-learn for another evaluator: two seconds, which a driver does not spend at its start.
    from optuna.importance import PedAnovaImportanceEvaluator

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize" if maximize else "minimize")
    study.add_trials(trials)
    # At least five trials count as good ones, or the estimate would rest on one or two.
    target = min(0.5, max(0.1, 5 / len(trials)))
    importances = PedAnovaImportanceEvaluator(target_quantile=target).evaluate(study)
    total = sum(importances.values())
    return {name: value / total if total else 0.0 for name, value in importances.items()}
