"""Drivers that get a signal at a seeded moment: inside a commit, launch, report, resume or conclusion.

Such a driver is a forked process with a real ledger, lease, session and report. It has no Ray: the outcomes
are those that workers would report. It announces what it does through a pipe; its parent sends the signal.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import event
from sqlalchemy.engine import Engine

from orchestrator.assignment import Assignment
from orchestrator.driver import execution, sweep_rows
from orchestrator.driver import shutdown as shutdown_module
from orchestrator.driver.admission import LeasedSweep, Run
from orchestrator.driver.log import Observer
from orchestrator.driver.shutdown import Shutdown
from orchestrator.errors import Exit
from orchestrator.ledger.integrity import verify
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import AttemptRecord, TrialRecord
from orchestrator.machines.hardware import Hardware
from orchestrator.session.session import Session
from orchestrator.upkeep.check import Finding, check
from tests.orchestrator.session.sessions import Sessions, outcome

PHASES = ("commit", "launch", "report", "resume", "conclusion")
TRIALS, STEPS = 6, (10, 20, 30)
OCCURRENCES = {"commit": 24, "launch": TRIALS, "report": TRIALS * len(STEPS), "resume": 1, "conclusion": 1}
"""How many times a driver that is left alone surely announces each phase."""

SPREAD_SECONDS = {"commit": 0.002, "launch": 0.005, "report": 0.005, "resume": 0.1, "conclusion": 0.4}
"""How long after the announcement the signal is sent, at most: about as long as the phase takes."""

LEFT_SECONDS = 10.0


@dataclass(frozen=True)
class Moment:
    """The time of a signal to a driver.

    Attributes:
        phase: Phase of its work, one of `PHASES`.
        occurrence: Which of the announcements of this phase, from 1.
        delay: Seconds from the announcement to the signal.
        signal: SIGINT or SIGTERM.
    """

    phase: str
    occurrence: int
    delay: float
    signal: signal.Signals

    @classmethod
    def drawn(cls, seed: int) -> Moment:
        """Return the moment of a seed: phases take turns, and so do the signals in each of them."""
        draws, phase = random.Random(seed), PHASES[seed % len(PHASES)]
        occurrence = draws.randint(1, OCCURRENCES[phase])
        delay = draws.uniform(0.0, SPREAD_SECONDS[phase])
        return cls(phase, occurrence, delay, (signal.SIGINT, signal.SIGTERM)[seed // len(PHASES) % 2])


@dataclass(frozen=True)
class Left:
    """The end of a driver after a signal.

    Attributes:
        code: Its exit code.
        seconds: Seconds from the signal to its end.
        complete: Whether the sweep was complete by then.
    """

    code: int
    seconds: float
    complete: bool


def warm(folder: Path) -> None:
    """Drive a sweep to its end in this process, so that forked drivers need not import anything."""
    folder.mkdir()
    assert _drive(folder, lambda phase: None) == Exit.COMPLETE


def interrupt(folder: Path, moment: Moment) -> Left:
    """Send a signal to a driver, and let another one complete the sweep.

    Raises:
        AssertionError: a finished trial or a row is lost, or the sweep cannot be completed.
    """
    folder.mkdir()
    sessions = Sessions(folder)
    url, sweep_id = sessions.paths.ledger_url, sessions.sweep(TRIALS).id
    sessions.ledger.close()
    if moment.phase == "resume":
        _interrupted(folder, Moment("report", 8, 0.0, signal.SIGTERM))
    code, seconds = _interrupted(folder, moment)
    ledger = Ledger.open(url)
    assert verify(ledger, sweep_id) == []
    record, finished = ledger.sweep(sweep_id), _finished(ledger, sweep_id)
    ledger.close()
    assert _forked(folder, lambda phase: None) == Exit.COMPLETE
    ledger = Ledger.open(url)
    assert [trial.state for trial in ledger.trials(sweep_id)] == ["COMPLETE"] * TRIALS
    assert _finished(ledger, sweep_id).items() >= finished.items()
    assert len(ledger.reports(sweep_id)) == TRIALS * len(STEPS)
    assert verify(ledger, sweep_id) == []
    ledger.close()
    return Left(code, seconds, record is not None and record.state == "COMPLETE")


def block_and_interrupt(folder: Path) -> tuple[int, list[Finding], list[AttemptRecord]]:
    """Send SIGTERM to a driver that blocks after the first report of a trial, which then has no time to save.

    Returns:
        Its exit code, what `check` finds, and the attempts; another driver has completed the sweep by then.

    Raises:
        AssertionError: the sweep cannot be completed.
    """
    folder.mkdir()
    sessions = Sessions(folder)
    sweep_id = sessions.sweep(TRIALS).id
    sessions.ledger.close()
    reading, writing = os.pipe()
    reports = iter(range(len(STEPS)))

    def block(phase: str) -> None:
        if phase == "report" and next(reports) == 1:
            shutdown_module.GRACE_SECONDS = 0.2
            os.write(writing, b"blocked")
            threading.Event().wait()

    driver = _fork(folder, block)
    os.read(reading, 7)
    os.kill(driver, signal.SIGTERM)
    code = os.waitstatus_to_exitcode(os.waitpid(driver, 0)[1])
    ledger = Ledger.open(sessions.paths.ledger_url)
    findings = check(ledger, sweep_id, sessions.paths.checkpoints(sweep_id))
    attempts = ledger.attempts(sweep_id)
    ledger.close()
    assert _forked(folder, lambda phase: None) == Exit.COMPLETE
    return code, findings, attempts


def _interrupted(folder: Path, moment: Moment) -> tuple[int, float]:
    """Run a driver until its moment, send the signal, and return its exit code and the seconds to its end."""
    reading, writing = os.pipe()
    driver = _fork(folder, lambda phase: os.write(writing, f"{phase}\n".encode()))
    os.close(writing)
    left = moment.occurrence
    with os.fdopen(reading) as announced:
        while left and (line := announced.readline()):
            left -= line.strip() == moment.phase
        time.sleep(moment.delay)
        began = time.monotonic()
        os.kill(driver, moment.signal)
        announced.read()  # a full pipe would block the driver
    return os.waitstatus_to_exitcode(os.waitpid(driver, 0)[1]), time.monotonic() - began


def _forked(folder: Path, announce: Callable[[str], object]) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(_fork(folder, announce), 0)[1])


def _fork(folder: Path, announce: Callable[[str], object]) -> int:
    driver = os.fork()
    if driver == 0:
        code = 1
        try:
            code = _drive(folder, announce)
        finally:
            os._exit(code)
    return driver


def _drive(folder: Path, announce: Callable[[str], object]) -> int:
    """Drive the sweep of a folder as `orchestrator.driver.run.drive` does; return the exit code."""
    with Shutdown() as shutdown, _announced_commits(announce):
        sessions = Sessions(folder)
        sweep = sessions.sweep(TRIALS)
        run = Run(sessions.paths, folder, Hardware(cpus=1, gpus=0))
        with Lease(sessions.ledger, sweep.id) as lease:
            leased = LeasedSweep(sweep, run, sessions.ledger, lease, Observer(), shutdown)
            announce("resume")
            if sessions.ledger.sweep(sweep.id) is not None:
                sweep_rows.check_integrity(leased)
                lease.writer.lose_attempts()
                shutdown.at_the_end(lambda reason: sweep_rows.abandon(leased, f"stopped by {reason}"))
                sweep_rows.resume(leased)
            sessions.writer = lambda sweep: lease.writer  # type: ignore[method-assign]
            session = sessions.open(sweep)
            shutdown.at_the_end(lambda reason: sweep_rows.abandon(leased, f"stopped by {reason}"))
            _search(session, shutdown, announce)
            announce("conclusion")
            return execution.conclude(leased, session.stopped)


@contextmanager
def _announced_commits(announce: Callable[[str], object]) -> Iterator[None]:
    def committing(connection: object) -> None:
        announce("commit")

    event.listen(Engine, "commit", committing)
    yield
    event.remove(Engine, "commit", committing)


def _search(session: Session, shutdown: Shutdown, announce: Callable[[str], object]) -> None:
    """Run trials until the session has finished, or is to leave."""
    while not session.finished:
        _heed(session, shutdown)
        session.check_limits()
        announce("launch")
        # There is none if all that was left was to settle a trial whose last step had been reported.
        if assignment := session.next_assignment():
            session.started(assignment.attempt_id)
            _train(session, assignment, shutdown, announce)


def _train(
    session: Session, assignment: Assignment, shutdown: Shutdown, announce: Callable[[str], object]
) -> None:
    """Report the steps of a trial that are left, as a worker would, until the session stops."""
    done = assignment.resume.step if assignment.resume else 0
    for step in (step for step in STEPS if step > done):
        _heed(session, shutdown)
        if session.stopped:
            break
        announce("report")
        session.reported(assignment.attempt_id, outcome(assignment, step, 0.5 + step / 100))
    session.completed(assignment.attempt_id)


def _heed(session: Session, shutdown: Shutdown) -> None:
    if shutdown.reason is not None and session.stopped is None:
        session.stop(f"stopped by {shutdown.reason}", "INTERRUPTED")


def _finished(ledger: Ledger, sweep_id: str) -> dict[str, TrialRecord]:
    return {trial.key: trial for trial in ledger.trials(sweep_id) if trial.finished_at is not None}
