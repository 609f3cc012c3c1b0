"""A trial that needs a whole node starts although small trials of other sweeps run on each: a real Ray."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.shared_ray import Load, samples, start
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.pool.claims import pools
from orchestrator.ledger.sweeps.records import AttemptRecord
from orchestrator.sharing.pool_rows import Rules
from orchestrator.sharing.view import View
from tests.end_to_end.commands import wait_for

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(300)]

RULES = Rules(
    dead_after=20.0, shed_after=1.0, hold_after=2.0, cut_after=20.0, min_run=1.0, min_run_restarts=0.0
)

ONE_FREE_PROCESSOR_A_NODE = """
import sys
from pathlib import Path
from benchmarks.shared_ray import nodes
with nodes(Path(sys.argv[1]), count=2, cpus=2):
    import os
    import ray
    from ray.util import placement_group, remove_placement_group
    ray.init(os.environ["RAY_ADDRESS"], log_to_driver=False)
    one_a_node = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    ray.get(one_a_node.ready())
    print(os.environ["RAY_ADDRESS"], flush=True)
    sys.stdin.readline()
    remove_placement_group(one_a_node)
    print("free", flush=True)
    sys.stdin.readline()
    ray.shutdown()
"""


class Nodes:
    """Two nodes of two processors, of which one each is in use until the test releases it.

    Attributes:
        folder: of the ledger of all sweeps.
    """

    def __init__(self, folder: Path, cluster: subprocess.Popen[str]) -> None:
        self.folder, self._cluster = folder, cluster
        self._address = self._answer()
        self.drivers: dict[str, subprocess.Popen[str]] = {}

    def release(self) -> None:
        """Free the second processor of both nodes."""
        self._say()
        assert self._answer() == "free"

    def start(self, name: str, *, steps: int, cpu: int) -> None:
        """Start the driver of a sweep of one trial, for an owner of its own."""
        os.environ["RAY_ADDRESS"] = self._address
        load = Load(name, owner=name, trials=1, steps=steps, pause=0.3, cpu=cpu)
        self.drivers[name] = start(self.folder, load, RULES)
        del os.environ["RAY_ADDRESS"]

    def running(self, name: str) -> int:
        """Return how many trials of a sweep have a worker."""
        return int([{"running": 0}, *samples(self.folder, name)][-1]["running"])

    def view(self) -> View:
        """Return the pool, as the ledger shows it."""
        ledger = self._ledger()
        [view] = pools(ledger, RULES).values()
        ledger.close()
        return view

    def attempts(self, name: str) -> list[AttemptRecord]:
        """Return all attempts of a sweep."""
        ledger = self._ledger()
        [sweep] = [record.id for record in ledger.sweeps() if record.name == name]
        attempts = list(ledger.attempts(sweep))
        ledger.close()
        return attempts

    def end(self) -> None:
        """End the drivers and the nodes."""
        for driver in self.drivers.values():
            driver.kill()
            driver.wait()
        self._cluster.communicate("\n\n", timeout=120)

    def _ledger(self) -> Ledger:
        return Ledger.open(f"sqlite:///{self.folder}/mlruns/sweeps.db")

    def _say(self) -> None:
        assert self._cluster.stdin is not None
        print(file=self._cluster.stdin, flush=True)

    def _answer(self) -> str:
        assert self._cluster.stdout is not None
        return self._cluster.stdout.readline().strip()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    folder = Path(tempfile.mkdtemp(prefix="ho-"))
    command = [sys.executable, "-c", ONE_FREE_PROCESSOR_A_NODE, str(folder)]
    made = Nodes(folder, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    yield made
    made.end()
    shutil.rmtree(folder, ignore_errors=True)


def test_a_trial_of_a_whole_node_runs_beside_trials_of_one_processor(nodes: Nodes) -> None:
    """Each of two small trials, which do not end, runs on a node of its own: one of them moves, uncharged."""
    nodes.start("first", steps=100_000, cpu=1)
    nodes.start("second", steps=100_000, cpu=1)
    wait_for(lambda: all(nodes.running(name) == 1 for name in ("first", "second")))
    nodes.release()
    wait_for(lambda: len({place.node for use in nodes.view().uses.values() for place in use.places}) == 2)
    nodes.start("whole", steps=3, cpu=2)
    wait_for(lambda: nodes.drivers["whole"].poll() is not None)
    assert [attempt.state for attempt in nodes.attempts("whole")][-1] == "ENDED"
    wait_for(lambda: all(nodes.running(name) == 1 for name in ("first", "second")))
    ended = [
        (attempt.state, attempt.cause)
        for name in ("first", "second")
        for attempt in nodes.attempts(name)
        if attempt.state != "RUNNING"
    ]
    assert ended == [("LOST", "shared")], "one of the small trials has moved, and nothing else has ended"
    wait_for(lambda: not nodes.view().holding.by_node)
