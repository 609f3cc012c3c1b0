"""Whoever has no token gets nothing of a head as cluster/ starts it; whoever has it submits jobs to it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from orchestrator.machines.cluster_file import ensure_token
from tests.end_to_end.commands import ROOT, SMALL, Commands, finish, wait_for
from tests.end_to_end.network import NetworkHost, Switch, marks

pytestmark = [
    *marks(600),
    pytest.mark.skipif(
        importlib.util.find_spec("opencensus") is None, reason="needs the extra `jobs`: make test-slow JOBS=1"
    ),
]
BIN = Path(sys.executable).parent
STRANGER = Path(__file__).with_name("stranger.py")  # not imported: it needs what the extra brings
DASHBOARD = "http://127.0.0.1:8265"
REFUSED = {401, 403, "UNAUTHENTICATED"}
LONG = [*SMALL, "--set", "budget.trials=3", "--set", "training.steps=600"]
REQUEST = """
import sys, urllib.error, urllib.request
method, address, *headers = sys.argv[1:]
asked = urllib.request.Request(address, b"{}" if method == "POST" else None, method=method)
for header in headers:
    asked.add_header(*header.split(": ", 1))
try:
    print(urllib.request.urlopen(asked, timeout=30).status)
except urllib.error.HTTPError as refused:
    print(refused.code)
