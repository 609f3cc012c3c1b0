"""The standing of a sweep: its best trial so far, its last improvement, its cost and the time that it needs.

Every view of a sweep takes these figures from here: the page, the report, the terminal, the driver's log, the
API and MLflow's description. All but `read_values` are pure functions of rows of the ledger. Most take
outlines of rows as well, which cost a fifth to read.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from orchestrator.ledger.sweeps.records import (
    FINISHED_SWEEP,
    FINISHED_TRIAL,
    UNFINISHED_TRIAL,
    AnyAttempt,
    AnyTrial,
    CheckpointRecord,
    ReportRecord,
    SweepRecord,
    TrialOutline,
    TrialRecord,
    TrialState,
    sweep_id_of,
    trial_label,
)
from orchestrator.ledger.sweeps.selection import last_reports_of, order, total_violation

if TYPE_CHECKING:  # the client has this module, and no SQLAlchemy
    from orchestrator.ledger.ledger import Ledger

_HOUR = 3600.0

Trial = TypeVar("Trial", TrialRecord, TrialOutline)

# ------------------------------------------------------------------ best so far


class ValueSoFar(NamedTuple):
    """Value of a trial so far by the rule of `objective.of`, the step of its report, and its violation.

    Attributes:
        value: Final value of an ended trial, or the value that a running one would have if it ended now.
        step: Step of the report, or of the last one if the value is a mean.
        violation: `total_violation` at that step, 0 for a feasible trial.
    """

    value: float
    step: int
    violation: float = 0.0


@dataclass(frozen=True)
class BestTrial:
    """A trial that is the best of a sweep.

    Attributes:
        key: Key of the trial.
        label: Its number.
        state: State of the trial; `RUNNING` and `PRUNED` ones count in the best so far.
        value: Value of the objective by the rule of `objective.of`.
        best_step: Step of that value.
        step: Last reported step.
        total_steps: Step at which the trial ends, unless it is pruned.
        params: Hyperparameters by name.
        violation: Violation of the constraints, 0 for a feasible trial.
    """

    key: str
    label: str
    state: TrialState
    value: float
    best_step: int
    step: int
    total_steps: int
    params: Mapping[str, Any]
    violation: float = 0.0


@dataclass(frozen=True)
class HistoryPoint:
    """A trial in the history of a search.

    Attributes:
        place: Place in the order of the ends, from 1; unfinished trials come last.
        number: Number of the trial.
        state: State of the trial.
        value: Value of the trial so far.
        best: Value of the best trial so far after it.
        is_improvement: Whether it was better than all trials before it.
        at: Time of its end, or None for an unfinished trial.
    """

    place: int
    number: int
    state: TrialState
    value: float
    best: float
    is_improvement: bool
    at: float | None


@dataclass(frozen=True)
class Improvement:
    """The last improvement of a search.

    Attributes:
        trial: Label of the trial that improved last.
        since: Number of trials with a value that have ended after it without an improvement.
        gain: Difference to the best value before it, positive; None for the first value of the search, or if
            it was better by its constraints.
        at: Time of its end, or None while it runs.
    """

    trial: str
    since: int
    gain: float | None
    at: float | None


def values_so_far(
    sweep: SweepRecord,
    trials: Iterable[AnyTrial],
    at_best: Mapping[str, Mapping[str, float]],
    saved: Mapping[str, CheckpointRecord],
    last_values: Callable[[str, int], Sequence[float]],
) -> dict[str, ValueSoFar]:
    """Return the value so far of each search trial that has one, by trial key. A failed trial has none.

    Args:
        sweep: Record of the sweep.
        trials: Trials of the sweep, of any role and state.
        at_best: Metrics of ended trials at their best step, by trial key; needed with constraints only.
        saved: Checkpoint of the best report of each unfinished trial; every report has one.
        last_values: Function of a trial key and a number that returns at most so many of the last values of
            the objective; needed for `objective.of` other than `best`.
    """
    constraints = sweep.document.get("constraints") or {}
    metric, most = str(sweep.facts["metric"]), last_reports_of(sweep.document)
    found: dict[str, ValueSoFar] = {}
    for trial in (each for each in trials if each.role == "search"):
        best = saved.get(trial.key)
        if trial.state in FINISHED_TRIAL and trial.value is not None:
            violation = total_violation(constraints, at_best.get(trial.key, {})) if constraints else 0.0
            found[trial.key] = ValueSoFar(trial.value, trial.best_step or trial.step, violation)
        elif trial.state in UNFINISHED_TRIAL and best is not None and metric in best.metrics:
            value = fmean(last_values(trial.key, most)) if most else best.metrics[metric]
            found[trial.key] = ValueSoFar(value, best.step, total_violation(constraints, best.metrics))
    return found


def read_values(ledger: Ledger, sweep: SweepRecord, trials: Sequence[AnyTrial]) -> dict[str, ValueSoFar]:
    """Return `values_so_far` of the trials of a sweep in the ledger."""
    metric = str(sweep.facts["metric"])
    runs = any(trial.state in UNFINISHED_TRIAL and trial.step for trial in trials)
    return values_so_far(
        sweep,
        trials,
        ledger.best_metrics(sweep.id) if sweep.document.get("constraints") else {},
        {row.trial_key: row for row in ledger.best_of_unfinished(sweep.id)} if runs else {},
        lambda key, most: [report.metrics[metric] for report in ledger.recent_reports(key, most)],
    )


def best_so_far(
    trials: Iterable[TrialRecord], values: Mapping[str, ValueSoFar], *, maximize: bool
) -> BestTrial | None:
    """Return the best trial of a search so far, unfinished and pruned ones included, or None without a value.

    Args:
        trials: Trials of one sweep, of any role and state.
        values: Values so far by trial key, from `values_so_far`.
        maximize: Whether a larger value is better.
    """
    best = first_so_far(trials, values, maximize=maximize)
    return None if best is None else as_best(best, values[best.key], best.params)


def first_so_far(
    trials: Iterable[Trial], values: Mapping[str, ValueSoFar], *, maximize: bool
) -> Trial | None:
    """Return the trial of `best_so_far`."""
    return min(
        (trial for trial in trials if trial.key in values),
        key=lambda trial: _key(trial, values[trial.key], maximize=maximize),
        default=None,
    )


def as_best(trial: AnyTrial, so_far: ValueSoFar, params: Mapping[str, Any]) -> BestTrial:
    """Return a trial as the best one, with its value so far and its hyperparameters."""
    return BestTrial(
        trial.key,
        trial_label(trial.key),
        trial.state,
        so_far.value,
        so_far.step,
        trial.step,
        trial.total_steps,
        params,
        so_far.violation,
    )


def leading(state: str, best: BestTrial | None, chosen: BestTrial | None) -> BestTrial | None:
    """Return the trial whose value stands for a sweep in lists and comparisons, or None without one.

    Args:
        state: State of the sweep.
        best: Its best trial so far.
        chosen: Best trial among those that have reached their last step.

    Returns:
        `chosen` once the sweep has ended, and `best` before, or if none has reached its last step.
    """
    return (chosen if state in FINISHED_SWEEP else None) or best


def history(
    trials: Iterable[AnyTrial], values: Mapping[str, ValueSoFar], *, maximize: bool
) -> list[HistoryPoint]:
    """Return the search trials with a value in the order of their ends, unfinished ones last.

    Args:
        trials: Trials of one sweep, of any role and state.
        values: Values so far by trial key, from `values_so_far`.
        maximize: Whether a larger value is better.
    """
    points: list[HistoryPoint] = []
    best: tuple[tuple[float, float, int], float] | None = None
    for trial in sorted((each for each in trials if each.key in values), key=_by_end):
        so_far = values[trial.key]
        key = _key(trial, so_far, maximize=maximize)
        # A tie is not an improvement, whichever number is lower.
        is_improvement = best is None or key[:2] < best[0][:2]
        if best is None or is_improvement:
            best = key, so_far.value
        at = trial.finished_at if trial.state in FINISHED_TRIAL else None
        place = len(points) + 1
        points.append(
            HistoryPoint(place, trial.number, trial.state, so_far.value, best[1], is_improvement, at)
        )
    return points


def improvement(points: Sequence[HistoryPoint]) -> Improvement | None:
    """Return the last improvement of a history, or None without a value."""
    index = next((n for n in reversed(range(len(points))) if points[n].is_improvement), None)
    if index is None:
        return None
    last, later = points[index], points[index + 1 :]
    before = points[index - 1].best if index else None
    return Improvement(
        str(last.number),
        sum(point.at is not None for point in later),
        None if before is None else abs(last.value - before),
        last.at,
    )


def _by_end(trial: AnyTrial) -> tuple[bool, float, int]:
    has_ended = trial.state in FINISHED_TRIAL
    return not has_ended, (trial.finished_at or 0.0) if has_ended else 0.0, trial.number


def _key(trial: AnyTrial, so_far: ValueSoFar, *, maximize: bool) -> tuple[float, float, int]:
    return order(so_far.value, trial.number, maximize=maximize, violation=so_far.violation)


# ------------------------------------------------------------------ cost


@dataclass(frozen=True)
class HoursSpent:
    """Time in which workers held resources for attempts; an attempt that waits for a worker costs nothing.

    Attributes:
        hours: Wall-clock hours in which at least one worker held resources; time between two drivers does not
            count.
        gpu_hours: Sum over all attempts of their hours times their GPUs, on all nodes.
    """

    hours: float
    gpu_hours: float


@dataclass(frozen=True)
class SweepCost:
    """What a sweep has used so far, beside the limits of its budget; a limit of None means no limit.

    Attributes:
        trials_ended: Number of search trials that have ended.
        trials_limit: Largest number of search trials.
        elapsed_seconds: Wall-clock seconds in which at least one trial ran.
        elapsed_limit_seconds: Limit of `elapsed_seconds`, from `budget.hours`.
        compute_seconds: Sum of the seconds of all attempts, confirmations included.
        core_hours: Sum of the hours of all attempts, each multiplied by its cores.
        gpu_hours: Sum of the hours of all attempts, each multiplied by its share of a GPU.
        gpu_hours_limit: Limit of `gpu_hours`.
    """

    trials_ended: int
    trials_limit: int
    elapsed_seconds: float
    elapsed_limit_seconds: float | None
    compute_seconds: float
    core_hours: float
    gpu_hours: float
    gpu_hours_limit: float | None


def spent(attempts: Iterable[AnyAttempt], sweep: SweepRecord, now: float | None = None) -> HoursSpent:
    """Sum the time of a sweep's attempts.

    Outages of the database are subtracted from each attempt. If an attempt outlasts an outage and overlaps
    one that was taken after it, the hours of the sweep are too high by at most the overlap.

    Args:
        attempts: Attempts of the sweep.
        sweep: Record of the sweep.
        now: Time up to which running attempts count; None if only those that have ended count.
    """
    return _sum(_spans(attempts, sweep, now))


def _sum(spans: Sequence[_Span]) -> HoursSpent:
    busy, reached = 0.0, float("-inf")
    for span in spans:
        busy += max(span.end - max(span.start, reached), 0.0)
        reached = max(reached, span.end)
    return HoursSpent(busy / _HOUR, sum(span.gpus * span.seconds for span in spans) / _HOUR)


@dataclass(frozen=True)
class DeviceHours:
    """What the attempts of a sweep have used of one kind of device.

    Attributes:
        trial_hours: Sum of their hours.
        core_hours: Sum of their hours, each multiplied by its cores.
        gpu_hours: Sum of their hours, each multiplied by its share of a GPU.
    """

    trial_hours: float
    core_hours: float
    gpu_hours: float


def spent_by_device(
    attempts: Iterable[AnyAttempt], sweep: SweepRecord, *, since: float, now: float | None
) -> dict[str, DeviceHours]:
    """Return what the attempts of a sweep have used from a time on, by device; see `SweepRecord.device_of`.

    Args:
        attempts: All attempts of the sweep.
        sweep: Record of the sweep.
        since: Earliest time that counts.
        now: Time up to which running attempts count; None if the sweep has no driver.
    """
    by_device: dict[str, list[_Span]] = {}
    for span in _spans(attempts, sweep, now):
        if span.end > since:
            by_device.setdefault(span.device, []).append(span._replace(start=max(span.start, since)))
    return {
        device: DeviceHours(
            sum(span.seconds for span in spans) / _HOUR,
            sum(span.cores * span.seconds for span in spans) / _HOUR,
            sum(span.gpus * span.seconds for span in spans) / _HOUR,
        )
        for device, spans in sorted(by_device.items())
    }


def cost(
    sweep: SweepRecord,
    attempts: Iterable[AnyAttempt],
    states: Mapping[str, int],
    *,
    trials_limit: int,
    now: float | None,
) -> SweepCost:
    """Return what a sweep has used so far.

    Args:
        sweep: Record of the sweep.
        attempts: All its attempts.
        states: Number of its search trials by state.
        trials_limit: Largest number of search trials.
        now: Time up to which running attempts count; None if the sweep has no driver.
    """
    spans, limits = _spans(attempts, sweep, now), sweep.document.get("budget") or {}
    used, hours = _sum(spans), limits.get("hours")
    return SweepCost(
        trials_ended=sum(states.get(state, 0) for state in FINISHED_TRIAL),
        trials_limit=trials_limit,
        elapsed_seconds=used.hours * _HOUR,
        elapsed_limit_seconds=None if hours is None else hours * _HOUR,
        compute_seconds=sum((span.seconds for span in spans), 0.0),
        core_hours=sum(span.cores * span.seconds for span in spans) / _HOUR,
        gpu_hours=used.gpu_hours,
        gpu_hours_limit=limits.get("gpu_hours"),
    )


class _Span(NamedTuple):
    """Time in which an attempt held resources."""

    start: float
    end: float
    cores: float
    gpus: float
    device: str

    @property
    def seconds(self) -> float:
        return self.end - self.start


def _spans(attempts: Iterable[AnyAttempt], sweep: SweepRecord, now: float | None) -> list[_Span]:
    """Return the time of each attempt that held resources, by start; without `now`, of those that ended."""
    # The clock may have been set back while an attempt ran.
    return sorted(
        _Span(
            start,
            max(end - (attempt.outage_seconds or 0.0), start),
            *sweep.held_by(attempt),
            sweep.device_of(attempt),
        )
        for attempt in attempts
        if (start := attempt.taken_at) is not None
        and (end := now if attempt.state == "RUNNING" and now is not None else attempt.ended_at) is not None
    )


# ------------------------------------------------------------------ time left

FEWEST_ENDS = 3
"""Number of ended trials from which on their durations, and not only speeds, give the time left."""


@dataclass(frozen=True)
class TimeLeft:
    """Estimate of the time until all trials of a search have ended.

    Attributes:
        low: Lower end of the range in seconds, which is below 5 % of the simulated ends.
        likely: Median in seconds.
        high: Upper end of the range in seconds.
        basis: Data of the estimate: `from 5 ended trials`, or `from speed` before three have ended.
    """

    low: float
    likely: float
    high: float
    basis: str


class TrialTime(NamedTuple):
    """Time of a trial so far.

    Attributes:
        seconds: Seconds in which it has run.
        part: Fraction of its steps that is done, from 0 to 1.
        left: Seconds that a running trial needs for its other steps at its speed, or None if unknown; 0 for
            an ended trial.
    """

    seconds: float
    part: float
    left: float | None = 0.0


RUN_TO_THE_END = frozenset({"none", "pbt"})
"""Schedulers that stop no trial before its last step."""

_DRAWS = 100
"""Number of simulated ends of a search."""

_NEWEST_ENDS = 100
"""Number of the newest ended trials whose times count."""

_MOST_SIMULATED = 64
"""Largest number of waiting trials that are simulated one by one; of more, each stands for several."""

_EARLY_ENDS = (0.05, 0.2)
"""Parts of its steps after which a trial is assumed to end early, before a few have."""

_SPEED_ERROR, _MACHINE_ERROR = 0.1, 0.12
"""Standard deviations of the logarithms of the speed of a trial, and of all trials, in a simulated end."""

_TIME_ERROR = 0.6
"""Standard deviation of the logarithm of the mean time of waiting trials if the time of one is known."""


def time_left(
    ended: Sequence[TrialTime],
    running: Sequence[TrialTime],
    *,
    waiting: int,
    places: int,
    stops_early: bool = False,
) -> TimeLeft | None:
    """Estimate the time until all trials of a search have ended; None without data for an estimate.

    The rest of the search is simulated: each place takes the next waiting trial when its trial has ended. A
    waiting trial has the time of an earlier one. A running trial may end early, as far into its steps as an
    earlier one. Earlier trials are drawn by the estimate of Kaplan and Meier of how far into its steps a
    trial gets, in which running trials are censored: those that were pruned end first, and would otherwise
    stand for all. Each simulation weights the trials at random (the Bayesian bootstrap), so that few trials
    give a wide range. The upper end of the range is at least the time that the slowest running trial has
    left, and so is the lower end unless trials stop early.

    Args:
        ended: Times of the search trials that have ended, the oldest first.
        running: Times of the running trials.
        waiting: Number of search trials that have not begun.
        places: Number of trials that run at once.
        stops_early: Whether the scheduler may stop a trial before its last step.

    Source: E. L. Kaplan, P. Meier, "Nonparametric Estimation from Incomplete Observations", JASA 53, 1958;
    D. B. Rubin, "The Bayesian Bootstrap", Annals of Statistics 9, 1981.
    """
    ended = ended[-_NEWEST_ENDS:]
    basis = "from speed" if len(ended) < FEWEST_ENDS else f"from {len(ended)} ended trials"
    if not running and not waiting:
        return TimeLeft(0.0, 0.0, 0.0, basis)
    whole = [time.seconds + time.left for time in running if time.left is not None]
    if not ended and not whole:
        return None
    stops_early = stops_early or any(time.part < 1.0 for time in ended)
    random = Random(0)
    ends = sorted(
        _simulated_end(
            [*ended, *_assumed(ended, whole, random, stops_early=stops_early)],
            running,
            waiting,
            max(1, places),
            random,
        )
        for _ in range(_DRAWS)
    )
    low, likely, high = (ends[int(_DRAWS * quantile)] for quantile in (0.05, 0.5, 0.95))
    floor = max((time.left for time in running if time.left is not None), default=0.0)
    if not stops_early:
        low, likely = max(low, floor), max(likely, floor)
    return TimeLeft(low, likely, max(high, floor), basis)


def _assumed(
    ended: Sequence[TrialTime], whole: Sequence[float], random: Random, *, stops_early: bool
) -> list[TrialTime]:
    """Return trials that are assumed to have ended, before one has completed or a few were stopped early.

    A scheduler stops few of the first trials, because it compares a trial with those before it.

    Args:
        ended: Times of the trials that have ended.
        whole: Seconds that running trials need for all their steps.
        random: Source of randomness.
        stops_early: Whether trials may stop early.
    """
    completed = [time.seconds for time in ended if time.part >= 1.0]
    if not (known := completed or whole):
        known = [time.seconds / max(time.part, _EARLY_ENDS[0]) for time in ended]
    seconds, assumed = random.choice(known), []
    if not completed:
        assumed.append(TrialTime(seconds, 1.0))
    if stops_early and sum(time.part < 1.0 for time in ended) < FEWEST_ENDS:
        assumed += [TrialTime(seconds * part, part) for part in _EARLY_ENDS]
    return assumed


def _simulated_end(
    sample: Sequence[TrialTime], running: Sequence[TrialTime], waiting: int, places: int, random: Random
) -> float:
    """Return the seconds until the end of a search in one simulation; see `time_left`."""
    known = _weighted(sample, running, random)
    free = [_rest(time, known, random) for time in running]
    free += [0.0] * (places - len(free))
    heapq.heapify(free)
    # Of many waiting trials, each simulated one stands for several that run one after the other.
    simulated = min(waiting, _MOST_SIMULATED)
    error = random.lognormvariate(0.0, _TIME_ERROR / len(sample))
    times, shares = [time for time, _ in known], [share for _, share in known]
    for time in random.choices(times, shares, k=simulated):
        heapq.heapreplace(free, free[0] + error * time.seconds * waiting / simulated)
    return max(free) * random.lognormvariate(0.0, _MACHINE_ERROR)


def _weighted(
    sample: Sequence[TrialTime], running: Sequence[TrialTime], random: Random
) -> list[tuple[TrialTime, float]]:
    """Return the ended trials by the part of their steps, each with its Kaplan-Meier probability."""
    observed = [(time.part, False, time, random.expovariate(1.0)) for time in sample]
    observed += [(time.part, True, time, random.expovariate(1.0)) for time in running]
    observed.sort(key=lambda each: each[:2])
    at_risk, survives = sum(weight for *_, weight in observed), 1.0
    known: list[tuple[TrialTime, float]] = []
    for _, is_censored, time, weight in observed:
        if not is_censored:
            share = min(1.0, weight / at_risk)
            known.append((time, survives * share))
            survives *= 1.0 - share
        at_risk = max(at_risk - weight, 1e-9)
    return known


def _rest(time: TrialTime, known: Sequence[tuple[TrialTime, float]], random: Random) -> float:
    """Return the seconds that a running trial needs in one simulation."""
    later = [(each, share) for each, share in known if each.part > time.part and share > 0]
    if not later:
        return time.left or 0.0
    end = random.choices([each for each, _ in later], [share for _, share in later])[0]
    error = random.lognormvariate(0.0, _SPEED_ERROR)
    if time.left is None:
        return error * end.seconds * (1.0 - time.part / end.part)
    return error * time.left * (end.part - time.part) / (1.0 - time.part)


def trial_times(
    trials: Iterable[AnyTrial],
    attempts: Iterable[AnyAttempt],
    left: Mapping[str, float | None],
    now: float,
) -> tuple[list[TrialTime], list[TrialTime]]:
    """Return the times of the ended trials, the oldest first, and of the running ones.

    Args:
        trials: Trials of one sweep, confirmations included.
        attempts: All their attempts.
        left: Seconds that a running trial needs for its other steps at its speed, by trial key.
        now: Time up to which running attempts count.
    """
    held: dict[str, float] = {}
    for attempt in attempts:
        if attempt.taken_at is not None:
            end = now if attempt.state == "RUNNING" else attempt.ended_at or attempt.taken_at
            seconds = max(0.0, end - attempt.taken_at - (attempt.outage_seconds or 0.0))
            held[attempt.trial_key] = held.get(attempt.trial_key, 0.0) + seconds
    ended = [trial for trial in trials if trial.state in FINISHED_TRIAL and held.get(trial.key)]
    return (
        [
            TrialTime(held[trial.key], _part(trial))
            for trial in sorted(ended, key=lambda trial: trial.finished_at or 0.0)
        ],
        [
            TrialTime(held.get(trial.key, 0.0), _part(trial), left.get(trial.key))
            for trial in trials
            if trial.state == "RUNNING"
        ],
    )


def most_at_once(attempts: Iterable[AnyAttempt], now: float, seconds: float = 10.0) -> int:
    """Return the largest number of attempts that ran at once in the last seconds.

    Between the end of a trial and the start of the next one, fewer run than the sweep has places.

    Args:
        attempts: Attempts of one sweep.
        now: Time up to which running attempts count.
        seconds: Length of the time before `now`.
    """
    spans = [
        (attempt.taken_at, now if attempt.state == "RUNNING" else attempt.ended_at or attempt.taken_at)
        for attempt in attempts
        if attempt.taken_at is not None
    ]
    moments = {end for _, end in spans if now - seconds <= end <= now}
    return max((sum(start < at <= end for start, end in spans) for at in moments), default=0)


def _part(trial: AnyTrial) -> float:
    if trial.state == "COMPLETE" or not trial.total_steps:
        return 1.0
    return min(1.0, trial.step / trial.total_steps)


SPEED_REPORTS = 8
"""Number of the last reports that give the speed of a trial."""


def speed_and_rest(
    trial: AnyTrial, reports: Sequence[ReportRecord], now: float
) -> tuple[float | None, float | None]:
    """Return the steps per second of a running trial, and the seconds until its last step; None if unknown.

    Args:
        trial: Running trial.
        reports: Its last `SPEED_REPORTS` reports, by step.
        now: Present time.
    """
    if not (speed := steps_per_second(reports)):
        return None, None
    # A trial that is silent for longer than between its last reports has slowed down, or hangs.
    since = min(max(0.0, now - reports[-1].at), reports[-1].at - reports[-2].at)
    return speed, max(0.0, max(0, trial.total_steps - trial.step) / speed - since)


def steps_per_second(reports: Sequence[ReportRecord]) -> float | None:
    """Return the speed of a trial in steps per second, from the last reports of its latest attempt.

    Args:
        reports: Reports of the trial, by step.
    """
    same = [report for report in reports if report.attempt_id == reports[-1].attempt_id]
    if len(same) < 2 or same[-1].at <= same[0].at:
        return None
    return (same[-1].step - same[0].step) / (same[-1].at - same[0].at)


def time_left_of(
    sweep: SweepRecord,
    trials: Sequence[AnyTrial],
    attempts: Sequence[AnyAttempt],
    left: Mapping[str, float | None],
    *,
    trials_limit: int,
    now: float,
) -> TimeLeft | None:
    """Return `time_left` of a sweep that runs, with the confirmations that it may still launch.

    Args:
        sweep: Record of the sweep.
        trials: Its trials, of any role and state.
        attempts: All their attempts.
        left: Seconds that a running trial needs for its other steps at its speed, by trial key.
        trials_limit: Expected number of search trials at the end.
        now: Present time.
    """
    ended, running = trial_times(trials, attempts, left, now)
    begun = sum(t.role == "search" and (t.state in FINISHED_TRIAL or t.state == "RUNNING") for t in trials)
    confirm = sweep.document.get("confirm") or {}
    most = int((confirm.get("race") or {}).get("runs", confirm.get("seeds", 0)))
    confirmed = sum(t.role == "confirmation" and t.state != "WAITING" for t in trials)
    return time_left(
        ended,
        running,
        waiting=max(0, trials_limit - begun) + max(0, most - confirmed),
        places=max(len(running), most_at_once(attempts, now)),
        stops_early=not RUN_TO_THE_END & set(sweep.document.get("scheduler") or {"none": {}}),
    )


# ------------------------------------------------------------------ failures


@dataclass(frozen=True)
class FailureGroup:
    """Failed trials of a sweep with the same last line of the error.

    Attributes:
        message: Last line of the user's exception, such as `ModuleNotFoundError: No module named 'torch'`.
        error: Type of the exception, or None if the trial did not end with one.
        file: File of the user's code that raised it, or None.
        line: Line in that file, or None.
        cause: Kind of the failure, such as `error` or `out of memory`.
        count: Number of trials.
        trials: Labels of the first 20 of them.
        next_step: Advice in one sentence.
    """

    message: str
    error: str | None
    file: str | None
    line: int | None
    cause: str
    count: int
    trials: Sequence[str]
    next_step: str


_MOST_LABELS = 20

_RAISED = re.compile(
    r"(?P<message>(?P<error>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Iteration))\b.*?)"
    r"(?: \((?P<file>[^()\s][^()]*), line (?P<line>\d+)(?::.*)?\)+.*)?$"
)
"""An exception in the cause of a failure, with the file and the line of the user's code behind it."""

