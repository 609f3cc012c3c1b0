"""Many trials in one program against one process per trial, on the same device.

    python -m benchmarks.slots [--tasks speech_commands listops smnist] [--slots 1 2 4 8 16 32] [--seconds 5]
    python -m benchmarks.slots --dry-run        # tiny shapes; runs on a CPU too
    python -m benchmarks.slots --bits --processes        # the cost of `reproducible: bits` on a GPU

For each task, at its published size and on synthetic data of the same shapes: steps per second of all trials
together, with K trials as slots of one engine and with K processes that share the device. Needs this
repository, jax, flax, optax and numpy.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Workload:
    """One task at its published size.

    Attributes:
        sizes: depth, D, N and heads of a RotRNN.
        batch: examples per step.
        length: L.
        vocabulary: number of tokens, or None for numbers.
        kind: NumPy dtype of the stored inputs.
        classes: C.
        source: source of the sizes.
    """

    sizes: tuple[int, int, int, int]
    batch: int
    length: int
    vocabulary: int | None
    kind: str
    classes: int
    source: str


WORKLOADS = {
    "speech_commands": Workload((6, 96, 128, 32), 16, 16_000, None, "int16", 35, "RotRNN, table 3"),
    "listops": Workload((6, 128, 256, 32), 32, 2_048, 18, "uint8", 10, "RotRNN, table 3"),
    "smnist": Workload((4, 128, 128, 16), 50, 784, None, "uint8", 10, "search_spaces/smnist.yaml"),
    "small": Workload((2, 32, 64, 8), 16, 256, 100, "uint8", 2, "a laptop's trial"),
}
TINY = Workload((1, 8, 8, 2), 4, 16, 6, "uint8", 3, "dry run")
EXAMPLES = 2_048


def settings_and_data(name: str, tiny: bool, bits: bool = False) -> tuple[Any, Any]:
    """Return a trial's settings, and synthetic data with the shapes of its task."""
    import numpy as np

    from trainables.data.task import Signature, Split, TaskData
    from trainables.trial import ModelSettings, TrainingSettings, TrialSettings

    work = TINY if tiny else WORKLOADS[name]
    depth, width, states, heads = work.sizes
    random = np.random.default_rng(0)

    def split(examples: int) -> Split:
        shape = (examples, work.length) if work.vocabulary else (examples, work.length, 1)
        inputs = random.integers(0, work.vocabulary or 128, shape).astype(work.kind)
        # Only text tasks are padded; sequences of pixels and samples all have the same length.
        low = work.length // 2 if work.vocabulary else work.length
        lengths = random.integers(low, work.length + 1, examples).astype(np.int32)
        return Split(inputs, lengths, random.integers(0, work.classes, examples).astype(np.int32))

    signature = Signature("class", work.classes, work.vocabulary, 1, work.length)
    train, validation = split(EXAMPLES), split(work.batch)
    chance = {"validation": 1 / work.classes, "test": 1 / work.classes}
    data = TaskData(signature, train, validation, lambda: validation, "synthetic", False, "", "", chance, 0.0)
    model = ModelSettings("rotrnn", depth, width, states, dropout=0.1, options={"heads": heads})
    training = TrainingSettings(
        10**6,
        500,
        work.batch,
        learning_rate=1e-3,
        recurrent_learning_rate=1e-4,
        reproducible="bits" if bits else None,
    )
    return TrialSettings(name, model, training, seed=0), data


def fused(
    name: str, tiny: bool, slots: Sequence[int], seconds: float, bits: bool
) -> Iterator[dict[str, Any]]:
    """Yield the figures of K slots in one engine, for each K that fits."""
    from dataclasses import replace

    import jax

    from trainables.engine import Engine
    from trainables.engine.size import steps_per_second

    settings, data = settings_and_data(name, tiny, bits)
    engine = Engine(settings, data, slots=max(slots))
    for slot in range(max(slots)):
        engine.admit(slot, replace(settings, seed=slot))
    for count in sorted(slots):
        compiled = engine.advance(dict.fromkeys(range(count), 1))[0].compile_seconds
        if engine.width < count:
            yield {"slots": count, "failure": "out of memory"}
            return
        rate = steps_per_second(engine, count, seconds)
        device = jax.devices()[0]
        peak = (device.memory_stats() or {}).get("peak_bytes_in_use")
        yield {"slots": count, "rate": rate, "compile": compiled, "peak": peak, "device": device.device_kind}


