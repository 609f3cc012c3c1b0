"""A tracking server that is gone, overloaded or silent delays events, but loses none."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.tracking import ui
from orchestrator.tracking.address import environment
from orchestrator.tracking.shipper import Shipper, Timeouts
from tests import sweeps
from tests.orchestrator.tracking.proxy import Proxy, command_on
from tests.orchestrator.tracking.stored import EVERYTHING, NewDatabase, points_by_run

pytestmark = pytest.mark.end_to_end

PACE = Timeouts(gather=0.05, awake=60.0, silence=3.0, first_retry=0.2, longest_retry=1.0, goodbye=3.0)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.close()


@pytest.fixture
def server(
    tmp_path: Path, proxy: Proxy, new_mlflow: NewDatabase
) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Return a function that starts a server behind the proxy; the server is stopped at the end."""
    uri = new_mlflow(tmp_path)
    proxy.target = _free_port()
    command = command_on(proxy.target, tmp_path / "artifacts", proxy.port)
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(
            subprocess.Popen(command, env={**environment(), ui.STORE: uri}, start_new_session=True)
        )
        return started[-1]

    yield start
    for process in started:
        ui.stop(process)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """Return a ledger whose outbox holds a sweep of three trials."""
    ledger = Ledger.open(f"sqlite:///{tmp_path / 'sweeps.db'}")
    sweeps.fill(ledger, tmp_path / "checkpoints", [sweeps.trial(number) for number in range(3)])
    yield ledger
    ledger.close()


@pytest.fixture
def shipper(ledger: Ledger, proxy: Proxy) -> Iterator[Shipper]:
    with Lease(ledger, sweeps.SWEEP_ID) as lease:
        shipper = Shipper(lease, f"http://127.0.0.1:{proxy.port}", None, pace=PACE, batch=4)
        yield shipper
        shipper.close()


@pytest.mark.slow
def test_a_server_that_is_gone_or_refuses_gets_everything_once(
    shipper: Shipper,
    ledger: Ledger,
    server: Callable[[], subprocess.Popen[bytes]],
    proxy: Proxy,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server()
    shipper.start()
    _connect_in(proxy, "hang up", 1)
    _connect_in(proxy, "503", 1)
    assert shipper.drain(0.1) == 23
    _wait_for(proxy.target)
    proxy.mode = "pass"
    _until(lambda: 0 < ledger.backlog(sweeps.SWEEP_ID) < 23)
    for mode in ("hang up", "400"):
        caplog.clear()
        proxy.mode = mode
        _until(lambda: "MLflow cannot be reached" in caplog.text)
    proxy.mode = "pass"
    assert shipper.drain(120) == 0
    assert "MLflow rejects" not in caplog.text
    assert points_by_run(f"sqlite:///{tmp_path / 'mlflow.db'}") == EVERYTHING


@pytest.mark.slow
def test_a_server_that_dies_or_does_not_answer_gets_everything_later(
    shipper: Shipper,
    ledger: Ledger,
    server: Callable[[], subprocess.Popen[bytes]],
    proxy: Proxy,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = server()
    _wait_for(proxy.target)
    proxy.mode = "pass"
    shipper.start()
    _until(lambda: 0 < ledger.backlog(sweeps.SWEEP_ID) < 23)
    running.kill()
    ui.stop(running)
    server()
    _wait_for(proxy.target)
    proxy.mode = "swallow"
    caplog.clear()
    _until(lambda: "MLflow cannot be reached" in caplog.text)
    began = time.monotonic()
    assert shipper.drain(2.0) > 0
    assert time.monotonic() - began < 4.0
    proxy.mode = "pass"
    assert shipper.drain(200) == 0
    assert points_by_run(f"sqlite:///{tmp_path / 'mlflow.db'}") == EVERYTHING


def _connect_in(proxy: Proxy, mode: str, count: int) -> None:
    """Set the mode of the proxy, and wait until the shipper has connected so many times."""
    proxy.mode = mode  # type: ignore[assignment]
    before = proxy.connections
    _until(lambda: proxy.connections >= before + count)


def _until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _wait_for(port: int) -> None:
    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    _until(answers)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
