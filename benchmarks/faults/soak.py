"""R25: a long sweep and a fault every twenty seconds."""

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
from orchestrator.ledger.records import FINISHED_TRIAL
from tests.end_to_end.commands import finish

EVERY = 20.0
TRIALS = 200
ENDED = (0, 3)
LOOK_EVERY = 5.0
SETTLED_AFTER = 60.0
"""Seconds after which a driver has imported all that it needs."""


def soak(dose: Dose) -> list[Row]:
    """Run 200 trials under kills of workers and of the driver and interruptions, then let them finish."""
    site = Site(dose.folder, "soak")
    # As many steps as keep two processors busy for the whole time, between the faults.
    site.write(trials=TRIALS, steps=9 * round(dose.soak), scheduler="{asha: {reduction: 2, grace: 0.25}}")
    tally, chance, growth = Tally(), random.Random(25), _Growth()
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
            tally.expect(False, "it never ended")
            kill(driver)
            break
    finish(driver)
    states = site.ledger.states(site.id)
    tally.expect(sum(states.values()) == TRIALS and set(states) <= {"COMPLETE", "PRUNED"}, f"{states}")
    tally.expect(not (found := site.check()), found)
    tally.expect(not (found := disagreement(site)), found)
    tally.expect(not (left := site.left_running()), f"{left} processes left")
    first, last = growth.of_the_longest()
    tally.expect(last.memory < 1.1 * first.memory, "memory grew")
    tally.expect(last.handles < 1.1 * first.handles, "handles grew")
    seen = f"{time.monotonic() - began:.0f} s, faults {faults}, {states}; "
    grown = f"memory {last.memory / first.memory - 1:+.1%}, handles {last.handles / first.handles - 1:+.1%}"
    seen += f"in {last.age - first.age:.0f} s of one driver ({first.memory / 2**20:.0f} MiB) {grown}"
    must = "200 trials end, `check` clean, the driver's memory and handles grow < 10 %, nothing left"
    return [tally.row(f"{TRIALS} trials, a fault every {EVERY:g} s", must, seen)]


def _faults(elapsed: float, dose: Dose) -> tuple[str, ...]:
    """Return what may happen now: the driver of the second half is left alive, so that its growth is seen."""
    return ("worker", "worker", "kill", "SIGTERM") if elapsed < dose.soak / 2 else ("worker",)


def _do(site: Site, driver: subprocess.Popen[str], fault: str, chance: random.Random) -> int:
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
    """What a driver holds: age in seconds, memory in bytes, number of handles."""

    age: float
    memory: int
    handles: int


class _Growth:
    """What each driver held, first and last, between its beginning and the end of its last trial."""

    def __init__(self) -> None:
        self._first: dict[int, _Held] = {}
        self._last: dict[int, _Held] = {}
        self._looked_at = float("-inf")

    def look(self, driver: subprocess.Popen[str], site: Site) -> None:
        """Note what a driver holds now, once it has begun; what it draws up at the end is not asked for."""
        if time.monotonic() - self._looked_at < LOOK_EVERY:
            return
        self._looked_at = time.monotonic()
        try:
            process = psutil.Process(driver.pid)
            age = time.time() - process.create_time()
            # One that has just ended holds nothing, and is still seen.
            if age > SETTLED_AFTER and process.status() != psutil.STATUS_ZOMBIE and not _over(site):
                now = _Held(age, process.memory_info().rss, process.num_fds())
                self._first.setdefault(driver.pid, now)
                self._last[driver.pid] = now
        except psutil.Error:
            return

    def of_the_longest(self) -> tuple[_Held, _Held]:
        """Return what the driver that lived longest held, first and last."""
        assert self._last, f"no driver trained for {SETTLED_AFTER:g} s, so none could be seen to grow"
        pid = max(self._last, key=lambda each: self._last[each].age - self._first[each].age)
        return self._first[pid], self._last[pid]


def _over(site: Site) -> bool:
    """Tell whether every trial has ended."""
    return sum(site.ledger.states(site.id).get(state, 0) for state in FINISHED_TRIAL) == TRIALS
