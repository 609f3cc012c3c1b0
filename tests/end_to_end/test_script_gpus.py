"""Functions and commands with parts of GPUs, several GPUs or several nodes, on a real Ray with fake GPUs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from orchestrator.ledger.sweeps.records import TrialRecord
from orchestrator.session.limits import UNCHARGED
from tests.end_to_end.commands import Commands, wait_for
from tests.shared_ray import own_ray

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(600)]

REST = """
search: {rate: {uniform: [0, 1]}}
objective: {minimize: val/loss}
sampler: {random: {seed: 1}}
scheduler: none
"""

SHARING = """
import json, os, sys, time
from pathlib import Path

def train(trial):
    seen = Path(sys.argv[0]).parent / "seen"
    number = len(list(seen.iterdir()))
    names = ("CUDA_VISIBLE_DEVICES", "SWEEP_GPUS", "SWEEP_GPU_MEMORY")
    facts = {"began": time.time(), **{name: os.environ.get(name) for name in names}}
    with open(seen / str(os.getpid()), "x") as file:
        json.dump(facts, file)
    while not (seen.parent / "go").exists():
        time.sleep(0.05)
    if trial.params["rate"] < 0.2:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    trial.report(1, {"val/loss": trial.params["rate"]})
"""


def test_four_trials_share_a_device_and_one_that_lacks_memory_fails_alone(
    commands: Commands, temporary: Path
) -> None:
    """The fifth waits for a quarter of the only GPU; each sees that GPU and the bound of its memory."""
    folder = commands.folder / "own"
    (folder / "seen").mkdir(parents=True)
    (folder / "train.py").write_text(SHARING)
    file = folder / "shared.yaml"
    file.write_text(f"""
trainable: {{function: "train.py:train"}}
training: {{steps: 1, interval: 1}}
budget: {{trials: 9}}
resources: {{gpu: 1/4, cpu: 0.1}}
{REST}""")

    def seen() -> list[dict[str, str]]:
        return [json.loads(one.read_text() or "{}") for one in (folder / "seen").iterdir()]

    with own_ray(temporary) as ray:
        variables = {**ray, "SWEEP_HOST_DEVICES": "1"}
        driver = commands.start(str(file), "--here", "--quiet", **variables)
        wait_for(lambda: len(seen()) >= 4 or driver.poll() is not None, 300)
        wait_for(lambda: sum(trial.state == "RUNNING" for trial in trials(commands)) >= 4)
        assert len(seen()) == 4, "the fifth waits"
        (folder / "go").touch()
        output, _ = driver.communicate(timeout=280)
    assert {facts["CUDA_VISIBLE_DEVICES"] for facts in seen()} == {"0"}
    assert {(facts["SWEEP_GPUS"], facts["SWEEP_GPU_MEMORY"]) for facts in seen()} == {("1", "0.225")}
    lacking = {trial.key for trial in trials(commands) if trial.params["rate"] < 0.2}
    assert lacking, "the seed draws at least one"
    failed = {trial.key: trial.cause for trial in trials(commands) if trial.state == "FAILED"}
    assert failed.keys() == lacking, output
    assert all(str(cause).startswith("out of GPU memory") for cause in failed.values())
    log = next((commands.root).rglob("*-0.log")).read_text()
    assert "its GPUs: 0; at most 22.5% of the memory" in log


def test_a_command_has_all_gpus_of_its_trial(commands: Commands, temporary: Path) -> None:
    """Two of four GPUs each: two trials at once, which see different ones."""
    folder = commands.folder / "own"
    folder.mkdir()
    (folder / "train.py").write_text(
        "import os, sys, sweep_client\n"
        "trial = sweep_client.trial()\n"
        "devices = os.environ['CUDA_VISIBLE_DEVICES'].split(',')\n"
        "trial.report(1, {'val/loss': 0.5, 'devices': len(devices), 'given': int(sys.argv[1])})\n"
    )
    file = folder / "several.yaml"
    file.write_text(f"""
trainable: {{command: [{sys.executable}, train.py, "{{gpus}}"]}}
training: {{steps: 1, interval: 1}}
budget: {{trials: 3}}
resources: {{gpu: 2, cpu: 0.1}}
{REST}""")
    with own_ray(temporary) as ray:
        code, output = commands.run(str(file), "--here", "--quiet", **ray, SWEEP_HOST_DEVICES="4")
    assert code == 0, output
    [sweep] = commands.ledger.sweeps()
    reports = commands.ledger.reports(sweep.id)
    assert [(one.metrics["devices"], one.metrics["given"]) for one in reports] == [(2, 2)] * 3
    hours = commands.ledger.sweep(sweep.id)
    assert hours is not None
    assert hours.facts["resources"][-1]["gpu"] == 2


def trials(commands: Commands) -> Sequence[TrialRecord]:
    """Return the trials of the only sweep."""
    ledger = commands.ledger
    [sweep] = ledger.sweeps()
    found = ledger.trials(sweep.id)
    ledger.close()
    return found


# ------------------------------------------------------------------ several nodes

PYTHON_WITH_TORCH = os.environ.get("SWEEP_TEST_TORCH", "")
"""An interpreter with PyTorch, which is not installed beside the service."""

NODES = """
import sys
from pathlib import Path
from benchmarks.shared_ray import nodes
with nodes(Path(sys.argv[1]), count=int(sys.argv[2]), cpus=1, gpus=2):
    import os
    print(os.environ["RAY_ADDRESS"], flush=True)
    sys.stdin.read()
