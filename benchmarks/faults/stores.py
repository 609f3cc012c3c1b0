"""R9-R11: a locked ledger, a killed database server, a full disk."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time

from benchmarks.faults import plain
from benchmarks.faults.site import Site, disagreement, until
from benchmarks.faults.table import Dose, Row, Tally
from orchestrator.ledger.ledger import Ledger
from tests import postgres
from tests.end_to_end.commands import finish

LOCKED_SECONDS = 25.0
AWAY_SECONDS = 5.0
DISK = "24m"


def locked_database(dose: Dose) -> list[Row]:
    """Hold the ledger's write lock for 25 s while a sweep runs."""
    site, tally = Site(dose.folder, "locked").write(), Tally()
    driver = site.drive()
    until(lambda: site.reports() >= 4, driver)
    with sqlite3.connect(site.root / "sweeps.db", timeout=60, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        before = site.reports()
        time.sleep(LOCKED_SECONDS)
        during = site.reports() - before
        other.execute("ROLLBACK")
    code, output = finish(driver, 900)
    _complete(site, tally, code, output)
    seen = f"code {code}; {during} reports during the lock, {site.reports()} in the end"
    return [
        tally.row(f"ledger locked for {LOCKED_SECONDS:g} s", "no error, no lost write, no failed trial", seen)
    ]


def restarted_server(dose: Dose) -> list[Row]:
    """Kill the ledger's PostgreSQL server in the middle of a sweep, and start it again."""
    programs, user = postgres.binaries(), postgres.unprivileged_user()
    if programs is None or user is None:
        return [
            Row(
                "PostgreSQL killed",
                "no lost commit, 0 trials failed",
                "not run: PostgreSQL is not installed",
                True,
            )
        ]
    server, tally = postgres.Server(programs, user), Tally()
    try:
        url = server.empty_database()
        site = Site(dose.folder, "postgres").write()
        ledger = Ledger.open(url)
        driver = site.drive(SWEEP_LEDGER=url)
        until(lambda: bool(ledger.sweeps()) and len(ledger.reports(ledger.sweeps()[0].id)) >= 4, driver)
        server.stop()
        time.sleep(AWAY_SECONDS)
        server.start()
        code, output = finish(driver, 900)
        tally.expect(code == 0, f"exit code {code}: {output[-300:]}")
        (sweep,) = ledger.sweeps()
        states, reports = ledger.states(sweep.id), ledger.reports(sweep.id)
        tally.expect(states == {"COMPLETE": 8}, f"{states}")
        tally.expect(
            len({(report.trial_key, report.step) for report in reports}) == 32, f"{len(reports)} reports"
        )
        code, output = finish(site.start("check", sweep.id, SWEEP_LEDGER=url), 900)
        tally.expect(code == 0, f"check: {output[:300]}")
        seen = f"unreachable for at least {AWAY_SECONDS:g} s; {states}, {len(reports)} reports"
    finally:
        server.remove()
    return [tally.row("PostgreSQL killed and started again", "no lost commit, 0 trials failed", seen)]


def full_disk(dose: Dose) -> list[Row]:
    """Fill the disk that the sweep writes to, then free the space."""
    site, tally = Site(dose.folder, "disk").write(trials=6), Tally()
    site.root.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "tmpfs", site.root], check=False
    ).returncode:
        return [
            Row("disk full, then freed", "paused, then complete", "not run: mounting is not permitted", True)
        ]
    try:
        driver = site.drive()
        until(lambda: site.reports() >= 4, driver)
        _fill(site)
        code, output = finish(driver, 900)
        tally.expect(code == 4, f"exit code {code}: {output[-300:]}")
        tally.expect("Traceback" not in output, f"a traceback was printed: {output}")
        before = site.settled()
        (site.root / "filler").unlink()
        code, output = site.finished()
        _complete(site, tally, code, output)
        after = site.settled()
        tally.expect(before.items() <= after.items(), "a finished trial changed")
        seen = f"paused with code 4; {len(before)} finished trials kept, {len(after)} in the end"
    finally:
        site.left_running()
        subprocess.run(["umount", "--lazy", site.root], check=False)
    return [
        tally.row(
            "disk full (tmpfs), then freed", "no torn state, code 4, then complete", seen, plain.FULL_DISK
        )
    ]


def _fill(site: Site) -> None:
    with (site.root / "filler").open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(os.urandom(size))
            except OSError:
                continue


def _complete(site: Site, tally: Tally, code: int, output: str) -> None:
    tally.expect(code == 0, f"exit code {code}: {output[-300:]}")
    failed = [trial.key for trial in site.trials() if trial.state == "FAILED"]
    tally.expect(not failed, f"{len(failed)} trials failed")
    tally.expect(not (problems := site.check()), problems)
    tally.expect(not (differences := disagreement(site)), differences)
