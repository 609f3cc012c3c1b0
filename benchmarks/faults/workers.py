"""R3, R4: worker processes and nodes that die while they run a trial."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.faults.site import PATIENCE, Site, disagreement, until
from benchmarks.faults.table import Dose, Row, Tally
from tests.end_to_end.commands import finish

SETTLES = 3.0
"""Seconds after its start until a node has bound its sockets."""
MANY = 200
"""Number of reports within which a kill must be noticed, if it hit a trial."""
SPARED_AFTER = 2
"""Maximum number of workers to kill per trial; a trial survives the loss of three."""
RESUMED = 10.0
"""Allowed seconds from the death of a worker to the next report of its trial (R3)."""
RESCHEDULED = 30.0
"""Allowed seconds from noticing the death of a node to the next report of its trial (R4)."""


class Wait(NamedTuple):
    """Seconds until an affected trial reported again.

    Attributes:
        from_kill: Seconds since the process was killed.
        from_loss: Seconds since the loss was recorded in the ledger.
    """

    from_kill: float
    from_loss: float


def killed_workers(dose: Dose) -> list[Row]:
    """Kill the worker processes of trials repeatedly."""
    site = Site(dose.folder, "workers").write(trials=2 * dose.kills, steps=4000)
    driver, chance, tally = site.drive(), random.Random(3), Tally()
    waits: list[Wait] = []
    while len(waits) < dose.kills and _kill_one(site, driver, chance, waits):
        pass
    killed = len(waits)
    code, output = finish(driver, 2 * PATIENCE)
    tally.expect(code == 0, f"exit code {code}: {output[-300:]}")
    attempts = site.ledger.attempts(site.id)
    lost = Counter(attempt.cause for attempt in attempts if attempt.cause)
    tally.expect(set(lost) <= {"worker lost"}, f"causes {dict(lost)}")
    tally.expect(
        len(attempts) == len(site.trials()) + lost.total(), "attempts of other trials were restarted too"
    )
    losses = Counter(attempt.trial_key for attempt in attempts if attempt.cause)
    again = site.repeated()
    tally.expect(all(again[key] <= losses[key] for key in again), f"repeated {again}")
    tally.expect(not (problems := site.check()), problems)
    tally.expect(not (differences := disagreement(site)), differences)
    tally.expect(not (left := site.left_running()), f"{left} processes still running")
    seen = f"{killed} kills, {lost['worker lost']} attempts lost; "
    from_kill = [wait.from_kill for wait in waits]
    tally.expect(max(from_kill, default=0.0) <= RESUMED, "the trial reported too late")
    seen += f"the trial reported again after {_spread(from_kill)} s; "
    seen += f"{sum(again.values())} intervals repeated"
    must = "resumed within 10 s on a quiet machine, <= 1 interval repeated per kill, other trials undisturbed"
    return [tally.row(f"{killed} workers killed", must, seen)]


def _kill_one(site: Site, driver: subprocess.Popen[str], chance: random.Random, waits: list[Wait]) -> bool:
    """Kill one training worker and wait for its trial to recover. Return False if the sweep has ended."""
    wanted = site.reports() + chance.choice((1, 2, 3))
    if not until(lambda: site.reports() >= wanted and not tired(site), driver):
        return False
    workers = site.titled("ray::Worker.train")
    if not workers:
        return True
    return _recovered(site, driver, "worker lost", chance.choice(workers).kill, waits)


def _recovered(
    site: Site, driver: subprocess.Popen[str], cause: str, harm: Callable[[], None], waits: list[Wait]
) -> bool:
    """Inject a fault and record the time until the trial reports again. Return False if the sweep ended."""
    before, began = _lost(site, cause), time.monotonic()
    much_later = site.reports() + MANY
    harm()
    if not until(lambda: len(_lost(site, cause)) > len(before) or site.reports() > much_later, driver):
        return False
    hit = _lost(site, cause) - before
    if not hit:
        return True  # the trial ended before the fault
    known = time.monotonic()
    if not until(lambda: all(_goes_on(site, *attempt) for attempt in hit), driver):
        return False
    waits.append(Wait(time.monotonic() - began, time.monotonic() - known))
    return True


def _lost(site: Site, cause: str) -> set[tuple[str, int]]:
    """Return the trial key and number of each attempt that was lost for a cause."""
    attempts = site.ledger.attempts(site.id)
    return {(attempt.trial_key, attempt.number) for attempt in attempts if attempt.cause == cause}


def _goes_on(site: Site, key: str, number: int) -> bool:
    """Return True if a trial has reported in a later attempt."""
    return any(
        int(report.attempt_id.rpartition(".")[2]) > number for report in site.ledger.trial_reports(key)
    )


def tired(site: Site) -> bool:
    """Return True if an unfinished trial must not lose another worker, or it might fail."""
    attempts = site.ledger.attempts(site.id)
    lost = Counter(attempt.trial_key for attempt in attempts if attempt.cause == "worker lost")
    running = {trial.key for trial in site.trials() if trial.state in ("RUNNING", "WAITING")}
    return any(lost[key] >= SPARED_AFTER for key in running)


def _spread(seconds: list[float]) -> str:
    """Return the median and the maximum, such as `6.3 (at most 8.1)`."""
    ordered = sorted(seconds) or [float("nan")]
    return f"{ordered[len(ordered) // 2]:.1f} (at most {ordered[-1]:.1f})"


def killed_nodes(dose: Dose) -> list[Row]:
    """Kill raylets of a three-node cluster, and start a replacement for each."""
    site, tally = Site(dose.folder, "nodes").write(trials=8, steps=14_000), Tally()
    cluster = _Cluster(site)
    waits: list[Wait] = []
    chance = random.Random(4)
    try:
        driver = site.drive(RAY_ADDRESS=cluster.address)
        while len(waits) < max(dose.kills // 2, 2):
            wanted = site.reports() + chance.choice((4, 6, 9))
            if not site.until_reports(wanted, driver):
                break
            if not _recovered(site, driver, "node lost", lambda: cluster.lose_node(chance), waits):
                break
        code, output = finish(driver, 2 * PATIENCE)
        tally.expect(code == 0, f"exit code {code}: {output[-300:]}")
        tally.expect("raylet" not in output, "Ray's own log was printed")
        lost = Counter(attempt.cause for attempt in site.ledger.attempts(site.id) if attempt.cause)
        tally.expect(set(lost) <= {"node lost"}, f"causes {dict(lost)}")
        failed = [trial.key for trial in site.trials() if trial.state != "COMPLETE"]
        tally.expect(not failed, f"{len(failed)} trials not complete")
        tally.expect(not (problems := site.check()), problems)
        tally.expect(not (differences := disagreement(site)), differences)
    finally:
        cluster.end()
    seen = f"{len(waits)} raylets killed, attempts lost: {dict(lost)}; "
    from_loss = [wait.from_loss for wait in waits]
    tally.expect(max(from_loss, default=0.0) <= RESCHEDULED, "the trial reported too late")
    seen += f"the trial reported again {_spread(from_loss)} s after its loss was noticed, "
    seen += f"{_spread([wait.from_kill for wait in waits])} s after the kill"
    must = "reports again within 30 s after the loss is noticed; not charged to the trial, others undisturbed"
    return [tally.row("raylets killed, three on one machine", must, seen)]


class _Cluster:
    """A Ray cluster: a head that runs no trials and two nodes with one processor, a raylet for each."""

    def __init__(self, site: Site) -> None:
        site.root.mkdir()
        token = site.root / "ray-token"
        token.touch(0o600)
        token.write_text("ab" * 32)
        self._environment = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "SWEEP_TEST_MARK": site.mark,
        }
        self._site = site
        self._nodes: list[subprocess.Popen[bytes]] = []
        self.address = f"127.0.0.1:{6400 + os.getpid() % 500}"
        self._start(
            "--head", f"--port={self.address.rpartition(':')[2]}", "--num-cpus=0", "--include-dashboard=false"
        )
        until(lambda: self._answers())
        for _ in range(2):
            self._join()

    def lose_node(self, chance: random.Random) -> None:
        """Kill the raylet of a node that runs trials, and start another node."""
        node = self._nodes.pop(chance.randrange(len(self._nodes)))
        raylets = [
            process
            for process in psutil.Process(node.pid).children(recursive=True)
            if process.name() == "raylet"
        ]
        for raylet in raylets:
            raylet.kill()
        node.wait(PATIENCE)
        self._join()

    def end(self) -> None:
        """Kill all processes of the cluster."""
        for process in self._site.alive():
            if process.pid != os.getpid():
                process.kill()

    def _join(self) -> None:
        """Start a node and wait until it has joined: two that start at once take the same sockets and die."""
        node = self._start(f"--address={self.address}", "--num-cpus=1")
        processes = psutil.Process(node.pid)
        until(lambda: "raylet" in {process.name() for process in processes.children(recursive=True)})
        time.sleep(SETTLES)
        assert node.poll() is None, "a node did not join"
        self._nodes.append(node)

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        ray = str(Path(sys.executable).with_name("ray"))
        return subprocess.Popen(
            [ray, "start", "--block", "--disable-usage-stats", "--node-ip-address=127.0.0.1", *options],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _answers(self) -> bool:
        command = [str(Path(sys.executable).with_name("ray")), "status", "--address", self.address]
        return (
            subprocess.run(command, env=self._environment, capture_output=True, check=False).returncode == 0
        )
