"""A signal at any moment ends a driver in time; nothing is lost, and the sweep can be resumed.

The driver is a process with a real ledger, lease and session; the test sends the reports of workers.
`MOMENTS=460` tries more moments than a normal run.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from orchestrator.driver.departure import Departure
from orchestrator.errors import Exit
from orchestrator.ledger.integrity import verify
from orchestrator.ledger.lease import Lease
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import TrialRecord
from orchestrator.session.session import Session
from tests.orchestrator.session.sessions import Sessions, launch, train

MOMENTS = int(os.environ.get("MOMENTS", "30"))
TRIALS = 12
LONGEST_SECONDS = 0.6
"""Seconds that an undisturbed driver takes on a quiet machine, approximately."""

LEFT_SECONDS = 10.0


@pytest.mark.parametrize("part", range(10))
def test_a_signal_at_any_moment_ends_the_driver_and_loses_nothing(tmp_path: Path, part: int) -> None:
    for moment in range(part, MOMENTS, 10):
        _interrupt(tmp_path / str(moment), random.Random(moment))


def _interrupt(folder: Path, draws: random.Random) -> None:
    folder.mkdir()
    sessions = Sessions(folder)
    url, sweep_id = sessions.paths.ledger_url, sessions.sweep(TRIALS).id
    sessions.ledger.close()
    reading, writing = os.pipe()
    driver = os.fork()
    if driver == 0:
        os.close(reading)
        _drive(folder, writing)
    os.close(writing)
    assert os.read(reading, 1) == b"."
    os.close(reading)
    time.sleep(draws.uniform(0.0, LONGEST_SECONDS))
    began = time.monotonic()
    os.kill(driver, draws.choice((signal.SIGINT, signal.SIGTERM)))
    code = os.waitstatus_to_exitcode(os.waitpid(driver, 0)[1])
    assert time.monotonic() - began < LEFT_SECONDS
    ledger = Ledger.open(url)
    assert verify(ledger, sweep_id) == []
    record = ledger.sweep(sweep_id)
    finished = _finished(ledger, sweep_id)
    assert code in ((0,) if record is not None and record.state == "COMPLETE" else (4,))
    ledger.close()
    resumed = Sessions(folder)
    sweep = resumed.sweep(TRIALS)
    if record is not None:
        resumed.writer(sweep).lose_attempts()
    _complete(resumed.open(sweep))
    trials = resumed.ledger.trials(sweep_id)
    assert [trial.state for trial in trials] == ["COMPLETE"] * TRIALS
    assert _finished(resumed.ledger, sweep_id).items() >= finished.items()
    assert verify(resumed.ledger, sweep_id) == []
    resumed.ledger.close()


def _drive(folder: Path, ready: int) -> None:
    """Drive the sweep in this process, and exit the process."""
    code = 1
    try:
        with Departure() as departure:
            os.write(ready, b".")
            sessions = Sessions(folder)
            sweep = sessions.sweep(TRIALS)
            with Lease(sessions.ledger, sweep.id) as lease:
                sessions.writer = lambda _: lease.writer  # type: ignore[method-assign]
                session = sessions.open(sweep)
                departure.at_the_end(lambda reason: lease.writer.set_sweep_state("INTERRUPTED", reason))
                _complete(session, departure)
                state = "COMPLETE" if session.stopped is None else "INTERRUPTED"
                lease.writer.set_sweep_state(state)  # type: ignore[arg-type]
                code = Exit.COMPLETE if state == "COMPLETE" else Exit.RESUMABLE
                os._exit(code)
    finally:
        os._exit(code)


def _complete(session: Session, departure: Departure | None = None) -> None:
    """Run trials until the session has finished, or a signal has come."""
    while not session.finished:
        if departure is not None and departure.reason is not None and session.stopped is None:
            session.stop(f"stopped by {departure.reason}", "INTERRUPTED")
        session.check_limits()
        if not session.finished:
            train(session, launch(session))


def _finished(ledger: Ledger, sweep_id: str) -> dict[str, TrialRecord]:
    return {trial.key: trial for trial in ledger.trials(sweep_id) if trial.finished_at is not None}
