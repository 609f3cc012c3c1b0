"""A cluster of hosts on a network of their own, and a sweep whose ledger is on PostgreSQL."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cached_property
from pathlib import Path

import psutil

from benchmarks.faults.site import Site, until
from orchestrator.ledger.ledger import Ledger
from orchestrator.machines.cluster_file import ensure_token
from tests import postgres
from tests.end_to_end.network import NetworkHost, Switch

RAY = str(Path(sys.executable).with_name("ray"))
PORT = 6379
KEEPALIVE = "60000"
"""Milliseconds, as in cluster/."""
STARTED = re.compile(r"attempt (\d+): started at step \d+ on (host-\d+)")


def slowness() -> float:
    """Return how much longer than on a quiet machine things may take: by its load."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class ClusterSite(Site):
    """A site whose commands run on the head of a cluster; each other host has disks of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, name)
        programs, user = postgres.binaries(), postgres.unprivileged_user()
        assert programs is not None, "needs PostgreSQL"
        assert user is not None, "needs a user that PostgreSQL may run as"
        self._server = postgres.Server(programs, user)
        self.switch, self.hosts = Switch(), dict[int, NetworkHost]()
        for each in ("mlruns/checkpoints", "shared"):
            (self.folder / each).mkdir(parents=True)
        secret = ensure_token(self.root / "ray-token")
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(secret),
            "RAY_USAGE_STATS_ENABLED": "0",
            # As cluster/ sets it on every node.
            "RAY_grpc_keepalive_timeout_ms": KEEPALIVE,
            # Otherwise a busy machine starves exactly the processes that are looked at.
            "RAY_worker_niceness": "0",
            "SWEEP_TEST_MARK": self.mark,
            "SWEEP_ROOT": str(self.root),
            "SWEEP_DATA": str(self.shared / "data"),
            "JAX_COMPILATION_CACHE_DIR": str(self.shared / "compilations"),
            "SWEEP_LEDGER": self._server.socket_url,
            "SWEEP_CHECKPOINTS": f"file://{self.folder}/shared",
            "RAY_ADDRESS": f"10.9.0.1:{PORT}",
        }

    @cached_property
    def ledger(self) -> Ledger:  # type: ignore[override]
        """Open the ledger that the commands write, once: a server counts its connections."""
        return Ledger.open(self._server.socket_url)

    def reports(self) -> int:
        """Return how many reports the ledger has."""
        return sum(len(self.ledger.reports(sweep.id)) for sweep in self.ledger.sweeps())

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command on the head."""
        command = [sys.executable, "-m", "orchestrator.sweep", *arguments]
        return self.hosts[1].run(command, **self.environment, **environment)

    def join(self, number: int) -> None:
        """Let a host of one processor join; the first one is the head. One that is there joins again."""
        if number not in self.hosts:
            own = [] if number == 1 else [self.root / "checkpoints"]
            self.hosts[number] = NetworkHost(self.switch, number, own)
        place = [f"--address=10.9.0.1:{PORT}"]
        if number == 1:
            place = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        host = self.hosts[number]
        own = [f"--node-ip-address={host.address}", "--num-cpus=1", "--disable-usage-stats"]
        # Ray refuses to start with an address to join in the environment as well.
        environment = {**self.environment, "RAY_ADDRESS": ""}
        host.run([RAY, "start", "--block", *own, *place], quiet=True, **environment)
        if number == 1:
            until(lambda: host.run([RAY, "health-check"], quiet=True, **self.environment).wait() == 0)

    def lose(self, number: int) -> None:
        """Let a host be gone at once, with its disks."""
        self.hosts.pop(number).end()

    def raylet(self, number: int) -> psutil.Process:
        """Return the raylet of a host."""
        address = f"--node_ip_address=10.9.0.{number}"
        return next(each for each in self.alive() if each.name() == "raylet" and address in each.cmdline())

    def places(self) -> dict[str, str]:
        """Return where each running trial's last attempt runs, as far as it has begun."""
        found = {}
        for trial in self.trials():
            log = self.root / "logs" / self.id / f"{trial.key}.log"
            begun = dict(STARTED.findall(log.read_text())) if log.exists() else {}
            if trial.state == "RUNNING" and (host := begun.get(str(trial.attempts))):
                found[trial.key] = host
        return found

    def end(self) -> None:
        """Take everything away."""
        for number in list(self.hosts):
            self.lose(number)
        self.switch.remove()
        self.ledger.close()
        self._server.remove()
        for process in self.alive():
            if process.pid != os.getpid():
                process.kill()
