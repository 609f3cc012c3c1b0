"""R14, R19, R20: signals, unavailable resources, and clocks that jump."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time

from benchmarks.faults.preload import Clock
from benchmarks.faults.site import Site, disagreement, kill, until
from benchmarks.faults.table import Dose, Row, Tally
from tests.end_to_end.commands import finish

SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP")

REFUSAL_SECONDS = 2.0
"""Longest time until a driver refuses what the machine lacks, of a processor: others do not prolong it."""

HANG_SECONDS = 120.0
"""Time after which a driver counts as hanging, which takes no processor time."""


def signals(dose: Dose) -> list[Row]:
    """Interrupt one sweep with each signal in turn and resume it; then send SIGINT twice."""
    site = Site(dose.folder, "signals").write(steps=200_000, trials=2)
    rows = [_interrupted(site, name) for name in SIGNALS]
    return [*rows, _interrupted_twice(site)]


def _interrupted(site: Site, name: str) -> Row:
    tally, before = Tally(), site.reports()
    driver = site.drive()
    site.until_reports(before + 4, driver)
    began = time.monotonic()
    os.kill(driver.pid, signal.Signals[name])
    until(lambda: driver.poll() is not None)
    ended = time.monotonic() - began
    code, output = finish(driver)
    tally.expect(code == 4, f"exit code {code}: {output[-300:]}")
    left = site.left_running()
    tally.expect(left == 0, f"{left} processes still running after 15 s")
    (sweep,) = site.ledger.sweeps()
    tally.expect(sweep.state == "INTERRUPTED", f"the sweep is {sweep.state}")
    repeated = sum(site.repeated().values())
    tally.expect(repeated == 0, f"{repeated} intervals repeated")
    tally.expect(not (problems := site.check()), problems)
    seen = f"code {code} after {ended:.1f} s, {left} processes left, {repeated} intervals repeated"
    must = (
        "saved within 10 s on a quiet machine, INTERRUPTED, code 4, nothing left after 15 s, 0 steps repeated"
    )
    return tally.row(name, must, seen)


def _interrupted_twice(site: Site) -> Row:
    tally, before = Tally(), site.reports()
    driver = site.drive()
    site.until_reports(before + 4, driver)
    for _ in range(2):
        os.kill(driver.pid, signal.SIGINT)
        time.sleep(0.2)
    until(lambda: driver.poll() is not None)
    finish(driver)
    left = site.left_running()
    tally.expect(left == 0, f"{left} processes still running after 15 s")
    tally.expect(driver.returncode in (4, 130), f"exit code {driver.returncode}")
    code, _ = finish(_stopped_soon(site))
    tally.expect(code == 4, f"the next driver exited with {code}")
    tally.expect(not (problems := site.check()), problems)
    return tally.row("SIGINT twice", "ends at once, nothing left, resumable", f"{left} left, then resumed")


def _stopped_soon(site: Site) -> subprocess.Popen[str]:
    before = site.reports()
    driver = site.drive()
    until(lambda: site.reports() > before, driver)
    finish(site.start("stop", site.id))
    return driver


def impossible_resources(dose: Dose) -> list[Row]:
    """Request more processors than the machine has, and a GPU that it lacks."""
    site, tally, messages = Site(dose.folder, "impossible"), Tally(), []
    for request in ({"cpu": 4096}, {"cpu": "1, gpu: 1"}):
        site.write(**request)
        before = _processor_seconds()
        code, output = finish(site.drive(CUDA_VISIBLE_DEVICES=""), HANG_SECONDS)
        spent = _processor_seconds() - before
        messages.append(f"{output.strip()} ({spent:.1f} s)")
        tally.expect(code == 2, f"exit code {code}")
        tally.expect(spent <= REFUSAL_SECONDS, f"took {spent:.1f} s of a processor")
        tally.expect("resources." in output and len(output.splitlines()) == 1, f"printed {output!r}")
    tally.expect(not site.root.exists(), "the root folder was created")
    within = f"within {REFUSAL_SECONDS:g} s of a processor"
    must = f"code 2 {within}, one line naming what is missing, nothing written"
    return [tally.row("4096 CPUs; a GPU where there is none", must, " / ".join(messages))]


def _processor_seconds() -> float:
    """Return the processor time of all processes that this one has started and waited for, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def moved_clock(dose: Dose) -> list[Row]:
    """Kill a driver and resume with the clock two hours back, then two hours ahead."""
    site, tally = Site(dose.folder, "clock").write(steps=1600), Tally()
    undisturbed = Site(dose.folder, "clock-undisturbed").write(steps=1600)
    tally.expect(undisturbed.finished()[0] == 0, "the undisturbed sweep failed")
    own, other = Clock(dose.folder, "driver"), Clock(dose.folder, "second-driver")
    other.shift(7200)
    for shift in (0, -7200, 7200):
        own.shift(shift)
        driver = site.drive(**own.environment)
        wanted = site.reports() + 6
        if not site.until_reports(wanted, driver):
            raise AssertionError(f"a driver whose clock is shifted by {shift} s exited: {finish(driver)}")
        code, _ = finish(site.drive(**other.environment))
        tally.expect(code == 6, f"a second driver with another clock exited with {code}")
        kill(driver)
    code, output = site.finished()
    tally.expect(code == 0, f"exit code {code}: {output[-300:]}")
    same = site.outcome() == undisturbed.outcome()
    tally.expect(same, "the outcome differs from the undisturbed one")
    tally.expect(not (problems := site.check()), problems)
    tally.expect(not (differences := disagreement(site)), differences)
    must = "newest state chosen, no lease stolen, the undisturbed outcome"
    return [tally.row("clock -2 h, +2 h between kills", must, "equal" if same else "not equal")]
