"""Give up the machine that this runs on before it is taken: a spot warning, a shutdown, a pod's end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

REASON = "DRAIN_NODE_REASON_PREEMPTION"
DRAIN_SECONDS = 20.0


def drain(seconds: float) -> str:
    """Tell Ray that this node ends soon, so that nothing is placed on it; return its answer."""
    ray = str(Path(sys.executable).with_name("ray"))
    told = [
        "--reason-message",
        "this machine is taken away",
        "--deadline-remaining-seconds",
        f"{seconds:.0f}",
    ]
    # The cluster that this node is of, which is not the one that a driver here would join.
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    try:
        done = subprocess.run(
            [ray, "drain-node", "--address", "auto", "--reason", REASON, *told],
            env=environment,
            capture_output=True,
            text=True,
            timeout=DRAIN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"Ray did not answer within {DRAIN_SECONDS:g} s"
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[-1] if lines else f"Ray answered {done.returncode}"


def tell_workers() -> int:
    """Tell the processes that train here to save and go; return how many there are."""
    told = 0
    for process in psutil.process_iter(["name", "cmdline"]):
        if "".join(process.info["cmdline"] or ()).startswith(("ray::Worker", "ray::EngineActor")):
            try:
                process.terminate()
            except psutil.Error:
                continue
            told += 1
    return told
