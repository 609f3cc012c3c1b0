"""The client, installed alone into an empty environment, submits a sweep and looks at it from there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from orchestrator.cli.app import VERBS
from release import client
from tests.end_to_end.commands import Commands, finish
from tests.orchestrator.cli.test_help import COMMANDS
from tests.orchestrator.web.server import FILE

ABSENT = ("ray", "jax", "flax", "optuna", "mlflow", "sqlalchemy", "alembic", "numpy", "scipy", "ruamel.yaml")
MOST_SECONDS = 0.5
"""Most CPU time of a verb, of the fastest of three runs."""

LOOKING = (
    *("--version", "--help", "list", "list --json", "status", "status {sweep}", "show {sweep}-0", "logs 0"),
    *("follow {sweep}", "queue", "report {sweep} --output page.html", "validate small.yaml", "quota ada"),
    "cost --since 7d",
    *("user list", "user log", "move {sweep} idle", "submit small.yaml", "run small.yaml"),
    *("compare {sweep}", "replay {sweep}"),
)
"""Command lines that may be repeated once the sweep is complete."""

REFUSED = ("stop nosuch", "resume nosuch", "retry-failed nosuch", "user add ada", "user revoke nosuch")
"""Command lines that the service refuses."""


@dataclass(frozen=True)
class Done:
    """A command that has ended; `seconds` is its CPU time."""

    code: int
    output: str
    seconds: float


@dataclass(frozen=True)
class Machine:
    """An environment with the client alone, and a service that it reaches over HTTP.

    Attributes:
        environment: Folder of the environment.
        folder: Working folder of the commands.
        variables: Environment variables of the commands, all of them.
    """

    environment: Path
    folder: Path
    variables: dict[str, str]

    def sweep(self, command: str) -> Done:
        """Run `sweep` with a command line."""
        return self.run([str(self.environment / "bin" / "sweep"), *command.split()])

    def run(self, words: Sequence[str]) -> Done:
        """Run a program."""
        output = self.folder / "output"
        with output.open("wb") as opened:
            process = subprocess.Popen(
                words, cwd=self.folder, env=self.variables, stdout=opened, stderr=subprocess.STDOUT
            )
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return Done(process.returncode, output.read_text(), usage.ru_utime + usage.ru_stime)


def test_the_client_has_the_verbs_of_a_remote_service_and_no_others() -> None:
    """A verb that takes `--server` imports nothing that only this machine needs."""
    reaching = {
        verb.split()[0]
        for verb, command in COMMANDS.items()
        if "server" in {parameter.name for parameter in command.params}
    }
    chosen = client.modules()
    assert {verb for verb, place in VERBS.items() if place.partition(":")[0] in chosen} == reaching


def test_the_client_requires_its_vendors_only() -> None:
    assert {vendor for module in client.modules() for vendor in client._vendors(module)} == client.VENDORS


def test_python_connects_where_only_the_client_is(tmp_path: Path) -> None:
    """It needs no other package, and names that need a ledger say what to install."""
    client.write_sources(tmp_path)
    code = """
import sys; sys.path.insert(0, sys.argv[1])
import orchestrator; assert orchestrator.__file__.startswith(sys.argv[1])
from orchestrator import BadInput, Sweep
print(Sweep.connect("https://sweeps.example.org", token="t").url)
for call in (
    lambda: Sweep.connect(token="t"),
    lambda: Sweep.load("small.yaml"),
    lambda: exec("from orchestrator import Trial"),
):
    try:
        call()
    except (AttributeError, BadInput, ImportError) as error:
        print(type(error).__name__, error)
"""
    words = [sys.executable, "-I", "-S", "-c", code, str(tmp_path)]  # without installed packages
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    install = "only the client is installed here"
    url, missing, loading, trial = done.stdout.splitlines()
    assert url == "https://sweeps.example.org"
    assert missing.startswith(f"BadInput SWEEP_URL must name a remote service, because {install}")
    assert loading.startswith(f"AttributeError Sweep.load needs the ledger, and {install}")
    assert trial.startswith(f"ImportError Trial needs the ledger, and {install}: install rotrnn-sweeps")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty environment into which the wheel of the client was installed with what it requires."""
    folder = tmp_path_factory.mktemp("client")
    client.main(str(folder))
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv" / "bin" / "python")]
    subprocess.run([*pip, "install", "--quiet", str(wheel)], check=True)
    return folder / "venv"


@pytest.fixture
def machine(commands: Commands, environment: Path, tmp_path: Path) -> Iterator[Machine]:
    service = commands.start("serve", "--http", "0", "--stop-drivers")
    assert service.stdout is not None
    address = next(
        found[0] for line in service.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+", line))
    )
    code, printed = commands.run("user", "add", "ada", "--role", "admin")
    assert code == 0, printed
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "small.yaml").write_text(FILE)
    variables = {"SWEEP_URL": address, "SWEEP_TOKEN": printed.split()[-1], "HOME": str(folder)}
    yield Machine(environment, folder, {**variables, "PATH": "/usr/bin:/bin"})
    service.terminate()
    finish(service, 60)


@pytest.mark.slow
@pytest.mark.end_to_end
@pytest.mark.timeout(900)
def test_a_sweep_is_submitted_followed_and_looked_at_where_only_the_client_is(machine: Machine) -> None:
    found = f"from importlib.util import find_spec as f; print([m for m in {ABSENT} if f(m.split('.')[0])])"
    assert machine.run([str(machine.environment / "bin" / "python"), "-c", found]).output == "[]\n"
    assert all(find_spec(name) for name in ABSENT), "they are in the environment of the service"

    submitted = machine.sweep("submit small.yaml")
    assert submitted.code == 0, submitted.output
    sweep = submitted.output.strip()
    followed = machine.sweep(f"follow {sweep}")
    assert followed.code == 0, followed.output
    assert "trials 2/2 (2 complete)" in followed.output
    assert re.search(rf"{sweep} +COMPLETE", machine.sweep("list").output)
    assert f"{sweep}-0: COMPLETE" in machine.sweep(f"show {sweep}-0").output
    machine.sweep(f"report {sweep} --output page.html")
    assert "<html" in (machine.folder / "page.html").read_text()

    for command in (*LOOKING, *REFUSED):
        runs = [machine.sweep(command.format(sweep=sweep)) for _ in range(3)]
        assert {run.code for run in runs} == {2 if command in REFUSED else 0}, runs[0].output
        fastest = min(run.seconds for run in runs)
        sys.stdout.write(f"{fastest:.3f} s  sweep {command}\n")
        assert fastest < MOST_SECONDS, command


@pytest.mark.slow
def test_the_client_says_what_it_lacks(environment: Path, tmp_path: Path) -> None:
    machine = Machine(environment, tmp_path, {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    refused = machine.sweep("list")
    assert refused.code == 2
    assert "--server must name a remote service, because only the client is installed here" in refused.output
    refused = machine.sweep("serve")
    assert refused.code == 2
    assert "`serve` is not part of the client." in refused.output
    connects = "from orchestrator import Sweep; Sweep.connect('https://sweeps.example.org', token='t')"
    connected = machine.run([str(environment / "bin" / "python"), "-c", connects])
    assert connected.code == 0, connected.output
    reports = machine.run([str(environment / "bin" / "python"), "-c", "import sweep_client"])
    assert reports.code == 0, reports.output
