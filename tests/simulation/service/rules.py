"""The invariants of the service: at every commit, at every start of a driver, and in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from orchestrator.errors import Exit
from orchestrator.service.supervision import MOST_CRASHES, PAUSE_CRASHES, PAUSE_SECONDS, backoff
from orchestrator.system import ClockSetting
from tests.simulation.database import Database
from tests.simulation.kernel import Kernel, Process
from tests.simulation.service.driver import INTERVAL, Driver, trial_key
from tests.simulation.service.plan import Job
from tests.simulation.system import BOOT_SECONDS
from tests.simulation.violation import require

ROUNDING = 1e-3
"""Seconds by which a time that was converted between settings of a clock may be off."""


class Rules:
    """Invariants of the submissions of a run.

    Args:
        kernel: Kernel of the simulation.
        database: Database of the ledger.
        is_exact: Whether every wait of a service is exact: no clock is stepped, or all services see one boot.

    Attributes:
        acknowledged: Ids of sweeps whose submission has returned.
        polled_at: Polled at by process of a service, when its newest poll has begun.
    """

    def __init__(self, kernel: Kernel, database: Database, *, is_exact: bool) -> None:
        self._kernel, self._database, self._is_exact = kernel, database, is_exact
        self.acknowledged: set[str] = set()
        self.polled_at: dict[str, float] = {}
        self._stopped: dict[str, float] = {}  # by sweep: when a stop request was acknowledged
        self._leases: dict[str, tuple[int, Process | None]] = {}
        self._crashes: Counter[str] = Counter()  # by sweep: ends of drivers in a row, with no report between
        self._crashed_at: dict[str, float] = {}  # by sweep: when its newest driver ended, if that was a crash
        self._paused_at = 0.0  # since when all starts were last paused
        self._counted: dict[str, int] = {}
        self._reports: dict[str, int] = {}
        self._starts: set[tuple[str, int]] = set()

    # ---------------------------------------------------------------- what happens

    def stop(self, sweep_id: str) -> None:
        """Note that a stop request was acknowledged."""
        self._stopped[sweep_id] = self._kernel.now

    def go_on(self, sweep_id: str) -> None:
        """Note that a person is about to resume a sweep."""
        self._stopped.pop(sweep_id, None)

    def repair(self, sweep_id: str) -> None:
        """Note that a person queues a sweep again as if it had never crashed."""
        self._crashes[sweep_id] = self._counted[sweep_id] = 0
        self._crashed_at.pop(sweep_id, None)

    def crash(self, sweep_id: str) -> None:
        """Note that a driver has ended without writing how, although its machine went on."""
        self._crashes[sweep_id] += 1
        self._crashed_at[sweep_id] = self._kernel.now

    def end(self, sweep_id: str) -> None:
        """Note that a driver has written how it ended, or has ended with its machine."""
        self._crashed_at.pop(sweep_id, None)

    def lose(self) -> None:
        """Check what a loss of power has left, and forget the rows that it may have undone."""
        self._check_accepted()
        self._leases.clear()
        self._reports = dict(self._database.rows("SELECT trial_key, count(*) FROM report GROUP BY 1"))
        self._counted = dict(self._database.rows("SELECT sweep_id, crashes FROM submission"))

    # ---------------------------------------------------------------- at a commit

    def check(self, process: Process, written: Sequence[str], driver: Driver | None) -> None:
        """Check a commit.

        Args:
            process: Process that has made it.
            written: Verb and table of each statement that wrote.
            driver: Driver of the process, if it is one.
        """
        tables = {label.split()[1] for label in written}
        if "submission" in tables:
            self._check_accepted()
            self._check_crashes()
        if "insert start_pause" in written:
            [(since, clock)] = self._database.rows("SELECT since, clock FROM start_pause")
            self._paused_at = _moment(since, clock)  # before anybody sets the clock again
        if "lease" in tables:
            self._note_leases(process)
        if driver is not None and "insert attempt" in written:
            asked_at = self._stopped.get(driver.job.sweep_id)
            obeys = asked_at is None or process.began <= asked_at
            require(obeys, "stopped", f"{process.name} launches an attempt, asked to stop at {asked_at} s")
        if driver is not None and "insert report" in written:
            self._check_report(process, driver.job.sweep_id)

    def _check_accepted(self) -> None:
        known = {sweep_id for (sweep_id,) in self._database.rows("SELECT sweep_id FROM submission")}
        lost = self.acknowledged - known
        require(not lost, "accepted", f"{sorted(lost)} were acknowledged and are lost")

    def _check_crashes(self) -> None:
        """Check that as many crashes are counted as there were, and none for a machine that was started."""
        for sweep_id, state, crashes in self._database.rows(
            "SELECT sweep_id, state, crashes FROM submission"
        ):
            grows = crashes > self._counted.get(sweep_id, 0)
            self._counted[sweep_id] = crashes
            most = self._crashes[sweep_id]
            require(
                not grows or crashes <= most,
                "crashes",
                f"{crashes} are counted for {sweep_id}, {most} drivers have crashed since a report",
            )
            require(
                state != "PARKED" or crashes >= MOST_CRASHES,
                "parked",
                f"{sweep_id} is parked after {crashes} crashes",
            )

    def _note_leases(self, process: Process) -> None:
        for sweep_id, number in self._database.rows("SELECT sweep_id, number FROM lease"):
            if self._leases.get(sweep_id, (None, None))[0] != number:
                self._leases[sweep_id] = (number, process)

    def _check_report(self, process: Process, sweep_id: str) -> None:
        _, newest = self._leases.get(sweep_id, (0, None))
        holder = newest.name if newest else "nobody"
        require(newest is process, "token", f"{process.name} reports, {holder} holds {sweep_id}")
        trial = trial_key(sweep_id)
        count = self._database.count(f"report WHERE trial_key = '{trial}'")
        require(count == self._reports.get(trial, 0) + 1, "lost", f"{sweep_id} has {count} reports")
        self._reports[trial] = count
        self._crashes[sweep_id] = 0

    # ---------------------------------------------------------------- at a start

    def check_start(self, service: Process, sweep_id: str, number: int, drivers: Iterable[Driver]) -> None:
        """Check that the service may start a driver.

        Args:
            service: Its process.
            sweep_id: Id of the sweep.
            number: Number of the start.
            drivers: All that the services have started and whose machines the service sees.
        """
        polled_at = self.polled_at[service.name]
        asked_at = self._stopped.get(sweep_id)
        require(
            asked_at is None or asked_at >= polled_at,
            "stopped",
            f"{service.name} starts {sweep_id}, which a person has stopped at {asked_at} s",
        )
        require((sweep_id, number) not in self._starts, "twice", f"start {number} of {sweep_id} is repeated")
        self._starts.add((sweep_id, number))
        alive = [driver for driver in drivers if driver.process.alive]
        others = [
            driver.process.name for driver in alive if driver.job.sweep_id == sweep_id and driver.drives
        ]
        require(not others, "twice", f"{service.name} starts {sweep_id}, which {others} drive")
        streak = self._crashes[sweep_id]
        require(
            streak < MOST_CRASHES or self._counted.get(sweep_id, 0) < streak,
            "parked",
            f"{service.name} starts {sweep_id} after {streak} crashes without a report",
        )
        if self._is_exact:
            self._check_backoff(service, sweep_id)
            self._check_pause(service, alive)

    def _check_backoff(self, service: Process, sweep_id: str) -> None:
        """Check that the wait after the newest crash is over, if the ledger has counted every crash."""
        query = "SELECT tries, crashes FROM submission WHERE sweep_id = ?"
        [(tries, crashes)] = self._database.rows(query, sweep_id)
        crashed_at = self._crashed_at.get(sweep_id)
        if crashed_at is None or crashes != self._crashes[sweep_id]:
            return
        waited, wait = self._kernel.now - crashed_at, backoff(sweep_id, tries)
        require(
            waited >= wait - ROUNDING,
            "backoff",
            f"{service.name} starts {sweep_id} {waited:.1f} s after a crash instead of {wait:.1f} s",
        )

    def _check_pause(self, service: Process, alive: Sequence[Driver]) -> None:
        of_waiting = "crashed_at IS NOT NULL AND state <> 'ENDED' ORDER BY crashed_at DESC"
        rows = self._database.rows(f"SELECT crashed_at, clock FROM submission WHERE {of_waiting}")
        crashed = sorted((_moment(at, clock) for at, clock in rows), reverse=True)
        pauses = [
            _moment(since, clock)
            for since, clock in self._database.rows("SELECT since, clock FROM start_pause")
        ]
        is_sudden = len(crashed) >= PAUSE_CRASHES and crashed[0] - crashed[PAUSE_CRASHES - 1] <= PAUSE_SECONDS
        must_pause = bool(pauses) or not is_sudden
        require(must_pause, "pause", f"{service.name} starts although {len(crashed)} have crashed")
        if pauses:
            waited = self._kernel.now - max([self._paused_at, *crashed])
            require(
                waited >= PAUSE_SECONDS - ROUNDING,
                "pause",
                f"{service.name} tries again {waited:.0f} s after a crash",
            )
            others = [driver.process.name for driver in alive if driver.process.began > pauses[0]]
            require(not others, "pause", f"{service.name} starts a driver beside {others} in the pause")

    # ---------------------------------------------------------------- in the end

    def check_end(self, jobs: Sequence[Job]) -> None:
        """Check how every submission has ended."""
        rows = {row[0]: row for row in self._database.rows("SELECT sweep_id, state, code FROM submission")}
        require(set(rows) == {job.sweep_id for job in jobs}, "accepted", f"submitted are {sorted(rows)}")
        for job in jobs:
            _, state, code = rows[job.sweep_id]
            is_stopped = job.sweep_id in self._stopped
            expected = Exit.RESUMABLE if is_stopped else Exit.COMPLETE
            require(
                (state, code) in {("ENDED", int(expected)), ("ENDED", int(Exit.COMPLETE))},
                "ends",
                f"{job.sweep_id} is {state} with code {code} in the end",
            )
            query = "SELECT step FROM report WHERE trial_key = ? ORDER BY step"
            steps = [step for (step,) in self._database.rows(query, trial_key(job.sweep_id))]
            complete = [(number + 1) * INTERVAL for number in range(job.reports)]
            is_due = steps == complete if code == Exit.COMPLETE else steps == complete[: len(steps)]
            require(is_due, "ends", f"{job.sweep_id} ended with code {code} and reports at {steps}")


def _moment(at: float, clock: str) -> float:
    """Return seconds since the beginning at a time that a service has written, by its clock."""
    return at - ClockSetting.read(clock).booted_at - BOOT_SECONDS
