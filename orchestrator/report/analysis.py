"""What a sweep has learned and spent so far, for a page that shows it while it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.ledger.selection import best_trial
from orchestrator.report.history import History
from orchestrator.report.importance import Importance, importances
from orchestrator.report.summary import TimeSpent, spending

NORM = "hidden_norm/"
"""How the names of the metrics begin that are norms of hidden states, one for each layer."""


@dataclass(frozen=True)
class Analysis:
    """What a sweep has learned and spent so far.

    Attributes:
        importances: of the hyperparameters, the most important first; empty for too few trials.
        spent: where the time of the attempts went.
        best: key of the best trial, or None.
        norms: the norms of the hidden states of the best trial: pairs of step and value by the metric's name.
    """

    importances: Sequence[Importance]
    spent: TimeSpent
    best: str | None
    norms: Mapping[str, Sequence[tuple[int, float]]]


def analyse(history: History) -> Analysis:
    """Return what a sweep has learned and spent so far."""
    trials, maximize = history.search(), history.maximize
    best = best_trial(trials, maximize=maximize, violations=history.violations())
    norms: dict[str, list[tuple[int, float]]] = {}
    for report in history.reports.get(best.key, ()) if best else ():
        for name, value in report.metrics.items():
            if name.startswith(NORM):
                norms.setdefault(name, []).append((report.step, value))
    shares = importances(trials, history.sweep.document["search"], maximize=maximize)
    return Analysis(shares, spending(history), best.key if best else None, norms)
