"""Machines on which services, drivers and people work, a ledger that they share, and what disturbs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import filelock

from orchestrator.driver.shutdown import Result, Shutdown
from orchestrator.errors import BadInput, Busy, Exit, NoDatabase
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import queue_settings, submissions
from orchestrator.ledger.queue.submissions import Submission, SubmissionRequest
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.service import deliveries, service
from orchestrator.storage.paths import Paths
from orchestrator.system import System
from orchestrator.tracking.shipper import Shipper, Timeouts
from orchestrator.upkeep import recovery
from orchestrator.upkeep.recovery import Recovery, recover
from tests.simulation.database import Database
from tests.simulation.faults import Fault
from tests.simulation.files import PlainLock
from tests.simulation.kernel import Exited, Kernel, Process
from tests.simulation.power import Disk
from tests.simulation.service.driver import Driver
from tests.simulation.service.plan import POISON, Job, Plan
from tests.simulation.service.rules import Rules
from tests.simulation.strikes import LEAVE_SECONDS, Strikes
from tests.simulation.sweeps import LEDGER, empty_ledger, write
from tests.simulation.system import Machine, SimulatedSystem
from tests.simulation.tracking import Child, Mlflow
from tests.simulation.violation import Violation

OFF_SECONDS = 5.0
"""Length of a power cut."""

RESTART_SECONDS = 2.0
"""From the end of a service until the machine starts it again."""

REPAIR_SECONDS = 20.0
"""Time between two checks for parked sweeps by a simulated person."""

POLL_SECONDS, LOOK_SECONDS = 5.0, 1.0
"""Of the simulated service: those of the real one would fill most of a run with polls that find nothing."""


class ServingShutdown(Shutdown):
    """Runs a call in a simulated thread."""

    def interruptible(self, call: Callable[[], Result], look: Callable[[], object] = lambda: None) -> Result:
        ended = self._system.event()
        results: list[Result] = []
        errors: list[Exception] = []

        def run() -> None:
            try:
                results.append(call())
            except Exception as error:  # noqa: BLE001 - raised again in the calling thread
                errors.append(error)
            ended.set()

        self._system.thread(run, "interruptible").start()
        while not ended.wait(1.0):
            self.check()
        for error in errors:
            raise error
        return results[0]


class World:
    """World of services, drivers and people.

    Args:
        kernel: Kernel of the simulation.
        plan: Plan of the run.
        faults: Faults that are planned.
        folder: Folder for the files of every machine.

    Attributes:
        machines: Machines of the world.
        database: Database of the ledger.
        disk: What a loss of power leaves.
        mlflow: Mlflow that gets what ended sweeps have left.
        strikes: The faults.
        rules: What must hold.
        drivers: Every driver so far.
        is_over: Whether everything has ended, so that no service is started again.
    """

    def __init__(self, kernel: Kernel, plan: Plan, faults: Sequence[Fault], folder: Path) -> None:
        self._kernel, self._plan = kernel, plan
        self.machines = [
            Machine(name, folder / name) for name in (("m1", "m2") if plan.is_server else ("m1",))
        ]
        for machine in self.machines:
            (machine.root / "mlruns").mkdir(parents=True)
        root = self.machines[0].root / "mlruns"
        write(empty_ledger(), root)
        self.database = Database(kernel, root / LEDGER, None if plan.is_server else self.machines[0])
        self.disk = Disk(folder, self.database.file, kernel.random)
        self.strikes = Strikes(
            kernel,
            faults,
            {
                "another service": lambda _: self._start_another(),
                "clock steps": self._step_clocks,
                "database vanishes": self._lose_database,
                "power loss": lambda _: self._lose_power(),
            },
        )
        self.mlflow = Mlflow(kernel)
        kinds = {fault.kind for fault in faults}
        is_exact = "clock steps" not in kinds or not (plan.is_server or "power loss" in kinds)
        self.rules = Rules(kernel, self.database, is_exact=is_exact)
        self.drivers: list[Driver] = []
        self.is_over = False
        self._services = self._people = self._children = 0
        self._powered_off: set[str] = set()  # names of the processes that ended with their machine
        self._remaining = {job.sweep_id: job.crashes for job in plan.jobs}

    @contextmanager
    def simulated(self) -> Iterator[None]:
        """Let services open the simulated ledger, and wait in simulated time."""
        with (
            patch.object(service, "Shutdown", ServingShutdown),
            patch.object(recovery, "recover", self._recover),
            patch.object(service, "POLL_SECONDS", POLL_SECONDS),
            patch.object(service, "KNOCK_SECONDS", LOOK_SECONDS),
            patch.object(service.Service, "poll", self._noted(service.Service.poll)),
            patch.object(deliveries, "Shipper", self._shipper),
            patch.object(Ledger, "open", self._open),
            patch.object(filelock, "FileLock", PlainLock),
        ):
            yield

    def _noted(self, poll: Callable[[service.Service], None]) -> Callable[[service.Service], None]:
        def noted(this: service.Service) -> None:
            self.rules.polled_at[self._kernel.task.process.name] = self._kernel.now
            poll(this)

        return noted

    def _open(self, url: str, *, system: System, **_: Any) -> Ledger:
        return self.database.ledger(self._kernel.task.process, system)

    def _shipper(self, lease: Lease, uri: str, artifacts: Path | None, pace: Timeouts) -> Shipper:
        """Return a shipper of the current process that delivers to the simulated MLflow."""
        process = self._kernel.task.process
        machine = next(machine for machine in self.machines if process in machine.processes)

        def begin(destination: Mapping[str, Any]) -> Child:
            self._children += 1
            name = f"{process.name}-child-{self._children}"
            return Child(self.mlflow, machine, process, name, destination)

        return Shipper(lease, uri, artifacts, pace=pace, begin=begin)

    def _recover(self, url: str, system: System) -> Recovery:
        rebuilt = recover(str(self.database.url), system)
        self._kernel.trace("has rebuilt the ledger")
        self.database.reopen()
        self.rules.lose()
        return rebuilt

    def _paths(self, machine: Machine) -> Paths:
        return Paths(
            machine.root / "mlruns", "postgresql://sweeps@simulated/sweeps" if self._plan.is_server else None
        )

    # ---------------------------------------------------------------- services

    def supervise(self) -> None:
        """Start a service, and another one after each end, as systemd does on a machine that is on."""
        while not self.is_over:
            machine = next((machine for machine in self.machines if not machine.is_off), None)
            if machine is not None:
                self._kernel.join(self._serve(machine))
            self._kernel.sleep(RESTART_SECONDS)

    def _start_another(self) -> None:
        machines = [machine for machine in self.machines if not machine.is_off]
        if machines and not self.is_over:
            self._serve(self._kernel.random.choice(machines))

    def _serve(self, machine: Machine) -> Process:
        self._services += 1
        process = self._process(f"serve-{self._services}", machine)
        system = SimulatedSystem(self._kernel, machine, process)

        def main() -> None:
            say = self._kernel.trace
            try:
                code = service.serve(
                    self._paths(machine),
                    lambda line: say(f"says: {line}"),
                    start=partial(self._start_driver, process, machine),
                    system=system,
                )
            except (Busy, NoDatabase) as refusal:
                say(f"leaves: {refusal}")
                raise Exited(Exit.BUSY) from None
            raise Exited(code)

        self._kernel.start(process, main)
        return process

    def end(self) -> None:
        """Ask every service to leave, and check that it does."""
        self.is_over = True
        for process in self._kernel.living("serve-"):
            if process.signals is not None:
                process.signals.append("SIGTERM")
                self.strikes.expect_end(process, "a signal", LEAVE_SECONDS)

    def _start_driver(self, serving: Process, machine: Machine, submission: Submission) -> Any:
        """Start a driver, as `Service` asks for one."""
        sweep_id, number = submission.sweep_id, submission.starts
        near = [driver for driver in self.drivers if driver.process in machine.processes]
        try:
            self.rules.check_start(serving, sweep_id, number, near)
        except Violation as violation:
            self._kernel.fail(violation)
        process = self._process(f"driver-{len(self.drivers) + 1}", machine)
        system = SimulatedSystem(self._kernel, machine, process)
        job = next(job for job in self._plan.jobs if job.sweep_id == sweep_id)
        driver = Driver(
            self._kernel,
            process,
            system,
            job,
            number,
            lambda: self.database.ledger(process, system),
            self._paths(machine),
            partial(self._crashes, sweep_id),
        )
        process.on_end.append(lambda: self._note_end(driver))
        self.drivers.append(driver)
        self._kernel.start(process, driver.main)
        return driver

    def _crashes(self, sweep_id: str) -> bool:
        """Return True if the next driver of a sweep crashes when it starts."""
        if self._kernel.now < self._plan.ill_until:
            return True
        if self._remaining[sweep_id] == POISON:
            return True
        self._remaining[sweep_id] -= 1
        return self._remaining[sweep_id] >= 0

    def _note_end(self, driver: Driver) -> None:
        if driver.has_ended or driver.process.name in self._powered_off:
            self.rules.end(driver.job.sweep_id)
        else:
            self.rules.crash(driver.job.sweep_id)

    def _process(self, name: str, machine: Machine) -> Process:
        process = self._kernel.process(name)
        machine.processes.append(process)
        self.strikes.plan(process)
        return process

    # ---------------------------------------------------------------- people

    def look_after(self, job: Job) -> None:
        """Do with a sweep what is planned, until it has ended for good."""
        kernel, rules, sweep_id = self._kernel, self.rules, job.sweep_id
        kernel.sleep(job.submitted_at)
        self._do(lambda ledger: self._submit(ledger, job, job.sweep_id))
        rules.acknowledged.add(sweep_id)
        if job.stopped_at is not None:
            kernel.sleep(max(0.0, job.stopped_at - kernel.now))
            if self._do(partial(self._stop, sweep_id)):
                rules.stop(sweep_id)
        if job.stopped_at is not None and job.resumed_after is not None:
            kernel.sleep(job.resumed_after)
            rules.go_on(sweep_id)
            self._do(partial(self._resume, job))
        while not self._has_ended(sweep_id):
            kernel.sleep(REPAIR_SECONDS)
            self._repair(sweep_id)

    def _submit(self, ledger: Ledger, job: Job, key: str) -> object:
        """Submit a sweep; the same key never submits it twice."""
        order = SubmissionRequest(job.owner, {"name": job.sweep_id}, "", {}, key, "")
        return submissions.submit(ledger, order, lambda _: job.sweep_id, withdraw=True)

    def _stop(self, sweep_id: str, ledger: Ledger) -> None:
        """Stop a sweep that waits or runs; a repeated command may find it stopped."""
        if queue_settings.settings(ledger, sweep_id).paused:
            return
        known = submissions.submission(ledger, sweep_id)
        if known is None or known.state not in {"QUEUED", "STARTED"}:
            raise BadInput(sweep_id, "must wait or run to be stopped", "another state", "None.")
        queue_settings.ask_to_stop(ledger, sweep_id)

    def _resume(self, job: Job, ledger: Ledger) -> object:
        if job.is_resubmitted:
            return self._submit(ledger, job, f"{job.sweep_id}-again")
        return queue_settings.resume(ledger, job.sweep_id)

    def _repair(self, sweep_id: str) -> None:
        """Repair a parked sweep and release it."""
        if (state := self._state(sweep_id)) and state[0] == "PARKED":
            self._remaining[sweep_id] = 0
            self.rules.repair(sweep_id)
            self._do(lambda ledger: submissions.release(ledger, sweep_id))

    def _do(self, command: Callable[[Ledger], object]) -> bool:
        """Let a person run a command until it has ended; return False if it was refused."""
        while True:
            machine = self.machines[0]
            while machine.is_off:
                self._kernel.sleep(1.0)
            self._people += 1
            process = self._process(f"person-{self._people}", machine)
            self._kernel.start(process, partial(self._run_command, process, machine, command))
            self._kernel.join(process)
            if process.code is not None:
                return process.code == Exit.COMPLETE
            self._kernel.sleep(1.0)

    def _run_command(self, process: Process, machine: Machine, command: Callable[[Ledger], object]) -> None:
        try:
            command(self.database.ledger(process, SimulatedSystem(self._kernel, machine, process)))
        except BadInput as refusal:
            self._kernel.trace(f"is refused: {refusal}")
            raise Exited(Exit.BAD_INPUT) from None
        raise Exited(Exit.COMPLETE)

    def unfinished(self) -> list[str]:
        """Return the sweeps whose submissions have not ended."""
        return [job.sweep_id for job in self._plan.jobs if not self._has_ended(job.sweep_id)]

    def _state(self, sweep_id: str) -> tuple[str, int | None] | None:
        query = "SELECT state, code FROM submission WHERE sweep_id = ?"
        rows = self.database.rows(query, sweep_id)
        return (rows[0][0], rows[0][1]) if rows else None

    def _has_ended(self, sweep_id: str) -> bool:
        state = self._state(sweep_id)
        return state is not None and state[0] == "ENDED"

    # ---------------------------------------------------------------- faults

    def _step_clocks(self, fault: Fault) -> None:
        for machine in self.machines:
            machine.skew += fault.seconds

    def _lose_database(self, fault: Fault) -> None:
        self.database.down = True
        self._kernel.after(fault.seconds, self._return_database)

    def _return_database(self) -> None:
        self._kernel.trace("the database is back")
        self.database.down = False

    def _lose_power(self) -> None:
        """Switch the first machine off and, soon after, on."""
        machine = self.machines[0]
        if machine.is_off:
            return
        self._kernel.trace(f"{machine.name} loses its power")
        machine.is_off = True
        self._powered_off |= {process.name for process in machine.processes}
        for process in machine.processes:
            self._kernel.kill(process)
        machine.processes.clear()
        self._kernel.after(OFF_SECONDS, partial(self._switch_on, machine))

    def _switch_on(self, machine: Machine) -> None:
        self._kernel.trace(f"{machine.name} has power again")
        machine.is_off, machine.boots = False, machine.boots + 1
        owns_ledger = not self.database.is_server
        self.disk.fail(machine.root, keep_database=not owns_ledger)
        if owns_ledger:
            self.database.reopen()
            self.rules.lose()
