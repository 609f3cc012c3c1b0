"""The service: one process per ledger that starts and restarts the drivers of submitted sweeps.

`supervision.next_actions` decides. The service writes each decision to the ledger and then acts on it. It may
be killed at any moment: its drivers run in their own sessions, and the next service finds them by their
leases.
"""

from __future__ import annotations

import math
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

import psutil

from orchestrator import system
from orchestrator.driver import detached, preflight
from orchestrator.driver.admission import OWNER
from orchestrator.driver.prewarmed import PrewarmedDriver
from orchestrator.driver.shutdown import Shutdown
from orchestrator.errors import Busy, Exit
from orchestrator.json_log import LogLine, message_of
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.integrity import verify_submissions
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.pool import claims
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.queue_settings import asked_to_stop
from orchestrator.ledger.queue.submissions import Submission, SubmissionWriter
from orchestrator.ledger.sweeps.lease import Lease, holder
from orchestrator.machines.idle_timeout import SERVICE, WARM, WARM_SECONDS, warm_seconds
from orchestrator.process_secrets import redacted
from orchestrator.service.deliveries import Deliveries
from orchestrator.service.discovery import Rounds, announced, knocked
from orchestrator.service.notices import Notices
from orchestrator.service.start_order import DRIVERS_AT_ONCE, Process, Situation, with_shares
from orchestrator.service.supervision import Actions, next_actions
from orchestrator.storage.paths import Paths
from orchestrator.system import ClockSetting, System
from orchestrator.upkeep.recovery import rebuilding_if_damaged

POLL_SECONDS = 1.0
"""Time between two polls of the ledger."""

KNOCK_SECONDS = 0.05
"""Interval of the checks for a knock, after which the ledger is polled at once."""

LEAVE_SECONDS = 1.0
"""Timeout for the current poll when the service is asked to leave."""

STOP_SECONDS = 60.0
"""Timeout for drivers that were asked to end; each one ends within about ten seconds."""

LONGEST_CAUSE = 500
"""Maximum length of the last line of a log that is kept as the cause of a crash."""

Say = Callable[[str], None]
Start = Callable[[Submission], "subprocess.Popen[bytes]"]


def serve(
    paths: Paths,
    say: Say,
    *,
    drivers_at_once: int = DRIVERS_AT_ONCE,
    stop_drivers: bool = False,
    start: Start | None = None,
    system: System = System(),
    beside: AbstractContextManager[object] = nullcontext(),
    rounds: Rounds | None = None,
) -> Exit:
    """Supervise the submitted sweeps of a ledger until SIGTERM or SIGINT; the drivers continue afterwards.

    After a signal it ends within ten seconds, whatever its threads are doing, and with `stop_drivers` within
    `STOP_SECONDS` more. A damaged ledger is rebuilt from its backup if no driver uses it.

    Example:

        serve(Paths.at("mlruns"), print)

    Args:
        paths: Paths where sweeps write.
        say: Function that receives a line for each driver that starts, and for each submission that is
            parked.
        drivers_at_once: Maximum number of concurrent drivers.
        stop_drivers: Whether the drivers save their trials and end too, as for a container or a batch job
            whose end would kill them.
        start: Function that starts the driver of a submission; by default `python -m orchestrator.driver`.
        system: System of this process.
        beside: Context that is held meanwhile, such as the HTTP server; it must exit within the same time.
        rounds: Record of the completed rounds, or None.

    Returns:
        COMPLETE, or RESUMABLE with `stop_drivers`.

    Raises:
        Busy: Another service supervises the ledger, or took it over.
    """
    preflight.check_paths(paths)
    paths.create()
    over, done = system.event(), system.event()
    services: list[Service] = []

    def supervise() -> None:
        with _begun(paths, system, say, drivers_at_once, start) as service:
            services.append(service)
            service.poll_until(over, rounds)

    def run() -> None:
        try:
            rebuilding_if_damaged(supervise, paths.ledger_url, say, system)
        finally:
            done.set()

    with _shutdown(system, stop_drivers) as shutdown, beside:
        try:
            shutdown.interruptible(run)
        except KeyboardInterrupt as reason:
            over.set()
            done.wait(LEAVE_SECONDS)
            drivers = "stop too" if stop_drivers else "keep running"
            say(f"The service stops after {reason}; the drivers {drivers}.")
        for service in services if stop_drivers else ():
            service.stop_drivers()
    return end_code(stop_drivers)