"""

STATE = """
import json, os, signal
from pathlib import Path
import sweep_client

trial = sweep_client.trial()
rank, world = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
{connect}
devices = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
value = json.loads((trial.resume / "state.json").read_text()) if trial.resume else 1.0
saved = trial.folder / "saved"
saved.mkdir()
for step in range(trial.start, trial.steps):
    value = 0.5 * value + trial.params["rate"] * total(rank + 1.0)
    if step == 2 and rank == 1 and not (once := Path("died")).exists():
        once.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    (saved / "state.json").write_text(json.dumps(value))
    print("step", step, "on", rank)
    metrics = {{"val/loss": value, "devices": devices, "world": world}}
    if not trial.report(step + 1, metrics, checkpoint=saved):
        break
"""

CONNECT = {
    "jax": """
import jax
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", world, rank)
from jax.experimental.multihost_utils import process_allgather
total = lambda own: float(process_allgather(jax.numpy.array(own)).sum())
""",
    "torch": """
import torch
torch.distributed.init_process_group("gloo")
def total(own):
    tensor = torch.tensor(own, dtype=torch.float64)
    torch.distributed.all_reduce(tensor)
    return float(tensor)
""",
}


@pytest.fixture
def two_nodes() -> Iterator[dict[str, str]]:
    """Yield the variables of a driver for a cluster of two nodes with two fake GPUs each."""
    with cluster_of(2) as variables:
        yield variables


@contextmanager
def cluster_of(count: int) -> Iterator[dict[str, str]]:
    """Start a cluster of nodes with two fake GPUs each; yield the variables of a driver."""
    folder = Path(tempfile.mkdtemp(prefix="nn-"))
    command = [sys.executable, "-c", NODES, str(folder), str(count)]
    cluster = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert cluster.stdout is not None
    address = cluster.stdout.readline().strip()
    yield {"RAY_ADDRESS": address, "RAY_AUTH_TOKEN_PATH": str(folder / "ray-token")}
    cluster.communicate(timeout=120)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(
    "library",
    [
        "jax",
        pytest.param(
            "torch", marks=pytest.mark.skipif(not PYTHON_WITH_TORCH, reason="needs SWEEP_TEST_TORCH")
        ),
    ],
)
def test_a_trial_on_two_nodes_survives_the_death_of_a_rank(
    commands: Commands, two_nodes: dict[str, str], library: str
) -> None:
    """Rank 1 is killed once; all ranks end, and the next attempt continues with the same numbers."""
    folder = commands.folder / "own"
    folder.mkdir()
    (folder / "train.py").write_text(STATE.format(connect=CONNECT[library]))
    words = [sys.executable]
    if library == "torch":
        words = [str(Path(PYTHON_WITH_TORCH).with_name("torchrun")), "--nproc-per-node=1"]
    file = folder / "nodes.yaml"
    file.write_text(f"""
trainable: {{command: {json.dumps([*words, "train.py"])}}}
training: {{steps: 5, interval: 1}}
budget: {{trials: 1}}
resources: {{nodes: 2, gpu: 2, cpu: 1}}
{REST}""")
    code, output = commands.run(str(file), "--here", "--quiet", **two_nodes)
    assert code == 0, output
    ledger = commands.ledger
    [sweep] = ledger.sweeps()
    [trial] = ledger.trials(sweep.id)
    attempts = ledger.attempts(sweep.id)
    log = next(commands.root.rglob("*-0.log")).read_text()
    assert trial.state == "COMPLETE", log
    assert len(attempts) == 2, "the death of a rank is one attempt"
    assert attempts[0].cause == "error"
    assert "has failed (got on node 1, " in log
    assert "node 1: step 1 on 1" in log
    value, values = 1.0, []
    for _ in range(5):
        value = 0.5 * value + trial.params["rate"] * 3.0
        values.append(value)
    reports = ledger.reports(sweep.id)
    assert [report.metrics["val/loss"] for report in reports] == values
    assert {(report.metrics["devices"], report.metrics["world"]) for report in reports} == {(2, 2)}
    record = ledger.sweep(sweep.id)
    assert record is not None
    assert record.facts["resources"][-1]["gpu"] == 4


# ------------------------------------------------------------------ the end of a node

WAITING = """
import json, os, time
from pathlib import Path
import sweep_client

