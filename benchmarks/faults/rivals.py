"""Two drivers of one sweep on PostgreSQL, each started again whenever it exits, under every kind of fault."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from subprocess import Popen
from typing import Any

import psutil

from benchmarks.faults.served import ServedSite
from benchmarks.faults.site import PATIENCE, Site, disagreement
from benchmarks.faults.table import Dose, Row, Tally
from benchmarks.faults.workers import tired
from orchestrator.errors import Exit
from orchestrator.ledger.lease_backends import LIFE_SECONDS
from tests import postgres
from tests.end_to_end.commands import finish

ENDED = (Exit.COMPLETE, Exit.SOME_FAILED)
LONG = ("--set", "training.interval=500")
STEPS = 60_000
"""Steps of a trial: enough that a sweep of eight trials outlasts most of its faults."""

AGAIN_SECONDS = 10.0
"""Time after which a driver that has exited is started again."""

BETWEEN = (4.0, 15.0)
"""Shortest and longest time between two faults, in seconds."""

AWAY_SECONDS = 8.0
SILENT_SECONDS = LIFE_SECONDS + 10.0
MUST = (
    "one driver at a time runs the sweep; nothing finished lost or run twice, at most one interval "
    "repeated per trial and fault, curves and best as undisturbed, every MLflow point once, `check` clean"
)


def rivals(dose: Dose) -> list[Row]:
    """Inject `dose.kills` faults into a sweep that two drivers want to run."""
    programs, user = postgres.binaries(), postgres.unprivileged_user()
    if programs is None or user is None:
        return [Row("two drivers", MUST, "not run: PostgreSQL is not installed", True)]
    with ExitStack() as stack:
        server = postgres.Server(programs, user)
        stack.callback(server.remove)
        site = ServedSite(dose.folder, "rivals", server.empty_database())
        stack.callback(site.end)
        site.write(steps=STEPS)
        pair = _Pair(site, server)
        pair.run(dose.kills)
        undisturbed = Site(dose.folder, "rivals-undisturbed").write(steps=STEPS)
        code, output = undisturbed.finished(*LONG)
        pair.tally.expect(code == 0, f"the undisturbed sweep exited with {code}: {output[-300:]}")
        return [pair.row(undisturbed.outcome())]


class _Pair:
    """The two drivers, the faults that hit them, and what they broke.

    Args:
        site: of the sweep.
        server: of the ledger.
    """

    def __init__(self, site: ServedSite, server: postgres.Server) -> None:
        self._site, self._server, self._chance = site, server, random.Random(17)
        self._drivers: list[Popen[str] | None] = [None, None]
        self._due = [0.0, AGAIN_SECONDS]
        self._settled: dict[str, Any] = {}
        self._faults, self._codes = Counter[str](), Counter[int]()
        self._began, self._over = time.monotonic(), False
        self.tally = Tally()

    def run(self, count: int) -> None:
        """Inject faults until there were `count`, or the sweep is finished; then let it finish."""
        faults: list[Callable[[], str]] = [
            self._killed, self._terminated, self._interrupted, self._silent,
            self._worker_killed, self._database_restarted, self._tracking_silent, self._store_silent,
        ]  # fmt: skip
        order: list[Callable[[], str]] = []
        due = time.monotonic() + BETWEEN[1]
        while not self._over:
            self._keep_running()
            assert time.monotonic() - self._began < 6 * PATIENCE, "the sweep does not end"
            if sum(self._faults.values()) >= count or time.monotonic() < due:
                continue
            if not order:
                order = self._chance.sample(faults, len(faults))
            self._faults[order.pop()()] += 1
            self._look_at_finished_trials()
            due = time.monotonic() + self._chance.uniform(*BETWEEN)

    def row(self, undisturbed: dict[str, Any]) -> Row:
        """Compare everything that is stored with an undisturbed sweep."""
        site, tally = self._site, self.tally
        self._look_at_finished_trials()
        same = site.outcome() == undisturbed
        tally.expect(same, "trials, curves or values differ from the undisturbed sweep")
        repeated, faults = max(site.repeated().values()), sum(self._faults.values())
        tally.expect(repeated <= faults, f"{site.repeated()} intervals repeated")
        tally.expect(not (problems := site.check()), problems)
        tally.expect(not (differences := disagreement(site)), differences)
        tally.expect(not (left := site.left_running()), f"{left} processes still running")
        seconds = time.monotonic() - self._began
        seen = f"{faults} faults in {seconds:.0f} s: "
        seen += ", ".join(f"{name} {number}" for name, number in sorted(self._faults.items()))
        seen += f"; exit codes {dict(sorted(self._codes.items()))}; at most {repeated} intervals repeated"
        seen += "; trials, curves and best equal" if same else ""
        return tally.row("two drivers on PostgreSQL", MUST, seen)

    def _keep_running(self) -> None:
        """Start again what has exited, until a driver has found the sweep finished."""
        time.sleep(0.2)
        for index, driver in enumerate(self._drivers):
            if driver is None:
                if time.monotonic() > self._due[index]:
                    self._drivers[index] = self._site.drive("--tracking-patience", "300", *LONG)
            elif driver.poll() is not None:
                code, output = finish(driver)
                self._codes[code] += 1
                expected = code in (*ENDED, Exit.RESUMABLE, Exit.BUSY, -signal.SIGKILL)
                self.tally.expect(expected, f"exit code {code}: {output[-300:]}")
                self.tally.expect("Traceback" not in output, f"a traceback: {output[-500:]}")
                self._drivers[index], self._due[index] = None, time.monotonic() + AGAIN_SECONDS
                if code in ENDED:
                    self._end_the_other()
                    self._over = True
                    return

    def _end_the_other(self) -> None:
        """Wait for the other driver: it is refused, or finds the sweep finished."""
        for driver in self._drivers:
            if driver is not None:
                code, output = finish(driver, PATIENCE)
                self._codes[code] += 1
                self.tally.expect(
                    code in (*ENDED, Exit.BUSY), f"the other driver: exit code {code}: {output[-300:]}"
                )

    def _look_at_finished_trials(self) -> None:
        if self._site.ledger.sweeps():
            now = self._site.settled()
            changed = [key for key, value in self._settled.items() if now.get(key) != value]
            self.tally.expect(not changed, f"finished trials changed: {changed}")
            self._settled = now

    def _holder(self) -> Popen[str] | None:
        """Return the driver that has started most processes, which is the one that runs the sweep."""
        alive = [driver for driver in self._drivers if driver is not None and driver.poll() is None]
        return max(alive, key=_descendants, default=None)

    def _send(self, number: signal.Signals) -> str:
        if (driver := self._holder()) is not None:
            os.kill(driver.pid, number)
        return number.name

    def _killed(self) -> str:
        return self._send(signal.SIGKILL)

    def _terminated(self) -> str:
        return self._send(signal.SIGTERM)

    def _interrupted(self) -> str:
        return self._send(signal.SIGINT)

    def _silent(self) -> str:
        """Stop the driver for longer than its lease lasts: the other one takes over."""
        if (driver := self._holder()) is not None:
            os.kill(driver.pid, signal.SIGSTOP)
            self._wait(SILENT_SECONDS)
            os.kill(driver.pid, signal.SIGCONT)
        return f"driver stopped for {SILENT_SECONDS:g} s"

    def _worker_killed(self) -> str:
        workers = [] if tired(self._site) else self._site.titled("ray::Worker")
        if workers:
            with suppress(psutil.NoSuchProcess):
                self._chance.choice(workers).kill()
        return "worker killed"

    def _database_restarted(self) -> str:
        self._server.stop()
        self._wait(AWAY_SECONDS)
        self._server.start()
        return f"PostgreSQL down for {AWAY_SECONDS:g} s"

    def _tracking_silent(self) -> str:
        self._stopped(self._site.tracking)
        return f"MLflow stopped for {AWAY_SECONDS:g} s"

    def _store_silent(self) -> str:
        self._stopped(self._site.store)
        return f"store stopped for {AWAY_SECONDS:g} s"

    def _stopped(self, server: Popen[bytes]) -> None:
        processes = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        for process in processes:
            process.suspend()
        self._wait(AWAY_SECONDS)
        for process in processes:
            process.resume()

    def _wait(self, seconds: float) -> None:
        """Keep starting drivers that have exited meanwhile."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and not self._over:
            self._keep_running()


def _descendants(driver: Popen[str]) -> int:
    try:
        return len(psutil.Process(driver.pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return 0
