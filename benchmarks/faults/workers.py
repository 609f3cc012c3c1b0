"""R3, R4: processes and nodes that die under a trial."""

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
"""Seconds after which a node that has begun owns its sockets."""
MANY = 200
"""Reports after which a kill must have been noticed, if a trial was hit by it."""
SPARED_AFTER = 2
"""A trial may lose a worker three times; no trial is hurt more often than this."""
RESUMED = 10.0
"""Seconds from a worker's death to its trial's next report (R3)."""
RESCHEDULED = 30.0
"""Seconds from a node's death being known to its trial's next report (R4)."""


class Wait(NamedTuple):
    """Seconds until a trial that was hit reported again.

    Attributes:
        from_kill: since the process was killed.
        from_loss: since the ledger knew of it.
    """

    from_kill: float
    from_loss: float


def killed_workers(dose: Dose) -> list[Row]:
    """Kill the process of a trial again and again."""
    site = Site(dose.folder, "workers").write(trials=2 * dose.kills, steps=4000)
    driver, chance, tally = site.drive(), random.Random(3), Tally()
    waits: list[Wait] = []
    while len(waits) < dose.kills and _kill_one(site, driver, chance, waits):
        pass
    killed = len(waits)
    code, output = finish(driver, 2 * PATIENCE)
    tally.expect(code == 0, f"left {code}: {output[-300:]}")
    attempts = site.ledger.attempts(site.id)
    lost = Counter(each.cause for each in attempts if each.cause)
    tally.expect(set(lost) <= {"worker lost"}, f"causes {dict(lost)}")
    tally.expect(len(attempts) == len(site.trials()) + lost.total(), "siblings were started again too")
    again, losses = site.repeated(), Counter(each.trial_key for each in attempts if each.cause)
    tally.expect(all(again[key] <= losses[key] for key in again), f"repeated {again}")
    tally.expect(not (found := site.check()), found)
    tally.expect(not (found := disagreement(site)), found)
    tally.expect(not (left := site.left_running()), f"{left} processes left")
    seen = f"{killed} kills, {lost['worker lost']} attempts lost; "
    from_kill = [each.from_kill for each in waits]
    tally.expect(max(from_kill, default=0.0) <= RESUMED, "too late")
    seen += f"the trial reported again after {_spread(from_kill)} s; "
    seen += f"{sum(again.values())} intervals repeated"
    must = "resumed within 10 s of a quiet machine, <= 1 interval repeated a kill, siblings undisturbed"
    return [tally.row(f"{killed} workers killed", must, seen)]


def _kill_one(site: Site, driver: subprocess.Popen[str], chance: random.Random, waits: list[Wait]) -> bool:
    """Kill one worker that trains, and wait for its trial's next attempt; False once the sweep has ended."""
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
    """Harm a trial, and note how long it took until it reported again; False once the sweep has ended."""
    before, began = _lost(site, cause), time.monotonic()
    much_later = site.reports() + MANY
    harm()
    if not until(lambda: len(_lost(site, cause)) > len(before) or site.reports() > much_later, driver):
        return False
    hit = _lost(site, cause) - before
    if not hit:
        return True  # its trial had just ended
    known = time.monotonic()
    if not until(lambda: all(_goes_on(site, *each) for each in hit), driver):
        return False
    waits.append(Wait(time.monotonic() - began, time.monotonic() - known))
    return True


def _lost(site: Site, cause: str) -> set[tuple[str, int]]:
    """Return trial and number of the attempts that were lost by a cause."""
    attempts = site.ledger.attempts(site.id)
    return {(each.trial_key, each.number) for each in attempts if each.cause == cause}


def _goes_on(site: Site, key: str, number: int) -> bool:
    """Tell whether a trial has reported in a later attempt."""
    return any(int(each.attempt_id.rpartition(".")[2]) > number for each in site.ledger.reports(key))


