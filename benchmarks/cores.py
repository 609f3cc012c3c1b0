"""A training step of one and of two processes side by side, under settings that limit their threads.

    python -m benchmarks.cores [--steps 30] [--rounds 6] [--settings workers pool pinned]

The RotRNN of `benchmarks.throughput` (2 layers, D 32, N 64, H 8, L 256, batch 16) in an engine of one slot,
as a worker of a sweep trains it. Two processes for each setting are started and train in turns: one of them
alone, then both at once, with the order of the settings reversed from round to round. The digest is that of
the arrays after the last step of the first process: settings with different digests change a trial's bits.

    workers     the variables that a worker gets on a CPU (`orchestrator.training.process.worker_environment`)
    pool        these without PJRT_NPROC=1, so that XLA has a pool with a thread for each core
    pinned      as `workers`, each process on a core of its own
    unlimited   JAX's defaults

On a machine that is not quiet only the CPU time can be compared.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from benchmarks.throughput import OPTIONS, ROOT
from orchestrator.training.process import worker_environment

SETTINGS: Mapping[str, Mapping[str, str]] = {
    "workers": worker_environment(0),
    "pool": {name: value for name, value in worker_environment(0).items() if name != "PJRT_NPROC"},
    "pinned": worker_environment(0),
    "unlimited": {"JAX_PLATFORMS": "cpu"},
}


def train(data: Path) -> None:
    """Train in this process: for each number of steps on stdin, print ms of wall and of CPU of a step.

    At the end of stdin, print the threads of the process and a digest of the trained arrays.
    """
    from trainables.engine import Engine
    from trainables.tasks import TASKS
    from trainables.trial import ModelSettings, TrainingSettings, TrialSettings

    model = ModelSettings("rotrnn", depth=2, d_model=32, d_state=64, dropout=0.1, options={"heads": 8})
    training = TrainingSettings(
        steps=10**6, interval=50, batch_size=16, learning_rate=1e-3, recurrent_learning_rate=1e-3
    )
    settings = TrialSettings("listops", model, training, seed=0)
    engine = Engine(settings, TASKS["listops"].load(OPTIONS, data))
    engine.admit(0, settings)
    engine.advance({0: 5})
    print("ready", flush=True)
    for line in sys.stdin:
        steps = int(line)
        wall, cpu = time.perf_counter(), time.process_time()
        engine.advance({0: steps})
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(1000 * wall / steps, 1000 * cpu / steps, flush=True)
    arrays = sorted(engine.snapshot(0).items())
    digest = hashlib.sha256(b"".join(array.tobytes() for _, array in arrays)).hexdigest()
    print(sum(1 for _ in Path("/proc/self/task").iterdir()), digest[:12], flush=True)


@contextmanager
def started(setting: str, core: int, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process under a setting, and wait until its programs are compiled."""
    variables = {**os.environ, **SETTINGS[setting], "PYTHONPATH": str(ROOT)}
    variables |= {
        "JAX_COMPILATION_CACHE_DIR": str(folder / setting),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    pinned = ["taskset", "-c", str(core)] if setting == "pinned" else []
    command = [*pinned, sys.executable, "-m", "benchmarks.cores", "--data", str(folder / "data")]
    with subprocess.Popen(
        command, env=variables, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        if answer(process) != "ready":
            sys.exit(f"a process under {setting} ended before its first step")
        yield process


def answer(process: subprocess.Popen[str]) -> str:
    """Return the next line of a process."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def say(process: subprocess.Popen[str], steps: int | None) -> None:
    """Ask a process for some steps, or for its end."""
    assert process.stdin is not None
    if steps is None:
        process.stdin.close()
    else:
        print(steps, file=process.stdin, flush=True)


def measured(processes: Sequence[subprocess.Popen[str]], steps: int) -> tuple[float, float]:
    """Let processes train at once; return the means of their ms of wall and of CPU of a step."""
    for process in processes:
        say(process, steps)
    answers = [[float(word) for word in answer(process).split()] for process in processes]
    wall, cpu = (sum(column) / len(answers) for column in zip(*answers, strict=True))
    return wall, cpu


def phrase(values: Sequence[float]) -> str:
    """Return median and range."""
    return f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main() -> None:
    """Print a row for each setting and number of processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=30, help="of a turn")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--settings", nargs="+", default=["workers", "pool", "pinned"], choices=SETTINGS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.data:
        train(options.data)
        return
    turns: dict[tuple[str, int], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        pairs = {
            name: [stack.enter_context(started(name, core, Path(folder))) for core in (0, 1)]
            for name in options.settings
        }
        for number in range(options.rounds):
            for count in (1, 2):
                for name in options.settings if number % 2 else reversed(options.settings):
                    turns.setdefault((name, count), []).append(measured(pairs[name][:count], options.steps))
        ends = {}
        for name, pair in pairs.items():
            for process in pair:
                say(process, None)
            ends[name], _ = [answer(process).split() for process in pair]
    print("| setting | processes | ms a step | CPU, ms | threads | digest |\n|---|---|---|---|---|---|")
    for (name, count), values in sorted(turns.items()):
        wall, cpu = zip(*values, strict=True)
        print(f"| {name} | {count} | {phrase(wall)} | {phrase(cpu)} | {' | '.join(ends[name])} |")
    print(f"\n{os.cpu_count()} cores, load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
