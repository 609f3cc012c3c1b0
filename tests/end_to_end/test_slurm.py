"""cluster/slurm.sh on two hosts: Slurm's commands are replaced, and all that they start is real."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.faults.site import PLAIN, SPACE
from orchestrator.ledger.ledger import Ledger
from orchestrator.machines.cluster_file import ensure_token
from tests import postgres
from tests.end_to_end.commands import ROOT, Commands, finish, wait_for
from tests.end_to_end.network import NetworkHost, Switch, marks

pytestmark = marks(1200)
SRUN = """#!/bin/bash
# Runs on the job's first node: starts a step there itself, and hands one for the other node to its daemon.
while [[ $1 == -* ]]; do
  [[ $1 == --exclude=host-1 ]] && elsewhere=yes
  [[ $1 == -w ]] && shift
  shift
done
[[ -n ${elsewhere:-} ]] || exec "$@"
{ export -p; echo "cd '$PWD'; exec $*"; } >"$SPOOL/step.part"
mv "$SPOOL/step.part" "$SPOOL/step"
exec sleep infinity
"""
DAEMON = 'until mv "$SPOOL/step" "$SPOOL/taken"; do sleep 0.2; done; exec bash "$SPOOL/taken"'
SCONTROL = """#!/bin/bash
case $1 in
show) tr , '\\n' <<<"$3" ;;
requeue) echo "$2" >>"$SPOOL/requeued" ;;
esac
"""


class Job:
    """A job of two nodes, which can be started again as Slurm does after `scontrol requeue`."""

    def __init__(self, switch: Switch, commands: Commands, url: str) -> None:
        self.folder, self._switch = commands.folder / "project", switch
        (self.folder / "bin").mkdir(parents=True)
        (self.folder / ".venv").symlink_to(Path(sys.executable).parents[1])
        ensure_token(self.folder / "mlruns" / "ray-token")
        (self.folder / "space.yaml").write_text(SPACE.format(**{**PLAIN, "trials": 3, "steps": 60_000}))
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
            (self.folder / "bin" / name).write_text(text)
            (self.folder / "bin" / name).chmod(0o755)
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n10.9.0.1 host-1\n10.9.0.2 host-2\n")
        self._filled = self._fill_in(url)
        self._own = {
            "SPOOL": str(self.folder),
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "SLURM_SUBMIT_DIR": str(self.folder),
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_JOB_NODELIST": "host-1,host-2",
            "SWEEP_DATA": str(commands.shared / "data"),
            "JAX_COMPILATION_CACHE_DIR": os.environ["JAX_COMPILATION_CACHE_DIR"],
            "SWEEP_TEST_MARK": commands.mark,
            "RAY_worker_niceness": "0",
        }
        self.output = self.folder / "slurm-4711.out"
        self.hosts: list[NetworkHost] = []

    def _fill_in(self, url: str) -> Path:
        text = (ROOT / "cluster" / "slurm.sh").read_text()
        store = f"file://{self.folder}/store"
        for name, value in (("SWEEP_LEDGER", url), ("SWEEP_CHECKPOINTS", store)):
            text = re.sub(f"^export {name}=.*FILL-IN.*$", f"export {name}='{value}'", text, flags=re.M)
        text = re.sub("^export MLFLOW_TRACKING_URI=.*FILL-IN.*\n", "", text, flags=re.M)
        assert "FILL-IN" not in text
        file = self.folder / "slurm.sh"
        file.write_text(text)
        return file

    def start(self) -> subprocess.Popen[str]:
        """Allocate two nodes and run the script on the first one."""
        self.hosts = [NetworkHost(self._switch, number) for number in (1, 2)]
        for host in self.hosts:
            assert finish(host.run(["mount", "--bind", str(self.folder / "hosts"), "/etc/hosts"]))[0] == 0
        self.hosts[1].run(["bash", "-c", DAEMON], quiet=True, **self._own)
        words = f"bash {self._filled} space.yaml --quiet --set training.interval=500"
        script = ["bash", "-c", f"exec {words} >>{self.output} 2>&1"]
        return self.hosts[0].run(script, **self._own)

    def end(self) -> None:
        """Release the nodes and kill all processes on them, as Slurm does when the script has ended."""
        for host in self.hosts:
            host.end()
        self.hosts = []


@pytest.fixture
def job(switch: Switch, commands: Commands, postgres_server: postgres.Server) -> Iterator[Job]:
    """Yield a job that has not been started."""
    postgres_server.empty_database()
    new = Job(switch, commands, postgres_server.socket_url)
    yield new
    new.end()


def test_a_job_saves_its_trials_before_its_time_limit_and_resumes_when_it_is_requeued(
    job: Job, postgres_server: postgres.Server
) -> None:
    """As with `--signal=B:TERM@120`, only the script gets the signal; no step is run twice."""
    script = job.start()
    ledger = Ledger.open(postgres_server.socket_url)

    def nodes() -> set[str | None]:
        return {attempt.node for sweep in ledger.sweeps() for attempt in ledger.attempts(sweep.id)}

    wait_for(lambda: nodes() >= {"host-1", "host-2"} or script.poll() is not None, seconds=400)
    assert script.poll() is None, job.output.read_text()
    (inside,) = psutil.Process(script.pid).children()  # nsenter's
    inside.terminate()
    assert script.wait(280) == 4, job.output.read_text()
    job.end()
    assert (job.folder / "requeued").read_text() == "4711\n"
    (sweep,) = ledger.sweeps()
    assert sweep.state == "INTERRUPTED"
    assert job.start().wait(400) == 0, job.output.read_text()
    assert {trial.state for trial in ledger.trials(sweep.id)} == {"COMPLETE"}
    logs = [file.read_text() for file in (job.folder / "mlruns" / "logs" / sweep.id).glob("*.log")]
    for log in logs:
        steps = re.findall(r": step (\d+):", log)
        assert len(steps) == len(set(steps))
    ledger.close()
