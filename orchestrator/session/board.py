"""Trial board: the state of every trial, the best trial so far, and the queue of retries.

This module imports neither Optuna nor Ray, because verbs that only show progress use it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from orchestrator.ledger.sweeps.records import (
    CANDIDATE,
    FINISHED_TRIAL,
    UNFINISHED_TRIAL,
    SweepState,
    TrialRecord,
    TrialState,
)
from orchestrator.ledger.sweeps.selection import order


@dataclass(frozen=True)
class Progress:
    """The progress of a sweep, for display.

    Attributes:
        states: Number of trials by state.
        wanted: Expected number of trials at the end.
        best_key: Key of the best trial so far, or None.
        best_value: Best validation value of that trial.
        seconds_left: Estimate of the time left, or None without data for one.
        state: State of the sweep, such as RUNNING, WAITING or PAUSED.
        reason: Reason for this state, or None.
    """

    states: Mapping[str, int]
    wanted: int
    best_key: str | None = None
    best_value: float | None = None
    seconds_left: float | None = None
    state: SweepState = "RUNNING"
    reason: str | None = None

    @property
    def settled(self) -> int:
        """Return the number of finished trials."""
        return sum(self.states.get(state, 0) for state in FINISHED_TRIAL)


class RetryQueue:
    """Trials whose next attempt is due at some time, the earliest first; `keys` are due at once."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._due = [(0.0, key) for key in keys]
        heapq.heapify(self._due)

    def __len__(self) -> int:
        return len(self._due)

    def in_order(self) -> list[str]:
        """Return the keys in a new list, the earliest due first."""
        return [key for _, key in sorted(self._due)]

    def add(self, key: str, due: float) -> None:
        """Add a trial that is due at a time."""
        heapq.heappush(self._due, (due, key))

    def is_due(self, now: float) -> bool:
        """Return True if a trial is due."""
        return bool(self._due) and self._due[0][0] <= now

    def pop(self, now: float) -> str | None:
        """Remove and return the earliest trial, or None if none is due yet."""
        return heapq.heappop(self._due)[1] if self.is_due(now) else None

    def remove(self, key: str) -> None:
        """Remove a trial before it is due."""
        self._due = [entry for entry in self._due if entry[1] != key]
        heapq.heapify(self._due)


class TrialBoard:
    """State, score and retries of the trials of one sweep.

    Args:
        trials: Trials of earlier drivers; the unfinished ones are due for another attempt at once.
        maximize: Whether more of the objective is better.
        violations: `total_violation` by trial key; a trial without an entry is feasible.
        has_best: Whether one trial can be the best, which several objectives without a preference rule out.

    Attributes:
        maximize: Whether more of the objective is better.
        counts: Number of trials by state.
        retries: Trials to launch again.
    """

    def __init__(
        self,
        trials: Sequence[TrialRecord],
        *,
        maximize: bool,
        violations: Mapping[str, float] | None = None,
        has_best: bool = True,
    ) -> None:
        self.maximize, self._has_best, broken = maximize, has_best, violations or {}
        self._scores: dict[str, tuple[int, float, float]] = {}
        self._states: dict[str, TrialState] = {}
        self.counts: Counter[str] = Counter()
        for trial in trials:
            self.enter(trial.key, "WAITING" if trial.state in UNFINISHED_TRIAL else trial.state)
            if trial.state in CANDIDATE and trial.role == "search" and trial.value is not None:
                self.score(trial, trial.value, broken.get(trial.key, 0.0))
        self._settled_before = self.settled
        self.retries = RetryQueue(trial.key for trial in trials if trial.state in UNFINISHED_TRIAL)

    def enter(self, key: str, state: TrialState) -> None:
        """Set the state of a trial, which may be new."""
        if (before := self._states.get(key)) is not None:
            self.counts[before] -= 1
        self._states[key] = state
        self.counts[state] += 1

    def retry(self, key: str, state: TrialState, due: float) -> None:
        """Queue a trial for another attempt that is due at a time."""
        self.enter(key, state)
        self.retries.add(key, due)

    def better(self, value: float, than: float) -> bool:
        """Return True if one value of the objective is better than another."""
        return value > than if self.maximize else value < than

    def score(self, trial: TrialRecord, value: float, violation: float = 0.0) -> None:
        """Record the best value so far of a trial of the search, and the `total_violation` at its step."""
        self._scores[trial.key] = trial.number, value, violation

    def forget(self, key: str) -> None:
        """Drop the score of a trial that has ended without a value."""
        self._scores.pop(key, None)

    @property
    def best(self) -> tuple[str, float] | None:
        """Return the key and value of the best trial so far, or None.

        Candidates and unfinished trials count, pruned ones only if no other trial has a value, and failed
        ones never. At the end this is the trial that `ledger.selection.best_of_sweep` returns, if any.
        """
        known = {key: score for key, score in self._scores.items() if self._states[key] != "FAILED"}
        going = {key: score for key, score in known.items() if self._states[key] != "PRUNED"}
        if not (scores := going or known) or not self._has_best:
            return None

        def rank(key: str) -> tuple[float, float, int]:
            number, value, violation = scores[key]
            return order(value, number, maximize=self.maximize, violation=violation)

        key = min(scores, key=rank)
        return key, scores[key][1]

    @property
    def settled(self) -> int:
        """Return the number of finished trials."""
        return sum(self.counts[state] for state in FINISHED_TRIAL)

    @property
    def unfinished(self) -> int:
        """Return the number of unfinished trials."""
        return len(self._states) - self.settled

    def progress(self, elapsed: float, wanted: int, state: SweepState, reason: str | None) -> Progress:
        """Return the counts, the best trial so far and an estimate of the time left.

        Args:
            elapsed: Seconds since this board was created.
            wanted: Expected number of trials at the end.
            state: State of the sweep.
            reason: Reason for this state, or None.
        """
        left = _seconds_left(self.settled, self._settled_before, wanted, elapsed)
        key, value = self.best or (None, None)
        return Progress(
            {str(state): count for state, count in (+self.counts).items()},
            wanted,
            key,
            value,
            left,
            state,
            reason,
        )


def time_left(took: Sequence[float], own: Sequence[float | None], waiting: int) -> float | None:
    """Estimate the seconds until all trials of a search have ended; None without data for an estimate.

    The total time left is divided by the number of running trials. The result is at least the time left of
    the slowest running trial.

    Args:
        took: Seconds of the trials that have ended, pruned ones included.
        own: Seconds that each running trial has left at its speed, or None if that is unknown.
        waiting: Number of trials that have not begun.
    """
    mean = fmean(took) if took else None
    left = [mean if seconds is None else seconds for seconds in own]
    known = [seconds for seconds in left if seconds is not None]
    if len(known) < len(left) or (mean is None and waiting):
        return None
    return max([(sum(known) + waiting * (mean or 0.0)) / max(1, len(left)), *known])


def _seconds_left(settled: int, settled_before: int, wanted: int, elapsed: float) -> float | None:
    """Estimate the seconds until all trials are settled from the rate of this driver."""
    own = settled - settled_before
    return (wanted - settled) * elapsed / own if own > 0 else None
