"""Where the trials of a sweep stand, and which is the best so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.records import UNFINISHED_TRIAL, TrialRecord, TrialState
from orchestrator.session.progress import SETTLED, Progress, seconds_left
from orchestrator.session.retry_queue import Waiting


class Standing:
    """The state of every trial, and the best value of the search.

    Attributes:
        states: by the trials' keys.
        best: key and value of the best trial so far, or None.
        waiting: the trials that wait for their next attempt.
    """

    def __init__(self, sweep: SweepConfig, trials: Sequence[TrialRecord]) -> None:
        """Take over what an earlier driver left; its unfinished trials wait."""
        self._maximize = sweep.direction == "maximize"
        self._wanted = sweep.budget.trials + sweep.confirm.seeds
        self.states: dict[str, TrialState] = {}
        self.best: tuple[str, float] | None = None
        for trial in trials:
            self.states[trial.key] = "WAITING" if trial.state in UNFINISHED_TRIAL else trial.state
            if trial.state == "COMPLETE" and trial.role == "search" and trial.value is not None:
                self.note(trial.key, trial.value)
        self._settled_before = self._settled
        self.waiting = Waiting(trial.key for trial in trials if trial.state in UNFINISHED_TRIAL)

    def wait(self, key: str, state: TrialState, due: float) -> None:
        """Let a trial wait for its next attempt until a time."""
        self.states[key] = state
        self.waiting.add(key, due)

    def better(self, value: float, than: float) -> bool:
        """Tell whether one value of the objective is better than another."""
        return value > than if self._maximize else value < than

    def note(self, key: str, value: float) -> None:
        """Keep a value of a trial of the search, if none was better."""
        if self.best is None or self.better(value, self.best[1]):
            self.best = (key, value)

    @property
    def unsettled(self) -> int:
        """Return how many trials of the budget are still to be settled."""
        return self._wanted - self._settled

    @property
    def _settled(self) -> int:
        return sum(state in SETTLED for state in self.states.values())

    def progress(self, elapsed: float, waiting: str | None) -> Progress:
        """Return the counts, the best so far and an estimate of the time left.

        Args:
            elapsed: seconds since this object was made.
            waiting: why nothing runs now, or None.
        """
        left = seconds_left(self._settled, self._settled_before, self._wanted, elapsed)
        key, value = self.best or (None, None)
        return Progress(dict(Counter(self.states.values())), self._wanted, key, value, left, waiting)
