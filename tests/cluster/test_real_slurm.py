"""cluster/slurm.sh under a real Slurm of one node: munge, slurmctld and slurmd in a folder of their own."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.pool.claims import pools
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.submissions import Submission
from orchestrator.machines.cluster_file import ensure_token
from orchestrator.sharing.pool_rows import UNIT
from tests import postgres
from tests.end_to_end.commands import ROOT, SMALL, wait_for

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
ENDLESS = [*SMALL, "--set", "training.steps=1_000_000", "--set", "budget.trials=1"]
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SchedulerParameters=batch_sched_delay=1,sched_interval=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, PROGRAMS)),
        reason="needs root and Slurm (Debian: slurm-wlm, munge)",
    ),
]


class Slurm:
    """A Slurm of this machine alone.

    Args:
        folder: for everything that it writes; its path must be short, and other users may look into it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("munge", "state", "spool"):
            (folder / name).mkdir(mode=0o711)
        (folder / "munge" / "key").write_bytes(os.urandom(1024))
        (folder / "munge" / "key").chmod(0o400)
        facts = {"folder": folder, "host": socket.gethostname(), "cpus": os.cpu_count()}
        (folder / "slurm.conf").write_text(CONFIGURATION.format(**facts, ports=_free_ports(2)))
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf")}
        own = [
            f"--{name}={folder}/munge/{name.partition('-')[0]}"
            for name in ("pid-file", "log-file", "seed-file")
        ]
        key = [f"--key-file={folder}/munge/key", f"--socket={folder}/munge/socket"]
        self._daemons = [self._start("munged", "--foreground", "--force", *key, *own)]
        wait_for(lambda: (folder / "munge" / "socket").exists(), seconds=30)
        self._daemons += [self._start("slurmctld", "-D"), self._start("slurmd", "-D")]
        wait_for(lambda: "idle" in self.run("sinfo", "--noheader", "--format=%T"), seconds=60)

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{command[0]}.out").open("wb") as output:
            return subprocess.Popen(
                command, env={**os.environ, **self.variables}, stdout=output, stderr=output
            )

    def run(self, *command: str, cwd: Path | None = None, **variables: str) -> str:
        """Return what a command prints."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.variables, **variables},
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.stdout + done.stderr

    def end(self) -> None:
        """Cancel all jobs and end the daemons."""
        self.run("scancel", "--user=root")
        wait_for(lambda: not self.run("squeue", "--noheader").strip(), seconds=60)
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait(30)


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@pytest.fixture
def slurm(temporary: Path) -> Iterator[Slurm]:
    """Yield a Slurm without jobs."""
    temporary.chmod(0o755)
    (temporary / "slurm").mkdir(mode=0o755)
    started = Slurm(temporary / "slurm")
    yield started
    started.end()


@pytest.fixture
def project(temporary: Path, postgres_server: postgres.Server) -> Path:
    """Return the folder from which jobs are submitted, with the values of the script filled in."""
    postgres_server.empty_database()
    folder = temporary / "project"
    folder.mkdir()
    (folder / ".venv").symlink_to(Path(sys.executable).parents[1])
    ensure_token(folder / "mlruns" / "ray-token")
    text = (ROOT / "cluster" / "slurm.sh").read_text()
    filled = {"SWEEP_LEDGER": postgres_server.socket_url, "SWEEP_CHECKPOINTS": f"file://{folder}/store"}
    for name, value in filled.items():
        text = re.sub(f"^export {name}=.*FILL-IN.*$", f"export {name}='{value}'", text, flags=re.M)
    text = re.sub("^export MLFLOW_TRACKING_URI=.*FILL-IN.*\n", "", text, flags=re.M)
    # A node with two processors, of which the job gets one; no GPU.
    for given, here in (("nodes=4", "nodes=1"), ("cpus-per-task=8", "cpus-per-task=1")):
        assert text.count(f"#SBATCH --{given}\n") == 1
        text = text.replace(f"#SBATCH --{given}\n", f"#SBATCH --{here}\n")
    text = text.replace("#SBATCH --gpus-per-node=1\n", "")
    assert "FILL-IN" not in text
    (folder / "slurm.sh").write_text(text)
    return folder


def test_a_requeued_job_continues_every_sweep_of_its_service(
    slurm: Slurm, project: Path, postgres_server: postgres.Server
) -> None:
    """Slurm signals the script two minutes before the job's limit; the next start of the job goes on."""
    variables = {
        "PYTHONPATH": str(ROOT),
        "SWEEP_DATA": str(project / "data"),
        "SWEEP_RUNTIME": str(project / "runtime"),
        "SWEEP_WARM": "0",
        "RAY_TMPDIR": str(project.parent),
    }
    limit = "--time=3"  # minutes: the signal comes after one
    printed = slurm.run("sbatch", limit, "slurm.sh", "serve", "--stop-drivers", cwd=project, **variables)
    job = printed.split()[-1]
    ledger_url = postgres_server.socket_url
    own = {**variables, "SWEEP_LEDGER": ledger_url, "SWEEP_CHECKPOINTS": f"file://{project}/store"}
    own["SWEEP_ROOT"] = str(project / "mlruns")
    sweep = [sys.executable, "-m", "orchestrator.sweep"]
    said = slurm.run(*sweep, "submit", *ENDLESS, "--key", "a", cwd=project, **own)
    with closing(Ledger.open(ledger_url)) as ledger:
        [entry] = submissions.submissions(ledger, ended=False)

        def submission() -> Submission:
            found = submissions.submission(ledger, entry.sweep_id)
            assert found is not None, said
            return found

        def reports() -> int:
            return len(ledger.reports(entry.sweep_id)) if ledger.sweep(entry.sweep_id) else 0

        wait_for(lambda: reports() > 0)
        wait_for(lambda: bool(pools(ledger)), seconds=30)
        [pool] = pools(ledger).values()
        assert pool.capacity.cpu == UNIT, "Ray counts the processors that Slurm has given to the job"
        wait_for(lambda: "PENDING" in slurm.run("squeue", "--noheader", "--format=%T"), seconds=300)
        record = ledger.sweep(entry.sweep_id)
        assert record is not None
        assert (record.state, record.reason) == ("INTERRUPTED", "stopped by SIGTERM")
        before = reports()
        slurm.run("scontrol", "update", f"jobid={job}", "StartTime=now")  # it would wait two minutes
        wait_for(lambda: reports() > before, seconds=300)
        assert "Restarts=1" in slurm.run("scontrol", "show", "job", job)
        assert (submission().state, submission().crashes) == ("STARTED", 0)
        slurm.run(*sweep, "stop", entry.sweep_id, cwd=project, **own)
        wait_for(lambda: submission().state == "ENDED")
