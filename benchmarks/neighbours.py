"""How far a trial's numbers depend on its neighbours, and what it costs that they do not.

    python -m benchmarks.neighbours [--tasks small listops] [--slots 1 2 4 8] [--steps 200]
    python -m benchmarks.neighbours --dry-run        # tiny shapes; runs on a CPU too

The first trial of each engine is the same; its K - 1 neighbours have other seeds. Each engine has a process
of its own. "Difference" is the largest one between its weights and those of the trial that trained alone in
the same way, relative to the largest weight of the array. "Replayed" is the same between its weights and
those of a replay: the trial alone, by programs of the recorded sizes. "Steps/s" are of all slots together.
With `reproducible: bits` the difference must be 0; without, an export replays the recorded sizes of the
programs. Needs this repository, jax, flax, optax and numpy.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.slots import TINY, WORKLOADS, settings_and_data
from benchmarks.timing import ROOT, circumstances, line
from trainables.engine import Engine
from trainables.engine.size import steps_per_second

Weights: TypeAlias = dict[str, np.ndarray]


def main() -> None:
    """Print one table, each row when it is measured."""
    options = _options()
    if options.child:
        print(json.dumps(_train(options)))
        return
    header = ["task", "reproducible", "slots", "loss of the last steps", "difference", "replayed", "steps/s"]
    print(line(header), line(["---"] * len(header)), sep="\n")
    for name in options.tasks:
        for bits in (False, True):
            alone: Weights = {}
            for slots in options.slots:
                weights, trained = _in_a_process(options, name, slots, bits)
                alone = alone or weights
                figures = [f"{trained['loss']:.6f}", difference(weights, alone)]
                figures += ["" if bits else difference(_replay(options, name, slots), weights)]
                print(
                    line([name, "bits" if bits else "no", str(slots), *figures, f"{trained['rate']:.0f}"]),
                    flush=True,
                )
    source = TINY.source if options.dry_run else "sizes as in `benchmarks.slots`"
    print(f"\n{options.steps} steps; {source}. {circumstances()}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=list(WORKLOADS), default=["small", "listops"])
    parser.add_argument("--slots", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--steps", type=int, default=200, help="steps before the weights are compared")
    parser.add_argument("--seconds", type=float, default=2.0, help="measuring time of each rate")
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes")
    parser.add_argument("--bits", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--replay", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _replay(options: argparse.Namespace, name: str, slots: int) -> Weights:
    """Return the weights of the first trial alone, by programs of K slots."""
    weights, _ = _in_a_process(options, name, slots, False, "--replay")
    return weights


def _in_a_process(
    options: argparse.Namespace, name: str, slots: int, bits: bool, *more: str
) -> tuple[Weights, dict[str, Any]]:
    """Return the weights of the first of K trials, and its loss and the rate of all."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "weights.npz")
        command = [sys.executable, "-m", "benchmarks.neighbours", "--child", str(file), "--tasks", name]
        command += ["--slots", str(slots), "--steps", str(options.steps), "--seconds", str(options.seconds)]
        command += ["--dry-run"] * options.dry_run + ["--bits"] * bits
        run = subprocess.run([*command, *more], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        with np.load(file) as arrays:
            return dict(arrays), json.loads(run.stdout.splitlines()[-1])


def _train(options: argparse.Namespace) -> dict[str, float]:
    """Train K trials, or replay the first; write its weights, return its loss and the rate of all."""
    settings, data = settings_and_data(options.tasks[0], options.dry_run, options.bits)
    slots = options.slots[0]
    engine = Engine(settings, data, slots=slots)
    if options.replay:
        return {"loss": _replayed(engine, settings, options)}
    for slot in range(slots):
        engine.admit(slot, replace(settings, seed=slot))
    report = engine.advance(dict.fromkeys(range(slots), options.steps))[0]
    _save(options.child, engine.snapshot(0))
    return {"loss": report.loss, "rate": steps_per_second(engine, slots, options.seconds)}


def _replayed(engine: Engine, settings: Any, options: argparse.Namespace) -> float:
    """Train the first trial alone by the engine's widest program, as `trainables.replay` does."""
    engine.admit(0, settings)
    engine.ask(0, options.steps)
    reports: Any = {}
    while not reports:
        reports = engine.round(size=engine.slots).reports
    _save(options.child, engine.snapshot(0))
    loss: float = reports[0].loss
    return loss


def _save(file: Path, weights: Any) -> None:
    np.savez(file, **weights)


def difference(weights: Weights, others: Weights) -> str:
    """Return the largest relative difference between two sets of weights."""
    apart = [
        float(np.max(np.abs(weights[name] - array)) / (np.max(np.abs(array)) or 1))
        for name, array in others.items()
        if array.dtype == np.float32 and array.size
    ]
    return f"{max(apart):.1e}" if max(apart) else "0"


if __name__ == "__main__":
    main()
