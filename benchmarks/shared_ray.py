"""Sweeps of several owners on one real Ray with fake nodes; their trials wait and report, and train nothing.

`python -m benchmarks.shared_ray FOLDER NAME OWNER TRIALS STEPS PAUSE CPU RULES` is the driver of one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.orchestration import SPACE, metrics_of
from benchmarks.service import begin
from orchestrator.sharing.pool_rows import Rules
from trainables.trial import TrialSettings


@dataclass(frozen=True)
class Load:
    """A sweep whose trials wait.

    Attributes:
        name: Unique name.
        owner: Owner of the sweep.
        trials: Number of trials.
        steps: Number of reports of a trial.
        pause: Seconds between two reports.
        cpu: Processors of a trial.
    """

    name: str
    owner: str
    trials: int
    steps: int
    pause: float
    cpu: int = 1


@contextmanager
def nodes(folder: Path, count: int, cpus: int, gpus: int = 0) -> Iterator[None]:
    """Start a head and nodes on this machine; `RAY_ADDRESS` and the token are set for child processes.

    Args:
        folder: Folder for the token; its path must be short.
        count: Number of nodes.
        cpus: Processors of each node.
        gpus: Fake GPUs of each node.
    """
    from orchestrator.schedule import environment

    os.environ.update({"RAY_worker_niceness": "0", "RAY_ADDRESS": "to be known"})
    environment.prepare(folder / "ray-token")
    from ray.cluster_utils import Cluster

    own: dict[str, Any] = {"num_cpus": cpus, "num_gpus": gpus}
    head = Cluster(initialize_head=True, head_node_args={**own, "include_dashboard": False})
    try:
        for _ in range(count - 1):
            head.add_node(**own, object_store_memory=80 * 1024 * 1024)
        os.environ["RAY_ADDRESS"] = head.address
        yield
    finally:
        del os.environ["RAY_ADDRESS"]
        head.shutdown()


def start(folder: Path, load: Load, rules: Rules) -> subprocess.Popen[str]:
    """Start the driver of a sweep, which writes what it runs to `NAME.log`, twice a second."""
    amounts = [str(amount) for amount in (load.trials, load.steps, load.pause, load.cpu)]
    amounts.append(json.dumps(asdict(rules)))
    command = [sys.executable, "-m", "benchmarks.shared_ray", str(folder), load.name, load.owner, *amounts]
    with (folder / f"{load.name}.err").open("w") as errors:
        return subprocess.Popen(command, stderr=errors, stdout=subprocess.DEVNULL, text=True)


def samples(folder: Path, name: str) -> list[Mapping[str, Any]]:
    """Return the samples that a driver has logged: its running trials and its share over time."""
    log = folder / f"{name}.log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def drive(folder: Path, load: Load, rules: Rules) -> None:
    """Run a sweep to its end."""
    from orchestrator.schedule import environment

    environment.prepare(folder / "ray-token")
    from orchestrator.assignment import Outcome, SavedCheckpoint
    from orchestrator.ledger.pool.claims import pools
    from orchestrator.machines.hardware import Hardware
    from orchestrator.schedule import cluster, tuner
    from orchestrator.schedule.worker import Worker

    pause = load.pause

    class Waiting(Worker):
        """A worker that reports like a trial, and waits between two reports."""

        def step(self) -> dict[str, Any]:
            time.sleep(pause)
            assignment = self._assignment
            assert isinstance(assignment.settings, TrialSettings)
            resumed = assignment.resume.step if assignment.resume else 0
            at = self._at = getattr(self, "_at", resumed) + 1
            saved = SavedCheckpoint(f"{assignment.checkpoints}/step-{at}", at, "0" * 64, 1)
            done = at >= assignment.settings.training.steps
            rate = assignment.settings.training.learning_rate
            return Outcome(assignment.attempt_id, at, done, metrics_of(rate, at), saved).to_result()

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            vars(self).pop("_at", None)
            return super().reset_config(new_config)

    text = SPACE.format(trials=load.trials).replace("steps: 5,", f"steps: {load.steps},")
    text = text.replace("cpu: 1}", f"cpu: {load.cpu}}}")
    service = begin(text, folder, name=load.name, owner=load.owner, rules=rules)
    with (folder / f"{load.name}.log").open("w", buffering=1) as log:

        def tick(_: Any) -> None:
            service.shipper.nudge()
            running = [run for run in service.session.running.values() if run.started]
            views = [
                view for view in pools(service.ledger, rules).values() if service.sweep.id in view.claims
            ]
            share = views[0].shares[service.sweep.id].trials if views else None
            wanted = views[0].claims[service.sweep.id].want if views else None
            sample = {"time": time.time(), "running": len(running), "share": share, "wanted": wanted}
            print(json.dumps({**sample, "waiting": service.share.waiting}), file=log)

        with cluster.connected(Hardware(1, 0)):
            tuner.run(service.session, service.share, [], deadline=600, tick=tick, trainable=Waiting)
    service.shipper.drain(60)
    service.shipper.close()


if __name__ == "__main__":
    place, name, owner, trials, steps, pause, cpu, rules = sys.argv[1:]
    drive(
        Path(place),
        Load(name, owner, int(trials), int(steps), float(pause), int(cpu)),
        Rules(**json.loads(rules)),
    )
