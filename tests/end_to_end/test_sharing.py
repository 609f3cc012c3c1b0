"""Sweeps of two owners share one real Ray of two nodes; their trials wait and report, and train nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.sharing.real import Load, samples
from benchmarks.sharing.real import start as start_driver
from orchestrator.ledger.claims import pools
from orchestrator.ledger.ledger import Ledger
from orchestrator.sharing.rows import Rules
from tests.end_to_end.commands import wait_for

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(900)]

RULES = Rules(dead_after=15.0, shed_after=3.0, min_run=5.0, min_run_restarts=0.0)

NODES = """
import sys
from pathlib import Path
from benchmarks.sharing.real import nodes
with nodes(Path(sys.argv[1]), count=2, cpus=2):
    import os
    print(os.environ["RAY_ADDRESS"], flush=True)
    sys.stdin.read()
"""

REQUESTED = """
import json, sys
from pathlib import Path
from orchestrator.schedule import environment
environment.prepare(Path(sys.argv[1]) / "ray-token")
from ray._private.ray_constants import AUTOSCALER_RESOURCE_REQUEST_CHANNEL
from ray._raylet import GcsClient
request = GcsClient(address=sys.argv[2]).internal_kv_get(AUTOSCALER_RESOURCE_REQUEST_CHANNEL, None)
print(len(json.loads(request or "[]")))
"""


class Sharing:
    """Drivers of sweeps on one Ray, whose address is in the environment of all of them.

    Attributes:
        folder: of all sweeps.
        address: of the head.
    """

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        self.drivers: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, owner: str, trials: int) -> None:
        """Start the driver of a sweep whose trials report 60 times, a second apart.

        None ends before the other drivers have started, which would free its place without a shed.
        """
        os.environ["RAY_ADDRESS"] = self.address
        self.drivers[name] = start_driver(self.folder, Load(name, owner, trials, 60, 1.0), RULES)
        del os.environ["RAY_ADDRESS"]

    def running(self) -> dict[str, int]:
        """Return how many trials each living sweep runs."""
        living = [name for name, driver in self.drivers.items() if driver.poll() is None]
        return {name: int(([{"running": 0}, *samples(self.folder, name)])[-1]["running"]) for name in living}

    def requested(self) -> int:
        """Return for how many attempts the cluster's autoscaler was asked."""
        command = [sys.executable, "-c", REQUESTED, str(self.folder), self.address]
        of_cluster = {**os.environ, "RAY_ADDRESS": self.address}  # its token is in the folder
        done = subprocess.run(
            command, env=of_cluster, capture_output=True, text=True, check=True, timeout=120
        )
        return int(done.stdout)

    def ledger(self) -> Ledger:
        """Open the ledger of all sweeps."""
        return Ledger.open(f"sqlite:///{self.folder}/mlruns/sweeps.db")


@pytest.fixture
def sharing() -> Iterator[Sharing]:
    """Yield two nodes of two processors, and end what still runs on them."""
    folder = Path(tempfile.mkdtemp(prefix="sh-"))
    cluster = subprocess.Popen(
        [sys.executable, "-c", NODES, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert cluster.stdout is not None
    started = Sharing(folder, cluster.stdout.readline().strip())
    yield started
    for driver in started.drivers.values():
        driver.kill()
        driver.wait()
    cluster.communicate(timeout=120)
    shutil.rmtree(folder, ignore_errors=True)


def test_three_sweeps_of_two_owners_share_one_ray(sharing: Sharing) -> None:
    """A sweep alone has everything; others get their shares by uncharged sheds; a dead one frees its own."""
    sharing.start("first", "ada", 400)
    wait_for(lambda: sharing.running() == {"first": 4})
    wait_for(lambda: requests_the_sum(sharing))
    sharing.start("second", "bob", 400)
    sharing.start("third", "bob", 400)
    wait_for(lambda: sharing.running() == {"first": 2, "second": 1, "third": 1})
    wait_for(lambda: requests_the_sum(sharing))
    sharing.drivers["third"].send_signal(signal.SIGKILL)
    wait_for(lambda: sharing.running() == {"first": 2, "second": 2})
    ledger = sharing.ledger()
    [shed_sweep, *_] = [record.id for record in ledger.sweeps() if record.name == "first"]
    attempts = ledger.attempts(shed_sweep)
    shed = [attempt for attempt in attempts if attempt.cause == "shared"]
    assert len(shed) == 2, "half of four, and none of them twice"
    assert all(attempt.state == "LOST" for attempt in shed)
    assert {attempt.cause for attempt in attempts} <= {None, "shared"}
    for name in ("first", "second"):
        sharing.drivers[name].kill()
        sharing.drivers[name].wait()
    ledger.close()


def requests_the_sum(sharing: Sharing) -> bool:
    """Return True if the autoscaler was asked for all sweeps; what they want falls while this is read."""
    before = wanted(sharing)
    requested = sharing.requested()
    return before >= requested >= wanted(sharing)


def wanted(sharing: Sharing) -> int:
    """Return how many attempts all living sweeps want."""
    ledger = sharing.ledger()
    views = pools(ledger, RULES)
    ledger.close()
    return sum(claim.want for view in views.values() for claim in view.claims.values())
