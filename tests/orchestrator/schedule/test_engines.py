"""The engine that several trials share, as an actor of a real Ray."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

QUEUED = """
import sys, time
from dataclasses import replace
from pathlib import Path
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule import environment
folder = Path(sys.argv[1])
environment.prepare(0.25, folder / "token")
import ray
from orchestrator.schedule import cluster, ray_private
from orchestrator.schedule.engines import engine_actor
from tests.attempts import assignment
with cluster.connected(Hardware(cpus=2, gpus=1), 0.25):
    engine = engine_actor("test", ray.get_runtime_context().get_node_id(), "0", 2)
    seated = assignment(folder, 1)
    model = replace(seated.settings.model, d_model=16)
    queued = assignment(folder, 2, settings=replace(seated.settings, model=model))
    assert ray.get(engine.advance.remote(seated, "one", True)).step == 10
    answer = engine.advance.remote(queued, "two", True)
    time.sleep(2)
    ray_private.publish_stop(seated.sweep_id)
    published = time.monotonic()
    outcome = ray.get(answer)
    print(outcome.queued, time.monotonic() - published)
"""


def test_a_queued_trial_sees_a_stop_request_within_two_seconds(temporary: Path) -> None:
    """It is of another program than the trial in the slot; the request reaches it without any shared file."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-c", QUEUED, str(temporary)],
        env={**environment, "RAY_TMPDIR": str(temporary), "SWEEP_HOST_DEVICES": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    queued, seconds = done.stdout.split()
    assert queued == "True"
    assert float(seconds) < 2
