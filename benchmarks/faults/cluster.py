"""A cluster of hosts on a private network, and a sweep whose ledger is in PostgreSQL."""

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
"""Ray's gRPC keepalive timeout in milliseconds, as set in cluster/."""
STARTED = re.compile(r"attempt (\d+): started at step \d+ on (host-\d+)")


def slowness() -> float:
    """Return the factor by which time limits are extended, from the load of the machine; at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class ClusterSite(Site):
    """A site whose commands run on the head node of a cluster; every other host has its own disks."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, name)
        programs, user = postgres.binaries(), postgres.unprivileged_user()
        assert programs is not None, "PostgreSQL is required"
        assert user is not None, "PostgreSQL needs an unprivileged user to run as"
        self._server = postgres.Server(programs, user)
        self.switch, self.hosts = Switch(), dict[int, NetworkHost]()
        for subfolder in ("mlruns/checkpoints", "shared"):
            (self.folder / subfolder).mkdir(parents=True)
        secret = ensure_token(self.root / "ray-token")
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(secret),
            "RAY_USAGE_STATS_ENABLED": "0",
            # On each host another folder. In a common one, hosts that start at once take the same sockets.
            "RAY_TMPDIR": "/tmp",
            # cluster/ sets the same value on every node.
            "RAY_grpc_keepalive_timeout_ms": KEEPALIVE,
            # With Ray's default niceness, a busy machine would starve the processes under test.
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
    def ledger(self) -> Ledger:
        """The ledger that the commands write to; opened once, because the server limits its connections."""
        return Ledger.open(self._server.socket_url)

    def reports(self) -> int:
        """Return the number of reports in the ledger."""
        return sum(len(self.ledger.reports(sweep.id)) for sweep in self.ledger.sweeps())

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command on the head node."""
        command = [sys.executable, "-m", "orchestrator.sweep", *arguments]
        return self.hosts[1].run(command, quiet=False, **self.environment, **environment)

    def join(self, number: int) -> None:
        """Add a host with one processor; number 1 is the head node. An existing host joins again."""
        if number not in self.hosts:
            disks = [] if number == 1 else [self.root / "checkpoints"]
            self.hosts[number] = NetworkHost(self.switch, number, disks)
        place = [f"--address=10.9.0.1:{PORT}"]
        if number == 1:
            place = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        host = self.hosts[number]
        own = [f"--node-ip-address={host.address}", "--num-cpus=1", "--disable-usage-stats"]
        # Ray refuses to start if the environment also names an address to join.
        environment = {**self.environment, "RAY_ADDRESS": ""}
        host.run([RAY, "start", "--block", *own, *place], quiet=True, **environment)
        if number == 1:
            until(lambda: host.run([RAY, "health-check"], quiet=True, **self.environment).wait() == 0)

    def lose(self, number: int) -> None:
        """Remove a host abruptly, together with its disks."""
        self.hosts.pop(number).end()

    def raylet(self, number: int) -> psutil.Process:
        """Return the raylet of a host."""
        address = f"--node_ip_address=10.9.0.{number}"
        return next(
            process for process in self.alive() if process.name() == "raylet" and address in process.cmdline()
        )

    def places(self) -> dict[str, str]:
        """Return the host of each running trial's latest attempt, omitting attempts that have not started."""
        hosts = {}
        for trial in self.trials():
            log = self.root / "logs" / self.id / f"{trial.key}.log"
            begun = dict(STARTED.findall(log.read_text())) if log.exists() else {}
            if trial.state == "RUNNING" and (host := begun.get(str(trial.attempts))):
                hosts[trial.key] = host
        return hosts

    def end(self) -> None:
        """Remove the hosts, the network and the database server, and kill the remaining processes."""
        for number in list(self.hosts):
            self.lose(number)
        self.switch.remove()
        self.ledger.close()
        self._server.remove()
        for process in self.alive():
            if process.pid != os.getpid():
                process.kill()
