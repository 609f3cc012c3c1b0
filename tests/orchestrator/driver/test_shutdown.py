"""A signal sets a flag and interrupts nothing; a driver that does not exit by itself is ended in time."""

from __future__ import annotations

import ctypes
import os
import signal
import sqlite3
import subprocess
import threading
import time
from pathlib import Path

import pytest

from orchestrator.driver.shutdown import GRACE_SECONDS, LAST_SECONDS, Shutdown
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.lease_backends import next_token
from orchestrator.ledger.ledger import Ledger
from tests.orchestrator.ledger.examples import SWEEP_ID, create_sweep
from tests.orchestrator.ledger.processes import line, start

LEFT_SECONDS = 10.0
"""Seconds within which a driver ends after a signal, whatever it is doing."""

GRACE_OF_TEST, BUSY_SECONDS = 0.5, 2.0
"""Seconds that a test gives a driver to leave by itself, and that a busy machine may add."""

LOST_SECONDS = 5.0
"""Seconds within which a driver ends once it can know that it has lost its lease."""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_sets_a_flag_and_interrupts_nothing(name: str) -> None:
    before = signal.getsignal(signal.Signals[name])
    with Shutdown() as shutdown:
        shutdown.check()
        os.kill(os.getpid(), signal.Signals[name])
        _wait_until_asked(shutdown)
        assert shutdown.reason == name
        with pytest.raises(KeyboardInterrupt, match=name):
            shutdown.check()
    assert signal.getsignal(signal.Signals[name]) is before
    assert signal.set_wakeup_fd(-1) == -1


def test_a_call_without_an_end_is_abandoned() -> None:
    """A call that blocks for ever is abandoned; otherwise its result or its exception is passed on."""
    with Shutdown() as shutdown:
        assert shutdown.interruptible(lambda: 3) == 3
        with pytest.raises(ZeroDivisionError):
            shutdown.interruptible(lambda: 1 / 0)
        looks: list[float] = []

        def look() -> None:
            looks.append(time.monotonic())
            shutdown.request("`stop` on node-1")

        with pytest.raises(KeyboardInterrupt, match="node-1"):
            shutdown.interruptible(threading.Event().wait, look)
        assert looks


def test_a_handler_that_a_library_installs_is_replaced() -> None:
    """Ray's core installs a handler of SIGTERM that would end the driver with another code."""
    default = ctypes.c_void_p(signal.SIG_DFL)
    with Shutdown() as shutdown:
        shutdown.interruptible(lambda: ctypes.CDLL(None).signal(signal.SIGTERM, default))
        os.kill(os.getpid(), signal.SIGTERM)
        _wait_until_asked(shutdown)
        assert shutdown.reason == "SIGTERM"


def test_outside_the_main_thread_the_handlers_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    during: list[object] = []

    def drive() -> None:
        with Shutdown():
            during.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=drive)
    thread.start()
    thread.join()
    assert during == [before]
    assert signal.getsignal(signal.SIGTERM) is before


BLOCKED = """
import sqlite3, sys
from orchestrator.driver import shutdown
shutdown.GRACE_SECONDS = 2.0
with shutdown.Shutdown() as leaving:
    leaving.at_the_end(lambda reason: open(sys.argv[2], "w").write(reason))
    leaving.kill_at_the_end(lambda: open(sys.argv[3], "w").write("killed"))
    print("ready", flush=True)
    sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None).execute("BEGIN IMMEDIATE")
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_driver_that_is_blocked_ends_in_time(tmp_path: Path, name: str) -> None:
    """A Python handler would not run while SQLite waits for a lock."""
    database = tmp_path / "locked.db"
    holder = sqlite3.connect(database, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    driver = start(BLOCKED, str(database), str(tmp_path / "reason"), str(tmp_path / "killed"))
    assert line(driver) == "ready"
    time.sleep(0.3)
    code, seconds, printed = _ended_by(driver, lambda: driver.send_signal(signal.Signals[name]))
    assert code == 4
    assert seconds < LEFT_SECONDS
    assert printed == f"{name}: left after 2 s; the same command resumes the sweep.\n"
    assert (tmp_path / "reason").read_text() == name
    assert (tmp_path / "killed").read_text() == "killed"


def test_the_second_signal_ends_a_driver_at_once(tmp_path: Path) -> None:
    database = tmp_path / "locked.db"
    holder = sqlite3.connect(database, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    driver = start(BLOCKED, str(database), str(tmp_path / "reason"), str(tmp_path / "killed"))
    assert line(driver) == "ready"
    driver.send_signal(signal.SIGINT)
    time.sleep(0.5)
    code, _, printed = _ended_by(driver, lambda: driver.send_signal(signal.SIGINT))
    assert code == 130
    assert printed == "SIGINT: left at once; the same command resumes the sweep.\n"
    assert (tmp_path / "killed").read_text() == "killed"
    assert (tmp_path / "reason").read_text() == "SIGINT", (
        "the next run, and `status`, know how this one ended"
    )


LAST_STEPS_BLOCK = """
import sys, threading
from orchestrator.driver import shutdown
shutdown.GRACE_SECONDS = float(sys.argv[1])
with shutdown.Shutdown() as leaving:
    for_ever = threading.Event().wait
    leaving.at_the_end(lambda reason: for_ever())
    for _ in range(6):
        leaving.kill_at_the_end(for_ever)
    print("ready", flush=True)
    for_ever()