"""


class Head(NetworkHost):
    """A host whose home is laid out as a node of ours, and on which Ray is started as cluster/ does."""

    def __init__(self, switch: Switch, commands: Commands) -> None:
        super().__init__(switch, 1)
        self._home, self._commands = commands.folder / "home", commands
        project = self._home / "sweeps"
        (project / "mlruns").mkdir(parents=True)
        (project / ".venv").symlink_to(BIN.parent)
        self.token = ensure_token(project / "mlruns" / "ray-token").read_text()

    def do(self, command: str, **changes: str) -> subprocess.Popen[str]:
        """Start a command with what every shell on a node has."""
        own = {
            "HOME": str(self._home),
            "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT)),
            "SWEEP_ROOT": str(self._commands.root),
            "SWEEP_DATA": str(self._commands.shared / "data"),
            "JAX_COMPILATION_CACHE_DIR": str(self._commands.shared / "compilations"),
            "SWEEP_TEST_MARK": self._commands.mark,
            "RAY_worker_niceness": "0",
        }
        given = "; ".join(f"export {name}={value}" for name, value in changes.items())
        script = f". {ROOT / 'cluster' / 'node.sh'}; {given or ':'}; cd /; {command}"
        return self.run(["bash", "-c", script], **own)

    def start(self) -> None:
        """Start Ray by the last command of cluster/own-machines.yaml."""
        document = YAML(typ="safe").load(ROOT / "cluster" / "own-machines.yaml")
        command = document["head_start_ray_commands"][-1]
        without = re.sub(r"--autoscaling-config=\S+", f"--node-ip-address={self.address}", command)
        for _ in range(2):  # Ray's patience with a busy machine is fixed: 30 s
            code, output = finish(self.do(without))
            if code == 0:
                # The dashboard, and the agent that starts the head's jobs.
                return wait_for(lambda: {8265, 52365} <= self.listening().keys())
        raise AssertionError(output)

    def listening(self) -> dict[int, set[str]]:
        """Return the ports that somebody listens at, and on which addresses."""
        _, output = finish(self.do("ss -Hltn"))
        found: dict[int, set[str]] = {}
        for line in output.splitlines():
            address, _, port = line.split()[3].rpartition(":")
            found.setdefault(int(port), set()).add(address)
        return found


@pytest.fixture
def head(switch: Switch, commands: Commands) -> Iterator[Head]:
    """Give a head on which nothing runs yet."""
    host = Head(switch, commands)
    yield host
    host.end()


@pytest.fixture
def neighbour(switch: Switch) -> Iterator[NetworkHost]:
    """Give another host on the same network."""
    host = NetworkHost(switch, 2)
    yield host
    host.end()


def asked(
    asker: NetworkHost, host: str, secret: str, ports: dict[int, set[str]]
) -> dict[int, dict[str, int | str]]:
    """Return what each port answers."""
    command = [sys.executable, str(STRANGER), host, secret, *map(str, ports)]
    code, output = finish(asker.run(command, GRPC_VERBOSITY="NONE"))
    assert code == 0, output
    return {int(port): answers for port, answers in json.loads(output.splitlines()[-1]).items()}


def request(head: Head, method: str, path: str, *headers: str) -> int:
    code, output = finish(head.run([sys.executable, "-c", REQUEST, method, DASHBOARD + path, *headers]))
    assert code == 0, output
    return int(output)


def test_no_port_of_a_head_answers_without_its_token(head: Head, neighbour: NetworkHost) -> None:
    """From its network and from itself; an agent tells whether it is well, the dashboard shows its frame."""
    head.start()
    ports = head.listening()
    assert ports[8265] == {"127.0.0.1"}
    for secret in ("", "0" * 64):
        answers = asked(neighbour, head.address, secret, ports)
        assert set(answers) == set(ports)
        assert answers[52365].pop("/api/healthz") == 200
        for port, told in answers.items():
            assert set(told.values()) <= REFUSED, (port, told)
            assert told or ports[port] == {"127.0.0.1"}, f"nothing was asked of port {port}"
    page = asked(head, "127.0.0.1", "", {8265: set()})[8265]
    assert (page.pop("/"), page.pop("/api/healthz")) == (200, 404)
    assert set(page.values()) == {401}
    told = asked(neighbour, head.address, head.token.strip(), ports)
    assert any("OK" in each.values() for each in told.values()), "a token that opens must open"


def test_a_foreign_page_gets_nothing_of_the_dashboard(head: Head) -> None:
    """Neither by a forged name of the host nor by a browser that has the token."""
    head.start()
    mine, page = f"Authorization: Bearer {head.token.strip()}", "Origin: http://evil.example"
    forged = ("GET", "/api/version", "Host: evil.example")
    assert request(head, "GET", "/api/version", mine) == 200
    assert request(head, *forged) == 401
    assert request(head, *forged, "Cookie: ray-authentication-token=x") == 403
    for method, path in (("POST", "/api/jobs/"), ("DELETE", "/api/jobs/x"), ("POST", "/api/jobs/x/stop")):
        assert request(head, method, path, page) == 401
        assert request(head, method, path, page, mine) == 405


def test_a_sweep_of_this_machine_alone_opens_no_port_either(
    head: Head, neighbour: NetworkHost, commands: Commands
) -> None:
    """The Ray that a driver starts by itself is closed in the same way."""
    # Without a way out Ray would listen on the loopback alone.
    assert finish(head.do("ip route add default dev eth0"))[0] == 0
    driver = head.do(f"python -m orchestrator.sweep {' '.join(LONG)}", RAY_ADDRESS="")
    wait_for(lambda: _reports(commands) > 0 or driver.poll() is not None)
    assert driver.poll() is None, driver.communicate()[0]
    ports = head.listening()
    answers = asked(neighbour, head.address, "", ports)
    driver.send_signal(signal.SIGTERM)
    assert answers[52365].pop("/api/healthz") == 200
    assert any(answers.values())
    assert {answer for told in answers.values() for answer in told.values()} <= REFUSED, answers
    finish(driver)


def _reports(commands: Commands) -> int:
    if not (commands.root / "sweeps.db").exists():
        return 0
    ledger = commands.ledger
    return sum(len(ledger.reports(sweep.id)) for sweep in ledger.sweeps())


def test_a_job_outlives_the_client_that_submitted_it(head: Head, commands: Commands) -> None:
    """Submitted with the token, the client killed half-way: one sweep, to its end, each trial run once."""
    head.start()
    submit = f"ray job submit --address {DASHBOARD} -- python -m orchestrator.sweep {' '.join(LONG)}"
    code, output = finish(head.do(submit, RAY_AUTH_MODE="disabled"))
    assert code != 0
    assert "authentication is enabled" in output
    assert not (commands.root / "sweeps.db").exists()
    client = head.do(submit)
    wait_for(lambda: _reports(commands) >= 5 or client.poll() is not None, seconds=300)
    assert client.poll() is None, client.communicate()[0]
    os.killpg(client.pid, signal.SIGKILL)
    (job,) = set(re.findall(r"raysubmit_\w+", client.communicate()[0]))
    before = _reports(commands)
    wait_for(lambda: _reports(commands) > before + 5, seconds=300)
    wait_for(lambda: "succeeded" in _job(head, job), seconds=300)
    _, printed = finish(head.do(f"ray job logs --address {DASHBOARD} {job}"))
    assert "Chosen: retrieval-laptop" in printed
    ledger = commands.ledger
    (sweep,) = ledger.sweeps()
    assert sweep.state == "COMPLETE"
    assert [trial.attempts for trial in ledger.trials(sweep.id)] == [1, 1, 1]


def _job(head: Head, job: str) -> str:
    return finish(head.do(f"ray job status --address {DASHBOARD} {job}"))[1].lower()
