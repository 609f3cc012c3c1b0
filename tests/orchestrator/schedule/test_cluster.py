"""The Ray that a sweep runs on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONNECT = """
import sys
from pathlib import Path
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule import environment
environment.prepare(0.0, Path(sys.argv[1]) / "token")
from orchestrator.schedule import cluster
from orchestrator.schedule.view import View
with cluster.connected(Hardware(cpus=1, gpus=0), 0.0):
    print(View(1, 0).capacity())
"""


def test_a_head_of_somebody_else_is_left_alone(temporary: Path) -> None:
    """What an earlier `ray start --head` has left in Ray's folder is not joined."""
    (temporary / "ray").mkdir()
    (temporary / "ray" / "ray_current_cluster").write_text("127.0.0.1:9")
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, str(temporary)],
        env={**environment, "RAY_TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "1", done.stderr
