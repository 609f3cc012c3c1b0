"""SIGSTOP and SIGCONT of the driver, a worker, PostgreSQL, the MLflow server and the checkpoint store."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import psutil

from benchmarks.faults.served import ServedSite
from benchmarks.faults.site import Site, disagreement, until
from benchmarks.faults.table import Dose, Row, Tally
from orchestrator.session.limits import UNCHARGED
from tests import postgres
from tests.end_to_end.commands import finish

TRIALS, STEPS = 2, 100_000_000
SLOWLY = ("--set", "training.interval=1000")
"""Options under which the sweep outlasts all pauses and reports a few times per second."""

CURVE = 4
"""Reports between two pauses."""


def pauses(dose: Dose) -> list[Row]:
    """Stop each process for each of `dose.pauses` seconds; compare with an undisturbed sweep."""
    programs, user = postgres.binaries(), postgres.unprivileged_user()
    if programs is None or user is None:
        return [Row("SIGSTOP", "nothing lost", "not run: PostgreSQL is not installed", True)]
    with ExitStack() as stack:
        server = postgres.Server(programs, user)
        stack.callback(server.remove)
        site = ServedSite(dose.folder, "pauses", server.empty_database())
        stack.callback(site.end)
        return _paused(site, dose)


def _paused(site: ServedSite, dose: Dose) -> list[Row]:
    site.write(trials=TRIALS, steps=STEPS)
    driver = site.drive("--tracking-patience", "300", *SLOWLY)
    targets: dict[str, Callable[[], list[psutil.Process]]] = {
        "driver": lambda: [psutil.Process(driver.pid)],
        "worker": lambda: site.titled("ray::Worker")[:1],
        "PostgreSQL": _postgres,
        "MLflow": lambda: _family(site.tracking.process.pid),
        "store": lambda: _family(site.store.pid),
    }
    rows, seconds = [], [float(pause) for pause in dose.pauses.split(",")]
    for name, processes in targets.items():
        seen = [_pause(site, driver, processes(), duration) for duration in seconds]
        running = driver.poll() is None
        tally = Tally([] if running else [f"the driver exited: {finish(driver)[1][-300:]}"])
        must = "the sweep continues by itself; no attempt is charged"
        charged = _charged(site)
        tally.expect(not charged, f"charged: {charged}")
        rows.append(tally.row(f"{name} stopped for {dose.pauses} s", must, "; ".join(seen)))
        if not running:
            return rows
    return [*rows, _ended(site, driver, dose)]


def _postgres() -> list[psutil.Process]:
    (server,) = (child for child in psutil.Process().children() if child.name() == "postgres")
    return _family(server.pid)


def _family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _pause(
    site: ServedSite, driver: subprocess.Popen[str], processes: list[psutil.Process], duration: float
) -> str:
    """Stop processes for a while; return how many reports came meanwhile, and how soon after."""
    _reported(site, driver)
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    before, began = _counted(site), time.monotonic()
    time.sleep(duration)
    for process in processes:
        process.send_signal(signal.SIGCONT)
    continued = time.monotonic()
    during = site.reports()
    reported = until(lambda: site.reports() > during, driver)
    after = time.monotonic() - continued if reported else float("nan")
    meanwhile = "" if before is None else f"{during - before} reports meanwhile, "
    return f"{continued - began:.0f} s: {meanwhile}the next {after:.1f} s after"


def _counted(site: ServedSite) -> int | None:
    """Return the number of reports, or None while the ledger itself is stopped."""
    stopped = any(process.status() == psutil.STATUS_STOPPED for process in _postgres())
    return None if stopped else site.reports()


def _reported(site: ServedSite, driver: subprocess.Popen[str]) -> None:
    """Wait until every trial runs and has reported some more."""
    wanted = site.reports() + CURVE
    until(lambda: site.reports() >= wanted and len(site.titled("ray::Worker")) >= TRIALS, driver)


def _charged(site: ServedSite) -> dict[str, int]:
    causes = Counter(attempt.cause for attempt in site.ledger.attempts(site.id) if attempt.cause)
    return {cause: count for cause, count in causes.items() if cause not in UNCHARGED}


def _ended(site: ServedSite, driver: subprocess.Popen[str], dose: Dose) -> Row:
    """Stop the sweep, and compare everything that it has stored with an undisturbed sweep."""
    tally = Tally()
    _reported(site, driver)
    tally.expect(finish(site.start("stop", site.id))[0] == 0, "the sweep could not be stopped")
    code, output = finish(driver, 900)
    tally.expect(code == 4, f"exit code {code}: {output[-300:]}")
    causes = Counter(attempt.cause for attempt in site.ledger.attempts(site.id))
    waiting = site.ledger.backlog(site.id)
    tally.expect(waiting == 0, f"{waiting} records were not delivered")
    differences = disagreement(site)
    tally.expect("points" not in differences, differences)
    tally.expect(not (problems := site.check()), problems)
    repeated = sum(site.repeated().values())
    tally.expect(repeated <= TRIALS * causes["store lost"], f"{repeated} intervals repeated")
    tally.expect(not (left := site.left_running()), f"{left} processes still running")
    outcome = site.outcome()
    same = _curves(_undisturbed(dose, outcome), outcome) == _curves(outcome, outcome)
    tally.expect(same, "curves differ from the undisturbed sweep")
    seen = f"{site.reports()} reports, {repeated} intervals repeated, attempts ended: {dict(causes)}, "
    seen += f"{waiting} records left to deliver, curves equal" if same else ""
    must = "curves as undisturbed, every MLflow point once, `check` clean, no process left"
    return tally.row("the sweep with all these pauses", must, seen)


def _undisturbed(dose: Dose, wanted: dict[str, Any]) -> dict[str, Any]:
    """Run the same file on local stores until every trial has as many reports; return its outcome."""
    site = Site(dose.folder, "pauses-undisturbed").write(trials=TRIALS, steps=STEPS)
    driver = site.drive(*SLOWLY)
    until(lambda: site.reports() > 0, driver)
    lengths = {key: len(curve) for key, (*_, curve) in wanted.items()}
    until(lambda: _reaches(site, lengths), driver)
    finish(site.start("stop", site.id))
    finish(driver)
    return site.outcome()


def _reaches(site: Site, lengths: dict[str, int]) -> bool:
    time.sleep(1.0)
    counts = Counter(report.trial_key for report in site.ledger.reports(site.id))
    return all(counts[key] >= length for key, length in lengths.items())


def _curves(outcome: dict[str, Any], lengths: dict[str, Any]) -> dict[str, Any]:
    """Return parameters, seed and the beginning of the curve of each trial."""
    return {
        key: (params, seed, curve[: len(lengths[key][-1])])
        for key, (params, seed, *_, curve) in outcome.items()
    }
