"""Following a sweep shows what its driver prints, if it prints to the log."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest

from orchestrator.api.local import LocalBackend
from orchestrator.client.following import follow
from orchestrator.errors import Exit
from orchestrator.storage.paths import Paths
from orchestrator.system import DETACHED
from tests import sweeps

DRIVER = """
import sys
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.ledger import Ledger
with Lease(Ledger.open(sys.argv[1]), sys.argv[2]):
    print("driving", flush=True)
    sys.stdin.read()
"""


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


@pytest.mark.slow
@pytest.mark.parametrize("driver", [False], indirect=True)
def test_the_log_of_an_earlier_driver_is_not_shown_while_another_runs(paths: Paths, driver: None) -> None:
    """A driver in the foreground prints to its own terminal."""
    part = LocalBackend(paths.root).log(sweeps.SWEEP_ID)
    assert (part.text, part.is_over) == ("", False)
    assert part.note == "8 of 8 trials have ended"


@pytest.mark.slow
@pytest.mark.parametrize("driver", [True], indirect=True)
def test_the_log_of_a_detached_driver_is_shown(paths: Paths, driver: None) -> None:
    printed: list[str] = []
    follow(LocalBackend(paths.root), "retrieval", printed.append)
    assert "".join(printed) == "the earlier driver\n"


def test_the_log_of_the_last_driver_is_shown_after_its_end(paths: Paths) -> None:
    printed: list[str] = []
    assert follow(LocalBackend(paths.root), "retrieval", printed.append) == Exit.RESUMABLE
    assert "".join(printed) == "the earlier driver\n"


def test_a_long_log_is_shown_to_its_end(paths: Paths) -> None:
    log = paths.driver_log(sweeps.SWEEP_ID)
    log.write_text("é" * 100_000 + "\nend\n")
    printed: list[str] = []
    follow(LocalBackend(paths.root), "retrieval", printed.append, 0)
    assert "".join(printed) == log.read_text()
