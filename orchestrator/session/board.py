"""Trial board: the state of every trial, the best trial so far, and the queue of retries.

This module imports neither Optuna nor Ray, because verbs that only show progress use it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.ledger.sweeps.records import (
    CANDIDATE,
    FINISHED_TRIAL,
    UNFINISHED_TRIAL,
    SweepState,
    TrialRecord,
    TrialState,
)
from orchestrator.ledger.sweeps.selection import order
from orchestrator.ledger.sweeps.standing import TimeLeft


@dataclass(frozen=True)
class Progress:
    """The progress of a sweep, for display.

    Attributes:
        states: Number of trials by state.
        wanted: Expected number of trials at the end.
        best_key: Key of the best trial so far, or None.
        best_value: Best validation value of that trial.
        seconds_left: `likely` of `time_left`, or None.
        state: State of the sweep, such as RUNNING, WAITING or PAUSED.
        reason: Reason for this state, or None.
        best_state: State of the best trial so far, or None.
        time_left: Range of the time left, or None without data for one.
    """

    states: Mapping[str, int]
    wanted: int
    best_key: str | None = None
    best_value: float | None = None
    seconds_left: float | None = None
    state: SweepState = "RUNNING"
    reason: str | None = None
    best_state: TrialState | None = None
    time_left: TimeLeft | None = None

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
        self._best: dict[bool, tuple[str, float] | None] = {}
        self._states: dict[str, TrialState] = {}
        self.counts: Counter[str] = Counter()
        for trial in trials:
            self.enter(trial.key, "WAITING" if trial.state in UNFINISHED_TRIAL else trial.state)
            is_valued = trial.state in CANDIDATE or trial.state == "PRUNED"
            if is_valued and trial.role == "search" and trial.value is not None:
                self.score(trial, trial.value, broken.get(trial.key, 0.0))
        self.retries = RetryQueue(trial.key for trial in trials if trial.state in UNFINISHED_TRIAL)

    def enter(self, key: str, state: TrialState) -> None:
        """Set the state of a trial, which may be new."""
        if (before := self._states.get(key)) is not None:
            self.counts[before] -= 1
        self._states[key] = state
        self.counts[state] += 1
        self._best.clear()

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
        self._best.clear()

    def forget(self, key: str) -> None:
        """Drop the score of a trial that has ended without a value."""
        self._scores.pop(key, None)
        self._best.clear()

    @property
    def best(self) -> tuple[str, float] | None:
        """Return the key and value of the best trial that can be chosen in the end, or None.

        Candidates and unfinished trials count, pruned and failed ones never. At the end this is the trial
        that `ledger.selection.best_of_sweep` returns, if any.
        """
        return self._best_of(with_pruned=False)

    @property
    def best_so_far(self) -> tuple[str, float] | None:
        """Return the key and value of the best trial so far, pruned ones included, or None."""
        return self._best_of(with_pruned=True)

    def _best_of(self, *, with_pruned: bool) -> tuple[str, float] | None:
        """Return the key and value of the best trial, or None; looked for once until something changes."""
        if with_pruned not in self._best:
            never = {"FAILED"} if with_pruned else {"FAILED", "PRUNED"}
            known = [key for key in self._scores if self._states[key] not in never]
            self._best[with_pruned] = self._first(known)
        return self._best[with_pruned]

    def _first(self, keys: Collection[str]) -> tuple[str, float] | None:
        if not keys or not self._has_best:
            return None

        def rank(key: str) -> tuple[float, float, int]:
            number, value, violation = self._scores[key]
            return order(value, number, maximize=self.maximize, violation=violation)

        key = min(keys, key=rank)
        return key, self._scores[key][1]

    @property
    def settled(self) -> int:
        """Return the number of finished trials."""
        return sum(self.counts[state] for state in FINISHED_TRIAL)

    @property
    def unfinished(self) -> int:
        """Return the number of unfinished trials."""
        return len(self._states) - self.settled

    def progress(self, wanted: int, state: SweepState, reason: str | None, left: TimeLeft | None) -> Progress:
        """Return the counts, the best trial so far and the time left.

        Args:
            wanted: Expected number of trials at the end.
            state: State of the sweep.
            reason: Reason for this state, or None.
            left: Estimate of the time left, or None.
        """
        key, value = self.best_so_far or (None, None)
        return Progress(
            {str(state): count for state, count in (+self.counts).items()},
            wanted,
            key,
            value,
            None if left is None else left.likely,
            state,
            reason,
            None if key is None else self._states[key],
            left,
        )