def alone(name: str, tiny: bool, seconds: float) -> Iterator[dict[str, Any]]:
    """Yield a ready message for one trial; after a line on standard input, yield its rate."""
    from trainables.engine import Engine
    from trainables.engine.size import steps_per_second

    settings, data = settings_and_data(name, tiny)
    engine = Engine(settings, data)
    engine.admit(0, settings)
    steps_per_second(engine, 1, min(1.0, seconds))
    yield {"ready": True}
    sys.stdin.readline()
    yield {"rate": steps_per_second(engine, 1, seconds)}


def _start(options: argparse.Namespace, name: str, child: str, share: float) -> subprocess.Popen[str]:
    """Start a measuring process with a share of the device's memory; the parent never uses the device."""
    command = [sys.executable, "-m", "benchmarks.slots", "--child", child, "--tasks", name]
    command += ["--seconds", str(options.seconds), "--slots", *map(str, options.slots)]
    command += ["--dry-run"] if options.dry_run else []
    command += ["--bits"] if options.bits else []
    caches = {"JAX_COMPILATION_CACHE_DIR": options.cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    environment = {**os.environ, "XLA_CLIENT_MEM_FRACTION": f"{share:.4f}", **caches, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)


def measured_fused(options: argparse.Namespace, name: str) -> dict[int, dict[str, Any]]:
    """Return the figures of one engine, by number of slots."""
    with _start(options, name, "fused", 0.9) as process:
        assert process.stdout is not None
        rows = [json.loads(line) for line in process.stdout]
    return {row["slots"]: row for row in rows}


def measured_alone(options: argparse.Namespace, name: str, count: int) -> float | None:
    """Return the total rate of `count` processes that train simultaneously; None if one failed."""
    processes = [_start(options, name, "alone", 0.9 / count) for _ in range(count)]
    try:
        ready = [bool(process.stdout and process.stdout.readline()) for process in processes]
        if not all(ready):
            return None
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        rates = [
            json.loads(process.stdout.readline() or "{}").get("rate")
            for process in processes
            if process.stdout
        ]
        return None if None in rates else sum(rates)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _number(value: float | None, form: str = "{:.1f}") -> str:
    return "-" if value is None else form.format(value)


def table(title: str, rows: dict[int, dict[str, Any]], processes: dict[int, float | None]) -> str:
    """Return one task's figures as a Markdown table."""
    device = next((row["device"] for row in rows.values() if "device" in row), "no device")
    lines = [
        f"\n### {title} on {device}\n",
        "| K | steps/s, K slots | against K = 1 | compile s | peak GB | steps/s, K processes | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    first = rows.get(1, {}).get("rate")
    for count in sorted(rows.keys() | processes.keys()):
        row, separate = rows.get(count, {}), processes.get(count)
        rate, peak = row.get("rate"), row.get("peak")
        cells = [
            row.get("failure") or _number(rate),
            _number(rate / first if rate and first else None, "{:.2f}"),
            _number(row.get("compile")),
            _number(peak / 1e9 if peak else None, "{:.2f}"),
            _number(separate),
            _number(rate / separate if rate and separate else None, "{:.2f}"),
        ]
        lines.append(f"| {count} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = list(WORKLOADS)
    parser.add_argument("--tasks", nargs="+", choices=names, default=names[:3])
    parser.add_argument("--slots", nargs="+", type=int, default=[1, 2, 4, 8, 16, 32])
    parser.add_argument(
        "--processes", nargs="*", type=int, default=None, help="numbers of processes (default: as --slots)"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="measuring time for each number")
    parser.add_argument("--json", type=Path, default=None, help="also write the figures to this file")
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes")
    parser.add_argument("--bits", action="store_true", help="use slots with `reproducible: bits`")
    parser.add_argument("--child", choices=("fused", "alone"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Print one table per task."""
    options = _options()
    if options.child:
        name = options.tasks[0]
        measurements = (
            fused(name, options.dry_run, options.slots, options.seconds, options.bits)
            if options.child == "fused"
            else alone(name, options.dry_run, options.seconds)
        )
        for row in measurements:
            print(json.dumps(row), flush=True)
        return
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as options.cache:
        for name in options.tasks:
            rows = measured_fused(options, name)
            counts = options.slots if options.processes is None else options.processes
            processes = {count: measured_alone(options, name, count) for count in counts}
            figures[name] = {"slots": rows, "processes": processes}
            source = TINY.source if options.dry_run else WORKLOADS[name].source
            print(table(f"{name} ({source})", rows, processes), flush=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