_NEXT_STEPS = {
    "out of memory": "Let a trial use less memory, or give it more in the section `resources`",
    "out of GPU memory": "Use smaller batches, or give a trial a larger share of the GPU (`resources.gpu`)",
    "time limit": "Raise the limit in the section `resources`, or shorten a trial",
    "disk limit": "Save fewer or smaller files, or raise the limit in the section `resources`",
    "hung": "Report more often, or raise `training.interval`",
}


def failure_groups(trials: Iterable[AnyTrial]) -> list[FailureGroup]:
    """Return the failed search trials by the last line of their error, the most frequent first.

    Args:
        trials: Trials of one sweep, of any role and state.
    """
    failed: dict[tuple[str, str, str, str, str], list[AnyTrial]] = {}
    read: dict[str | None, tuple[str, str, str, str, str]] = {}  # most trials fail alike
    for trial in trials:
        if trial.role == "search" and trial.state == "FAILED":
            if trial.cause not in read:
                read[trial.cause] = _parts_of(trial.cause or "unknown")
            failed.setdefault(read[trial.cause], []).append(trial)
    return [
        FailureGroup(
            message=message,
            error=error or None,
            file=file or None,
            line=int(line) if line else None,
            cause=cause,
            count=len(members),
            trials=[trial_label(trial.key) for trial in members[:_MOST_LABELS]],
            next_step=f"{_NEXT_STEPS.get(cause, 'Correct the cause')}, then run "
            f"`sweep retry-failed {sweep_id_of(members[0].key)}`.",
        )
        for (cause, message, error, file, line), members in sorted(
            failed.items(), key=lambda group: -len(group[1])
        )
    ]


def _parts_of(whole: str) -> tuple[str, str, str, str, str]:
    """Return the kind of a failure, and the message, type, file and line of its exception, '' if unknown."""
    cause, _, details = whole.partition(": ")
    last = (details.strip() or cause).splitlines()[-1]
    if (raised := _RAISED.search(last)) is None:
        return cause, last, "", "", ""
    return cause, raised["message"] or "", raised["error"] or "", raised["file"] or "", raised["line"] or ""
