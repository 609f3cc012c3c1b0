"""The process of a command that drives sweeps ends with the code of its sweep, whatever signals come."""

from __future__ import annotations

import subprocess
import sys

import pytest

from orchestrator.cli.app import drives_sweeps
from orchestrator.errors import Exit

AFTER = """
import atexit, os, signal
from orchestrator.driver.shutdown import run_and_exit
atexit.register(os.kill, os.getpid(), signal.{name})

def run(arguments):
    print("\\n".join(arguments))
    return 3

run_and_exit(run, ["all of it", "is printed"])
"""
OUTSIDE = """
import os, signal, time
from orchestrator.driver.shutdown import run_and_exit

def run(arguments):
    os.kill(os.getpid(), signal.{name})
    time.sleep(60)
    return 0

run_and_exit(run, [])
"""
SWALLOWED = """
import os, signal, time
from orchestrator.driver.shutdown import run_and_exit
from orchestrator.driver.shutdown import Shutdown

def run(arguments):
    try:
        os.kill(os.getpid(), signal.{name})
        time.sleep(60)
    except BaseException:
        pass  # as a finaliser does, and some libraries while they are imported
    with Shutdown() as shutdown:
        time.sleep(0.5)
        print(shutdown.reason)
    return 4

run_and_exit(run, [])
"""
DRIVING = """
import os, signal, time
from orchestrator.driver.shutdown import run_and_exit
from orchestrator.driver.shutdown import Shutdown

def run(arguments):
    with Shutdown() as shutdown:
        shutdown.interruptible(lambda: None)  # it installs the handlers again
        os.kill(os.getpid(), signal.{name})
        time.sleep(0.5)
        left = "SIG_IGN" if signal.getsignal(signal.{name}) is signal.SIG_IGN else "HANDLED"
        print(shutdown.reason, left)
    return 3

run_and_exit(run, [])
"""

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
FRESH = f"import signal\nfor name in {NAMES}: signal.signal(getattr(signal, name), signal.SIG_DFL)\n"
"""What these tests themselves run under may ignore a signal: `nohup`, or a shell's background."""


def ended(script: str, name: str, before: str = FRESH) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", before + script.format(name=name)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_after_the_driver_does_not_change_the_code(name: str) -> None:
    assert ended(AFTER, name) == (3, "all of it\nis printed\n")


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_outside_a_driver_leaves_with_the_code_of_an_interruption(name: str) -> None:
    assert ended(OUTSIDE, name) == (Exit.RESUMABLE, "")


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_that_a_library_has_swallowed_reaches_the_driver(name: str) -> None:
    assert ended(SWALLOWED, name) == (Exit.RESUMABLE, f"{name}\n")


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_before_a_service_has_begun_leaves_with_its_code(name: str) -> None:
    served = OUTSIDE.replace("run_and_exit(run, [])", "run_and_exit(run, [], 0)")
    assert ended(served, name) == (Exit.COMPLETE, "")


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """As under `nohup`, which ignores SIGHUP."""
    ignoring = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    assert ended(OUTSIDE.replace("60", "0"), "SIGHUP", before=ignoring) == (0, "")
    assert ended(OUTSIDE.replace("60", "0"), "SIGHUP") == (Exit.RESUMABLE, "")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", NAMES)
def test_a_driver_does_not_catch_a_signal_that_is_ignored(name: str) -> None:
    """As SIGINT in a job that a script has put into the background, and SIGHUP under `nohup`."""
    ignoring = f"{FRESH}signal.signal(signal.{name}, signal.SIG_IGN)\n"
    assert ended(DRIVING, name, before=ignoring) == (3, "None SIG_IGN\n")
    assert ended(DRIVING, name) == (3, f"{name} HANDLED\n")


@pytest.mark.parametrize(
    ("line", "drives"),
    [
        (["space.yaml"], True),
        (["run", "space.yaml"], True),
        (["experiment", "table.yaml"], True),
        (["status"], False),
        (["--help"], False),
        ([], False),
    ],
)
def test_a_file_alone_is_driven(line: list[str], drives: bool) -> None:
    assert drives_sweeps(line) is drives
