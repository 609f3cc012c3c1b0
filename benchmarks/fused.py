"""Slots under Ray: one engine of K slots against K trials in sequence, and the slot usage under ASHA.

    python -m benchmarks.fused [--slots 8] [--trials 24]

Times whole commands, from start to exit, on one host device that stands in for a GPU (`SWEEP_HOST_DEVICES`);
use `--gpu` on a machine with a GPU. Slots are not expected to pay off on a CPU: the last table compares the
number that `slots: auto` chooses with each fixed K. "Not refilled" is computed from the lengths of the same
trials: batches of K, each as long as its longest trial.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.throughput import OPTIONS, ROOT, SPACE, arrays


def run(folder: Path, name: str, environment: dict[str, str], *overrides: str) -> float:
    """Run the small sweep with overrides; return its seconds."""
    file = folder / f"{name}.yaml"
    written = "{" + ", ".join(f"{key}: {value}" for key, value in OPTIONS.items()) + "}"
    file.write_text(SPACE.format(trials=8, data=written))
    command = [sys.executable, "-m", "orchestrator.sweep", str(file), "--quiet", "--data", str(folder)]
    command += ["--root", str(folder / name)]
    for override in overrides:
        command += ["--set", override]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return time.perf_counter() - began


def busy(root: Path, slots: int) -> tuple[float, float]:
    """Return the busy share of slot-seconds, and the share computed as if no slot were refilled."""
    from orchestrator.ledger.ledger import Ledger

    ledger = Ledger.open(f"sqlite:///{root}/sweeps.db")
    (sweep,) = ledger.sweeps()
    last = max(ledger.reports(sweep.id), key=lambda report: report.at)
    steps = [trial.step for trial in sorted(ledger.trials(sweep.id), key=lambda trial: trial.number)]
    batches = [steps[start : start + slots] for start in range(0, len(steps), slots)]
    return last.metrics["slots/busy"], sum(steps) / sum(slots * max(batch) for batch in batches)


def sizes(folder: Path, seconds: float) -> dict[int, float]:
    """Return steps per second by number of slots; key 0 holds the rate at the number that `auto` chooses."""
    from orchestrator.config import load
    from trainables.engine import Engine, choose_slots
    from trainables.engine.size import steps_per_second
    from trainables.tasks import TASKS
    from trainables.trial import TrialSettings

    sweep = load(folder / "alone.yaml", profile=None, gpus=0)
    settings, data = sweep.settings(sweep.largest(), 0), TASKS["listops"].load(OPTIONS, folder)
    assert isinstance(settings, TrialSettings)
    chosen = choose_slots(settings, data, most=8, seconds=seconds).slots
    engine = Engine(settings, data, slots=8)
    for slot in range(8):
        engine.admit(slot, settings)
    rates = {count: steps_per_second(engine, count, seconds) for count in (1, 2, 4, 8)}
    return {**rates, 0: rates[chosen]}


def main() -> None:
    """Print three small tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--trials", type=int, default=24, help="number of trials of the sweep with ASHA")
    parser.add_argument("--seconds", type=float, default=3.0, help="measuring time for each K")
    parser.add_argument("--gpu", action="store_true", help="use the GPU of this machine")
    given = parser.parse_args()
    device = {} if given.gpu else {"SWEEP_HOST_DEVICES": "1"}
    share = f"resources={{gpu: 1/{given.slots}, cpu: 0.1}}"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        arrays(folder)
        one = "resources={gpu: 1, cpu: 0.1}"
        alone = run(folder, "alone", device, one, f"budget.trials={given.slots}")
        together = run(folder, "together", device, share, f"budget.trials={given.slots}")
        asha = "scheduler={asha: {reduction: 2, grace: 0.25}}"
        run(folder, "asha", device, share, asha, f"budget.trials={given.trials}")
        refilled, batches = busy(folder / "asha", given.slots)
        print(f"{len(os.sched_getaffinity(0))} processors, load at the end {os.getloadavg()[0]:.1f}\n")
        print(f"| {given.slots} trials of 200 steps | s |\n|---|---|")
        print(f"| one after the other | {alone:.1f} |\n| one engine | {together:.1f} |\n")
        print(f"| {given.trials} trials under ASHA | slots busy |\n|---|---|")
        print(f"| refilled | {refilled:.1%} |\n| not refilled (computed) | {batches:.1%} |\n")
        rates = sizes(folder, given.seconds)
        print("| K | steps/s |\n|---|---|")
        for count, rate in sorted(rates.items()):
            print(f"| {count or 'auto'} | {rate:.1f} |")
        best = max(rate for count, rate in rates.items() if count)
        print(f"\n`auto` reaches {rates[0] / best:.2f} of the best fixed K")


if __name__ == "__main__":
    main()
