"""R1, R2, R21: drivers killed at random moments, and several drivers of one sweep."""

from __future__ import annotations

import random
import time
from typing import Any

from benchmarks.faults.site import Site, disagreement, kill, until
from benchmarks.faults.table import Dose, Row, Tally
from tests.end_to_end.commands import finish

SAMPLERS = ("random", "qmc", "grid")
LONG = 1200
"""Steps per trial: enough that a sweep of eight trials lasts through all its kills."""
MUST = "0 finished lost or run twice, 0 duplicates, at most 1 interval repeated a running trial a kill"


def killed_drivers(dose: Dose) -> list[Row]:
    """Kill drivers of sweeps whose results do not depend on timing; compare with undisturbed sweeps."""
    share = [len(part) for part in (range(dose.kills)[k :: len(SAMPLERS)] for k in range(len(SAMPLERS)))]
    return [_compared(dose, sampler, count) for sampler, count in zip(SAMPLERS, share, strict=True)]


def killed_with_asha(dose: Dose) -> list[Row]:
    """Kill the driver of a sweep that stops trials early, then replay its scheduler on the same reports."""
    site = Site(dose.folder, "killed-asha")
    site.write(scheduler="{asha: {reduction: 2, grace: 0.25}}", trials=12, steps=LONG)
    tally = Tally()
    done, seconds = _disturbed(site, random.Random("asha"), max(dose.kills // 4, 2), tally)
    wrong, decisions = replayed(site)
    tally.expect(not wrong, f"the replay decided differently: {wrong}")
    seen = f"{done} kills in {seconds:.0f} s; {decisions} decisions replayed, {len(wrong)} differ"
    return [
        tally.row(f"driver killed {done} times, asha", f"{MUST}; the same decision on the same reports", seen)
    ]


def _compared(dose: Dose, sampler: str, count: int) -> Row:
    undisturbed = Site(dose.folder, f"undisturbed-{sampler}").write(sampler=sampler, steps=LONG)
    code, output = undisturbed.finished()
    site = Site(dose.folder, f"killed-{sampler}").write(sampler=sampler, steps=LONG)
    tally = Tally()
    tally.expect(code == 0, f"the undisturbed sweep exited with {code}: {output[-300:]}")
    done, seconds = _disturbed(site, random.Random(sampler), count, tally)
    same = site.outcome() == undisturbed.outcome()
    tally.expect(same, "trials, curves or values differ from the undisturbed sweep")
    repeated = max(site.repeated().values())
    seen = f"{done} kills in {seconds:.0f} s; at most {repeated} intervals repeated per trial; "
    seen += "trials, curves and best equal" if same else ""
    must = f"{MUST}; trials, curves, best as undisturbed"
    return tally.row(f"driver killed {done} times, {sampler}", must, seen)


def _disturbed(site: Site, chance: random.Random, count: int, tally: Tally) -> tuple[int, float]:
    """Run a sweep to completion, killing its driver up to `count` times; record failures in the tally.

    Returns:
        The number of kills, fewer than `count` if the sweep completed first, and the elapsed seconds.
    """
    before: dict[str, Any] = {}
    killed, began = 0, time.monotonic()
    while killed < count:
        driver = site.drive()
        # A third of the kills hit a driver that is starting; the others hit one whose trials are training.
        reports = site.reports() + chance.choice((0, 0, 5, 10, 20, 40))
        if not site.until_reports(reports, driver):
            finish(driver)
            break
        time.sleep(chance.random() * 3 if chance.random() < 0.5 else 0.0)
        kill(driver)
        killed += 1
        if (site.root / "sweeps.db").exists() and site.ledger.sweeps():
            before = _kept(site, before, tally)
    code, output = site.finished()
    tally.expect(code == 0, f"the last driver exited with {code}: {output[-300:]}")
    _kept(site, before, tally)
    tally.expect(max(site.repeated().values()) <= killed, f"repeated {site.repeated()}")
    tally.expect(not (problems := site.check()), problems)
    tally.expect(not (differences := disagreement(site)), differences)
    tally.expect(not (left := site.left_running()), f"{left} processes still running")
    return killed, time.monotonic() - began


def _kept(site: Site, before: dict[str, Any], tally: Tally) -> dict[str, Any]:
    """Return the finished trials, and expect those that had finished before to be unchanged."""
    now = site.settled()
    changed = [key for key, value in before.items() if now.get(key) != value]
    tally.expect(not changed, f"finished trials changed: {changed}")
    return now


def replayed(site: Site) -> tuple[list[str], int]:
    """Replay the scheduler report by report; return the decisions that differ and the number of reports."""
    from ray.tune.schedulers import TrialScheduler

    from orchestrator.config import load
    from orchestrator.schedule.keyed import NO_CONTROLLER, KeyedTrial
    from orchestrator.schedule.schedulers import Asha

    sweep = load(site.file, profile=None, gpus=0)
    rule, seen, wrong = Asha.build(sweep, sweep.scheduler.options), set(), []
    states = {trial.key: trial for trial in site.trials()}
    reports = sorted(site.ledger.reports(site.id), key=lambda report: report.at)
    for report in reports:
        shown: Any = KeyedTrial(report.trial_key)
        if report.trial_key not in seen:
            seen.add(report.trial_key)
            rule.on_trial_add(NO_CONTROLLER, shown)
        decision = rule.on_trial_result(NO_CONTROLLER, shown, {"step": report.step, **report.metrics})
        trial = states[report.trial_key]
        stopped = trial.state == "PRUNED" and trial.step == report.step
        if report.step < trial.total_steps and stopped != (decision == TrialScheduler.STOP):
            wrong.append(f"{report.trial_key} at {report.step}")
    return wrong, len(reports)


def five_drivers(dose: Dose) -> list[Row]:
    """Start five drivers of one sweep at the same time."""
    site = Site(dose.folder, "five").write(trials=4)
    began = time.monotonic()
    drivers = [site.drive() for _ in range(5)]
    exit_seconds: dict[int, float] = {}
    until(lambda: _ended(drivers, exit_seconds, began) >= 4)
    codes = [driver.poll() for driver in drivers]
    outputs = [finish(driver)[1] for driver in drivers]
    refused = [text for text in outputs if "already has a driver" in text]
    tally = Tally()
    tally.expect(len(refused) == 4, f"{len(refused)} were refused: {codes}")
    tally.expect(sorted(driver.returncode for driver in drivers) == [0, 6, 6, 6, 6], f"{codes}")
    named = sum(any(f"process {driver.pid}" in text for driver in drivers) for text in refused)
    tally.expect(named == 4, f"{named} named the driver that runs the sweep")
    tally.expect(not (problems := site.check()), problems)
    last = max(exit_seconds.values())
    seen = f"{len(refused)} exited with code 6 and named the holder, the last after {last:.1f} s"
    must = "one runs; four exit with code 6 and name it, within 3 s on a quiet machine"
    return [tally.row("five drivers at once", must, seen)]


def _ended(drivers: list[Any], exit_seconds: dict[int, float], began: float) -> int:
    """Record when each driver exited; return how many have."""
    for driver in drivers:
        if driver.poll() is not None:
            exit_seconds.setdefault(driver.pid, time.monotonic() - began)
    return len(exit_seconds)
