"""Draining of this machine before it is reclaimed: after a spot warning, at a shutdown or a pod's end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

from orchestrator.machines.head import LOOPBACK

REASON = "DRAIN_NODE_REASON_PREEMPTION"
DRAIN_SECONDS = 20.0
"""Seconds to wait for Ray to acknowledge a drain."""

_TRAINING_PROCESSES = ("ray::Worker", "ray::EngineActor", "ray::WarmWorker")


def drain(seconds: float) -> str:
    """Ask Ray to place nothing more on this node; return the last line of its answer.

    Args:
        seconds: Seconds until this machine is reclaimed.
    """
    ray = str(Path(sys.executable).with_name("ray"))
    details = [
        "--reason-message",
        "this machine is taken away",
        "--deadline-remaining-seconds",
        f"{seconds:.0f}",
    ]
    if (address := _own_cluster()) is None:
        return "this account runs no node of a cluster here"
    # RAY_ADDRESS names the cluster that a driver here would join.
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment |= LOOPBACK if address.startswith("127.") else {}
    try:
        done = subprocess.run(
            [ray, "drain-node", "--address", address, "--reason", REASON, *details],
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


def _own_cluster() -> str | None:
    """Return the address of the head that the newest raylet of this user has joined, or None.

    Ray's own search would trust processes of other accounts, and send the token to their addresses.
    """
    found = []
    for process in psutil.process_iter(["name", "uids", "cmdline", "create_time"]):
        facts = process.info
        if facts["name"] == "raylet" and facts["uids"] and facts["uids"].effective == os.geteuid():
            heads = [word.partition("=")[2] for word in facts["cmdline"] if word.startswith("--gcs-address=")]
            found += [(facts["create_time"], head) for head in heads]
    return max(found)[1] if found else None


def terminate_workers() -> int:
    """Send SIGTERM to the training processes of this machine, which save and exit; return their number."""
    terminated = 0
    for process in psutil.process_iter(["name", "cmdline"]):
        if "".join(process.info["cmdline"] or ()).startswith(_TRAINING_PROCESSES):
            try:
                process.terminate()
            except psutil.Error:
                continue
            terminated += 1
    return terminated
