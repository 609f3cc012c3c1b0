"""The median stopping rule, at a cost for a report that does not grow with the number of reports before it.

Ray Tune's own rule averages every report of every trial again for each new one: the reports of a sweep of
1,000 trials with 1,000 reports each would never be replayed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from typing import Any

from ray.tune.schedulers import FIFOScheduler, TrialScheduler


class _Course:
    """The reports of one trial.

    Args:
        grace: step from which on they are averaged.

    Attributes:
        best: the largest value.
    """

    def __init__(self, grace: int) -> None:
        self._grace = grace
        self._steps, self._totals = array("q"), array("d")
        self._last, self._total = -1, 0.0
        self.best = float("-inf")

    @property
    def last(self) -> int:
        """Return the step of the last report, -1 before the first one."""
        return self._last

    def add(self, step: int, value: float) -> None:
        """Add a report of a later step."""
        self._last, self.best = step, max(self.best, value)
        if step >= self._grace:
            self._total += value
            self._steps.append(step)
            self._totals.append(self._total)

    def mean(self, step: int) -> float | None:
        """Return the mean of the reports from the grace period up to a step, or None if there is none."""
        at_end = not self._steps or self._steps[-1] <= step
        count = len(self._steps) if at_end else bisect_right(self._steps, step)
        return self._totals[count - 1] / count if count else None


class MedianRule(FIFOScheduler):
    """Stops a trial whose best value is below the median of the other trials' means up to its step.

    The other trials are those that have reached the step. A sorted list for each step holds the means of all
    trials there: a trial's mean up to a step it has passed never changes.

    Source: Golovin et al., Google Vizier: A Service for Black-Box Optimization (2017), section 3.2.

    Args:
        metric: that is compared.
        sign: 1 if more is better, else -1.
        grace: step from which on trials are compared and averaged.
        least: number of other trials without which nothing stops.
    """

    def __init__(self, metric: str, *, sign: int, grace: int, least: int) -> None:
        super().__init__()
        self._compared, self._sign, self._grace, self._least = metric, sign, grace, least
        self._courses: dict[str, _Course] = {}
        self._steps: list[int] = []
        self._means: dict[int, list[float]] = {}

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Compare a report; a step that was reported before is compared again and counts once."""
        step, value = int(result["step"]), self._sign * float(result[self._compared])
        course = self._courses.setdefault(trial.trial_id, _Course(self._grace))
        if step > course.last:
            self._open(step)
            passed = self._steps[bisect_right(self._steps, course.last) : bisect_right(self._steps, step)]
            course.add(step, value)
            for at in passed:
                if (mean := course.mean(at)) is not None:
                    insort(self._means[at], mean)
        return str(TrialScheduler.STOP if self._is_bad(course, step) else TrialScheduler.CONTINUE)

    def _open(self, step: int) -> None:
        """Collect the means at a step that no report had before, of the trials that are beyond it."""
        if step < self._grace or step in self._means:
            return
        insort(self._steps, step)
        means = (course.mean(step) for course in self._courses.values() if course.last >= step)
        self._means[step] = sorted(mean for mean in means if mean is not None)

    def _is_bad(self, course: _Course, step: int) -> bool:
        if step < self._grace:
            return False
        means, own = self._means[step], course.mean(step)
        others = len(means) - 1
        assert own is not None, "it has reported this step"
        if others < max(self._least, 1):
            return False
        hole = bisect_left(means, own)
        lower, upper = (means[at + (at >= hole)] for at in ((others - 1) // 2, others // 2))
        return (lower + upper) / 2 > course.best
