"""Following a sweep shows what its driver prints, or the progress if the driver prints to no log."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest

from orchestrator import Observer, Progress, Sweep
from orchestrator.api.serving import follow
from orchestrator.storage.paths import Paths
from orchestrator.system import DETACHED
from tests import sweeps

DRIVER = """
import sys
from orchestrator.ledger.lease import Lease
from orchestrator.ledger.ledger import Ledger
with Lease(Ledger.open(sys.argv[1]), sys.argv[2]):
    print("driving", flush=True)
    sys.stdin.read()
"""


class Recorder(Observer):
    """Counts what it receives."""

    shown = closed = 0

    def show(self, progress: Progress) -> None:
        self.shown += 1

    def close(self) -> None:
        self.closed += 1


class Interrupted(Recorder):
    """Ends the following as Ctrl-C does."""

    def show(self, progress: Progress) -> None:
        raise KeyboardInterrupt


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Return a root with a sweep and the log of an earlier detached driver."""
    paths = sweeps.filled(tmp_path / "mlruns")
    log = paths.driver_log(sweeps.SWEEP_ID)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("the earlier driver\n")
    return paths


@pytest.fixture
def driver(paths: Paths, request: pytest.FixtureRequest) -> Iterator[None]:
    """Let another process drive the sweep for a second; the parameter says whether it is detached."""
    environment = {name: value for name, value in os.environ.items() if name != DETACHED}
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, paths.ledger_url, sweeps.SWEEP_ID],
        env={**environment, DETACHED: "1"} if request.param else environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "driving\n"
    end = Timer(1.0, process.stdin.close)
    end.start()
    yield
    end.join()
    process.stdout.close()
    assert process.wait(30) == 0


@pytest.mark.parametrize("driver", [False], indirect=True)
def test_the_log_of_an_earlier_driver_is_not_shown(paths: Paths, driver: None) -> None:
    """A driver in the foreground prints to its own terminal."""
    printed: list[str] = []
    observer = Recorder()
    follow(Sweep.find("retrieval", root=paths.root), printed.append, observer)
    assert "".join(printed) == ""
    assert observer.shown > 0
    assert observer.closed == 1


@pytest.mark.parametrize("driver", [True], indirect=True)
def test_the_log_of_a_detached_driver_is_shown(paths: Paths, driver: None) -> None:
    printed: list[str] = []
    observer = Recorder()
    follow(Sweep.find("retrieval", root=paths.root), printed.append, observer)
    assert "".join(printed) == "the earlier driver\n"
    assert observer.shown == 0


def test_the_log_of_the_last_driver_is_shown_after_its_end(paths: Paths) -> None:
    printed: list[str] = []
    follow(Sweep.find("retrieval", root=paths.root), printed.append, Recorder())
    assert "".join(printed) == "the earlier driver\n"


@pytest.mark.parametrize("driver", [False], indirect=True)
def test_the_display_is_closed_if_the_following_is_interrupted(paths: Paths, driver: None) -> None:
    paths.driver_log(sweeps.SWEEP_ID).unlink()
    observer = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        follow(Sweep.find("retrieval", root=paths.root), print, observer)
    assert observer.closed == 1
