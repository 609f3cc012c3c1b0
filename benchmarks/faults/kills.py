"""R1, R2, R21: drivers that are killed at random moments, and too many of them."""

from __future__ import annotations

import random
import time
from typing import Any

from benchmarks.faults import plain
from benchmarks.faults.site import Site, disagreement, kill, until
from benchmarks.faults.table import Dose, Row, Tally
from tests.end_to_end.commands import finish

SAMPLERS = ("random", "qmc", "grid")
LONG = 1200
"""Steps of a trial: as many as let a sweep of eight trials live through all its kills."""
MUST = "0 finished lost or run twice, 0 duplicates, at most 1 interval repeated a running trial a kill"


def killed_drivers(dose: Dose) -> list[Row]:
    """Kill drivers of sweeps that do not depend on timing; compare with undisturbed ones."""
    share = [len(part) for part in (range(dose.kills)[k :: len(SAMPLERS)] for k in range(len(SAMPLERS)))]
    return [_compared(dose, sampler, count) for sampler, count in zip(SAMPLERS, share, strict=True)]


def killed_with_asha(dose: Dose) -> list[Row]:
    """Kill the driver of a sweep that stops trials early; ask its scheduler again."""
    site = Site(dose.folder, "killed-asha")
    site.write(scheduler="{asha: {reduction: 2, grace: 0.25}}", trials=12, steps=LONG)
    tally = Tally()
    done, seconds = _disturbed(site, random.Random("asha"), max(dose.kills // 4, 2), tally)
    wrong, decisions = replayed(site)
    tally.expect(not wrong, f"decided otherwise on the same reports: {wrong}")
    seen = f"{done} kills in {seconds:.0f} s; {decisions} decisions asked again, {len(wrong)} differ"
    return [
        tally.row(f"driver killed {done} times, asha", f"{MUST}; the same decision on the same reports", seen)
    ]


def _compared(dose: Dose, sampler: str, count: int) -> Row:
    still = Site(dose.folder, f"undisturbed-{sampler}").write(sampler=sampler, steps=LONG)
    code, output = still.finished()
    site = Site(dose.folder, f"killed-{sampler}").write(sampler=sampler, steps=LONG)
    tally = Tally()
    tally.expect(code == 0, f"the undisturbed sweep left {code}: {output[-300:]}")
    done, seconds = _disturbed(site, random.Random(sampler), count, tally)
    same = site.outcome() == still.outcome()
    tally.expect(same, "trials, curves or values differ from the undisturbed sweep's")
    seen = f"{done} kills in {seconds:.0f} s; repeated {max(site.repeated().values())} at most a trial; "
    seen += "trials, curves and best equal" if same else ""
    must = f"{MUST}; trials, curves, best as undisturbed"
    return tally.row(f"driver killed {done} times, {sampler}", must, seen, plain.KILLED)


def _disturbed(site: Site, chance: random.Random, count: int, tally: Tally) -> tuple[int, float]:
    """Run a sweep to its end through `count` kills, fewer if it ends before; note what went wrong."""
    before: dict[str, Any] = {}
    killed, began = 0, time.monotonic()
    while killed < count:
        driver = site.drive()
        # A third of the kills meets a driver that has only begun; the others meet one that trains.
        reports = site.reports() + chance.choice((0, 0, 5, 10, 20, 40))
        if not until(lambda wanted=reports: site.reports() >= wanted, driver):
            finish(driver)
            break
        time.sleep(chance.random() * 3 if chance.random() < 0.5 else 0.0)
        kill(driver)
        killed += 1
        if (site.root / "sweeps.db").exists() and site.ledger.sweeps():
            before = _kept(site, before, tally)
    code, output = site.finished()
    tally.expect(code == 0, f"the last driver left {code}: {output[-300:]}")
    _kept(site, before, tally)
    tally.expect(max(site.repeated().values()) <= killed, f"repeated {site.repeated()}")
    tally.expect(not (found := site.check()), found)
    tally.expect(not (found := disagreement(site)), found)
    tally.expect(not (left := site.left_running()), f"{left} processes left")
    return killed, time.monotonic() - began


def _kept(site: Site, before: dict[str, Any], tally: Tally) -> dict[str, Any]:
    now = site.settled()
    changed = [key for key, value in before.items() if now.get(key) != value]
    tally.expect(not changed, f"finished trials changed: {changed}")
    return now


def replayed(site: Site) -> tuple[list[str], int]:
    """Ask the scheduler again, report by report; return what it decides otherwise, and how many it saw."""
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
    """Start five drivers of one sweep at once."""
    site = Site(dose.folder, "five").write(trials=4)
    began = time.monotonic()
    drivers = [site.drive() for _ in range(5)]
    left: dict[int, float] = {}
    until(lambda: _ended(drivers, left, began) >= 4)
    codes = [driver.poll() for driver in drivers]
    outputs = [finish(driver)[1] for driver in drivers]
    refused = [text for text in outputs if "one driver at a time runs it" in text]
    tally = Tally()
    tally.expect(len(refused) == 4, f"{len(refused)} were refused: {codes}")
    tally.expect(sorted(driver.returncode for driver in drivers) == [0, 2, 2, 2, 2], f"{codes}")
    named = sum(any(f"process {driver.pid}" in text for driver in drivers) for text in refused)
    tally.expect(named == 4, f"{named} named the holder")
    tally.expect(not (found := site.check()), found)
    seen = f"{len(refused)} left with code 2 and named the holder, the last after {max(left.values()):.1f} s"
    must = "one runs; four leave with code 2 and name it, within 3 s of a quiet machine"
    return [tally.row("five drivers at once", must, seen)]


def _ended(drivers: list[Any], left: dict[int, float], began: float) -> int:
    for driver in drivers:
        if driver.poll() is not None:
            left.setdefault(driver.pid, time.monotonic() - began)
    return len(left)
