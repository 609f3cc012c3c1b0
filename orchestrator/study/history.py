"""How much of the past a sampler is shown, so that an ask costs the same at trial 5,000 as at trial 500."""

from __future__ import annotations

from bisect import insort
from collections.abc import Container, Sequence
from typing import Any

from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

# TPE calls at most 25 trials good; four times as many are kept in sight so that none of those is missed when
# objectives or constraints split them.
BEST = 100

Objectives = tuple[float, ...]


class History:
    """Which trials are shown: the best, the unfinished and the latest ones.

    It depends only on what was told, not on the order, so that a rebuilt study shows the same.

    Args:
        limit: how many trials are shown, or None for all of them.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._count = 0
        self._unfinished: set[int] = set()
        self._ranked: list[tuple[tuple[float, ...], int]] = []
        self._front: dict[int, Objectives] = {}

    def begin(self, number: int) -> None:
        """Note that a trial was asked for."""
        self._count = max(self._count, number + 1)
        self._unfinished.add(number)

    def settle(self, number: int, rank: tuple[float, ...] | None, objectives: Objectives = ()) -> None:
        """Note the outcome of a trial.

        Args:
            number: of the trial.
            rank: the lower the better; None for a failed one.
            objectives: all of them, to be minimised, if there are several.
        """
        self._unfinished.discard(number)
        if rank is None or self._limit is None:
            return
        if len(objectives) > 1:
            self._keep_if_unbeaten(number, objectives)
        insort(self._ranked, (rank, number))
        del self._ranked[BEST:]

    def shown(self) -> Sequence[int] | None:
        """Return the numbers of the shown trials, rising; None if all are."""
        if self._limit is None or self._count <= self._limit:
            return None
        best = {number for _, number in self._ranked} | set(sorted(self._front)[-BEST:])
        latest = range(self._count - (self._limit - BEST), self._count)
        return sorted(best | self._unfinished | set(latest))

    def _keep_if_unbeaten(self, number: int, objectives: Objectives) -> None:
        if any(_beats(other, objectives) for other in self._front.values()):
            return
        self._front = {n: other for n, other in self._front.items() if not _beats(objectives, other)}
        self._front[number] = objectives


def _beats(one: Objectives, other: Objectives) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


class ShownStorage(InMemoryStorage):
    """Optuna's storage in memory that lists only the trials a `History` shows."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Return the shown trials in the given states."""
        shown = self._history.shown()
        if shown is None or states == (TrialState.WAITING,):
            return super().get_all_trials(study_id, deepcopy, states)
        every: list[Any] = super().get_all_trials(study_id, deepcopy=False)
        trials = [every[number] for number in shown]
        return [trial for trial in trials if states is None or trial.state in states]
