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
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.queue_settings import ask_to_stop, change_settings, resume, settings
from orchestrator.ledger.queue.submissions import Submission, SubmissionRequest
from orchestrator.ledger.sweeps.lease import holder
from orchestrator.ledger.tables import SUBMISSION
from orchestrator.service.discovery import running
from orchestrator.service.supervision import BEGIN_SECONDS
from orchestrator.storage.paths import Paths
from orchestrator.system import ClockSetting
from tests import postgres
from tests.orchestrator.service import driver

pytestmark = pytest.mark.end_to_end

WAIT_SECONDS = 100.0
LEAVE_SECONDS = 4.0
"""Longest time in which a service leaves, on a busy machine; on an idle one it takes about a second."""


@dataclass
class Deployment:
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
        order = SubmissionRequest("ada", {"name": sweep_id}, "", {"behaviour": behaviour}, None, "c0ffee")
        return submissions.submit(self.ledger, order, lambda is_known: sweep_id)[0]

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
def deployment(tmp_path: Path, url: str) -> Iterator[Deployment]:
    """Yield a root whose ledger is of either kind; at the end everything that was started is ended."""
    root = tmp_path / "mlruns"
    paths = Paths(root, url if url.startswith("postgresql") else None)
    paths.create()
    made = Deployment(paths, Ledger.open(paths.ledger_url))
    yield made
    for process in made.services:
        kill(process)
        assert process.stdout is not None
        process.stdout.close()
    for file in root.glob("started-*"):
        for pid in driver.started(root, file.name.removeprefix("started-")):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    made.ledger.close()