"""


@pytest.mark.slow
def test_the_last_steps_of_a_driver_share_their_time() -> None:
    """Seven that block for ever delay it by a second, not by seven."""
    driver = start(LAST_STEPS_BLOCK, str(GRACE_OF_TEST))
    assert line(driver) == "ready"
    code, seconds, _ = _ended_by(driver, lambda: driver.send_signal(signal.SIGTERM))
    assert code == 4
    assert seconds < GRACE_OF_TEST + 2 * LAST_SECONDS + BUSY_SECONDS
    assert GRACE_SECONDS + 2 * LAST_SECONDS + BUSY_SECONDS <= LEFT_SECONDS


def test_what_a_second_signal_records_cannot_block_the_exit() -> None:
    driver = start(LAST_STEPS_BLOCK, "60")
    assert line(driver) == "ready"
    driver.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    code, seconds, printed = _ended_by(driver, lambda: driver.send_signal(signal.SIGTERM))
    assert code == 130
    assert printed.startswith("SIGTERM: left at once")
    assert seconds < 2 * LAST_SECONDS + BUSY_SECONDS


DRIVE = """
import sys, threading
from orchestrator.driver.shutdown import Shutdown
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.ledger import Ledger
with Shutdown() as shutdown:
    with Lease(Ledger.open(sys.argv[1]), sys.argv[2], on_lost=lambda: shutdown.end("lost")):
        print("driving", flush=True)
        threading.Event().wait()
"""


@pytest.mark.slow_after(1)
def test_a_driver_ends_within_seconds_of_losing_its_lease(ledger: Ledger, url: str) -> None:
    """It ends although its main thread is blocked, and it writes nothing more."""
    create_sweep(ledger)
    driver = start(DRIVE, url, SWEEP_ID)
    assert line(driver) == "driving"
    code, seconds, printed = _ended_by(driver, lambda: next_token(ledger.writer, SWEEP_ID, Holder.here()))
    assert (code, printed) == (4, "lost\n")
    assert seconds < LOST_SECONDS


@pytest.mark.slow
def test_a_driver_that_was_suspended_ends_within_seconds_of_waking(ledger: Ledger, url: str) -> None:
    """While it was suspended another driver took over and may have finished the sweep."""
    create_sweep(ledger)
    driver = start(DRIVE, url, SWEEP_ID)
    assert line(driver) == "driving"
    driver.send_signal(signal.SIGSTOP)
    next_token(ledger.writer, SWEEP_ID, Holder.here())
    time.sleep(1.0)
    code, seconds, _ = _ended_by(driver, lambda: driver.send_signal(signal.SIGCONT))
    assert code == 4
    assert seconds < LOST_SECONDS
    assert ledger.trials(SWEEP_ID) == []


def _ended_by(driver: subprocess.Popen[str], action: object) -> tuple[int, float, str]:
    """Return the exit code of a driver, the seconds from an action to its end, and its output."""
    assert callable(action)
    began = time.monotonic()
    action()
    printed, _ = driver.communicate(timeout=60)
    return driver.returncode, time.monotonic() - began, printed


def _wait_until_asked(shutdown: Shutdown) -> None:
    deadline = time.monotonic() + 10.0
    while shutdown.reason is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