def tired(site: Site) -> bool:
    """Tell whether a running trial has lost as many workers as it may without being given up."""
    lost = Counter(each.trial_key for each in site.ledger.attempts(site.id) if each.cause == "worker lost")
    running = {trial.key for trial in site.trials() if trial.state in ("RUNNING", "WAITING")}
    return any(lost[key] >= SPARED_AFTER for key in running)


def _spread(seconds: list[float]) -> str:
    """Return the median and the longest, such as `6.3 (at most 8.1)`."""
    ordered = sorted(seconds) or [float("nan")]
    return f"{ordered[len(ordered) // 2]:.1f} (at most {ordered[-1]:.1f})"


def killed_nodes(dose: Dose) -> list[Row]:
    """Kill raylets of a cluster of three, and start another for each."""
    site, tally = Site(dose.folder, "nodes").write(trials=8, steps=14_000), Tally()
    cluster = _Cluster(site)
    waits: list[Wait] = []
    chance = random.Random(4)
    try:
        driver = site.drive(RAY_ADDRESS=cluster.address)
        while len(waits) < max(dose.kills // 2, 2):
            wanted = site.reports() + chance.choice((4, 6, 9))
            if not until(lambda wanted=wanted: site.reports() >= wanted, driver):
                break
            if not _recovered(site, driver, "node lost", lambda: cluster.lose_node(chance), waits):
                break
        code, output = finish(driver, 2 * PATIENCE)
        tally.expect(code == 0, f"left {code}: {output[-300:]}")
        tally.expect("raylet" not in output, "Ray's own log was printed")
        lost = Counter(each.cause for each in site.ledger.attempts(site.id) if each.cause)
        tally.expect(set(lost) <= {"node lost"}, f"causes {dict(lost)}")
        failed = [trial.key for trial in site.trials() if trial.state != "COMPLETE"]
        tally.expect(not failed, f"{len(failed)} trials not complete")
        tally.expect(not (found := site.check()), found)
        tally.expect(not (found := disagreement(site)), found)
    finally:
        cluster.end()
    seen = f"{len(waits)} raylets killed, attempts lost: {dict(lost)}; "
    known = [each.from_loss for each in waits]
    tally.expect(max(known, default=0.0) <= RESCHEDULED, "too late")
    seen += f"the trial reported again {_spread(known)} s after its loss was known, "
    seen += f"{_spread([each.from_kill for each in waits])} s after the kill"
    must = "reports again within 30 s of the loss being known; not charged to the trial, siblings undisturbed"
    return [tally.row("raylets killed, three on one machine", must, seen)]


class _Cluster:
    """A head that runs no trial and two nodes of one processor, each a raylet of its own."""

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
        self._site, self._nodes = site, []
        self.address = f"127.0.0.1:{6400 + os.getpid() % 500}"
        self._start(
            "--head", f"--port={self.address.rpartition(':')[2]}", "--num-cpus=0", "--include-dashboard=false"
        )
        until(lambda: self._answers())
        for _ in range(2):
            self._join()

    def lose_node(self, chance: random.Random) -> None:
        """Kill the raylet of a node that runs trials, and let another one join."""
        node = self._nodes.pop(chance.randrange(len(self._nodes)))
        raylets = [
            each for each in psutil.Process(node.pid).children(recursive=True) if each.name() == "raylet"
        ]
        for raylet in raylets:
            raylet.kill()
        node.wait(PATIENCE)
        self._join()

    def end(self) -> None:
        """Kill all of it."""
        for process in self._site.alive():
            if process.pid != os.getpid():
                process.kill()

    def _join(self) -> None:
        """Let a node join, and wait for it: two that join at once take the same sockets, and both die."""
        node = self._start(f"--address={self.address}", "--num-cpus=1")
        until(lambda: "raylet" in {each.name() for each in psutil.Process(node.pid).children(recursive=True)})
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
        asked = [str(Path(sys.executable).with_name("ray")), "status", "--address", self.address]
        return subprocess.run(asked, env=self._environment, capture_output=True, check=False).returncode == 0
