"""A simulated driver of a submitted sweep: the real rows, lease and shutdown, around a loop that reports."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from orchestrator.driver import sweep_rows
from orchestrator.driver.admission import LeasedSweep, Run
from orchestrator.errors import Busy, Exit, Refusal, exit_of
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.queue_settings import asked_to_stop, reason_of
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import SweepRecord, TrialRecord
from orchestrator.storage.paths import Paths
from tests.simulation.driver import Screen, SimulatedShutdown
from tests.simulation.kernel import Exited, Kernel, Process
from tests.simulation.service.plan import Job
from tests.simulation.system import SimulatedSystem

INTERVAL, INTERVAL_SECONDS = 10, 5
"""Steps and seconds between two reports."""

START_SECONDS = 2.0
"""From the start of a process until it begins."""


@dataclass
class Driver:
    """One process that drives a sweep.

    Attributes:
        kernel: Kernel of the simulation.
        process: Process of the driver.
        system: System that the process sees.
        job: The sweep.
        number: Number of the start.
        open: Opens the ledger.
        paths: Paths where the sweep writes.
        is_ill: Tells whether the driver crashes before its first report.
        has_begun: Whether it is known to the ledger.
        drives: Whether it holds the lease.
        has_ended: Whether it has written how it ended.
    """

    kernel: Kernel
    process: Process
    system: SimulatedSystem
    job: Job
    number: int
    open: Callable[[], Ledger]
    paths: Paths
    is_ill: Callable[[], bool]
    has_begun: bool = False
    drives: bool = False
    has_ended: bool = False

    @property
    def pid(self) -> int:
        """Return the process id, as `Popen` does."""
        return self.system.pid()

    def poll(self) -> int | None:
        """Return the exit code, as `Popen` does: -9 for a process that was killed."""
        if self.process.alive:
            return None
        return -9 if self.process.code is None else self.process.code

    def main(self) -> None:
        """Do what `orchestrator.api.serving.drive` does."""
        self.kernel.sleep(START_SECONDS)
        with closing(self.open()) as ledger:
            try:
                submissions.begin(ledger, self.job.sweep_id, self.number, Holder.here(self.system))
            except Busy as busy:
                self.kernel.trace(f"leaves: {busy}")
                raise Exited(Exit.BUSY) from None
            self.has_begun = True
            try:
                code, cause = self._drive(ledger), None
            except Refusal as refusal:
                code, cause = exit_of(refusal), str(refusal)
            submissions.end(ledger, self.job.sweep_id, self.number, code, cause)
            self.has_ended = True
        raise Exited(code)

    def _drive(self, ledger: Ledger) -> Exit:
        screen, sweep_id = Screen(self.kernel), self.job.sweep_id
        run = Run(self.paths, Path("data"), None, unless_stopped=True)  # type: ignore[arg-type]
        sweep: Any = SimpleNamespace(id=sweep_id)
        with (
            SimulatedShutdown(self.system, poll_seconds=1.0) as shutdown,
            Lease(
                ledger, sweep_id, screen.say, lambda: shutdown.end("another driver has taken over")
            ) as lease,
        ):
            self.drives = True
            self.process.on_end.append(self._leave)
            leased = LeasedSweep(sweep, run, ledger, lease, screen, shutdown)
            if sweep_rows.is_stopped(leased):
                return Exit.COMPLETE
            if self.is_ill():
                self._crash()
            lease.writer.create_sweep(_sweep(sweep_id, ledger.now()))
            lease.writer.lose_attempts()
            shutdown.at_the_end(lambda reason: sweep_rows.interrupt(leased, f"stopped by {reason}"))
            try:
                return self._train(leased)
            except KeyboardInterrupt as reason:
                sweep_rows.interrupt(leased, f"stopped by {reason}")
                return Exit.RESUMABLE
            finally:
                self.drives = False

    def _leave(self) -> None:
        self.drives = False

    def _crash(self) -> None:
        log = self.paths.driver_log(self.job.sweep_id)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("ValueError: poison\n")
        raise Exited(1)

    def _train(self, leased: LeasedSweep) -> Exit:
        """Train what is left, a report at a time, until the sweep is complete or asked to stop."""
        ledger, writer, sweep_id = leased.ledger, leased.writer, self.job.sweep_id
        if sweep_rows.record_of(leased).finished_at:
            return Exit.COMPLETE
        writer.set_sweep_state("RUNNING")
        trial = _trial(sweep_id, self.job.reports * INTERVAL, ledger.now())
        if not ledger.trials(sweep_id):
            writer.add_trial(trial)
        if ledger.trial(trial.key).finished_at is None:
            attempt = writer.start_attempt(trial.key)
            for done in range(len(ledger.reports(sweep_id)), self.job.reports):
                for _ in range(INTERVAL_SECONDS):
                    self.system.sleep(1.0)
                    leased.shutdown.check()
                    if asker := asked_to_stop(ledger, sweep_id):
                        sweep_rows.interrupt(leased, reason_of(asker))
                        return Exit.RESUMABLE
                writer.record_report(attempt.id, (done + 1) * INTERVAL, {"val/accuracy": 0.5})
            writer.end_attempt(attempt.id, "ENDED", None, "COMPLETE", 0.5, trial.total_steps)
        writer.set_sweep_state("COMPLETE")
        return Exit.COMPLETE


def trial_key(sweep_id: str) -> str:
    """Return the key of the only trial of a sweep."""
    return f"{sweep_id}-0"


def _sweep(sweep_id: str, now: float) -> SweepRecord:
    return SweepRecord(
        id=sweep_id,
        name=sweep_id,
        profile=None,
        task="copy",
        document={},
        digest="",
        state="RUNNING",
        reason=None,
        data_source="simulated",
        data_digest="",
        facts={"direction": "maximize", "metric": "val/accuracy"},
        created_at=now,
    )


def _trial(sweep_id: str, steps: int, now: float) -> TrialRecord:
    return TrialRecord(
        key=trial_key(sweep_id),
        sweep_id=sweep_id,
        number=0,
        role="search",
        state="WAITING",
        cause=None,
        params={},
        system_attrs={},
        seed=0,
        value=None,
        best_step=None,
        step=0,
        total_steps=steps,
        attempts=0,
        created_at=now,
    )
