"""The service delivers to MLflow what ended sweeps have left pending, under their leases."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.submissions import (
    SubmissionRequest,
    SubmissionState,
    change_rows,
    has_ended,
    left_undelivered,
)
from orchestrator.ledger.sweeps.lease import Lease, holder
from orchestrator.service import deliveries
from orchestrator.service.deliveries import Deliveries, in_turn
from orchestrator.storage.paths import Paths
from orchestrator.system import System
from orchestrator.tracking import ui
from orchestrator.tracking.address import environment, is_reached
from orchestrator.tracking.database import connect
from tests import sweeps
from tests.orchestrator.service import driver
from tests.orchestrator.tracking.proxy import Proxy, command_on
from tests.orchestrator.tracking.stored import EVERYTHING, points_by_run

WAIT_SECONDS = 100.0


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def submit(ledger: Ledger, state: SubmissionState = "ENDED") -> None:
    """Hand the sweep of the ledger to the service, as one that is in a state."""
    order = SubmissionRequest("ada", {"name": "retrieval"}, "", {"behaviour": "hold"}, None, "c0ffee")
    entry, _ = submissions.submit(ledger, order, lambda is_known: sweeps.SWEEP_ID)
    change_rows(ledger, lambda change: change.replace(replace(entry, state=state)))


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Return a root whose ledger holds a finished sweep of which MLflow has received nothing."""
    return sweeps.filled(tmp_path / "mlruns", [sweeps.trial(number) for number in range(3)])


@pytest.fixture
def ledger(paths: Paths) -> Iterator[Ledger]:
    with closing(Ledger.open(paths.ledger_url)) as opened:
        yield opened


@pytest.mark.parametrize(("state", "left"), [("ENDED", True), ("QUEUED", False), ("STARTED", False)])
def test_only_what_has_ended_is_left(ledger: Ledger, state: SubmissionState, left: bool) -> None:
    assert left_undelivered(ledger) == [], "the sweep was not submitted: who runs it knows where MLflow is"
    submit(ledger, state)
    assert left_undelivered(ledger) == ([sweeps.SWEEP_ID] if left else [])
    assert has_ended(ledger, sweeps.SWEEP_ID) is left
    with Lease(ledger, sweeps.SWEEP_ID) as lease:
        lease.writer.record_mlflow_runs({sweeps.trial(number).key: f"run-{number}" for number in range(3)})
        pending = ledger.pending(sweeps.SWEEP_ID, 1000)
        lease.writer.delivered(replace(pending, reports=pending.reports[:-1]))
        assert left_undelivered(ledger) == ([sweeps.SWEEP_ID] if left else []), "a report is left"
        lease.writer.delivered(pending)
    assert left_undelivered(ledger) == []


def test_a_server_that_takes_no_connection_is_not_reached() -> None:
    assert is_reached("sqlite:////nowhere/mlflow.db")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert not is_reached(url)
        listener.listen()
        assert is_reached(url)


def test_a_sweep_that_mlflow_refuses_keeps_no_other_back() -> None:
    assert in_turn(["a", "b", "c"], []) == ["a", "b", "c"]
    assert in_turn(["a", "b", "c"], ["a"]) == ["b", "c", "a"]
    assert in_turn(["a", "b", "c"], ["b", "a"]) == ["c", "b", "a"]


def test_a_sweep_that_is_submitted_again_is_given_back(
    ledger: Ledger, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow answers nothing meanwhile, so that the lease would be held for a minute."""
    monkeypatch.setattr(deliveries, "LOOK_SECONDS", 0.05)
    submit(ledger)
    with closing(Proxy()) as silent:
        silent.mode = "swallow"
        there = Paths(paths.root, tracking=f"http://127.0.0.1:{silent.port}")
        with closing(Deliveries(there, System(), lambda line: None)) as delivering:
            delivering.start()
            wait_for(lambda: holder(ledger, sweeps.SWEEP_ID) is not None)
            submit(ledger, "QUEUED")
            wait_for(lambda: holder(ledger, sweeps.SWEEP_ID) is None)
            time.sleep(0.2)
            assert holder(ledger, sweeps.SWEEP_ID) is None, "the sweep belongs to its driver"


def test_a_sweep_that_is_driven_is_left_alone(
    ledger: Ledger, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "LOOK_SECONDS", 0.01)
    submit(ledger)
    said: list[str] = []
    with Lease(ledger, sweeps.SWEEP_ID), closing(Deliveries(paths, System(), said.append)) as delivering:
        delivering.start()
        time.sleep(0.3)
    assert said == []
    assert ledger.backlog(sweeps.SWEEP_ID) == 23


@pytest.mark.slow  # a server of MLflow starts in ten seconds
@pytest.mark.end_to_end
def test_what_a_sweep_has_left_arrives_once_mlflow_is_back(ledger: Ledger, paths: Paths) -> None:
    """The server does not run when the sweep ends; a driver could not have delivered either."""
    submit(ledger)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    url = f"http://127.0.0.1:{port}"
    service = subprocess.Popen(
        [sys.executable, "-m", "tests.orchestrator.service.server", str(paths.root), "serve"],
        cwd=driver.ROOT,
        env={**os.environ, "MLFLOW_TRACKING_URI": url},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert service.stdout is not None
    server = None
    try:
        assert "serves" in service.stdout.readline()
        assert "MLflow accepts no records" in service.stdout.readline()
        for _ in range(20):
            assert holder(ledger, sweeps.SWEEP_ID) is None, "the sweep must be free for others"
            time.sleep(0.05)
        assert ledger.backlog(sweeps.SWEEP_ID) == 23
        database = f"sqlite:///{paths.root / 'mlflow.db'}"
        connect(database)
        variables = {**environment(), ui.STORE: database}
        server = subprocess.Popen(command_on(port, paths.artifacts), env=variables, start_new_session=True)
        assert "delivered 23 pending records" in service.stdout.readline()
        assert ledger.backlog(sweeps.SWEEP_ID) == 0
        wait_for(lambda: holder(ledger, sweeps.SWEEP_ID) is None)
        assert points_by_run(url) == EVERYTHING
    finally:
        for process in (service, server):
            if process is not None:
                with suppress(ProcessLookupError):
                    process.terminate()
        service.communicate(timeout=60)
        if server is not None:
            ui.stop(server)
