"""Race between the best trials of a search: which one is retrained next with a fresh seed.

Every candidate is retrained once. Each further retraining goes to the leader or to its closest challenger,
whichever has fewer of them. The race ends after the planned number of retrainings, or earlier if the leader
is the best with a probability of at least `SURE`. Values are compared by their plain means: a search value
does not count, because it was selected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance

import scipy

SURE = 0.95
"""Probability of the leader being the best at which a race ends early."""

Values = Sequence[float | None]
"""Values of the retrainings of a candidate, larger is better: None while one runs, -inf if it has failed."""


def next_candidate(candidates: Sequence[Values], runs: int) -> int | None:
    """Return the index of the candidate to retrain next, or None at the end of the race.

    Args:
        candidates: Values of every candidate, in the order of the search.
        runs: Total number of retrainings.
    """
    if sum(map(len, candidates)) >= runs:
        return None
    started = [len(values) for values in candidates]
    if 0 in started:
        return started.index(0)
    if len(candidates) == 1:
        return 0
    known = [_finished(values) for values in candidates]
    if not all(known):
        return started.index(min(started))
    if chance_of_leader(known, runs) >= SURE:
        return None
    leader, challenger = sorted(range(len(known)), key=lambda index: -fmean(known[index]))[:2]
    return min((leader, challenger), key=lambda index: started[index])


def chance_of_leader(known: Sequence[Sequence[float]], runs: int) -> float:
    """Return a lower bound of the probability that the candidate with the largest mean is the best.

    It is 1 less the probabilities that another candidate is better, by Student's distribution with the
    variance of all retrainings around their own means. They are two-sided, because the same values have
    chosen the leader, and multiplied by the number of times that the race looks at them (Bonferroni). Equal
    candidates thus have a winner in at most 1 - `SURE` of all races.

    Args:
        known: Values of every candidate, at least one each; -inf for a failed retraining.
        runs: Planned number of retrainings.

    Returns:
        0 where the noise is unknown because no candidate has two values, or where a retraining of another
        candidate has failed.
    """
    looks = max(1, runs - len(known))
    doubt = _doubt(known)
    return 0.0 if doubt is None else max(0.0, 1.0 - 2 * looks * doubt)


def _doubt(known: Sequence[Sequence[float]]) -> float | None:
    """Return the sum of the probabilities that another candidate is better than the leader, if known."""
    means = [fmean(values) if values else -math.inf for values in known]
    leader = max(range(len(known)), key=means.__getitem__)
    sound = [values for values in known if len(values) > 1 and all(map(math.isfinite, values))]
    degrees = sum(len(values) - 1 for values in sound)
    if not math.isfinite(means[leader]) or degrees == 0:
        return None
    pooled = sum(variance(values) * (len(values) - 1) for values in sound) / degrees
    doubt = 0.0
    for index, values in enumerate(known):
        if index == leader:
            continue
        if not math.isfinite(means[index]):
            doubt += 0.5  # how often it fails is unknown after so few retrainings
            continue
        difference = means[leader] - means[index]
        error = math.sqrt(pooled * (1 / len(known[leader]) + 1 / len(values)))
        if error:
            doubt += float(scipy.special.stdtr(degrees, -difference / error))
        elif difference == 0:
            doubt += 0.5
    return doubt


def _finished(values: Values) -> list[float]:
    return [value for value in values if value is not None]
