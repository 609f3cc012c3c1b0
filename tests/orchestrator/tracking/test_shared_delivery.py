"""The drivers of a service share one process that delivers to MLflow, and depend on none."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psutil
import pytest

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.storage.paths import Paths
from orchestrator.tracking import child, deliver
from orchestrator.tracking.deliver import ProgressSigns, listen
from orchestrator.tracking.shared_delivery import shared_delivery, socket_of
from orchestrator.tracking.shipper import Shipper, Timeouts
from tests import sweeps
from tests.orchestrator.tracking.stored import EVERYTHING, NewDatabase, points_by_run

PACE = Timeouts(gather=0.05, awake=120.0, silence=10.0, first_retry=0.1, longest_retry=0.2, goodbye=3.0)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 100.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def roots(tmp_path: Path, new_mlflow: NewDatabase) -> list[Paths]:
    """Return two roots, each with a sweep of three trials and an empty MLflow."""
    roots = [sweeps.filled(tmp_path / name, [sweeps.trial(number) for number in range(3)]) for name in "ab"]
    for paths in roots:
        new_mlflow(paths.root)
    return roots


@contextmanager
def shipping(paths: Paths, batch: int = 500) -> Iterator[Shipper]:
    with closing(Ledger.open(paths.ledger_url)) as ledger, Lease(ledger, sweeps.SWEEP_ID) as lease:
        shipper = Shipper(lease, paths.tracking_uri, paths.artifacts, pace=PACE, batch=batch)
        with closing(shipper):
            shipper.start()
            yield shipper


def processes(kind: str = "") -> list[psutil.Process]:
    """Return the delivering processes of this one; those of a kind have `--listen` in their command line."""
    found = []
    for process in psutil.Process().children():
        words = process.cmdline() if process.status() != psutil.STATUS_ZOMBIE else []
        if "orchestrator.tracking.deliver" in words and (kind in words or not kind):
            found.append(process)
    return found


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """End the shared processes, which outlive their service until they are idle."""
    yield
    for process in processes():
        process.kill()


@pytest.mark.slow
def test_the_process_ends_once_it_is_idle_or_alone_without_its_service(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        for service, idle in ((os.getppid(), 0.0), (os.getpid(), 300.0)):
            listen(listener, service, idle)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(tmp_path / "s"))
            serving = threading.Thread(target=listen, args=(listener, os.getppid(), 0.0), daemon=True)
            serving.start()
            serving.join(3.0)
            assert serving.is_alive()
        serving.join(10.0)
        assert not serving.is_alive()


def test_two_drivers_share_a_process(roots: list[Paths]) -> None:
    with shared_delivery(roots[0]), ExitStack() as stack:
        shippers = [stack.enter_context(shipping(paths)) for paths in roots]
        assert [shipper.drain(120.0) for shipper in shippers] == [0, 0]
        [shared] = processes()
        assert "--listen" in shared.cmdline()
    assert child.SHARED not in os.environ
    assert [points_by_run(paths.tracking_uri) for paths in roots] == [EVERYTHING, EVERYTHING]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "is_shared"), [(signal.SIGKILL, True), (signal.SIGSTOP, False)])
def test_everything_arrives_once_although_the_process_is_killed_or_hangs(
    roots: list[Paths], number: signal.Signals, is_shared: bool
) -> None:
    """A driver whose batch got no answer goes on by itself: its batch may take as long again."""
    with shared_delivery(roots[0]), shipping(roots[0], batch=4) as shipper:
        until(lambda: shipper._number > 0)
        [first] = processes()
        first.send_signal(number)
        assert shipper.drain(120.0) == 0
        [second] = processes()
        assert ("--listen" in second.cmdline()) is is_shared
        assert second.pid != first.pid
    assert points_by_run(roots[0].tracking_uri) == EVERYTHING


@pytest.mark.slow
def test_a_driver_goes_on_without_its_service_and_its_process(
    roots: list[Paths], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as service:
        service.enter_context(shared_delivery(roots[0]))
        with shipping(roots[0], batch=4) as shipper:
            until(lambda: shipper._number > 0)
            service.close()
            assert not socket_of(roots[0]).exists()
            monkeypatch.setenv(child.SHARED, str(socket_of(roots[0])))
            [shared] = processes()
            shared.kill()
            assert shipper.drain(120.0) == 0
            [own] = processes()
            assert "--listen" not in own.cmdline()
    assert points_by_run(roots[0].tracking_uri) == EVERYTHING


@pytest.mark.slow
def test_an_error_ends_one_connection_alone(roots: list[Paths], caplog: pytest.LogCaptureFixture) -> None:
    (roots[1].root / "mlflow.db").write_bytes(b"no database" * 1000)
    with shared_delivery(roots[0]), shipping(roots[0]) as shipper, shipping(roots[1]) as failing:
        assert failing.drain(120.0, until=lambda: failing._failures >= 2) == 23
        assert "the delivering process reports: " in str(failing._last_error)
        assert shipper.drain(120.0) == 0
        assert len(processes()) == 1


@pytest.mark.slow
def test_a_driver_with_other_code_starts_a_process_of_its_own(
    roots: list[Paths], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "code_digest", lambda: "edited meanwhile")
    with shared_delivery(roots[0]), shipping(roots[0]) as shipper:
        assert shipper.drain(120.0) == 0
        [own] = [process for process in processes() if "--listen" not in process.cmdline()]
        assert own.is_running()


@pytest.mark.slow
def test_another_service_takes_over_once_the_first_one_has_ended(roots: list[Paths]) -> None:
    with ExitStack() as first, shared_delivery(roots[0]):
        first.enter_context(shared_delivery(roots[0]))
        until(socket_of(roots[0]).exists)
        first.close()
        with shipping(roots[0]) as shipper:
            assert shipper.drain(120.0) == 0


@pytest.mark.slow
def test_a_process_that_makes_progress_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of a busy machine may take longer than the longest silence."""
    code = (
        "import sys, time\n"
        "for _ in range(12):\n"
        "    print('{\"alive\": 1}', flush=True); time.sleep(0.5)\n"
        "print('{\"batch\": 7}', flush=True); sys.stdin.read()"
    )
    monkeypatch.setattr(child, "_COMMAND", (sys.executable, "-c", code))
    slow = child.delivery_to({})
    assert slow.ask(None, 5.0, lambda: False) == {"batch": 7}
    slow.end(10.0)


def test_who_waits_for_a_turn_is_told_of_the_progress_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliver, "_ALIVE_SECONDS", 0.02)
    told, writing = list[int](), ProgressSigns(lambda: None)

    def wait() -> None:
        with ProgressSigns(lambda: told.append(1)).turn():
            pass

    waiting = threading.Thread(target=wait, daemon=True)
    with ExitStack() as four:
        for _ in range(4):
            four.enter_context(writing.turn())
        waiting.start()
        time.sleep(0.3)
        assert told == [], "a process that is stuck must seem so to all who wait"
        writing.made()
        until(lambda: bool(told))
        assert waiting.is_alive()
    waiting.join(10.0)
    assert not waiting.is_alive()
