"""R9-R11: a locked ledger, a killed database server, full disks."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.faults.site import Site, disagreement, until
from benchmarks.faults.table import Dose, Row, Tally
from orchestrator.ledger.ledger import Ledger
from tests import postgres
from tests.end_to_end.commands import finish

LOCKED_SECONDS = 25.0
AWAY_SECONDS = 5.0
DISK = "24m"
FILLER = "filler"
NOT_MOUNTED = "not run: mounting is not permitted"


def locked_database(dose: Dose) -> list[Row]:
    """Hold the ledger's write lock for 25 s while a sweep runs."""
    site, tally = Site(dose.folder, "locked").write(), Tally()
    driver = site.drive()
    site.until_reports(4, driver)
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
    """Fill the disk that the workers save checkpoints to, and that of the ledger; then free the space."""
    return [_full_disk_of_checkpoints(dose), _full_disk_of_the_ledger(dose)]


def _full_disk_of_checkpoints(dose: Dose) -> Row:
    """Fill the disk of the checkpoints until the sweep pauses; its driver then continues by itself."""
    fault, must = "a worker's disk full (tmpfs), then freed", "PAUSED, none charged, completes by itself"
    site, tally = Site(dose.folder, "disk-checkpoints").write(trials=6), Tally()
    with small_disk(site.root / "checkpoints") as disk:
        if disk is None:
            return Row(fault, must, NOT_MOUNTED, True)
        driver = site.drive()
        site.until_reports(4, driver)
        reason = _reason_of_pause(site, disk, driver)
        tally.expect(reason.startswith("a disk is full since "), f"paused because: {reason or 'not paused'}")
        before = site.settled()
        free(disk)
        code, output = finish(driver, 900)
        _complete(site, tally, code, output)
        tally.expect("Traceback" not in output, f"a traceback was printed: {output}")
        causes = Counter(attempt.cause for attempt in site.ledger.attempts(site.id) if attempt.cause)
        tally.expect(set(causes) == {"disk full"}, f"causes {dict(causes)}")
        after = site.settled()
        tally.expect(before.items() <= after.items(), "a finished trial changed")
    seen = f"paused: {reason}; {causes['disk full']} attempts lost, none charged; "
    seen += f"{len(before)} finished trials kept, {len(after)} in the end"
    return tally.row(fault, must, seen)


def _reason_of_pause(site: Site, disk: Path, driver: subprocess.Popen[str]) -> str:
    """Keep a disk full until the sweep is PAUSED; return the reason, or "" if the driver ends first."""
    ledger, reasons = site.ledger, list[str]()

    def paused() -> bool:
        fill(disk)  # again and again: the driver deletes superseded checkpoints meanwhile
        reasons.extend(str(sweep.reason) for sweep in ledger.sweeps() if sweep.state == "PAUSED")
        return bool(reasons)

    until(paused, driver)
    ledger.close()
    return reasons[0] if reasons else ""


def _full_disk_of_the_ledger(dose: Dose) -> Row:
    """Fill the disk of the ledger; the driver exits, and the same command resumes the sweep."""
    fault, must = "the ledger's disk full (tmpfs), then freed", "no torn state, code 4, then complete"
    site, tally = _SiteWithSeparateLedger(dose.folder, "disk-ledger"), Tally()
    site.write(trials=6)
    with small_disk(site.ledger_file.parent) as disk:
        if disk is None:
            return Row(fault, must, NOT_MOUNTED, True)
        driver = site.drive()
        site.until_reports(4, driver)
        fill(disk)
        code, output = finish(driver, 900)
        tally.expect(code == 4, f"exit code {code}: {output[-300:]}")
        tally.expect("needs space to write" in output, f"the full disk was not reported: {output[-300:]}")
        tally.expect("Traceback" not in output, f"a traceback was printed: {output}")
        free(disk)
        before = site.settled()
        code, output = site.finished()
        _complete(site, tally, code, output)
        after = site.settled()
        tally.expect(before.items() <= after.items(), "a finished trial changed")
    seen = f"exited with code 4; {len(before)} finished trials kept, {len(after)} in the end"
    return tally.row(fault, must, seen)


class _SiteWithSeparateLedger(Site):
    """A site whose ledger is not in the folder of its other files."""

    @property
    def ledger_file(self) -> Path:
        """The SQLite file of the ledger."""
        return self.folder / "ledger" / "sweeps.db"

    @property
    def ledger(self) -> Ledger:
        """Open the ledger that the commands write."""
        return Ledger.open(f"sqlite:///{self.ledger_file}")

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command that uses this ledger."""
        return super().start(*arguments, SWEEP_LEDGER=f"sqlite:///{self.ledger_file}", **environment)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """Mount a small disk at a new folder; yield the folder, or None if mounting is not permitted."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def fill(disk: Path) -> None:
    """Write to a disk until not one byte more fits."""
    with (disk / FILLER).open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(os.urandom(size))
            except OSError:
                continue


def free(disk: Path) -> None:
    """Make the space on a disk that was filled free again."""
    (disk / FILLER).unlink(missing_ok=True)


def _complete(site: Site, tally: Tally, code: int, output: str) -> None:
    tally.expect(code == 0, f"exit code {code}: {output[-300:]}")
    failed = [trial.key for trial in site.trials() if trial.state == "FAILED"]
    tally.expect(not failed, f"{len(failed)} trials failed")
    tally.expect(not (problems := site.check()), problems)
    tally.expect(not (differences := disagreement(site)), differences)