only_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
only_postgres = pytest.mark.parametrize("url", ["postgresql"], indirect=True)
either = pytest.mark.parametrize(
    "url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)


@either
def test_a_killed_service_leaves_its_drivers_to_the_next_one(deployment: Deployment) -> None:
    """The same process drives the sweep to its end."""
    service = deployment.serve()
    deployment.submit()
    wait_for(deployment.is_driven)
    for _ in range(2):
        kill(service)
        service = deployment.serve()
        wait_for(lambda: running(deployment.paths.service) is not None)
    time.sleep(1.0)
    assert deployment.submission().starts == 1
    deployment.finish()
    wait_for(lambda: deployment.submission().state == "ENDED")
    assert deployment.submission().code == Exit.COMPLETE
    assert len(deployment.started()) == 1


@either
@pytest.mark.slow
def test_a_killed_driver_is_replaced(deployment: Deployment) -> None:
    deployment.serve()
    deployment.submit()
    wait_for(deployment.is_driven)
    os.kill(deployment.started()[0], signal.SIGKILL)
    wait_for(lambda: len(deployment.started()) == 2 and deployment.is_driven())
    crashed = deployment.submission()
    assert (crashed.starts, crashed.crashes) == (2, 1)
    deployment.finish()
    wait_for(lambda: deployment.submission().state == "ENDED")


@either
@pytest.mark.slow
def test_after_a_boot_every_sweep_goes_on_but_those_that_were_stopped(deployment: Deployment) -> None:
    """The rows name a boot that is over, and no process of it lives. A lost machine is not a crash."""
    service = deployment.serve()
    for sweep_id in ("a-1", "a-2"):
        deployment.submit(sweep_id)
        wait_for(lambda sweep_id=sweep_id: deployment.is_driven(sweep_id))
    ask_to_stop(deployment.ledger, "a-2")
    kill(service)
    for sweep_id in ("a-1", "a-2"):
        os.kill(deployment.started(sweep_id)[0], signal.SIGKILL)
        forge_boot(deployment, sweep_id)
    deployment.serve()
    wait_for(lambda: len(deployment.started("a-1")) == 2 and deployment.is_driven("a-1"))
    assert deployment.submission("a-1").crashes == 0
    wait_for(lambda: deployment.submission("a-2").state == "ENDED")
    assert "stopped" in str(deployment.submission("a-2").cause)
    assert len(deployment.started("a-2")) == 1


def forge_boot(deployment: Deployment, sweep_id: str) -> None:
    """Let the row of a submission say that its driver was started before the last boot."""
    entry = deployment.submission(sweep_id)
    assert entry.driver is not None
    assert entry.started_at is not None
    forged = {
        "driver": replace(entry.driver, place="another boot").write(),
        "started_at": entry.started_at - BEGIN_SECONDS,
        "revision": entry.revision + 1,
    }
    with deployment.ledger.writer() as connection, connection.begin():
        own = SUBMISSION.c.sweep_id == sweep_id
        connection.execute(update(SUBMISSION).where(own).values(forged))


@only_sqlite
@pytest.mark.slow
def test_a_poison_submission_is_parked_with_its_cause_until_it_is_released(deployment: Deployment) -> None:
    deployment.serve()
    deployment.submit(behaviour="crash")
    wait_for(lambda: deployment.submission().state == "PARKED")
    parked = deployment.submission()
    assert len(deployment.started()) == parked.crashes == 5
    assert parked.cause == "ValueError: poison"
    submissions.release(deployment.ledger, "a-1")
    wait_for(lambda: len(deployment.started()) == 6)


@pytest.mark.slow
@either
def test_a_stopped_sweep_is_not_started_again_until_it_is_submitted_again(deployment: Deployment) -> None:
    service = deployment.serve()
    deployment.submit()
    wait_for(deployment.is_driven)
    ask_to_stop(deployment.ledger, "a-1")
    wait_for(lambda: deployment.submission().state == "ENDED")
    kill(service)
    deployment.serve()
    wait_for(lambda: running(deployment.paths.service) is not None)
    time.sleep(1.0)
    assert len(deployment.started()) == 1
    assert deployment.submission().code == Exit.RESUMABLE
    deployment.submit()
    wait_for(lambda: len(deployment.started()) == 2 and deployment.is_driven())


@only_sqlite
@pytest.mark.slow
def test_a_paused_sweep_stays_paused_over_a_restart_of_the_service(deployment: Deployment) -> None:
    service = deployment.serve()
    deployment.submit()
    wait_for(deployment.is_driven)
    ask_to_stop(deployment.ledger, "a-1")
    kill(service)
    wait_for(lambda: not deployment.is_driven())
    deployment.serve()
    wait_for(lambda: deployment.submission().state == "ENDED")
    time.sleep(1.0)
    assert (deployment.submission().starts, settings(deployment.ledger, "a-1").paused) == (1, True)
    resume(deployment.ledger, "a-1")
    wait_for(lambda: len(deployment.started()) == 2 and deployment.is_driven())
    assert not settings(deployment.ledger, "a-1").paused
    deployment.finish()
    wait_for(lambda: deployment.submission().state == "ENDED")
    assert deployment.submission().code == Exit.COMPLETE


@pytest.mark.slow
@only_sqlite
def test_an_idle_driver_makes_room_for_a_normal_sweep_and_goes_on_after_it(deployment: Deployment) -> None:
    """The service runs one driver at once; neither sweep is charged with a crash or a try."""
    change_settings(deployment.ledger, "idle-1", priority_class="idle")
    deployment.serve("one")
    deployment.submit("idle-1")
    wait_for(lambda: deployment.is_driven("idle-1"))
    deployment.submit("normal-1")
    wait_for(lambda: deployment.is_driven("normal-1"))
    waiting = deployment.submission("idle-1")
    assert (waiting.state, waiting.cause) == ("QUEUED", "preempted for other sweeps")
    assert (waiting.tries, waiting.crashes) == (0, 0)
    assert not deployment.is_driven("idle-1")
    deployment.finish()
    wait_for(lambda: deployment.submission("normal-1").state == "ENDED")
    wait_for(lambda: deployment.submission("idle-1").state == "ENDED")
    assert deployment.submission("idle-1").code == Exit.COMPLETE
    assert len(deployment.started("idle-1")) == 2


@pytest.mark.slow
@either
def test_a_second_service_names_the_first_and_leaves(deployment: Deployment) -> None:
    first = deployment.serve()
    wait_for(lambda: running(deployment.paths.service) is not None)
    second = deployment.serve()
    printed, _ = second.communicate(timeout=WAIT_SECONDS)
    assert second.returncode == Exit.BUSY
    assert f"process {first.pid} on " in printed
    named = running(deployment.paths.service)
    assert named is not None
    assert named.pid == first.pid


@only_sqlite
@pytest.mark.slow
def test_three_sweeps_that_crash_at_once_pause_all_starts(deployment: Deployment) -> None:
    """A sweep that was submitted later waits, until one sweep that is started alone has reported."""
    service = deployment.serve()
    for sweep_id in ("a-1", "a-2", "a-3"):
        deployment.submit(sweep_id, "crash")
    wait_for(lambda: submissions.paused_since(deployment.ledger, ClockSetting.here()) is not None)
    deployment.submit("b-1")
    seen = {sweep_id: len(deployment.started(sweep_id)) for sweep_id in ("a-1", "a-2", "a-3", "b-1")}
    time.sleep(2.0)
    kill(service)
    deployment.serve()
    time.sleep(2.0)
    assert {sweep_id: len(deployment.started(sweep_id)) for sweep_id in seen} == {**seen, "b-1": 0}
    assert {deployment.submission(sweep_id).state for sweep_id in seen} == {"QUEUED"}


@only_sqlite
@pytest.mark.slow
def test_a_damaged_ledger_is_rebuilt_with_every_submission(deployment: Deployment) -> None:
    """The file of the database is lost while the service and its driver are down."""
    service = deployment.serve()
    deployment.submit()
    wait_for(deployment.is_driven)
    kill(service)
    os.kill(deployment.started()[0], signal.SIGKILL)
    deployment.submit("a-2")
    deployment.ledger.close()
    for file in deployment.paths.root.glob("sweeps.db*"):
        file.unlink()
    deployment.serve()
    wait_for(lambda: len(deployment.started("a-1")) == 2 and len(deployment.started("a-2")) == 1)
    wait_for(lambda: deployment.is_driven("a-1") and deployment.is_driven("a-2"))
    deployment.finish()
    wait_for(lambda: deployment.submission("a-1").state == deployment.submission("a-2").state == "ENDED")


@only_sqlite
@pytest.mark.slow
def test_a_service_killed_between_the_row_and_the_start_starts_once(deployment: Deployment) -> None:
    deployment.submit()
    service = deployment.serve("die")
    assert service.wait(WAIT_SECONDS) == -signal.SIGKILL
    assert (deployment.submission().state, deployment.started()) == ("STARTED", [])
    deployment.serve("hasty")
    wait_for(deployment.is_driven)
    assert len(deployment.started()) == 1
    assert deployment.submission().crashes == 0


@only_sqlite
@pytest.mark.slow
def test_the_service_leaves_in_time_and_its_drivers_go_on(deployment: Deployment) -> None:
    service = deployment.serve()
    deployment.submit()
    wait_for(deployment.is_driven)
    began = time.monotonic()
    service.terminate()
    assert service.wait(WAIT_SECONDS) == Exit.COMPLETE
    assert time.monotonic() - began < LEAVE_SECONDS
    assert running(deployment.paths.service) is None
    assert not deployment.paths.service.exists()
    assert deployment.is_driven()


@only_sqlite
@pytest.mark.slow
def test_a_service_of_a_batch_job_ends_after_its_drivers(deployment: Deployment) -> None:
    """The drivers save first, adopted ones too. The next service continues the sweeps."""
    deployment.submit("a-1")
    service = deployment.serve()
    wait_for(lambda: deployment.is_driven("a-1"))
    kill(service)
    service = deployment.serve("stop-drivers")
    deployment.submit("a-2")
    wait_for(lambda: deployment.is_driven("a-2"))
    service.terminate()
    assert service.wait(WAIT_SECONDS) == Exit.RESUMABLE
    for sweep_id in ("a-1", "a-2"):
        record = deployment.ledger.sweep(sweep_id)
        assert record is not None
        assert (record.state, record.reason) == ("INTERRUPTED", "SIGTERM")
    deployment.serve()
    wait_for(lambda: deployment.is_driven("a-1") and deployment.is_driven("a-2"))
    assert [deployment.submission(sweep_id).crashes for sweep_id in ("a-1", "a-2")] == [0, 0]


@only_postgres
@pytest.mark.slow
def test_a_ledger_that_is_away_for_a_while_changes_nothing(
    deployment: Deployment, postgres_server: postgres.Server
) -> None:
    """The service says once that the ledger does not answer, and once that it answers again."""
    service = deployment.serve()
    deployment.submit()
    wait_for(deployment.is_driven)
    postgres_server.stop()
    time.sleep(8.0)
    postgres_server.start()
    deployment.submit("a-2")
    wait_for(lambda: deployment.is_driven("a-2"))
    assert (deployment.submission().starts, len(deployment.started())) == (1, 1)
    service.terminate()
    printed, _ = service.communicate(timeout=WAIT_SECONDS)
    assert printed.count("has not answered") == 1
    assert printed.count("answers again") == 1


@only_postgres
@pytest.mark.slow
def test_the_service_leaves_in_time_while_the_ledger_is_away(
    deployment: Deployment, postgres_server: postgres.Server
) -> None:
    service = deployment.serve()
    wait_for(lambda: running(deployment.paths.service) is not None)
    postgres_server.stop()
    try:
        time.sleep(1.0)
        began = time.monotonic()
        service.terminate()
        assert service.wait(WAIT_SECONDS) == Exit.COMPLETE
        assert time.monotonic() - began < LEAVE_SECONDS
    finally:
        postgres_server.start()
