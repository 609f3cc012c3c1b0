"""Limits that end a sweep or a trial: budget, failures, retries, missing nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.assignment import OUT_OF_GPU_MEMORY
from orchestrator.config.sections import BudgetSection
from orchestrator.errors import counted
from orchestrator.ledger.sweeps.records import (
    CANDIDATE,
    FINISHED_TRIAL,
    AttemptRecord,
    SweepState,
    TrialRecord,
    TrialState,
)
from orchestrator.ledger.sweeps.standing import HoursSpent
from orchestrator.ledger.sweeps.writer import SweepWriter

HOPELESS_AFTER = 8
"""Default of `budget.failures`."""

ALIKE_FAILURES = 3
"""Number of equal errors before the first report of a sweep that stop it, because a retry would not help."""

DIVERGED = "non-finite"
"""Cause of the end of an attempt whose objective is not finite."""

FOREIGN = "foreign report"
"""Cause of the end of an attempt for which a process has sent another attempt's report."""

UNCHARGED = frozenset(
    {"interrupted", "node lost", "driver lost", "disk full", "store lost", "engine lost", "slot lost"}
    | {"shared", FOREIGN}
)
"""Causes outside the trial. They are retried without limit, and all but `FOREIGN` at once."""

ALLOWED_RETRIES = {
    "worker lost": 3,
    "engine crash": 3,
    "damaged checkpoint": 3,
    "out of memory": 2,
    OUT_OF_GPU_MEMORY: 2,
    "hung": 1,
    "time limit": 1,
    "error": 1,
}
"""Retries per trial by cause. Other causes (`non-finite`, `disk limit`) would recur and are not retried."""

BACKOFF_SECONDS = 2.0
BACKOFF_CAP_SECONDS = 60.0

SLOW_START = 120.0
"""Time in seconds that a worker may take to start before its attempt counts as waiting."""

SLOW_PLACEMENT = 5.0
"""Time in seconds that Ray may take to allocate free resources before an attempt counts as waiting."""

_HOUR = 3600.0


@dataclass(frozen=True)
class Stop:
    """The end of a session's launches.

    Attributes:
        reason: Reason, for display.
        state: State of the sweep afterwards, INTERRUPTED or COMPLETE.
    """

    reason: str
    state: SweepState


def hopeless(budget: BudgetSection, counts: Mapping[str, int]) -> str | None:
    """Return a sentence if so many trials have failed that a sweep stops, or None.

    It stops when `budget.failures` trials have settled and all of them have failed. A trial that has diverged
    or was stopped early shows that the code works.

    Args:
        budget: Budget of the sweep.
        counts: Number of trials by state.
    """
    failed, limit = counts.get("FAILED", 0), budget.failures or HOPELESS_AFTER
    if failed < limit or failed < sum(counts.get(state, 0) for state in FINISHED_TRIAL):
        return None
    return f"the first {counted(failed, 'trial')} all failed"


_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_KILLED = re.compile(r"got (signal \d|exit code (12[89]|1[3-9]\d|[2-9]\d\d))")
"""Pattern of a script that was killed from outside, as for lack of memory; a shell adds 128 to the signal."""


