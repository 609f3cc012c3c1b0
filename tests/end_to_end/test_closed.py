"""A head that is started as in cluster/ refuses every request without its token, and accepts jobs with it."""

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
STRANGER = Path(__file__).with_name("stranger.py")  # run, not imported: it needs packages of the extra
DASHBOARD = "http://127.0.0.1:8265"
REFUSED = {401, 403, "UNAUTHENTICATED"}
LONG = [*SMALL, "--set", "budget.trials=3", "--set", "training.steps=600"]
REQUEST = """
import sys, urllib.error, urllib.request
method, address, *headers = sys.argv[1:]
request = urllib.request.Request(address, b"{}" if method == "POST" else None, method=method)
for header in headers:
    request.add_header(*header.split(": ", 1))
try:
    print(urllib.request.urlopen(request, timeout=30).status)
except urllib.error.HTTPError as refused:
    print(refused.code)
"""


class Head(NetworkHost):
    """A host with the home folder of a cluster node, on which Ray is started as in cluster/."""

    def __init__(self, switch: Switch, commands: Commands) -> None:
        super().__init__(switch, 1)
        self._home, self._commands = commands.folder / "home", commands
        project = self._home / "sweeps"
        (project / "mlruns").mkdir(parents=True)
        (project / ".venv").symlink_to(BIN.parent)
        self.token = ensure_token(project / "mlruns" / "ray-token").read_text()

    def run_in_shell(self, command: str, **variables: str) -> subprocess.Popen[str]:
        """Start a command in the environment of a node's shells, with further environment variables."""
        own = {
            "HOME": str(self._home),
            "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT)),
            "SWEEP_ROOT": str(self._commands.root),
            "SWEEP_DATA": str(self._commands.shared / "data"),
            "JAX_COMPILATION_CACHE_DIR": os.environ["JAX_COMPILATION_CACHE_DIR"],
            "SWEEP_TEST_MARK": self._commands.mark,
            "RAY_worker_niceness": "0",
        }
        exports = "; ".join(f"export {name}={value}" for name, value in variables.items())
        script = f". {ROOT / 'cluster' / 'node.sh'}; {exports or ':'}; cd /; {command}"
        return self.run(["bash", "-c", script], **own)

    def start(self) -> None:
        """Start Ray with the last command of cluster/own-machines.yaml."""
        document = YAML(typ="safe").load(ROOT / "cluster" / "own-machines.yaml")
        command = document["head_start_ray_commands"][-1]
        start = re.sub(r"--autoscaling-config=\S+", f"--node-ip-address={self.address}", command)
        for _ in range(2):  # Ray's own timeout of 30 s is too short for a busy machine
            code, output = finish(self.run_in_shell(start))
            if code == 0:
                # The dashboard, and the agent that starts jobs on the head.
                return wait_for(lambda: {8265, 52365} <= self.listening().keys())
        raise AssertionError(output)

    def listening(self) -> dict[int, set[str]]:
        """Return the addresses on which processes listen, by port."""
        _, output = finish(self.run_in_shell("ss -Hltn"))
        addresses: dict[int, set[str]] = {}
        for line in output.splitlines():
            address, _, port = line.split()[3].rpartition(":")
            addresses.setdefault(int(port), set()).add(address)
        return addresses


@pytest.fixture
def head(switch: Switch, commands: Commands) -> Iterator[Head]:
    """Yield a head on which Ray is not running yet."""
    host = Head(switch, commands)
    yield host
    host.end()


@pytest.fixture
def neighbour(switch: Switch) -> Iterator[NetworkHost]:
    """Yield another host on the same network."""
    host = NetworkHost(switch, 2)
    yield host
    host.end()


def answers_of(
    host: str, token: str, ports: dict[int, set[str]], *, asked_from: NetworkHost
) -> dict[int, dict[str, int | str]]:
    """Return the answers of ports of a host to requests from another host, by port and request."""
    command = [sys.executable, str(STRANGER), host, token, *map(str, ports)]
    code, output = finish(asked_from.run(command, GRPC_VERBOSITY="NONE"))
    assert code == 0, output
    return {int(port): answers for port, answers in json.loads(output.splitlines()[-1]).items()}


def request(head: Head, method: str, path: str, *headers: str) -> int:
    """Send a request to the dashboard from the head itself; return the HTTP status."""
    code, output = finish(head.run([sys.executable, "-c", REQUEST, method, DASHBOARD + path, *headers]))
    assert code == 0, output
    return int(output)


