"""A simulated driver: what `driver/run.py` does, with the real lease, ledger, study, rules and session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver import execution, sweep_rows
from orchestrator.driver.admission import LeasedSweep, Run
from orchestrator.driver.run import _resumable as resumable
from orchestrator.driver.shutdown import Result, Shutdown
from orchestrator.errors import Busy, Damaged, Exit, NoSpace, Refusal
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import FINISHED_SWEEP, SweepState
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule import schedulers
from orchestrator.schedule.engines import Engines
from orchestrator.session.limits import Stop
from orchestrator.session.session import Session
from orchestrator.storage.paths import Paths
from orchestrator.study.study import Study
from orchestrator.tracking import events
from orchestrator.tracking.shipper import Shipper, Timeouts
from orchestrator.upkeep.deletions import deleting
from tests.simulation.cluster import Cluster, Tune
from tests.simulation.database import Database
from tests.simulation.kernel import Exited, Kernel, Process
from tests.simulation.store import URL
from tests.simulation.system import Machine, SimulatedSystem
from tests.simulation.tracking import Child, Mlflow

HARDWARE = Hardware(cpus=4, gpus=0)
"""What the ledger records of a simulated machine; what trials can take is the cluster's."""

SILENCE_SECONDS = 200.0
PATIENCE_SECONDS = 10.0
PACE = Timeouts(gather=5.0, awake=30.0, silence=20.0, first_retry=2.0, longest_retry=20.0, goodbye=5.0)


@dataclass
class Screen:
    """Shows the lines of a driver in the trace."""

    kernel: Kernel

    def say(self, line: str) -> None:
        self.kernel.trace(f"says: {line}")

    def loading(self, what: str, done: int, total: int) -> None:
        raise AssertionError("simulated data is in memory")

    def show(self, progress: Any) -> None:
        return None

    def close(self) -> None:
        return None


class SimulatedShutdown(Shutdown):
    """Runs blocking calls in the calling thread, where they pass points."""

    def interruptible(
        self,
        call: Callable[[], Result],
        look: Callable[[], object] = lambda: None,
    ) -> Result:
        look()
        self.check()
        return call()


