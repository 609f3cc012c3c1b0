"""Test `ray up`, `ray submit` and `ray down` with cluster/own-machines.yaml, over a real sshd."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from orchestrator.cli.app import run_command
from orchestrator.ledger.ledger import Ledger
from orchestrator.machines.cluster_file import ensure_token
from tests.end_to_end.commands import ROOT, SMALL, Commands, finish, wait_for
from tests.end_to_end.host import Host, available

WHY_NOT = available()
pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]

BIN = Path(sys.executable).parent
SPACE = str(Path(SMALL[0]).relative_to(ROOT))
LONG = [SPACE, *SMALL[1:], "--set", "budget.trials=3", "--set", "training.steps=600"]
WITHOUT_A_TOKEN = "import ray; ray.init(address='127.0.0.1:6379', logging_level='CRITICAL')"


@pytest.fixture
def host(commands: Commands) -> Iterator[Host]:
    """Yield a machine that accepts SSH."""
    home = commands.folder / "host" / "home"
    own = {
        "SWEEP_TEST_MARK": commands.mark,
        "PYTHONPATH": str(home / "sweeps"),
        # With Ray's default niceness, workers that compile on a busy machine would get no processor time.
        "RAY_worker_niceness": "0",
        "JAX_COMPILATION_CACHE_DIR": os.environ["JAX_COMPILATION_CACHE_DIR"],
    }
    machine = Host(commands.folder / "host", own)
    yield machine
    machine.end()


@pytest.fixture
def cluster_file(commands: Commands, host: Host) -> Path:
    """Fill in cluster/own-machines.yaml; link the environment, because installing it takes minutes."""
    (commands.shared / "data").mkdir(exist_ok=True)
    plain, file = YAML(typ="safe", pure=True), commands.folder / "cluster.yaml"
    document = plain.load(ROOT / "cluster" / "own-machines.yaml")
    document["cluster_name"] = f"test-{os.getpid()}"
    document["provider"]["head_ip"] = "127.0.0.1"
    document["auth"] = {"ssh_user": "root", "ssh_private_key": str(host.key)}
    document["setup_commands"][0] = f"ln -sfn {BIN.parent} ~/sweeps/.venv"
    document["file_mounts"]["~/sweeps/data"] = str(commands.shared / "data")
    document["file_mounts"]["~/sweeps/mlruns/ray-token"] = str(ensure_token(commands.folder / "ray-token"))
    plain.dump(document, file)
    return file


def ray(host: Host, *arguments: str) -> subprocess.Popen[str]:
    """Start one of Ray's commands on the machine."""
    return host.run(["ray", *arguments], PATH=f"{BIN}:{os.environ['PATH']}")


def reports(ledger_file: Path) -> int:
    """Return the number of reports in a ledger; 0 if it does not exist yet."""
    if not ledger_file.exists():
        return 0
    ledger = Ledger.open(f"sqlite:///{ledger_file}")
    return sum(len(ledger.reports(sweep.id)) for sweep in ledger.sweeps())


def test_a_sweep_outlives_the_ssh_client_that_submitted_it(host: Host, cluster_file: Path) -> None:
    """The client is killed during the sweep and started again: one sweep, each trial run once."""
    assert run_command(["cluster", "check", str(cluster_file)]) == 0
    code, output = finish(ray(host, "up", "-y", "--no-config-cache", str(cluster_file)))
    assert code == 0, output
    token = host.home / "sweeps" / "mlruns" / "ray-token"
    assert token.stat().st_mode & 0o777 == 0o600
    joined = host.run([sys.executable, "-c", WITHOUT_A_TOKEN], RAY_AUTH_MODE="disabled")
    code, output = finish(joined)
    assert code != 0
    assert "nauthenticated" in output or "uthentication" in output, output

    submit = ["submit", "--no-config-cache", str(cluster_file), "orchestrator/sweep.py", "--", *LONG]
    submitted = ray(host, *submit)
    ledger_file = host.home / "sweeps" / "mlruns" / "sweeps.db"
    wait_for(lambda: reports(ledger_file) >= 5 or submitted.poll() is not None, seconds=400)
    assert submitted.poll() is None, submitted.communicate()[0]
    os.killpg(submitted.pid, signal.SIGKILL)
    submitted.wait()
    before = reports(ledger_file)
    wait_for(lambda: reports(ledger_file) > before + 5, seconds=400)

    code, output = finish(ray(host, *submit))
    assert code == 0, output
    assert "drives retrieval-laptop" in output
    assert "Chosen: retrieval-laptop" in output
    ledger = Ledger.open(f"sqlite:///{ledger_file}")
    (sweep,) = ledger.sweeps()
    trials = ledger.trials(sweep.id)
    assert {trial.state for trial in trials} <= {"COMPLETE", "PRUNED"}
    assert [trial.attempts for trial in trials] == [1, 1, 1]
    _check_only_in_its_file(token.read_text(), host.home)

    code, output = finish(ray(host, "down", "-y", str(cluster_file)))
    assert code == 0, output
    assert "No nodes remaining" in output


def _check_only_in_its_file(token: str, folder: Path) -> None:
    """Check that no file of a folder except its own contains the token."""
    search = ["grep", "-rlaF", token, str(folder)]
    files = subprocess.run(search, capture_output=True, text=True, check=False)
    assert files.stdout.split() == [str(folder / "sweeps" / "mlruns" / "ray-token")]
