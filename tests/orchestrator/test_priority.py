"""Drivers of the service come after it where both want a processor."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchestrator import system
from orchestrator.errors import BadInput
from orchestrator.system import NICENESS, SERVICE_NICENESS
from orchestrator.tracking.child import Child


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process in a session of its own."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


def priorities(pid: int) -> set[int]:
    """Return the niceness of a process, and of its session where sessions have one."""
    session = Path(f"/proc/{pid}/autogroup")
    found = session.read_text().split()[-1:] if session.exists() else []
    return {psutil.Process(pid).nice(), *map(int, found)}


@pytest.mark.parametrize(("set_to", "found"), [("15", 15), ("3", 3), ("0", 0), ("", 0)])
def test_a_process_and_its_session_get_the_niceness_of_the_driver(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, set_to: str, found: int
) -> None:
    monkeypatch.setenv(NICENESS, set_to)
    before = priorities(process.pid)
    system.lower_priority(process.pid)
    assert priorities(process.pid) == ({found} if found else before)


def test_a_process_that_has_ended_is_left_alone(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NICENESS, "15")
    process.kill()
    process.wait()
    system.lower_priority(process.pid)


@pytest.mark.parametrize("more", [0, 7])
def test_a_session_follows_its_process(process: subprocess.Popen[bytes], more: int) -> None:
    """Where processors are shared between sessions first, `nice` would have no effect on a new one."""
    wanted = psutil.Process(process.pid).nice() + more
    psutil.Process(process.pid).nice(wanted)
    system.lower_session(process.pid)
    assert priorities(process.pid) == {wanted}


@pytest.mark.parametrize(("set_to", "found"), [("", SERVICE_NICENESS), ("0", 0)])
def test_the_process_for_mlflow_comes_after_its_driver(
    monkeypatch: pytest.MonkeyPatch, set_to: str, found: int
) -> None:
    """It imports MLflow, and reads the runs of the sweep, while the first trials start."""
    monkeypatch.setenv(NICENESS, set_to)
    before = psutil.Process().children()
    child = Child({})
    [process] = set(psutil.Process().children()) - {*before}
    own = psutil.Process().nice()
    assert process.nice() == max(found, own)
    child.kill()
    child.end(10)


@pytest.mark.parametrize("text", ["-1", "20", "low", "1.5"])
def test_another_niceness_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(NICENESS, text)
    with pytest.raises(BadInput, match="SWEEP_DRIVER_NICENESS must be a whole number from 0 to 19"):
        system.niceness(SERVICE_NICENESS)