@dataclass
class Driver:
    """One process that runs the sweep.

    Attributes:
        kernel: Kernel of the simulation.
        process: Process of the driver.
        sweep: Sweep to run.
        database: Database of the ledger.
        cluster: Cluster that trains.
        machine: Machine on which it runs.
        mlflow: Mlflow that gets its events.
        unless_stopped: Leave the sweep as it is if a person has stopped it.
        drives: Whether it has taken the lease; without it, it may leave for any reason.
        is_damaged: Whether it has found the ledger damaged.
        tune: Its Ray Tune, once it runs.
    """

    kernel: Kernel
    process: Process
    sweep: SweepConfig
    database: Database
    cluster: Cluster
    machine: Machine
    mlflow: Mlflow
    unless_stopped: bool
    children: int = field(default=0, init=False)
    drives: bool = field(default=False, init=False)
    is_damaged: bool = field(default=False, init=False)
    tune: Tune | None = field(default=None, init=False)

    @property
    def paths(self) -> Paths:
        """Return the paths of the installation; with a database server there is a store, too."""
        return Paths(self.machine.root / "mlruns", store=URL if self.database.is_server else None)

    def main(self) -> None:
        """Run the sweep, or leave because another driver runs it."""
        system = SimulatedSystem(self.kernel, self.machine, self.process)
        with closing(self.database.ledger(self.process, system)) as ledger:
            try:
                self._drive(ledger)
            except Refusal as refusal:
                self.kernel.trace(f"leaves: {refusal}")
                self.is_damaged = isinstance(refusal, Damaged)
                if self.drives and not isinstance(refusal, (Busy, Damaged, NoSpace)):
                    raise
                raise Exited(Exit.BAD_INPUT) from None

    def _drive(self, ledger: Ledger) -> None:
        screen, sweep = Screen(self.kernel), self.sweep
        run = Run(self.paths, Path("data"), HARDWARE, unless_stopped=self.unless_stopped)
        lost = "another driver has taken over"
        with (
            SimulatedShutdown(ledger.system, poll_seconds=1.0) as shutdown,
            Lease(ledger, sweep.id, screen.say, lambda: shutdown.end(lost), renew_seconds=5.0) as lease,
        ):
            self.kernel.trace("holds the lease")
            self.drives = True
            leased = LeasedSweep(sweep, run, ledger, lease, screen, shutdown)
            if sweep_rows.is_stopped(leased):
                raise Exited(Exit.COMPLETE)
            shutdown.at_the_end(lambda reason: sweep_rows.abandon(leased, f"stopped by {reason}"))
            sweep_rows.check_integrity(leased)
            shipper = Shipper(lease, "simulated", None, pace=PACE, begin=self._begin)
            shutdown.kill_at_the_end(shipper.kill)
            shipper.start()
            sweep_rows.enter(leased, data=None)  # type: ignore[arg-type]
            state = sweep_rows.record_of(leased).state
            if state not in FINISHED_SWEEP:
                with resumable(leased):
                    self._run(leased, shipper)
            state = sweep_rows.record_of(leased).state
            shipper.drain(PATIENCE_SECONDS)
            shipper.close()
        self.kernel.trace(f"leaves: {state}")
        raise Exited(Exit.COMPLETE if state == "COMPLETE" else Exit.RESUMABLE)

    def _run(self, leased: LeasedSweep, shipper: Shipper) -> None:
        """Run what is left of the sweep, and conclude it."""
        ledger, sweep_id = leased.ledger, leased.sweep.id
        sweep_rows.resume(leased)
        stopped = self._run_session(leased, shipper.nudge)
        if stopped is None or stopped.state == "COMPLETE":
            execution.evaluate_test(leased, Engines(lambda: 0))
        leased.lease.check()
        state: SweepState = "COMPLETE" if stopped is None else stopped.state
        reason, now = None if stopped is None else stopped.reason, events.milliseconds(ledger.now())
        ended = events.sweep_ended(sweep_id, state, now, reason=reason)
        ended_trials = events.trials_left(ledger.trials(sweep_id), now)
        leased.writer.set_sweep_state(state, reason, events=[*ended_trials, ended])

    def _begin(self, destination: Mapping[str, Any]) -> Child:
        """Start a process that delivers to MLflow."""
        self.children += 1
        name = f"{self.process.name}-child-{self.children}"
        return Child(self.mlflow, self.machine, self.process, name, destination)

    def _run_session(self, leased: LeasedSweep, nudge: Callable[[], None]) -> Stop | None:
        sweep, kernel, ledger = self.sweep, self.kernel, leased.ledger
        reports = ledger.reports(sweep.id)
        study = Study(sweep, ledger.trials(sweep.id, role="search"), reports)
        session = Session(
            sweep,
            leased.writer,
            study,
            self.paths,
            Path("data"),
            resources=self.cluster,
            node_wait=60.0,
            busy_wait=60.0,
            clock=ledger.system.monotonic,
        )
        session.take_requests()
        scheduler = schedulers.build(sweep, reports, exempt=session.exempt)
        session.settle_stopped(scheduler.stopped)
        session.follow(scheduler.rungs)
        self.tune = Tune(kernel, self.cluster, self.machine, session, scheduler, SILENCE_SECONDS)
        self.process.on_end.append(lambda: self.cluster.lose_driver(self.tune))  # type: ignore[arg-type]

        def tick() -> None:
            session.check_limits()
            nudge()
            if self.database.is_server:
                delete()
            if (reason := leased.shutdown.reason) and session.stopped is None:
                session.stop(f"stopped by {reason}", "INTERRUPTED")

        with deleting(leased.lease) as delete:
            self.tune.run(tick)
        return session.end
