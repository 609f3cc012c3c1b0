"""The service killed twice at seeded moments, and its database away for a minute, while real sweeps run."""

from __future__ import annotations

import random
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.faults.site import PATIENCE, Site, kill, until
from benchmarks.faults.table import Dose, Row, Tally
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.submissions import Submission
from tests import postgres
from tests.end_to_end.commands import finish

ENDED_ONCE = ("ENDED", 0, 1, 0)
"""State, exit code, starts and crashes of a submission that nothing has disturbed."""


class Served(Site):
    """A site whose sweeps are submitted to a service.

    Args:
        folder: Folder of all sites.
        name: Name of this site.
        ledger_url: Address of its ledger; None for SQLite.
    """

    def __init__(self, folder: Path, name: str, ledger_url: str | None = None) -> None:
        super().__init__(folder, name)
        self._ledger_url = ledger_url
        self._variables = {"SWEEP_LEDGER": ledger_url} if ledger_url else {}
        self.write()

    @property
    def ledger(self) -> Ledger:
        """Open the ledger."""
        return Ledger.open(self._ledger_url) if self._ledger_url else super().ledger

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command with the ledger of this site."""
        return super().start(*arguments, **{**self._variables, **environment})

    def submit(self, key: str, *options: str) -> str:
        """Submit the search-space file; return the id of its sweep once the command has acknowledged it.

        Raises:
            RuntimeError: it was not accepted.
        """
        code, output = finish(self.start("submit", str(self.file), "--key", key, *options), PATIENCE)
        with closing(self.ledger) as ledger:
            ids = [entry.sweep_id for entry in submissions.submissions(ledger) if entry.key == key]
        if code != 0 or len(ids) != 1:
            raise RuntimeError(f"`submit` exited with {code}: {output[-300:]}")
        return ids[0]

    def submission(self, sweep_id: str) -> Submission:
        """Return a submission, which must exist."""
        with closing(self.ledger) as ledger:
            found = submissions.submission(ledger, sweep_id)
        assert found is not None, f"the submission {sweep_id} is lost"
        return found

    def ends(self, sweep_id: str) -> tuple[str, int | None, int, int]:
        """Wait until a submission has ended; return its state, exit code, starts and crashes."""
        until(lambda: self.submission(sweep_id).state in ("ENDED", "PARKED"))
        entry = self.submission(sweep_id)
        return entry.state, entry.code, entry.starts, entry.crashes

    def end(self, service: subprocess.Popen[str]) -> str:
        """End a service; return what it has printed."""
        service.terminate()
        return finish(service, PATIENCE)[1]


def killed_at_moments(dose: Dose) -> list[Row]:
    """Kill the service twice, at moments drawn from a seed over the whole time that the sweep takes."""
    tally, wanted, lasting = Tally(), *_undisturbed(dose)
    moments = [_killed_twice(dose, seed, lasting, wanted, tally) for seed in range(dose.services)]
    seen = f"{2 * len(moments)} kills in {len(moments)} sweeps of {lasting:.0f} s, at "
    seen += (
        ", ".join(f"{first:.1f} and {second:.1f}" for first, second in moments) + " s after the submission"
    )
    must = (
        "one process drives the sweep to its end; nothing lost, started or run twice; curves as undisturbed"
    )
    return [tally.row(f"the service killed twice at seeded moments, {len(moments)} times", must, seen)]


def _undisturbed(dose: Dose) -> tuple[dict[str, Any], float]:
    """Run a submitted sweep; return its outcome, and the seconds from the submission to the end."""
    site = Served(dose.folder, "service-undisturbed")
    service = site.start("serve")
    sweep_id, began = site.submit("one"), time.monotonic()
    assert site.ends(sweep_id) == ENDED_ONCE
    lasting = time.monotonic() - began
    site.end(service)
    return site.outcome(), lasting


def _killed_twice(
    dose: Dose, seed: int, lasting: float, wanted: dict[str, Any], tally: Tally
) -> tuple[float, float]:
    """Kill the service twice; return at which seconds after the submission."""
    chance, site = random.Random(seed), Served(dose.folder, f"service-{seed}")
    first, second = sorted(chance.uniform(0.0, lasting) for _ in range(2))
    service = site.start("serve")
    sweep_id, began = site.submit("one"), time.monotonic()
    for moment in (first, second):
        time.sleep(max(0.0, began + moment - time.monotonic()))
        kill(service)
        service = site.start("serve")
    ended = site.ends(sweep_id)
    tally.expect(ended == ENDED_ONCE, f"seed {seed}: {ended} instead of {ENDED_ONCE}")
    site.end(service)
    tally.expect(site.outcome() == wanted, f"seed {seed}: another outcome")
    repeated = sum(site.repeated().values())
    tally.expect(repeated == 0, f"seed {seed}: {repeated} intervals were run twice")
    tally.expect(not (problems := site.check()), f"seed {seed}: {problems}")
    tally.expect(not (left := site.left_running()), f"seed {seed}: {left} processes were left")
    return first, second


def ledger_away(dose: Dose) -> list[Row]:
    """Take the database of a service and of its driver away for `dose.outage` seconds."""
    fault = f"PostgreSQL down for {dose.outage:g} s under a service and its driver"
    must = "the same process drives the sweep to its end; nothing lost; submissions accepted afterwards"
    programs, user = postgres.binaries(), postgres.unprivileged_user()
    if programs is None or user is None:
        return [Row(fault, must, "not run: PostgreSQL is not installed", True)]
    server, tally = postgres.Server(programs, user), Tally()
    try:
        site = Served(dose.folder, "service-ledger", server.empty_database())
        site.write(steps=2000, trials=4)
        service = site.start("serve")
        sweep_id = site.submit("one")
        until(lambda: _reports(site, sweep_id) >= 4)
        before = _reports(site, sweep_id)
        server.stop()
        time.sleep(dose.outage)
        server.start()
        later = site.submit("two", "--new")
        ended = [site.ends(one) for one in (sweep_id, later)]
        tally.expect(ended == [ENDED_ONCE] * 2, f"{ended}")
        printed = site.end(service)
        said = printed.count("has not answered"), printed.count("answers again")
        tally.expect(said == (1, 1), f"the service said {said} times that it was away and came back")
        reports = [_reports(site, one) for one in (sweep_id, later)]
        tally.expect(reports == [800, 800], f"{reports} reports instead of 800 each")
        code, output = finish(site.start("check"), PATIENCE)
        tally.expect(code == 0, f"check: {output[-300:]}")
        seen = f"down after {before} reports; both sweeps ended with code 0 after one start, with {reports}"
        seen += " reports; the service reported the outage once, and its end once"
    finally:
        server.remove()
    return [tally.row(fault, must, seen)]


def _reports(site: Served, sweep_id: str) -> int:
    with closing(site.ledger) as ledger:
        own = {trial.key for trial in ledger.trials(sweep_id)}
        # The id of the second sweep is also the key of a trial of the first one, whose reports come too.
        return sum(report.trial_key in own for report in ledger.reports(sweep_id)) if own else 0
