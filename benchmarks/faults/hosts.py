"""R4-R7 on three hosts: one joins late, is lost, is cut off or is suspended; then the head is lost."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter

from benchmarks.faults.cluster import ClusterSite, slowness
from benchmarks.faults.site import PATIENCE, Site, until
from benchmarks.faults.table import Dose, Row, Tally
from orchestrator.ledger.sweeps.records import AttemptRecord
from tests.end_to_end.commands import finish

TRIALS, STEPS, COMPARED = 18, 200_000, 4
SLOWLY = ("--set", "training.interval=1000")
"""Options under which the sweep outlasts all faults; its first trials are compared with undisturbed ones."""
SHORT_CUT, LONG_CUT, STANDSTILL = 20.0, 90.0, 60.0


def lost_and_cut_hosts(dose: Dose) -> list[Row]:
    """Inject faults into one host after another during one sweep, and compare with an undisturbed sweep."""
    undisturbed = Site(dose.folder, "undisturbed-hosts").write(trials=COMPARED, steps=STEPS)
    code, output = undisturbed.finished(*SLOWLY, RAY_worker_niceness="0")
    assert code == 0, output
    site = ClusterSite(dose.folder, "hosts")
    site.write(trials=TRIALS, steps=STEPS)
    try:
        return _disturbed(site, undisturbed)
    finally:
        site.end()


def _disturbed(site: ClusterSite, undisturbed: Site) -> list[Row]:
    for number in (1, 2):
        site.join(number)
    driver = site.drive(*SLOWLY)
    rows = [
        _late(site, driver),
        _lost(site, driver),
        _cut(site, driver, SHORT_CUT),
        _cut(site, driver, LONG_CUT),
        _standstill(site, driver),
    ]
    return [*rows, _head(site, driver, undisturbed)]


def _late(site: ClusterSite, driver: subprocess.Popen[str]) -> Row:
    tally = Tally()
    site.until_reports(6, driver)
    began = time.monotonic()
    site.join(3)
    tally.expect(until(lambda: "host-3" in site.places().values(), driver), "the new host never ran a trial")
    took = time.monotonic() - began
    until(lambda: len(set(site.places().values())) == 3, driver)
    places = ", ".join(sorted(set(site.places().values())))
    seen = f"it ran a trial after {took:.1f} s; then trials on {places}"
    return tally.row(
        "a host joins a running sweep", "it is used without further action; all three run trials", seen
    )


def _lost(site: ClusterSite, driver: subprocess.Popen[str]) -> Row:
    tally = Tally()
    keys = _running_on(site, 2, driver)
    before, began = site.ledger.attempts(site.id), time.monotonic()
    site.lose(2)
    until(lambda: _new_losses(site, before), driver)
    known = time.monotonic() - began
    _goes_on(site, keys, driver)
    again = time.monotonic() - began - known
    _uncharged(site, before, tally)
    tally.expect(again <= 30 * slowness(), f"{again:.0f} s until the next report")
    site.join(2)
    seen = f"noticed after {known:.0f} s, the trial's next report {again:.0f} s later, on another host"
    return tally.row(
        "a host lost with its disk", "rescheduled <= 30 s after it is noticed, not charged", seen
    )


def _cut(site: ClusterSite, driver: subprocess.Popen[str], seconds: float) -> Row:
    tally = Tally()
    keys = _running_on(site, 3, driver)
    before = site.ledger.attempts(site.id)
    site.switch.cut(3)
    time.sleep(seconds)
    site.switch.mend(3)
    if seconds == SHORT_CUT:
        _goes_on(site, keys, driver)
        losses = _new_losses(site, before)
        tally.expect(not losses, f"{len(losses)} attempts lost")
        return tally.row(f"a host cut off for {seconds:g} s", "no loss", f"{len(losses)} attempts lost")
    until(lambda: _new_losses(site, before), driver)
    _goes_on(site, keys, driver)
    _uncharged(site, before, tally)
    _counted_once(site, tally)
    site.lose(3)
    site.join(3)
    seen = f"{len(_new_losses(site, before))} attempts lost, each trial moved; no step counted twice"
    return tally.row(f"a host cut off for {seconds:g} s", "rescheduled, not charged, 0 counted twice", seen)


def _standstill(site: ClusterSite, driver: subprocess.Popen[str]) -> Row:
    tally = Tally()
    keys = _running_on(site, 2, driver)
    before = site.ledger.attempts(site.id)
    raylet = site.raylet(2)
    raylet.send_signal(signal.SIGSTOP)
    time.sleep(STANDSTILL)
    raylet.send_signal(signal.SIGCONT)
    _goes_on(site, keys, driver)
    _uncharged(site, before, tally)
    _counted_once(site, tally)
    seen = f"{len(_new_losses(site, before))} attempts lost; no step counted twice"
    return tally.row(f"a raylet stopped for {STANDSTILL:g} s", "no double result, not charged", seen)


def _head(site: ClusterSite, driver: subprocess.Popen[str], undisturbed: Site) -> Row:
    tally, settled = Tally(), site.settled()
    before = site.ledger.attempts(site.id)
    tally.expect(driver.poll() is None, "the sweep ended before the head was lost")
    for number in list(site.hosts):
        site.lose(number)
    driver.wait()
    began = time.monotonic()
    for number in (1, 2, 3):
        site.join(number)
    driver = site.drive(*SLOWLY)
    until(lambda: len(site.ledger.attempts(site.id)) > len(before), driver)
    took = time.monotonic() - began
    code, output = finish(driver, PATIENCE)
    tally.expect(code == 0, f"exit code {code}: {output[-300:]}")
    changed = [key for key, state in settled.items() if site.settled().get(key) != state]
    tally.expect(not changed, f"{len(changed)} finished trials changed")
    outcome = site.outcome()
    same = all(outcome[key] == expected for key, expected in _renamed(undisturbed, site).items())
    tally.expect(same, "trials, curves or values differ from the undisturbed sweep")
    tally.expect(not (problems := site.check()), problems)
    _repeated(site, tally)
    _counted_once(site, tally)
    seen = f"one command resumed the sweep after {took:.0f} s; {len(settled)} finished trials unchanged"
    must = "one command resumes; 0 finished trials lost or run again; trials and curves as undisturbed"
    return tally.row("the head lost with every host, and started again", must, seen)


def _running_on(site: ClusterSite, number: int, driver: subprocess.Popen[str]) -> list[str]:
    """Wait until the host runs trials that have reported from it at least twice; return their keys."""
    host = f"host-{number}"

    def reporting() -> list[str]:
        reported = Counter(report.attempt_id for report in site.ledger.reports(site.id))
        attempts = {trial.key: f"{trial.key}.{trial.attempts}" for trial in site.trials()}
        return [key for key, place in site.places().items() if place == host and reported[attempts[key]] >= 2]

    until(lambda: bool(reporting()), driver)
    return reporting()


def _goes_on(site: ClusterSite, keys: list[str], driver: subprocess.Popen[str]) -> None:
    """Wait until each of the trials has reported again or has ended."""
    steps = {trial.key: trial.step for trial in site.trials()}

    def progressed() -> bool:
        now = {trial.key: trial for trial in site.trials()}
        return all(now[key].step > steps[key] or now[key].finished_at for key in keys)

    until(progressed, driver)


def _new_losses(site: ClusterSite, before: list[AttemptRecord]) -> list[AttemptRecord]:
    known = {attempt.id for attempt in before if attempt.state != "RUNNING"}
    return [attempt for attempt in site.ledger.attempts(site.id) if attempt.cause and attempt.id not in known]


def _uncharged(site: ClusterSite, before: list[AttemptRecord], tally: Tally) -> None:
    causes = {attempt.cause for attempt in _new_losses(site, before)}
    tally.expect(causes <= {"node lost"}, f"causes {sorted(map(str, causes))}")


def _counted_once(site: ClusterSite, tally: Tally) -> None:
    counted = Counter((report.trial_key, report.step) for report in site.ledger.reports(site.id))
    tally.expect(set(counted.values()) <= {1}, "a step is in the ledger twice")


def _repeated(site: ClusterSite, tally: Tally) -> None:
    """Expect each trial to repeat at most one interval per lost attempt."""
    lost = Counter(attempt.trial_key for attempt in site.ledger.attempts(site.id) if attempt.cause)
    over = {key: count for key, count in site.repeated().items() if count > lost[key]}
    tally.expect(not over, f"repeated {over}, lost {dict(lost)}")


def _renamed(undisturbed: Site, site: Site) -> dict[str, object]:
    """Return the outcome of the undisturbed sweep under the trial keys of the other sweep."""
    return {key.replace(undisturbed.id, site.id): outcome for key, outcome in undisturbed.outcome().items()}