class AlikeFailures:
    """Counts equal errors of a sweep. Numbers, such as hyperparameters, are ignored in the comparison."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def are_enough(self, cause: str, message: str | None) -> bool:
        """Count a failure; return True if enough equal ones have occurred to stop a sweep without reports."""
        if cause != "error" or not message or _KILLED.search(message):
            return False
        kind = _NUMBERS.sub("#", message)
        self._counts[kind] += 1
        return self._counts[kind] >= ALIKE_FAILURES


# ------------------------------------------------------------------ budget


class Spending:
    """Sums the time in which workers hold resources, without reading an attempt twice.

    It continues from the time `before` of earlier drivers; `gpu` is the GPUs of one attempt.
    """

    def __init__(self, before: HoursSpent, gpu: float) -> None:
        self._busy, self._gpu_before, self._gpu = before.hours * _HOUR, before.gpu_hours, gpu
        self._held = 0.0
        self._taken: dict[str, float] = {}
        self._sum_taken, self._busy_since, self._idle_since = 0.0, 0.0, float("-inf")

    def take(self, attempt_id: str, now: float) -> None:
        """Count an attempt from the time `now`, which may be slightly in the past."""
        if attempt_id in self._taken:
            return
        # Do not count time again in which an attempt that has ended kept the sweep busy.
        since = max(now, self._idle_since)
        self._busy_since = min(self._busy_since, since) if self._taken else since
        self._taken[attempt_id] = now
        self._sum_taken += now

    def end(self, attempt_id: str, now: float) -> None:
        """Count an attempt until `now`; one that no worker has taken costs nothing."""
        taken = self._taken.pop(attempt_id, None)
        if taken is None:
            return
        self._sum_taken -= taken
        self._held += now - taken
        if not self._taken:
            self._busy += now - self._busy_since
            self._idle_since = now

    def total(self, now: float) -> HoursSpent:
        """Return the time spent until `now`, by the clock of `take` and `end`."""
        busy = self._busy + (now - self._busy_since if self._taken else 0.0)
        held = self._held + len(self._taken) * now - self._sum_taken
        return HoursSpent(busy / _HOUR, self._gpu_before + self._gpu * held / _HOUR)


def overspent(budget: BudgetSection, total: HoursSpent) -> str | None:
    """Return a sentence about the exhausted part of a budget, or None if every part has some left."""
    if budget.hours is not None and total.hours >= budget.hours:
        return f"the budget of {counted(budget.hours, 'hour')} is spent"
    if budget.gpu_hours is not None and total.gpu_hours >= budget.gpu_hours:
        return f"the budget of {counted(budget.gpu_hours, 'GPU hour')} is spent"
    return None


class SearchEnd:
    """Decides whether the trials that have ended make further ones unnecessary.

    Args:
        budget: Budget of the sweep.
        maximize: Whether more of the objective is better.

    Attributes:
        reason: Reason why the search has ended, or None.
    """

    def __init__(self, budget: BudgetSection, *, maximize: bool) -> None:
        self._target, self._patience = budget.target, budget.no_improvement
        self._maximize = maximize
        self._best: float | None = None
        self._since = 0
        self.reason: str | None = None

    def add(self, state: TrialState, value: float | None, violation: float) -> None:
        """Add a trial of the search that has ended; the order of the ends matters.

        A failed trial says nothing about the space and is left out. The trials before the first value do not
        count, because there is nothing to improve on.

        Args:
            state: Final state of the trial.
            value: Value of the trial, or None.
            violation: Sum of the violations of the constraints; only a feasible trial can be an improvement.
        """
        if self.reason is not None or state == "FAILED":
            return
        known = value if state in CANDIDATE and violation == 0.0 else None
        if known is not None and self._target is not None and self._gain(known, self._target) >= 0:
            self.reason = f"a trial has reached the target {self._target:g} with {known:g}"
        if self._patience is None:
            return
        by = self._patience.by
        if known is not None and (self._best is None or self._is_improved(self._gain(known, self._best), by)):
            self._best, self._since = known, 0
            return
        self._since += self._best is not None
        if self._since >= self._patience.trials and self.reason is None:
            least = f" by {by:g}" if by else ""
            since = counted(self._since, "trial has", "trials have")
            self.reason = f"{since} not improved on {self._best:g}{least}"

    def _gain(self, value: float, than: float) -> float:
        return value - than if self._maximize else than - value

    @staticmethod
    def _is_improved(gain: float, by: float) -> bool:
        return gain >= by if by else gain > 0


def search_end(
    budget: BudgetSection,
    trials: Iterable[TrialRecord],
    *,
    maximize: bool,
    violations: Mapping[str, float],
) -> SearchEnd:
    """Return the `SearchEnd` of a sweep after the trials of earlier drivers, in the order of their ends.

    Args:
        budget: Budget of the sweep.
        trials: Trials of earlier drivers, of any role and state.
        maximize: Whether more of the objective is better.
        violations: `total_violation` by trial key; a trial without an entry is feasible.
    """
    end = SearchEnd(budget, maximize=maximize)
    ended = [trial for trial in trials if trial.role == "search" and trial.state in FINISHED_TRIAL]
    for trial in sorted(ended, key=lambda trial: (trial.finished_at or 0.0, trial.number)):
        end.add(trial.state, trial.value, violations.get(trial.key, 0.0))
    return end


# ------------------------------------------------------------------ retries


def since_progress(past: Sequence[AttemptRecord], progressed: Collection[str]) -> list[AttemptRecord]:
    """Return a trial's attempts, in order, from the last one whose id is in `progressed`.

    Those are the attempts that reported a new highest step of the trial.
    """
    recent: list[AttemptRecord] = []
    for attempt in past:
        if attempt.id in progressed:
            recent.clear()
        recent.append(attempt)
    return recent


def wait_before_retry(
    cause: str, past: Sequence[AttemptRecord], progressed: Collection[str] = ()
) -> float | None:
    """Return the seconds to wait before the next attempt of a trial, or None if it has no retry left.

    Only failures since the trial's last progress count.

    Args:
        cause: Cause of the new failure.
        past: Attempts of the trial in order; the failed one may be among them.
        progressed: Ids of the attempts that reported a new highest step of the trial.
    """
    if cause in UNCHARGED:
        return BACKOFF_SECONDS if cause == FOREIGN else 0.0
    recent = since_progress(past, progressed)
    charged = [attempt.cause for attempt in recent if attempt.cause in ALLOWED_RETRIES]
    if charged.count(cause) >= ALLOWED_RETRIES.get(cause, 0):
        return None
    return float(min(BACKOFF_SECONDS * 2 ** len(charged), BACKOFF_CAP_SECONDS))


# ------------------------------------------------------------------ missing nodes


class Shortage:
    """Tracks a shortage in which no attempt of a sweep can run; the ledger shows the sweep as WAITING.

    Attributes:
        reason: Reason why no attempt runs, or None.
    """

    def __init__(self, writer: SweepWriter) -> None:
        self._writer = writer
        self.reason: str | None = None
        self._since = 0.0

    def update(self, reason: str | None, now: float, *, counts: bool = True) -> float:
        """Record the reason why no attempt runs, or None if one does; return its duration in seconds.

        With `counts=False`, the duration starts again at `now`.
        """
        before, self.reason = self.reason, reason
        if reason is None:
            if before is not None:
                self._writer.set_sweep_state("RUNNING")
            return 0.0
        if before is None or not counts:
            self._since = now
        if reason != before:
            self._writer.set_sweep_state("WAITING", reason)
        return now - self._since