def test_no_port_of_a_head_answers_without_its_token(head: Head, neighbour: NetworkHost) -> None:
    """Answered are only an agent's health check and, on the head itself, the dashboard's static page."""
    head.start()
    ports = head.listening()
    assert ports[8265] == {"127.0.0.1"}
    for token in ("", "0" * 64):
        answers = answers_of(head.address, token, ports, asked_from=neighbour)
        assert set(answers) == set(ports)
        assert answers[52365].pop("/api/healthz") == 200
        for port, answer in answers.items():
            assert set(answer.values()) <= REFUSED, (port, answer)
            assert answer or ports[port] == {"127.0.0.1"}, f"port {port} answered no request"
    page = answers_of("127.0.0.1", "", {8265: set()}, asked_from=head)[8265]
    assert (page.pop("/"), page.pop("/api/healthz")) == (200, 404)
    assert set(page.values()) == {401}
    answers = answers_of(head.address, head.token.strip(), ports, asked_from=neighbour)
    assert any("OK" in answer.values() for answer in answers.values()), "the right token must be accepted"


def test_the_dashboard_refuses_pages_of_other_sites(head: Head) -> None:
    """Neither a forged host name nor a browser that holds the token lets such a page read or write."""
    head.start()
    authorization, page = f"Authorization: Bearer {head.token.strip()}", "Origin: http://evil.example"
    forged = ("GET", "/api/version", "Host: evil.example")
    assert request(head, "GET", "/api/version", authorization) == 200
    assert request(head, *forged) == 401
    assert request(head, *forged, "Cookie: ray-authentication-token=x") == 403
    for method, path in (("POST", "/api/jobs/"), ("DELETE", "/api/jobs/x"), ("POST", "/api/jobs/x/stop")):
        assert request(head, method, path, page) == 401
        assert request(head, method, path, page, authorization) == 405


def test_a_driver_without_a_cluster_opens_no_port_either(
    head: Head, neighbour: NetworkHost, commands: Commands
) -> None:
    """The Ray that a driver starts by itself listens on the loopback address alone, also beside a network."""
    # Without a default route, Ray would do so anyway.
    assert finish(head.run_in_shell("ip route add default dev eth0"))[0] == 0
    driver = head.run_in_shell(f"python -m orchestrator.sweep {' '.join(LONG)}", RAY_ADDRESS="")
    wait_for(lambda: _reports(commands) > 0 or driver.poll() is not None)
    assert driver.poll() is None, driver.communicate()[0]
    ports = head.listening()
    answers = answers_of(head.address, "", ports, asked_from=neighbour)
    driver.send_signal(signal.SIGTERM)
    assert ports
    listening = {address.strip("[]").removeprefix("::ffff:") for port in ports.values() for address in port}
    assert listening <= {"127.0.0.1", "::1"}
    assert not any(answers.values()), answers
    finish(driver)


def _reports(commands: Commands) -> int:
    """Return the number of reports in the ledger; 0 if it does not exist yet."""
    if not (commands.root / "sweeps.db").exists():
        return 0
    ledger = commands.ledger
    return sum(len(ledger.reports(sweep.id)) for sweep in ledger.sweeps())


def test_a_job_outlives_the_client_that_submitted_it(head: Head, commands: Commands) -> None:
    """The client is killed during the sweep: the job completes one sweep and runs each trial once."""
    head.start()
    submit = f"ray job submit --address {DASHBOARD} -- python -m orchestrator.sweep {' '.join(LONG)}"
    code, output = finish(head.run_in_shell(submit, RAY_AUTH_MODE="disabled"))
    assert code != 0
    assert "authentication is enabled" in output
    assert not (commands.root / "sweeps.db").exists()
    client = head.run_in_shell(submit)
    wait_for(lambda: _reports(commands) >= 5 or client.poll() is not None, seconds=300)
    assert client.poll() is None, client.communicate()[0]
    os.killpg(client.pid, signal.SIGKILL)
    (job,) = set(re.findall(r"raysubmit_\w+", client.communicate()[0]))
    before = _reports(commands)
    wait_for(lambda: _reports(commands) > before + 5, seconds=300)
    wait_for(lambda: "succeeded" in _job(head, job), seconds=300)
    _, printed = finish(head.run_in_shell(f"ray job logs --address {DASHBOARD} {job}"))
    assert "Chosen: retrieval-laptop" in printed
    ledger = commands.ledger
    (sweep,) = ledger.sweeps()
    assert sweep.state == "COMPLETE"
    assert [trial.attempts for trial in ledger.trials(sweep.id)] == [1, 1, 1]


def _job(head: Head, job: str) -> str:
    """Return what `ray job status` prints, in lower case."""
    return finish(head.run_in_shell(f"ray job status --address {DASHBOARD} {job}"))[1].lower()