trial = sweep_client.trial()
rank = int(os.environ["NODE_RANK"])
Path(f"pid-{rank}-{trial.start}").write_text(str(os.getpid()))
value = json.loads((trial.resume / "state.json").read_text()) if trial.resume else 1.0
saved = trial.folder / "saved"
saved.mkdir()
for step in range(trial.start, trial.steps):
    while step == 3 and not Path("go").exists() and not trial.stopping:
        time.sleep(0.05)
    value = 0.5 * value + trial.params["rate"]
    (saved / "state.json").write_text(json.dumps(value))
    if not trial.report(step + 1, {"val/loss": value}, checkpoint=saved):
        break
"""


def raylet_of_a_rank(address: str) -> psutil.Process:
    """Return the raylet of a node of a cluster, not of its head, that runs the script of one of the ranks."""
    for raylet in psutil.process_iter(["name", "cmdline"]):
        words = raylet.info["cmdline"] or ()
        if raylet.info["name"] != "raylet" or f"--gcs-address={address}" not in words or "--head" in words:
            continue
        if any("".join(child.cmdline()).startswith("ray::Worker") for child in raylet.children()):
            return raylet
    raise AssertionError("no rank runs on a node that is not the head")


def leave(raylet: psutil.Process, address: str, token: str) -> None:
    """Drain the node of a raylet, as cluster/spot.sh does: Ray first, then its workers get SIGTERM."""
    [node] = [word.partition("=")[2] for word in raylet.cmdline() if word.startswith("--node_id=")]
    command = [str(Path(sys.executable).with_name("ray")), "drain-node", "--address", address]
    command += ["--node-id", node, "--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "test"]
    kept = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment = {**kept, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": token}
    subprocess.run(
        [*command, "--deadline-remaining-seconds", "60"], env=environment, check=True, capture_output=True
    )
    for process in raylet.children():
        if "".join(process.cmdline()).startswith("ray::Worker"):
            process.terminate()


@pytest.mark.parametrize("end", ["lost", "drained"])
def test_a_trial_on_two_nodes_continues_on_others_when_one_is_taken_away(
    commands: Commands, end: str
) -> None:
    """Of three nodes one ends while both ranks run: both end, the trial resumes, and no step repeats.

    Ray may notice the death of a worker before that of its raylet, because on one machine no connection times
    out: then the attempt is charged as `worker lost`.
    """
    folder = commands.folder / "own"
    folder.mkdir()
    (folder / "train.py").write_text(WAITING)
    file = folder / "nodes.yaml"
    file.write_text(f"""
trainable: {{command: {json.dumps([sys.executable, "train.py"])}}}
training: {{steps: 6, interval: 1}}
budget: {{trials: 1}}
resources: {{nodes: 2, gpu: 2, cpu: 1}}
{REST}""")
    with cluster_of(3) as variables:
        driver = commands.start(str(file), "--here", "--quiet", **variables)
        wait_for(lambda: driver.poll() is not None or steps(commands) == [1, 2, 3], 300)
        wait_for(lambda: len(list(folder.glob("pid-*-0"))) == 2)
        raylet = raylet_of_a_rank(variables["RAY_ADDRESS"])
        if end == "lost":
            raylet.kill()
        else:
            leave(raylet, variables["RAY_ADDRESS"], variables["RAY_AUTH_TOKEN_PATH"])
        wait_for(lambda: driver.poll() is not None or len(attempts_of(commands)) > 1, 180)
        (folder / "go").touch()
        output, _ = driver.communicate(timeout=280)
    assert driver.returncode == 0, output
    [trial] = trials(commands)
    log = next(commands.root.rglob("*-0.log")).read_text()
    assert trial.state == "COMPLETE", log
    causes = attempts_of(commands)
    assert set(causes[:-1]) <= UNCHARGED | ({"worker lost"} if end == "lost" else set()), log
    assert log.count("started at step") == 2, "no attempt begins on the node that is taken away"
    value, values = 1.0, []
    for _ in range(6):
        value = 0.5 * value + trial.params["rate"]
        values.append(value)
    ledger = commands.ledger
    assert [report.metrics["val/loss"] for report in ledger.reports(trial.sweep_id)] == values
    ledger.close()
    pids = [int(file.read_text()) for file in folder.glob("pid-*")]
    assert len(pids) >= 3, "both ranks of the first attempt, and at least the reporting one of the next"
    assert not any(psutil.pid_exists(pid) for pid in pids)


def steps(commands: Commands) -> list[int]:
    """Return the reported steps of the only sweep, if there is one."""
    if not (commands.root / "sweeps.db").exists():
        return []
    ledger = commands.ledger
    found = [report.step for sweep in ledger.sweeps() for report in ledger.reports(sweep.id)]
    ledger.close()
    return found


def attempts_of(commands: Commands) -> list[str | None]:
    """Return the causes of the ends of all attempts; None of one that runs or is complete."""
    ledger = commands.ledger
    [sweep] = ledger.sweeps()
    causes = [attempt.cause for attempt in ledger.attempts(sweep.id)]
    ledger.close()
    return causes
