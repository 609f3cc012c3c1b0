"""R25: a long sweep with a fault every twenty seconds."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from typing import NamedTuple

import psutil

from benchmarks.faults.site import PATIENCE, Site, disagreement, kill
from benchmarks.faults.table import Dose, Row, Tally
from benchmarks.faults.workers import tired
from orchestrator.ledger.sweeps.records import FINISHED_TRIAL
from tests.end_to_end.commands import finish

EVERY = 20.0
BETWEEN_TRIALS = 6.0
"""Seconds of the soak for each trial: 200 trials in 20 minutes."""

STEPS = 10_800
"""Steps of a trial: enough to keep two processors busy between the faults until the soak ends."""

ENDED = (0, 3)
LOOK_EVERY = 5.0
SETTLED_AFTER = 60.0
"""Seconds after which a driver has imported all its modules."""


def soak(dose: Dose) -> list[Row]:
    """Run trials while killing workers and killing or interrupting the driver, then let them finish."""
    site, count = Site(dose.folder, "soak"), max(10, round(dose.soak / BETWEEN_TRIALS))
    site.write(trials=count, steps=STEPS, scheduler="{asha: {reduction: 2, grace: 0.25}}")
    tally, chance, growth = Tally(), random.Random(25), _Growth(count)
    driver, began, faults = site.drive(), time.monotonic(), {"worker": 0, "kill": 0, "SIGTERM": 0}
    next_fault = began + EVERY
    while driver.poll() not in ENDED:
        if driver.poll() is not None:
            driver = site.drive()
        time.sleep(0.5)
        growth.look(driver, site)
        if time.monotonic() > next_fault and time.monotonic() - began < dose.soak:
            fault = chance.choice(_faults(time.monotonic() - began, dose))
            faults[fault] += _do(site, driver, fault, chance)
            next_fault = time.monotonic() + EVERY
        if time.monotonic() - began > dose.soak + 4 * PATIENCE:
            tally.expect(False, "the sweep did not end in time")
            kill(driver)
            break
    finish(driver)
    states = site.ledger.states(site.id)
    tally.expect(sum(states.values()) == count and set(states) <= {"COMPLETE", "PRUNED"}, f"{states}")
    tally.expect(not (problems := site.check()), problems)
    tally.expect(not (differences := disagreement(site)), differences)
    tally.expect(not (left := site.left_running()), f"{left} processes still running")
    first, last = growth.longest_observed()
    tally.expect(last.memory < 1.1 * first.memory, "memory grew")
    tally.expect(last.handles < 1.1 * first.handles, "handles grew")
    seen = f"{time.monotonic() - began:.0f} s, faults {faults}, {states}; "
    grown = f"memory {last.memory / first.memory - 1:+.1%}, handles {last.handles / first.handles - 1:+.1%}"
    seen += f"in {last.age - first.age:.0f} s of one driver ({first.memory / 2**20:.0f} MiB) {grown}"
    must = "all trials end, `check` clean, the driver's memory and handles grow < 10 %, nothing left"
    return [tally.row(f"{count} trials, a fault every {EVERY:g} s", must, seen)]


def _faults(elapsed: float, dose: Dose) -> tuple[str, ...]:
    """Return the faults to choose from; in the second half the driver is spared, to measure its growth."""
    return ("worker", "worker", "kill", "SIGTERM") if elapsed < dose.soak / 2 else ("worker",)


def _do(site: Site, driver: subprocess.Popen[str], fault: str, chance: random.Random) -> int:
    """Inject a fault; return 1, or 0 if no worker could be killed."""
    if fault == "worker":
        if tired(site):
            return 0
        workers = site.titled("ray::Worker")
        if workers:
            with suppress(psutil.NoSuchProcess):
                chance.choice(workers).kill()
        return len(workers[:1])
    os.kill(driver.pid, signal.SIGKILL if fault == "kill" else signal.SIGTERM)
    finish(driver, PATIENCE)
    return 1


class _Held(NamedTuple):
    """Resources of a driver: age in seconds, memory in bytes, number of open handles."""

    age: float
    memory: int
    handles: int


class _Growth:
    """First and last sample of each driver's resources, until its last trial ends.

    Args:
        trials: Number of trials.
    """

    def __init__(self, trials: int) -> None:
        self._trials = trials
        self._first: dict[int, _Held] = {}
        self._last: dict[int, _Held] = {}
        self._looked_at = float("-inf")

    def look(self, driver: subprocess.Popen[str], site: Site) -> None:
        """Sample a driver's resources, unless it is starting up or writing its final report."""
        if time.monotonic() - self._looked_at < LOOK_EVERY:
            return
        self._looked_at = time.monotonic()
        try:
            process = psutil.Process(driver.pid)
            age = time.time() - process.create_time()
            # A driver that has just exited is still listed, as a zombie without memory.
            if age > SETTLED_AFTER and process.status() != psutil.STATUS_ZOMBIE and not self._over(site):
                now = _Held(age, process.memory_info().rss, process.num_fds())
                self._first.setdefault(driver.pid, now)
                self._last[driver.pid] = now
        except psutil.Error:
            return

    def longest_observed(self) -> tuple[_Held, _Held]:
        """Return the first and last sample of the driver that was observed longest."""
        assert self._last, f"no driver ran longer than {SETTLED_AFTER:g} s, so growth could not be measured"
        pid = max(self._last, key=lambda pid: self._last[pid].age - self._first[pid].age)
        return self._first[pid], self._last[pid]

    def _over(self, site: Site) -> bool:
        """Return True if every trial has ended."""
        states = site.ledger.states(site.id)
        return sum(states.get(state, 0) for state in FINISHED_TRIAL) == self._trials
