"""Two drivers that want to run one sweep, each started again whenever it exits."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from subprocess import Popen
from typing import Any

import psutil

from benchmarks.faults.served import ServedSite
from benchmarks.faults.site import PATIENCE, disagreement
from benchmarks.faults.table import Row, Tally
from orchestrator.errors import Exit
from tests.end_to_end.commands import finish

ENDED = (Exit.COMPLETE, Exit.SOME_FAILED)

AGAIN_SECONDS = 10.0
"""Time after which a driver that has exited is started again."""

BETWEEN = (4.0, 15.0)
"""Shortest and longest time between two faults, in seconds."""


class Pair:
    """The two drivers of a sweep.

    Attributes:
        chance: Random source of the order, the times and the targets of the faults.
        over: Whether a driver has found the sweep finished.
        allowed: Number of intervals of a trial that may be repeated.
        tally: Failed expectations.
    """

    def __init__(self, site: ServedSite, *options: str, **environment: str) -> None:
        self.site, self.chance, self.tally = site, random.Random(17), Tally()
        self.over, self.allowed = False, 0
        self._options, self._environment = options, environment
        self._drivers: list[Popen[str] | None] = [None, None]
        self._due = [0.0, AGAIN_SECONDS]
        self._settled: dict[str, Any] = {}
        self._faults, self._codes = Counter[str](), Counter[int]()
        self._began, self._seconds = time.monotonic(), 0.0

    def run(self, faults: list[Callable[[], str]], count: int) -> None:
        """Inject `count` faults, each kind once before any repeats, until the sweep is finished."""
        order: list[Callable[[], str]] = []
        due = time.monotonic() + BETWEEN[1]
        while not self.over:
            self._keep_running()
            assert time.monotonic() - self._began < 6 * PATIENCE, "the sweep does not end"
            if self._faults.total() >= count or time.monotonic() < due or not self._has_reported():
                continue
            if not order:
                order = self.chance.sample(faults, len(faults))
            self.allowed += 1
            self._faults[order.pop()()] += 1
            self._look_at_finished_trials()
            due = time.monotonic() + self.chance.uniform(*BETWEEN)
        self._seconds = time.monotonic() - self._began

    def row(self, fault: str, must: str, undisturbed: dict[str, Any]) -> Row:
        """Compare everything that is stored with the `Site.outcome` of an undisturbed sweep."""
        site, tally = self.site, self.tally
        self._look_at_finished_trials()
        same = site.outcome() == undisturbed
        tally.expect(same, "trials, curves or values differ from the undisturbed sweep")
        repeated = max(site.repeated().values())
        tally.expect(repeated <= self.allowed, f"{site.repeated()} intervals repeated")
        tally.expect(not (problems := site.check()), problems)
        tally.expect(not (differences := disagreement(site)), differences)
        tally.expect(not (left := site.left_running()), f"{left} processes still running")
        lost = Counter(attempt.cause for attempt in site.ledger.attempts(site.id) if attempt.cause)
        seen = f"{self._faults.total()} faults in {self._seconds:.0f} s: "
        seen += ", ".join(f"{name} {number}" for name, number in sorted(self._faults.items()))
        seen += f"; exit codes {dict(sorted(self._codes.items()))}; attempts lost {dict(lost)}"
        seen += f"; at most {repeated} intervals repeated"
        seen += "; trials, curves and best equal" if same else ""
        return tally.row(fault, must, seen)

    def holder(self) -> Popen[str] | None:
        """Return the driver that has started most processes, which is the one that runs the sweep."""
        alive = [driver for driver in self._drivers if driver is not None and driver.poll() is None]
        return max(alive, key=_descendants, default=None)

    def send(self, number: signal.Signals) -> str:
        """Send a signal to the driver that runs the sweep; return what that is to be called."""
        if (driver := self.holder()) is None:
            return f"no driver for {number.name}"
        driver.send_signal(number)
        return number.name

    def wait(self, seconds: float, condition: Callable[[], bool] = lambda: False) -> bool:
        """Keep starting drivers that have exited, until the time is over or a condition holds.

        Returns:
            Whether the condition held.
        """
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and not self.over:
            self._keep_running()
            if condition():
                return True
        return False

    def _keep_running(self) -> None:
        """Start again what has exited, until a driver has found the sweep finished."""
        time.sleep(0.2)
        for index, driver in enumerate(self._drivers):
            if driver is None:
                if time.monotonic() > self._due[index]:
                    self._drivers[index] = self.site.drive(*self._options, **self._environment)
            elif driver.poll() is not None:
                code, output = finish(driver)
                self._codes[code] += 1
                expected = code in (*ENDED, Exit.RESUMABLE, Exit.BUSY, -signal.SIGKILL)
                self.tally.expect(expected, f"exit code {code}: {output[-300:]}")
                self.tally.expect("Traceback" not in output, f"a traceback: {output[-500:]}")
                self._drivers[index], self._due[index] = None, time.monotonic() + AGAIN_SECONDS
                if code in ENDED:
                    self._end_the_other()
                    self.over = True
                    return

    def _end_the_other(self) -> None:
        """Wait for the other driver: it is refused, or finds the sweep finished."""
        for driver in self._drivers:
            if driver is not None:
                driver.send_signal(signal.SIGCONT)  # the fault may be that it is stopped
                code, output = finish(driver, PATIENCE)
                self._codes[code] += 1
                self.tally.expect(
                    code in (*ENDED, Exit.BUSY), f"the other driver: exit code {code}: {output[-300:]}"
                )

    def _has_reported(self) -> bool:
        return self.site.reports() > 0

    def _look_at_finished_trials(self) -> None:
        if self.site.ledger.sweeps():
            now = self.site.settled()
            changed = [key for key, value in self._settled.items() if now.get(key) != value]
            self.tally.expect(not changed, f"finished trials changed: {changed}")
            self._settled = now


def _descendants(driver: Popen[str]) -> int:
    try:
        return len(psutil.Process(driver.pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return 0
