"""Trials per hour of a small sweep, ours and of plain Ray Tune.

    python -m benchmarks.throughput [--trials 16] [--plain 16]

A RotRNN of 2 layers (D 32, N 64, H 8) on ListOps at L 256, batch 16, 200 steps per trial, with a report and a
checkpoint every 50 steps, on two processors. Each contender is one command, timed from start to exit, in its
own folder with an empty compilation cache; only the data set is prepared. The plain stack
(`benchmarks/plain/`) implements the recurrence as printed in the paper.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
OPTIONS = {
    "source": "generated",
    "length": 256,
    "min_length": 100,
    "max_length": 250,
    "examples": 4000,
    "held_out": 256,
}
SPACE = """
task: listops
data: {data}
model: {{layer: rotrnn, depth: 2, d_model: 32, d_state: 64, heads: 8, dropout: 0.1}}
training: {{steps: 200, interval: 50, batch_size: 16}}
search:
  gamma_init.min: {{uniform: [0.1, 0.9]}}
  learning_rate: {{log_uniform: [1e-4, 1e-2]}}
  recurrent_learning_rate: {{log_uniform: [1e-5, 1e-2]}}
objective: {{maximize: val/accuracy}}
sampler: {{tpe: {{seed: 0}}}}
scheduler: none
budget: {{trials: {trials}}}
resources: {{cpu: 1}}
"""


def arrays(data: Path) -> Path:
    """Generate the data set; return the path of a file with its arrays, for the plain stacks."""
    from trainables.tasks import TASKS

    loaded = TASKS["listops"].load(OPTIONS, data)
    fields = {
        f"{name}_{field}": np.asarray(getattr(getattr(loaded, name), field))
        for name in ("train", "validation")
        for field in ("inputs", "lengths", "targets")
    }
    file = data / "listops.npz"
    np.savez(file, allow_pickle=False, **fields)
    return file


def commands(name: str, trials: int, data: Path, folder: Path) -> list[str]:
    """Return the command line of one contender."""
    if name != "ours":
        arguments = [str(trials), str(data / "listops.npz"), str(folder)]
        return [sys.executable, "-m", "benchmarks.plain.ray_tune", *arguments]
    file = folder / "throughput.yaml"
    written = "{" + ", ".join(f"{key}: {value}" for key, value in OPTIONS.items()) + "}"
    file.write_text(SPACE.format(trials=trials, data=written))
    places = ["--data", str(data), "--root", str(folder / "mlruns")]
    return [sys.executable, "-m", "orchestrator.sweep", str(file), *places, "--quiet"]


def measured(name: str, trials: int, data: Path) -> float:
    """Return the seconds of one contender's command."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    environment.pop("RAY_ADDRESS", None)
    if name == "plain":
        environment["RAY_ADDRESS"] = "local"  # otherwise Ray joins the cluster last started on this machine
    with tempfile.TemporaryDirectory() as folder:
        command = commands(name, trials, data, Path(folder))
        began = time.perf_counter()
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(done.stdout[-3000:] + done.stderr[-3000:])
    return seconds


def main() -> None:
    """Measure the contenders one after another and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--plain", type=int, default=None, help="trials of plain Ray Tune; 0 skips it")
    given = parser.parse_args()
    counts = {"ours": given.trials, "plain": given.trials if given.plain is None else given.plain}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        arrays(data)
        seconds = {name: measured(name, count, data) for name, count in counts.items() if count}
    hourly = {name: 3600 * counts[name] / taken for name, taken in seconds.items()}
    load = os.getloadavg()[0]
    print(f"{len(os.sched_getaffinity(0))} processors,", end=" ")
    print(f"load at the end {load:.1f}\n")
    print("| | trials | s | s a trial | trials an hour | ours is |\n|---|---|---|---|---|---|")
    for name, taken in seconds.items():
        times = f"{hourly['ours'] / hourly[name]:.1f} x"
        row = f"| {name} | {counts[name]} | {taken:.0f} | {taken / counts[name]:.2f} | {hourly[name]:.0f} |"
        print(f"{row} {times} |")


if __name__ == "__main__":
    main()
