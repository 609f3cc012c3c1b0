"""A prewarmed driver is used only when it is safe; without it, a driver starts cold."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchestrator.driver import detached, prewarmed
from orchestrator.driver.prewarmed import PrewarmedDriver
from orchestrator.machines import idle_timeout

MODULE = "tests.orchestrator.driver.prewarmed"
OWNER = {"SWEEP_OWNER": "ada"}


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[PrewarmedDriver]:
    """Yield what keeps a light stand-in of a driver prewarmed."""
    drivers = PrewarmedDriver(tmp_path, 300.0, module=MODULE)
    yield drivers
    drivers.end()


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the command lines of the drivers that start as always."""
    started: list[list[str]] = []

    def begin(arguments: list[str], log: Path, variables: dict[str, str]) -> subprocess.Popen[bytes]:
        started.append(arguments)
        process = subprocess.Popen(["true"])
        process.wait()
        return process

    monkeypatch.setattr(detached, "begin", begin)
    return started


def waiting() -> list[psutil.Process]:
    """Return the processes that wait for a sweep."""
    running = [one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE]
    return [process for process in running if MODULE in _command_line(process)]


def _command_line(process: psutil.Process) -> list[str]:
    """Return the command line of a process, which has none for a moment while it starts."""
    deadline = time.monotonic() + 30
    while not (line := process.cmdline()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return line


def settle(drivers: PrewarmedDriver) -> psutil.Process:
    """Start a process and return it once it is prewarmed."""
    drivers.tend(busy=False)
    deadline = time.monotonic() + 60
    while not drivers._is_ready():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    [process] = waiting()
    return process


def test_a_ready_process_becomes_the_driver(
    drivers: PrewarmedDriver, cold: list[list[str]], tmp_path: Path
) -> None:
    before, log = settle(drivers), tmp_path / "logs" / "driver.log"
    process = drivers.begin(["drive", "7"], log, OWNER)
    assert process.pid == before.pid
    assert process.wait(30) == 7
    assert not cold
    assert log.read_text() == "['drive', '7'] ada ['sweep', 'drive', '7']\n"


def test_a_ready_process_has_its_secrets_where_others_cannot_read_them(
    drivers: PrewarmedDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "canary")
    process = settle(drivers)
    assert "SWEEP_SECRETS" in process.environ()
    assert "SOME_TOKEN" not in process.environ()
    log = tmp_path / "driver.log"
    assert drivers.begin(["token", "0"], log, OWNER).wait(30) == 0
    assert log.read_text() == "canary\n"


def test_an_error_of_a_driver_ends_its_log(drivers: PrewarmedDriver, tmp_path: Path) -> None:
    settle(drivers)
    log = tmp_path / "driver.log"
    assert drivers.begin(["drive", "raise"], log, OWNER).wait(30) == 1
    assert detached.last_line(log) == "ValueError: poison"


def test_a_killed_process_costs_nothing(
    drivers: PrewarmedDriver, cold: list[list[str]], tmp_path: Path
) -> None:
    settle(drivers).kill()
    assert drivers.begin(["drive", "0"], tmp_path / "log", OWNER).wait(30) == 0
    assert cold == [["-m", MODULE, "drive", "0"]]
    assert not waiting()


def test_a_process_that_does_not_answer_is_ended(
    drivers: PrewarmedDriver, cold: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prewarmed, "ANSWER_SECONDS", 0.1)
    (tmp_path / "stuck").touch()
    settle(drivers)
    drivers.begin(["drive", "0"], tmp_path / "log", OWNER)
    assert cold == [["-m", MODULE, "drive", "0"]]
    assert not waiting()


def test_another_code_version_starts_its_own_process(
    drivers: PrewarmedDriver, cold: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(drivers)
    monkeypatch.setattr(prewarmed, "code_digest", lambda: "changed since")
    drivers.begin(["drive", "0"], tmp_path / "log", OWNER)
    assert cold == [["-m", MODULE, "drive", "0"]]
    assert not waiting()


def test_it_ends_with_its_service(drivers: PrewarmedDriver) -> None:
    settle(drivers)
    process = drivers._process
    assert process is not None
    drivers._forget()  # closes the pipes, as the death of the service does
    assert process.wait(30) == 0


def test_it_ends_when_it_is_not_used_or_memory_is_short(
    drivers: PrewarmedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(drivers)
    monkeypatch.setattr(idle_timeout, "memory_is_short", lambda: True)
    drivers.tend(busy=False)
    assert not waiting()
    monkeypatch.setattr(idle_timeout, "memory_is_short", lambda: False)
    settle(drivers)
    drivers._used_at -= 301.0
    drivers.tend(busy=False)
    assert not waiting()


def test_none_is_kept_on_request(tmp_path: Path) -> None:
    PrewarmedDriver(tmp_path, 0.0, module=MODULE).tend(busy=False)
    assert not waiting()


def test_one_that_breaks_is_not_started_again_at_once(drivers: PrewarmedDriver, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    drivers.tend(busy=False)
    [process] = waiting()
    assert process.wait(30) == 1
    drivers.tend(busy=False)
    assert not waiting()
    drivers._not_before -= prewarmed.RETRY_SECONDS
    drivers.tend(busy=False)
    assert waiting()


def test_a_start_is_not_slowed_by_the_imports_of_the_next(
    drivers: PrewarmedDriver, cold: list[list[str]], tmp_path: Path
) -> None:
    drivers.begin(["drive", "0"], tmp_path / "log", OWNER).wait(30)
    drivers.tend(busy=True)
    assert not waiting()
    drivers._used_at -= prewarmed.SETTLE_SECONDS
    drivers.tend(busy=True)
    assert waiting()
