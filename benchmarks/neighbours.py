"""How far a trial's numbers depend on its neighbours, and what it costs that they do not.

    python -m benchmarks.neighbours [--tasks small listops] [--slots 1 2 4 8] [--steps 200]
    python -m benchmarks.neighbours --dry-run        # tiny shapes; runs on a CPU too

The first trial of each engine is the same; its K - 1 neighbours have other seeds. "Difference" is the largest
one between its weights and those of the trial that trained alone in the same way, relative to the largest
weight of the array. "Steps/s" are of all slots together. With `reproducible: bits` the difference must be 0;
without, an export replays the recorded sizes of the programs. Needs this repository, jax, flax, optax and
numpy.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from benchmarks.slots import TINY, WORKLOADS, settings_and_data
from benchmarks.timing import circumstances, table
from trainables.engine import Engine
from trainables.engine.size import steps_per_second


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=list(WORKLOADS), default=["small", "listops"])
    parser.add_argument("--slots", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--steps", type=int, default=200, help="steps before the weights are compared")
    parser.add_argument("--seconds", type=float, default=2.0, help="measuring time of each rate")
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes")
    options = parser.parse_args()
    rows = []
    for name in options.tasks:
        for bits in (False, True):
            alone: dict[str, np.ndarray] = {}
            for slots in options.slots:
                weights, loss, rate = trained(name, slots, bits, options)
                alone = alone or weights
                figures = [f"{loss:.6f}", difference(weights, alone), f"{rate:.0f}"]
                rows.append([name, "bits" if bits else "no", str(slots), *figures])
    header = ["task", "reproducible", "slots", "loss of the last steps", "difference", "steps/s"]
    print(table(header, rows))
    source = TINY.source if options.dry_run else "sizes as in `benchmarks.slots`"
    print(f"\n{options.steps} steps; {source}. {circumstances()}")


def trained(
    name: str, slots: int, bits: bool, options: argparse.Namespace
) -> tuple[dict[str, np.ndarray], float, float]:
    """Return the weights and the loss of the first of K trials, and the steps per second of all."""
    settings, data = settings_and_data(name, options.dry_run, bits)
    engine = Engine(settings, data, slots=slots)
    for slot in range(slots):
        engine.admit(slot, replace(settings, seed=slot))
    report = engine.advance(dict.fromkeys(range(slots), options.steps))[0]
    weights = engine.snapshot(0)
    return weights, report.loss, steps_per_second(engine, slots, options.seconds)


def difference(weights: dict[str, np.ndarray], alone: dict[str, np.ndarray]) -> str:
    """Return the largest relative difference between two sets of weights."""
    apart = [
        float(np.max(np.abs(weights[name] - array)) / (np.max(np.abs(array)) or 1))
        for name, array in alone.items()
        if array.dtype == np.float32 and array.size
    ]
    return f"{max(apart):.1e}" if max(apart) else "0"


if __name__ == "__main__":
    main()
