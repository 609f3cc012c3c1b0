"""Sweeps share one real Ray: two nodes whose trials only wait and report; two devices with real trials."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.shared_ray import Load, samples
from benchmarks.shared_ray import start as start_driver
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.pool.claims import pools
from orchestrator.sharing.pool_rows import Rules
from tests.end_to_end.commands import SMALL, Commands, finish, wait_for
from tests.shared_ray import own_ray

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(900)]

RULES = Rules(dead_after=15.0, shed_after=3.0, cut_after=10.0, min_run=5.0, min_run_restarts=0.0)

NODES = """
import sys
from pathlib import Path
from benchmarks.shared_ray import nodes
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

DEVICES = """
import json, sys
from pathlib import Path
from orchestrator.machines.hardware import detect
from orchestrator.schedule import environment
environment.prepare(Path())  # no cluster is named, and so no token is created
import ray
from orchestrator.schedule import cluster
def owned(actor):
    return [*actor._channels], ray.get_runtime_context().get_accelerator_ids()["GPU"]
with cluster.connected(detect()):
    for _ in sys.stdin:
        actors = ray.util.list_named_actors(all_namespaces=True)
        engines = [one for one in actors if one["namespace"] == "sweep-engines"]
        calls = {
            one["name"]: ray.get_actor(one["name"], one["namespace"]).__ray_call__.remote(owned)
            for one in engines
        }
        ray.wait(list(calls.values()), num_returns=len(calls), timeout=2) if calls else None
        answered = {}
        for call in calls.values():
            try:
                channels, own = ray.get(call, timeout=0)
            except ray.exceptions.RayError:
                continue  # it waits for a device, or has ended
            for channel in channels:
                answered.setdefault(channel, []).extend(own)
        print(json.dumps(answered), flush=True)
"""

NO_SHARE = "the pool has no share for it yet"
TWO_OF_FOUR = [*SMALL, "--quiet", "--profile", "laptop", "--new", "--here"]
TWO_OF_FOUR += ["--set", "sampler={random: {seed: 1}}", "--set", "scheduler={none: {}}"]
TWO_OF_FOUR += ["--set", "resources={gpu: 1/4, cpu: 0.1}", "--set", "budget.trials=2"]
TWO_OF_FOUR += ["--set", "training.steps=100_000"]


class Sharing:
    """Drivers of sweeps on one Ray, whose address is in the environment of all of them.

    Attributes:
        folder: of all sweeps.
        address: of the head.
    """

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        self.drivers: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, owner: str, trials: int, pause: float = 1.0) -> None:
        """Start the driver of a sweep whose trials report 60 times, `pause` seconds apart.

        None ends before the other drivers have started, which would free its place without a shed.
        """
        os.environ["RAY_ADDRESS"] = self.address
        self.drivers[name] = start_driver(self.folder, Load(name, owner, trials, 60, pause), RULES)
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


def test_a_trial_that_never_reports_is_cut_for_a_sweep_that_is_short(sharing: Sharing) -> None:
    """Its worker answers nothing, so that it is killed a minute after it was asked to save and end."""
    sharing.start("deaf", "ada", 4, pause=3600.0)
    wait_for(lambda: sharing.running() == {"deaf": 4})
    sharing.start("short", "bob", 400)
    wait_for(lambda: sharing.running() == {"deaf": 2, "short": 2}, seconds=300)
    ledger = sharing.ledger()
    [deaf] = [record.id for record in ledger.sweeps() if record.name == "deaf"]
    ended = [attempt for attempt in ledger.attempts(deaf) if attempt.state != "RUNNING"]
    assert [(attempt.state, attempt.cause) for attempt in ended] == [("LOST", "shared")] * 2
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


def test_a_device_belongs_to_one_sweep(commands: Commands, temporary: Path) -> None:
    """Three sweeps have two trials of a quarter each: half of each device is free, yet the third waits."""
    with own_ray(temporary) as ray:
        two = {**ray, "SWEEP_HOST_DEVICES": "2"}
        drivers: dict[str, subprocess.Popen[str]] = {}
        for count in (1, 2):
            drivers |= started(commands, drivers, two)
            wait_for(lambda count=count: len(reporting(commands)) == count, seconds=400)
        first, second = drivers
        with observing(two) as devices:
            before = devices()
            assert {sweep: len(own) for sweep, own in before.items()} == {first: 1, second: 1}
            assert before[first] != before[second]
            drivers |= started(commands, drivers, two)
            *_, third = drivers
            wait_for(lambda: state(commands, third) == ("WAITING", NO_SHARE), seconds=400)
            assert devices() == before, "half of each device is free, and belongs to its sweep"
            stopped(commands, first, drivers, two)
            wait_for(lambda: third in reporting(commands), seconds=400)
            assert devices() == {second: before[second], third: before[first]}
        for sweep in (second, third):
            stopped(commands, sweep, drivers, two)


def started(
    commands: Commands, before: dict[str, subprocess.Popen[str]], variables: dict[str, str]
) -> dict[str, subprocess.Popen[str]]:
    """Start a driver; return it with the id of its sweep."""
    driver = commands.start(*TWO_OF_FOUR, **variables)

    def others() -> list[str]:
        if not (commands.root / "sweeps.db").exists():
            return []
        return [sweep.id for sweep in commands.ledger.sweeps() if sweep.id not in before]

    wait_for(lambda: bool(others()) or driver.poll() is not None)
    assert driver.poll() is None, finish(driver)
    return {others()[0]: driver}


def state(commands: Commands, sweep_id: str) -> tuple[str, str | None]:
    """Return the state of a sweep and its reason."""
    [record] = [sweep for sweep in commands.ledger.sweeps() if sweep.id == sweep_id]
    return record.state, record.reason


def reporting(commands: Commands) -> set[str]:
    """Return the sweeps of which every trial has reported."""
    ledger = commands.ledger
    sweeps = {
        sweep.id: {report.trial_key for report in ledger.reports(sweep.id)} for sweep in ledger.sweeps()
    }
    ledger.close()
    return {sweep for sweep, trials in sweeps.items() if len(trials) == 2}


def stopped(
    commands: Commands, sweep: str, drivers: dict[str, subprocess.Popen[str]], variables: dict[str, str]
) -> None:
    """Stop a sweep, and wait until its driver has left."""
    code, output = commands.run("stop", sweep, **variables)
    assert code == 0, output
    code, output = finish(drivers[sweep])
    assert code == 4, output


@contextmanager
def observing(variables: dict[str, str]) -> Iterator[Callable[[], dict[str, set[str]]]]:
    """Join the Ray of some sweeps; yield a function that returns the devices of each sweep's engines."""
    observer = subprocess.Popen(
        [sys.executable, "-c", DEVICES],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def devices() -> dict[str, set[str]]:
        assert observer.stdin is not None
        assert observer.stdout is not None
        print(file=observer.stdin, flush=True)
        found: dict[str, set[str]] = {}
        for channel, own in json.loads(observer.stdout.readline()).items():
            # A channel is the id of the sweep, `@` and that of the ledger.
            found.setdefault(channel.partition("@")[0], set()).update(own)
        return found

    try:
        yield devices
        observer.communicate(timeout=60)
    finally:
        observer.kill()
        observer.communicate()