def end_code(stop_drivers: bool) -> Exit:
    """Return the exit code of a service that was asked to leave."""
    return Exit.RESUMABLE if stop_drivers else Exit.COMPLETE


def _shutdown(system: System, stop_drivers: bool) -> Shutdown:
    """Return the shutdown of the service, whose exit code holds even if it is late or requested twice."""
    code = end_code(stop_drivers)
    extra, remark = (
        (STOP_SECONDS, "its drivers were asked to end") if stop_drivers else (0.0, "the drivers go on")
    )
    return Shutdown(system, extra_seconds=extra, code=code, code_twice=code, remark=remark)


@contextmanager
def _begun(
    paths: Paths, system: System, say: Say, drivers_at_once: int, start: Start | None
) -> Iterator[Service]:
    """Yield the service of a ledger, which holds its lease and delivers, for a `with` block.

    Raises:
        Busy: Another service holds the lease.
        Damaged: The ledger is damaged.
    """
    with ExitStack() as stack:
        opened = Ledger.open(paths.ledger_url, system=system, reconnect_seconds=math.inf, notify=say)
        ledger = stack.enter_context(closing(opened))
        # Entered before the lease and so closed after it, because closing takes seconds during a delivery.
        deliveries = stack.enter_context(closing(Deliveries(paths, system, say)))
        notices = stack.enter_context(closing(Notices(paths, system, say)))
        lease = stack.enter_context(_held(ledger, say))
        this = stack.enter_context(announced(paths.service, system))
        say(f"{this} serves {ledger.where}.")
        for fault in verify_submissions(ledger):
            say(f"{fault} It has been rewritten.")
        service = Service(ledger, lease, paths, say, drivers_at_once=drivers_at_once, start=start)
        stack.callback(service.end_ready)
        deliveries.start()
        notices.start()
        yield service


def lease_name(ledger: Ledger) -> str:
    """Return the name of the lease of a ledger's service; no sweep has an id with a colon."""
    return f"serve:{ledger.id}"


@contextmanager
def _held(ledger: Ledger, say: Say) -> Iterator[Lease]:
    name = lease_name(ledger)
    lease = Lease(ledger, name, say)
    with ExitStack() as stack:
        try:
            stack.enter_context(lease)
        except Busy:
            other = holder(ledger, name)
            got = f"{other}, for {max(0.0, ledger.now() - other.since):.0f} s" if other else "another service"
            must = "is already running"
            raise Busy(f"service of {ledger.where}", must, got, "Submit to that one.") from None
        yield lease


@dataclass(frozen=True)
class _Child:
    """A driver that this process has started, and its submission at that time."""

    submission: Submission
    process: subprocess.Popen[bytes]


