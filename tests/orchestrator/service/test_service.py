"""A service in a real process, killed and started again, beside drivers that hold real leases."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from sqlalchemy import update

from orchestrator.errors import Exit
from orchestrator.ledger import submissions
from orchestrator.ledger.lease import holder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.stop_requests import ask_to_stop
from orchestrator.ledger.submissions import Order, Submission
from orchestrator.ledger.tables import SUBMISSION
from orchestrator.service.discovery import running
from orchestrator.service.supervision import BEGIN_SECONDS
from orchestrator.storage.paths import Paths
from tests import postgres
from tests.orchestrator.service import driver

WAIT_SECONDS = 100.0
LEAVE_SECONDS = 4.0
"""Longest time in which a service leaves, on a busy machine; on an idle one it takes about a second."""


@dataclass
class Place:
    """A root, its ledger, and the services and drivers that a test has started in it."""

    paths: Paths
    ledger: Ledger
    services: list[subprocess.Popen[str]] = field(default_factory=list)

    def serve(self, mode: str = "serve") -> subprocess.Popen[str]:
        """Start a service."""
        words = [str(self.paths.root), mode, *([self.paths.database] if self.paths.database else [])]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.orchestrator.service.server", *words],
            cwd=driver.ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.services.append(process)
        return process

    def submit(self, sweep_id: str = "a-1", behaviour: str = "hold") -> Submission:
        order = Order("ada", {"name": sweep_id}, "", {"behaviour": behaviour}, None, "c0ffee")
        return submissions.submit(self.ledger, order, lambda used: sweep_id, again=True)[0]

    def submission(self, sweep_id: str = "a-1") -> Submission:
        entry = submissions.submission(self.ledger, sweep_id)
        assert entry is not None
        return entry

    def is_driven(self, sweep_id: str = "a-1") -> bool:
        return holder(self.ledger, sweep_id) is not None

    def started(self, sweep_id: str = "a-1") -> list[int]:
        return driver.started(self.paths.root, sweep_id)

    def finish(self) -> None:
        """Let all drivers complete their sweeps."""
        (self.paths.root / "finish").touch()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


@pytest.fixture
def place(tmp_path: Path, url: str) -> Iterator[Place]:
    """Yield a root whose ledger is of either kind; at the end everything that was started is ended."""
    root = tmp_path / "mlruns"
    paths = Paths(root, url if url.startswith("postgresql") else None)
    paths.create()
    with_ledger = Place(paths, Ledger.open(paths.ledger_url))
    yield with_ledger
    for process in with_ledger.services:
        kill(process)
        assert process.stdout is not None
        process.stdout.close()
    for file in root.glob("started-*"):
        for pid in driver.started(root, file.name.removeprefix("started-")):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    with_ledger.ledger.close()


only_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


def test_a_killed_service_leaves_its_drivers_to_the_next_one(place: Place) -> None:
    """The same process drives the sweep to its end."""
    service = place.serve()
    place.submit()
    wait_for(place.is_driven)
    for _ in range(2):
        kill(service)
        service = place.serve()
        wait_for(lambda: running(place.paths.service) is not None)
    time.sleep(1.0)
    assert place.submission().starts == 1
    place.finish()
    wait_for(lambda: place.submission().state == "ENDED")
    assert place.submission().code == Exit.COMPLETE
    assert len(place.started()) == 1


def test_a_killed_driver_is_replaced(place: Place) -> None:
    place.serve()
    place.submit()
    wait_for(place.is_driven)
    os.kill(place.started()[0], signal.SIGKILL)
    wait_for(lambda: len(place.started()) == 2 and place.is_driven())
    crashed = place.submission()
    assert (crashed.starts, crashed.crashes) == (2, 1)
    place.finish()
    wait_for(lambda: place.submission().state == "ENDED")


def test_after_a_boot_every_sweep_goes_on_but_those_that_were_stopped(place: Place) -> None:
    """The rows name a boot that is over, and no process of it lives. A lost machine is no crash."""
    service = place.serve()
    for sweep_id in ("a-1", "a-2"):
        place.submit(sweep_id)
        wait_for(lambda sweep_id=sweep_id: place.is_driven(sweep_id))
    ask_to_stop(place.ledger, "a-2")
    kill(service)
    for sweep_id in ("a-1", "a-2"):
        os.kill(place.started(sweep_id)[0], signal.SIGKILL)
        forge_boot(place, sweep_id)
    place.serve()
    wait_for(lambda: len(place.started("a-1")) == 2 and place.is_driven("a-1"))
    assert place.submission("a-1").crashes == 0
    wait_for(lambda: place.submission("a-2").state == "ENDED")
    assert "stopped" in str(place.submission("a-2").cause)
    assert len(place.started("a-2")) == 1


def forge_boot(place: Place, sweep_id: str) -> None:
    """Let the row of a submission say that its driver was started before the last boot."""
    entry = place.submission(sweep_id)
    assert entry.driver is not None
    assert entry.started_at is not None
    forged = {
        "driver": replace(entry.driver, place="another boot").write(),
        "started_at": entry.started_at - BEGIN_SECONDS,
    }
    with place.ledger.writer() as connection, connection.begin():
        own = SUBMISSION.c.sweep_id == sweep_id
        connection.execute(update(SUBMISSION).where(own).values(forged))


@only_sqlite
def test_a_poison_submission_is_parked_with_its_cause_until_it_is_released(place: Place) -> None:
    place.serve()
    place.submit(behaviour="crash")
    wait_for(lambda: place.submission().state == "PARKED")
    parked = place.submission()
    assert len(place.started()) == parked.crashes == 5
    assert parked.cause == "ValueError: poison"
    submissions.release(place.ledger, "a-1")
    wait_for(lambda: len(place.started()) == 6)


def test_a_stopped_sweep_is_not_started_again_until_it_is_submitted_again(place: Place) -> None:
    service = place.serve()
    place.submit()
    wait_for(place.is_driven)
    ask_to_stop(place.ledger, "a-1")
    wait_for(lambda: place.submission().state == "ENDED")
    kill(service)
    place.serve()
    wait_for(lambda: running(place.paths.service) is not None)
    time.sleep(1.0)
    assert len(place.started()) == 1
    assert place.submission().code == Exit.RESUMABLE
    place.submit()
    wait_for(lambda: len(place.started()) == 2 and place.is_driven())


def test_a_second_service_names_the_first_and_leaves(place: Place) -> None:
    first = place.serve()
    wait_for(lambda: running(place.paths.service) is not None)
    second = place.serve()
    printed, _ = second.communicate(timeout=WAIT_SECONDS)
    assert second.returncode == Exit.BUSY
    assert f"process {first.pid} on " in printed
    named = running(place.paths.service)
    assert named is not None
    assert named.pid == first.pid


@only_sqlite
def test_a_service_killed_between_the_row_and_the_start_starts_once(place: Place) -> None:
    place.submit()
    service = place.serve("die")
    assert service.wait(WAIT_SECONDS) == -signal.SIGKILL
    assert (place.submission().state, place.started()) == ("STARTED", [])
    place.serve("hasty")
    wait_for(place.is_driven)
    assert len(place.started()) == 1
    assert place.submission().crashes == 0


@only_sqlite
def test_the_service_leaves_in_time_and_its_drivers_go_on(place: Place) -> None:
    service = place.serve()
    place.submit()
    wait_for(place.is_driven)
    began = time.monotonic()
    service.terminate()
    assert service.wait(WAIT_SECONDS) == Exit.COMPLETE
    assert time.monotonic() - began < LEAVE_SECONDS
    assert running(place.paths.service) is None
    assert not place.paths.service.exists()
    assert place.is_driven()


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_ledger_that_is_away_for_a_while_changes_nothing(
    place: Place, postgres_server: postgres.Server
) -> None:
    """The service says once that the ledger does not answer, and once that it answers again."""
    service = place.serve()
    place.submit()
    wait_for(place.is_driven)
    postgres_server.stop()
    time.sleep(8.0)
    postgres_server.start()
    place.submit("a-2")
    wait_for(lambda: place.is_driven("a-2"))
    assert (place.submission().starts, len(place.started())) == (1, 1)
    service.terminate()
    printed, _ = service.communicate(timeout=WAIT_SECONDS)
    assert printed.count("has not answered") == 1
    assert printed.count("answers again") == 1


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_the_service_leaves_in_time_while_the_ledger_is_away(
    place: Place, postgres_server: postgres.Server
) -> None:
    service = place.serve()
    wait_for(lambda: running(place.paths.service) is not None)
    postgres_server.stop()
    try:
        time.sleep(1.0)
        began = time.monotonic()
        service.terminate()
        assert service.wait(WAIT_SECONDS) == Exit.COMPLETE
        assert time.monotonic() - began < LEAVE_SECONDS
    finally:
        postgres_server.start()
