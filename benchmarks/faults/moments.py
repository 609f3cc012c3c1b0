"""SIGINT and SIGTERM at seeded moments: of drivers without Ray, and of the ordinary command."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from benchmarks.faults.site import PATIENCE, Site, difference, disagreement, until
from benchmarks.faults.table import Dose, Row, Tally
from tests.end_to_end.commands import finish
from tests.orchestrator.driver.moments import LEFT_SECONDS, PHASES, Left, Moment, interrupt, warm

MUST = "code 4, or 0 if the sweep was complete, within 10 s; nothing lost; the next run completes"
COMPLETE, RESUMABLE = 0, 4
FORCED = "left after"
"""Printed by a driver that could not leave in time by itself: its workers are killed, also in a save."""
PATIENTLY = ("--tracking-patience", "600")
"""Options with which a driver delivers everything to MLflow, even on a busy machine."""


def moments(dose: Dose) -> list[Row]:
    """Interrupt drivers without Ray, then the ordinary command; leave out either if its number is 0."""
    scenarios = ((dose.moments, _of_drivers), (dose.commands, _of_commands))
    return [interrupted(dose) for count, interrupted in scenarios if count]


def _of_drivers(dose: Dose) -> Row:
    """Interrupt `dose.moments` drivers without Ray, two at a time."""
    folder, tally = dose.folder / "moments", Tally()
    folder.mkdir()
    warm(folder / "warm")
    tasks = [(folder, seed) for seed in range(dose.moments)]
    # Each worker forks its drivers, so it must not have threads: a pool of processes that are forked.
    with multiprocessing.get_context("fork").Pool(2) as pool:
        results = pool.starmap(_interrupted, tasks, chunksize=4)
    for seed, left in enumerate(results):
        tally.expect(not isinstance(left, str), f"moment {seed}: {left}")
    ended = [left for left in results if isinstance(left, Left)]
    late = [
        seed for seed, left in enumerate(results) if isinstance(left, Left) and left.seconds >= LEFT_SECONDS
    ]
    tally.expect(not late, f"left too late: {', '.join(f'{seed}: {Moment.drawn(seed)}' for seed in late)}")
    wrong = [left for left in ended if left.code != (COMPLETE if left.complete else RESUMABLE)]
    tally.expect(not wrong, f"{len(wrong)} other exit codes: {wrong[:3]}")
    slowest = max((left.seconds for left in ended), default=float("nan"))
    codes = dict(sorted(Counter(left.code for left in ended).items()))
    phases = Counter(Moment.drawn(seed).phase for seed in range(dose.moments))
    seen = f"exit codes {codes}; the slowest left after {slowest:.1f} s; moments in "
    seen += ", ".join(f"{phase} {phases[phase]}" for phase in PHASES)
    return tally.row(f"SIGINT or SIGTERM at {dose.moments} moments, without Ray", MUST, seen)


def _interrupted(folder: Path, seed: int) -> Left | str:
    """Interrupt one driver; return how it left, or what was lost."""
    try:
        return interrupt(folder / str(seed), Moment.drawn(seed))
    except AssertionError as error:
        return f"{Moment.drawn(seed)}: {error}"[:300]
    finally:
        shutil.rmtree(folder / str(seed), ignore_errors=True)


def _of_commands(dose: Dose) -> Row:
    """Interrupt the ordinary command again and again; a sweep that completes is followed by another."""
    tally, chance = Tally(), random.Random(2)
    undisturbed = _small(dose, "moments-undisturbed")
    began = time.monotonic()
    code, output = undisturbed.finished()
    lasting, wanted = time.monotonic() - began, undisturbed.outcome()
    tally.expect(code == COMPLETE, f"the undisturbed sweep exited with {code}: {output[-300:]}")
    codes, seconds, sweeps, forced = Counter[int](), list[float](), 0, 0
    while sum(codes.values()) < dose.commands:
        sweeps += 1
        site = _small(dose, f"moments-{sweeps}")
        while sum(codes.values()) < dose.commands:
            name = ("SIGINT", "SIGTERM")[sum(codes.values()) % 2]
            code, took, was_forced = _signalled(site, name, chance.uniform(0.0, lasting), tally)
            codes[code] += 1
            forced += was_forced
            seconds.append(took)
            if code == COMPLETE:
                break
        _completed(site, wanted, tally)
    tally.expect(set(codes) <= {COMPLETE, RESUMABLE}, "other exit codes")
    seen = f"exit codes {dict(sorted(codes.items()))} over {sweeps} sweeps of {lasting:.0f} s; "
    seen += f"left after {sorted(seconds)[len(seconds) // 2]:.1f} s (median; at most {max(seconds):.1f}), "
    seen += f"{forced} forced to leave"
    must = f"{MUST} with the undisturbed curves; `check` is clean, no process is left, and no part of a save "
    must += "unless the driver was forced to leave"
    return tally.row(f"SIGINT or SIGTERM at {dose.commands} moments of the command", must, seen)


def _small(dose: Dose, name: str) -> Site:
    return Site(dose.folder, name).write(trials=4)


def _signalled(site: Site, name: str, moment: float, tally: Tally) -> tuple[int, float, bool]:
    """Run the command until a moment after it handles signals.

    Return its exit code, how long it took to leave, and whether it was forced to.
    """
    before = site.settled() if _has_sweep(site) else {}
    driver = site.drive(*PATIENTLY)
    until(lambda: _catches(driver.pid), driver)
    deadline = time.monotonic() + moment
    until(lambda: time.monotonic() > deadline, driver)
    began = time.monotonic()
    if driver.poll() is None:
        os.kill(driver.pid, signal.Signals[name])
    until(lambda: driver.poll() is not None)
    took = time.monotonic() - began
    code, output = finish(driver, PATIENCE)
    left, forced = site.left_running(), FORCED in output
    what = f"{name} after {moment:.1f} s{', forced to leave' if forced else ''}"
    tally.expect(left == 0, f"{what}: {left} processes still running")
    tally.expect(took < LEFT_SECONDS, f"{what}: left after {took:.1f} s with code {code}: {output[-200:]}")
    tally.expect(code in (COMPLETE, RESUMABLE), f"{what}: exit code {code}: {output[-200:]}")
    tally.expect("Traceback" not in output, f"{what}: a traceback was printed: {output[-200:]}")
    if _has_sweep(site):
        after = site.settled()
        tally.expect(before.items() <= after.items(), f"{what}: finished trials changed")
        tally.expect(not (problems := site.check()), f"{what}: {problems}")
        left_behind = site.leftovers()
        tally.expect(forced or not left_behind, f"{what}: {left_behind} left: {output[-300:]}")
    return code, took, forced


def _catches(pid: int) -> bool:
    """Return True if a process has a handler for SIGTERM."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, psutil.NoSuchProcess):
        return False
    (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)


def _has_sweep(site: Site) -> bool:
    return (site.root / "sweeps.db").exists() and bool(site.ledger.sweeps())


def _completed(site: Site, wanted: dict[str, Any], tally: Tally) -> None:
    """Run a sweep to its end, and compare it with the undisturbed one."""
    code, output = site.finished(*PATIENTLY)
    tally.expect(code == COMPLETE, f"the next run exited with {code}: {output[-300:]}")
    tally.expect(not (different := difference(wanted, site.outcome())), different)
    tally.expect(not (problems := site.check()), problems)
    tally.expect(not (differences := disagreement(site)), f"{differences}; the last run: {output[-300:]}")
