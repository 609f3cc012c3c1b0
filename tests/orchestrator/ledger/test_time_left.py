"""The estimate of the time left, on simulated searches whose end is known."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import pytest

from orchestrator.ledger.sweeps.records import AttemptRecord
from orchestrator.ledger.sweeps.standing import (
    TimeLeft,
    TrialTime,
    most_at_once,
    time_left,
    trial_times,
)
from tests import sweeps

WHOLE = 100.0
"""Median seconds of a trial with all its steps."""

REPORTS = 40
"""Number of reports of a trial with all its steps."""

RUNGS = (1 / 16, 1 / 4)
REDUCTION = 3


@dataclass
class Simulated:
    """A trial of a simulated search, which starts up and then takes `whole` seconds for all its steps."""

    start: float
    startup: float
    whole: float
    quality: float
    speed_error: float
    end: float = math.inf
    part: float = 1.0

    def at(self, part: float) -> float:
        """Return the time at which this part of its steps is done."""
        return self.start + self.startup + self.whole * part

    def time(self, now: float) -> TrialTime:
        """Return the time of this running trial as its reports show it."""
        done = max(0.0, now - self.start - self.startup) / self.whole
        reported = math.floor(done * REPORTS) / REPORTS
        left = self.whole * (1.0 - done) * self.speed_error
        return TrialTime(now - self.start, reported, left if reported >= 2 / REPORTS else None)


def search(random: Random, trials: int, places: int, scheduler: str) -> list[Simulated]:
    """Simulate a search with trials of different durations; return its trials.

    Args:
        random: Source of randomness.
        trials: Number of trials.
        places: Number of trials that run at once.
        scheduler: `none`; `asha`, which lets the best third of each rung go on; or `coin`, which stops half
            of the trials at each rung.
    """
    rungs = () if scheduler == "none" else RUNGS
    reached: dict[float, list[float]] = {rung: [] for rung in rungs}
    begun: list[Simulated] = []
    events: list[tuple[float, int, int]] = []

    def begin(at: float) -> None:
        whole = WHOLE * random.lognormvariate(0.0, 0.3)
        error = random.lognormvariate(0.0, 0.07)
        begun.append(Simulated(at, random.uniform(1.0, 6.0), whole, random.random(), error))
        follow(len(begun) - 1, 0)

    def follow(number: int, rung: int) -> None:
        heapq.heappush(events, (begun[number].at((*rungs, 1.0)[rung]), number, rung))

    def goes_on(trial: Simulated, rung: int) -> bool:
        if scheduler == "coin":
            return random.random() < 0.5
        values = reached[rungs[rung]]
        values.append(trial.quality)
        return trial.quality >= sorted(values)[-max(1, len(values) // REDUCTION)]

    for _ in range(min(places, trials)):
        begin(0.0)
    while events:
        at, number, rung = heapq.heappop(events)
        if rung < len(rungs) and goes_on(begun[number], rung):
            follow(number, rung + 1)
            continue
        begun[number].end, begun[number].part = at, (*rungs, 1.0)[rung]
        if len(begun) < trials:
            begin(at + random.uniform(0.0, 2.0))
    return begun


def estimate(begun: Sequence[Simulated], now: float, places: int, *, stops: bool) -> TimeLeft | None:
    """Return the estimate at a time of a simulated search."""
    ended = sorted((trial for trial in begun if trial.end <= now), key=lambda trial: trial.end)
    running = [trial.time(now) for trial in begun if trial.start <= now < trial.end]
    waiting = sum(trial.start > now for trial in begun)
    times = [TrialTime(trial.end - trial.start, trial.part) for trial in ended]
    most = places if waiting else len(running)
    return time_left(times, running, waiting=waiting, places=most, stops_early=stops)


def from_ends(begun: Sequence[Simulated], now: float, trials: int) -> float | None:
    """Return the estimate from the mean distance between the ends of trials, which this one replaces."""
    ends = sorted(trial.end for trial in begun if trial.end <= now)[-20:]
    if len(ends) < 2:
        return None
    settled = sum(trial.end <= now for trial in begun)
    return (trials - settled) * (ends[-1] - ends[0]) / (len(ends) - 1)


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["none", "asha", "coin"])
def test_the_range_holds_the_true_end_of_four_fifths_of_all_searches(scheduler: str) -> None:
    """A range as wide around the distance between ends, the former estimate, does not."""
    random, held, held_before, known = Random(1), [], [], 0
    for _ in range(100):
        trials, places = random.choice([6, 12, 24, 48]), random.choice([1, 2, 4])
        begun = search(random, trials, places, scheduler)
        end = max(trial.end for trial in begun)
        for _ in range(3):
            now = random.uniform(0.02, 0.98) * end
            found = estimate(begun, now, places, stops=scheduler != "none")
            if found is None:
                continue
            known += 1
            held.append(found.low <= end - now <= found.high)
            former, scale = from_ends(begun, now, trials), max(found.likely, 1e-9)
            if former is not None:
                held_before.append(former * found.low / scale <= end - now <= former * found.high / scale)
    assert known >= 280, "an estimate is almost always known"
    assert sum(held) / len(held) >= 0.8
    assert sum(held_before) / len(held_before) < 0.8


def test_the_range_reaches_the_rest_of_the_slowest_running_trial() -> None:
    """Short trials have ended before it, and none waits."""
    ended = [TrialTime(4.0, 1.0)] * 10
    running = [TrialTime(8.0, 0.1, 62.0), TrialTime(3.0, 0.7, 1.0)]
    left = time_left(ended, running, waiting=0, places=2)
    assert left is not None
    assert left.low >= 62.0
    stopped = time_left([TrialTime(4.0, 0.2), *ended], running, waiting=0, places=2, stops_early=True)
    assert stopped is not None
    assert stopped.high >= 62.0
    assert stopped.low <= stopped.likely <= stopped.high


def test_prunings_at_one_rung_do_not_stand_for_all_trials() -> None:
    """Two of 12 were pruned within a second of each other; the others run, and go on for 100 s each."""
    ended = [TrialTime(10.0, 0.1), TrialTime(11.0, 0.1)]
    running = [TrialTime(50.0, 0.5, 50.0), TrialTime(60.0, 0.6, 40.0)]
    left = time_left(ended, running, waiting=8, places=2, stops_early=True)
    assert left is not None
    assert left.basis == "from speed"
    assert left.high > 200.0
    assert left.likely > 80.0


def test_the_basis_is_named_and_nothing_is_known_before_the_first_speed() -> None:
    assert time_left([], [TrialTime(5.0, 0.0, None)], waiting=8, places=1) is None
    assert time_left([], [], waiting=8, places=1) is None
    one = time_left([], [TrialTime(5.0, 0.1, 45.0)], waiting=0, places=1)
    assert one is not None
    assert one.basis == "from speed"
    later = time_left([TrialTime(50.0, 1.0)] * 5, [], waiting=2, places=1)
    assert later is not None
    assert later.basis == "from 5 ended trials"
    assert later.low < 100.0 < later.high
    over = time_left([TrialTime(50.0, 1.0)] * 5, [], waiting=0, places=1)
    assert over is not None
    assert (over.low, over.high) == (0.0, 0.0)


def test_the_times_of_trials_are_those_in_which_workers_held_resources() -> None:
    trials = [
        sweeps.trial(0, finished_at=100.0),
        sweeps.trial(1, "PRUNED", finished_at=50.0),
        sweeps.trial(2, "RUNNING", step=50, finished_at=None),
        sweeps.trial(3, "WAITING", step=0, finished_at=None),
    ]
    first, second, third = (trial.key for trial in trials[:3])
    attempts = [
        AttemptRecord(f"{first}.1", first, 1, "LOST", None, "n", 0.0, 20.0, 10.0),
        AttemptRecord(f"{first}.2", first, 2, "ENDED", None, "n", 30.0, 100.0, 40.0),
        AttemptRecord(f"{second}.1", second, 1, "ENDED", None, "n", 0.0, 50.0, 20.0),
        AttemptRecord(f"{third}.1", third, 1, "RUNNING", None, "n", 50.0, None, 60.0),
    ]
    ended, running = trial_times(trials, attempts, {third: 30.0}, 110.0)
    assert ended == [TrialTime(30.0, 0.4), TrialTime(70.0, 1.0)], "the oldest first"
    assert running == [TrialTime(50.0, 0.25, 30.0)]
    assert most_at_once(attempts, 105.0) == 2, "one has just ended, and its place is still empty"
    assert most_at_once(attempts, 150.0) == 1