class Service:
    """Polls the ledger and executes the actions that `supervision.next_actions` returns.

    Args:
        ledger: Ledger of the sweeps.
        lease: Lease of the service, held.
        paths: Paths where sweeps write.
        say: Function that receives a line for each decision.
        drivers_at_once: Maximum number of concurrent drivers.
        start: Function that starts the driver of a submission.
    """

    def __init__(
        self,
        ledger: Ledger,
        lease: Lease,
        paths: Paths,
        say: Say,
        *,
        drivers_at_once: int = DRIVERS_AT_ONCE,
        start: Start | None = None,
    ) -> None:
        self._ledger, self._lease, self._paths, self._say = ledger, lease, paths, say
        self._writer = SubmissionWriter(ledger, lease.token)
        self._drivers_at_once = drivers_at_once
        self._start_driver = start or self._begin
        self._warm = 0.0 if start else warm_seconds(WARM_SECONDS)
        self._niceness = system.niceness(system.SERVICE_NICENESS)
        self._ready = PrewarmedDriver(paths.root, self._warm, ledger.system)
        self._children: list[_Child] = []
        self._drivers: list[Holder] = []
        self._heard: dict[str, tuple[float, float]] = {}
        """Newest report of each sweep, and the time when it was first seen, in seconds since the boot."""
        self._clock = ClockSetting.here(ledger.system)
        """Clock setting of the current poll, which stays the same if the clock is set meanwhile."""

    def poll_until(self, over: Event, rounds: Rounds | None = None) -> None:
        """Poll every `POLL_SECONDS`, and at once after a knock, until `over` is set.

        Args:
            over: Event of the end.
            rounds: Record of the completed rounds, or None.

        Raises:
            Busy: Another process has taken the lease.
        """
        while not over.is_set():
            knocks = knocked(self._paths.service)
            self.poll()
            if rounds is not None:
                rounds.complete()
            looks = max(1, round(POLL_SECONDS / KNOCK_SECONDS))
            for _ in range(looks):
                if over.wait(POLL_SECONDS / looks) or knocked(self._paths.service) != knocks:
                    break

    def poll(self) -> None:
        """Process the ends of drivers, and start the drivers that are due.

        Raises:
            Busy: Another process has taken the lease.
        """
        self._reap()
        self._clock = ClockSetting.here(self._ledger.system)
        waiting = [entry.by(self._clock) for entry in submissions.submissions(self._ledger, ended=False)]
        situations = self._situations(waiting)
        self._drivers = [
            entry.submission.driver
            for entry in situations
            if entry.process == "alive" and entry.submission.driver
        ]
        paused_since = submissions.paused_since(self._ledger, self._clock)
        actions = next_actions(situations, self._now(), paused_since, drivers_at_once=self._drivers_at_once)
        for transition in actions.transitions:
            if self._writer.change(transition.submission, **transition.columns):
                self._report(transition.submission.sweep_id, transition.columns)
        self._pause(actions, paused_since)
        for submission in actions.starts:
            self._start(submission)
        for sweep_id in actions.leaving:
            self._writer.ask_for_room(sweep_id)
            self._say(LogLine(f"{sweep_id}: preempted for other sweeps.", "preempted", sweep_id))
        self._ready.tend(busy=bool(self._children))

    def _now(self) -> float:
        return self._clock.now(self._ledger.system)

    def end_ready(self) -> None:
        """End the prewarmed process."""
        self._ready.end()

    def stop_drivers(self) -> None:
        """Send SIGTERM to the drivers of the last poll, and wait until they have saved and ended.

        The ledger is not used, because its database may be down.
        """
        alive = [driver.pid for driver in self._drivers if not driver.is_dead(self._ledger.system)]
        begun = [child.process.pid for child in self._children if child.process.poll() is None]
        processes = []
        for pid in {*alive, *begun}:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                process.terminate()
                processes.append(process)
        psutil.wait_procs(processes, timeout=STOP_SECONDS)

    def _reap(self) -> None:
        """Record the exit codes of drivers of this process that have not recorded one themselves."""
        for child in list(self._children):
            if (code := child.process.poll()) is not None:
                sweep_id, start = child.submission.sweep_id, child.submission.starts
                submissions.end(self._ledger, sweep_id, start, code, self._cause(sweep_id, code))
                self._children.remove(child)

    def _situations(self, waiting: Sequence[Submission]) -> Sequence[Situation]:
        """Return the observed state of every submission."""
        if not waiting:
            return ()
        classes = claims.priority_classes(self._ledger)
        here = {entry.sweep_id for entry in waiting}
        self._heard = {sweep: heard for sweep, heard in self._heard.items() if sweep in here}
        situations = [
            replace(self._situation(entry), priority_class=classes.get(entry.sweep_id, "normal"))
            for entry in waiting
        ]
        views = claims.pools(self._ledger).values()
        return with_shares(situations, list(views), claims.owners(self._ledger), self._now())

    def _situation(self, submission: Submission) -> Situation:
        sweep_id = submission.sweep_id
        process = self._process(submission)
        if process == "dead" and submission.code is None and submission.cause is None:
            submission = replace(submission, cause=self._cause(sweep_id, None))
        reported_at = self._ledger.last_report_at(sweep_id)
        return Situation(
            submission,
            self._ledger.sweep(sweep_id),
            holder(self._ledger, sweep_id) is not None,
            process,
            asked_to_stop(self._ledger, sweep_id),
            reported_at,
            self._heard_at(sweep_id, reported_at),
        )

    def _heard_at(self, sweep_id: str, reported_at: float) -> float:
        """Return the time when this service first saw the newest report of a sweep, by the current setting.

        The time in the report is by the clock of its driver at that time, whose setting is not recorded.
        """
        known, since_boot = self._heard.get(sweep_id, (None, 0.0))
        if known != reported_at:
            since_boot = self._ledger.system.since_boot()
            self._heard[sweep_id] = reported_at, since_boot
        return self._clock.booted_at + since_boot

    def _process(self, submission: Submission) -> Process:
        driver, system = submission.driver, self._ledger.system
        if driver is None:
            return "none"
        if not driver.is_near(system):
            return "elsewhere"
        return "dead" if driver.is_dead(system) else "alive"

    def _pause(self, actions: Actions, before: float | None) -> None:
        if actions.paused_since == before:
            return
        if actions.paused_since is None:
            self._writer.go_on()
            self._say("A driver has reported; starting drivers again.")
        else:
            self._writer.pause(actions.paused_since, self._clock)
            self._say("Several sweeps crashed within a minute; pausing starts, then trying one sweep alone.")

    def _start(self, seen: Submission) -> None:
        """Record the start of a driver, then start it: a kill in between costs one backoff."""
        number, now = seen.starts + 1, self._now()
        columns = {"state": "STARTED", "starts": number, "started_at": now, "driver": None, "code": None}
        columns["reported_before"] = self._ledger.last_report_at(seen.sweep_id)
        sweep = self._ledger.sweep(seen.sweep_id)
        columns["finished_before"] = sweep.finished_at if sweep else None
        self._lease.check()
        if self._writer.change(seen, **columns, cause=None):
            submission = submissions.submission(self._ledger, seen.sweep_id)
            assert submission is not None, "no submission is ever deleted"
            process = self._start_driver(submission)
            self._children.append(_Child(submission, process))
            line = f"{seen.sweep_id}: started driver {process.pid} (start {number})."
            self._say(LogLine(line, "started", seen.sweep_id))

    def _begin(self, submission: Submission) -> subprocess.Popen[bytes]:
        sweep_id = submission.sweep_id
        words = [sweep_id, "--start", str(submission.starts), "--root", str(self._paths.root)]
        service = Holder.here(self._ledger.system).write()
        variables = {OWNER: submission.owner, WARM: str(self._warm), SERVICE: service}
        variables |= {system.NICENESS: str(self._niceness)}
        return self._ready.begin(words, self._paths.driver_log(sweep_id), variables)

    def _cause(self, sweep_id: str, code: int | None) -> str:
        """Return the cause of a driver's end: a signal, or else the last line that it printed."""
        if code is not None and code < 0:
            return f"{signal.Signals(-code).name} ended its driver"
        last = redacted(message_of(detached.last_line(self._paths.driver_log(sweep_id))))
        if code is None:
            last = f"its driver vanished after printing: {last}" if last else "its driver vanished"
        return last[:LONGEST_CAUSE]

    def _report(self, sweep_id: str, columns: Mapping[str, Any]) -> None:
        """Print the new state of a submission."""
        cause = f": {columns['cause']}" if columns.get("cause") else ""
        match columns["state"]:
            case "PARKED":
                line, event = f"{sweep_id} is parked after {columns['crashes']} crashes{cause}.", "parked"
            case "QUEUED":
                wait = max(0.0, columns["next_try"] - self._now())
                line, event = f"{sweep_id} restarts in {wait:.0f} s{cause}.", "restarts"
            case "ENDED":
                line, event = f"{sweep_id} has ended with code {columns['code']}{cause}.", "ended"
            case _:
                return
        self._say(LogLine(line, event, sweep_id))
