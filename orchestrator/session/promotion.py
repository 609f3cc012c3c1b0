"""Promotion: each trial pauses at its rungs, and the best ones of a rung go on from their checkpoints.

Source: Li et al., A System for Massively Parallel Hyperparameter Tuning (MLSys 2020), algorithm 2.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class _Standing(NamedTuple):
    """A trial at a rung, ordered from the best to the worst; among equals, the first to arrive is better."""

    loss: float
    arrival: int
    key: str


class Rungs:
    """The values of all trials at each rung, and which trials are paused there.

    One of `reduction` trials of a rung goes on. A trial that is among the best of those that have reported
    when it arrives does not pause. The others wait until more trials have arrived, or failed on their way:
    that never raises the rank of a paused trial, but it raises the number of those that go on.

    A report that passes several rungs at once counts at the last of them. Which trials pause follows from the
    reports in their order of arrival. A trial that went on and has not reported since, or has failed, must be
    named with `resume` or `fail`, in any order.

    Args:
        milestones: Steps of the rungs, rising; one at or after the last step of a trial is never reached.
        reduction: One in this many trials of a rung goes on.
        sign: 1 if more is better, else -1.

    Attributes:
        paused: Rung at which each paused trial waits, an index of `milestones`, by key.
    """

    def __init__(self, milestones: Sequence[float] = (), reduction: float = 2.0, sign: int = 1) -> None:
        self._milestones, self._reduction, self._sign = milestones, reduction, sign
        self._standings: list[list[_Standing]] = [[] for _ in milestones]
        self._passed: dict[str, int] = {}
        self._failed: Counter[int] = Counter()
        self.paused: dict[str, int] = {}
        self._promotable: list[str] | None = None

    def goes_on(self, key: str, step: int, value: float) -> bool:
        """Record a report of a trial; return False if the trial pauses at it.

        Args:
            key: Key of the trial.
            step: Step of the report, before the last one of the trial.
            value: Value that is compared.
        """
        self.resume(key)
        passed = bisect_right(self._milestones, step)
        if passed <= self._passed.get(key, 0):
            return True
        self._passed[key] = passed
        standings = self._standings[passed - 1]
        insort(standings, _Standing(-self._sign * value, len(standings), key))
        self._promotable = None
        if any(standing.key == key for standing in self._best_of(passed - 1, len(standings))):
            return True
        self.paused[key] = passed - 1
        return False

    def resume(self, key: str) -> None:
        """Note that a trial goes on, if it was paused."""
        if self.paused.pop(key, None) is not None:
            self._promotable = None

    def fail(self, key: str) -> None:
        """Count a trial that has failed among those at its next rung, as the worst one."""
        self.resume(key)
        self._failed[self._passed.get(key, 0)] += 1
        self._promotable = None

    @property
    def promotable(self) -> Sequence[str]:
        """Return the paused trials that may go on: by falling rung, and at each rung the best ones first."""
        if self._promotable is None:
            self._promotable = [
                standing.key
                for rung in reversed(range(len(self._milestones)))
                for standing in self._best_of(rung, len(self._standings[rung]) + self._failed[rung])
                if self.paused.get(standing.key) == rung
            ]
        return self._promotable

    @property
    def leader(self) -> str | None:
        """Return the best paused trial of the highest rung with paused trials, or None if none is paused.

        A sweep whose rungs have all fewer than `reduction` trials completes only this one.
        """
        if not self.paused:
            return None
        highest = max(self.paused.values())
        return next(each.key for each in self._standings[highest] if self.paused.get(each.key) == highest)

    def _best_of(self, rung: int, trials: int) -> Sequence[_Standing]:
        """Return the trials that go on from a rung with this many trials, the best first."""
        return self._standings[rung][: int(trials / self._reduction)]
