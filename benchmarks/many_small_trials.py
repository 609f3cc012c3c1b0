"""Many trials of a small network on a table, in one program.

    python -m benchmarks.many_small_trials [--trials 64] [--steps 2000 20000] [--skip-sweeps]

A perceptron of 32 hidden units on the handwritten digits of scikit-learn, batches of 32, Adam, dropout. First
the rate of training alone, in steps a second of all trials together: a hand-written `jax.vmap` over all
trials, which is the limit, and the engine with K slots. Then whole sweeps of a program whose trials share a
device, from the command to the end, with four reports a trial, a ledger, MLflow and a report. On a machine
without a GPU the device is the CPU (`SWEEP_HOST_DEVICES=1`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jax import numpy as jnp

from tests.trainables.digits import Perceptron, digits
from trainables.engine import Engine
from trainables.program import ProgramData, loaded
from trainables.trial import Clock, ProgramSettings

WIDTH, BATCH = 32, 32
MEASURED = 400
"""Steps of each trial that are timed."""

ROUNDS = 3
ROOT = Path(__file__).parents[1]

FILE = """
trainable: {{program: "model.py:OfLinen"}}
search: {{learning_rate: {{log_uniform: [1e-4, 1e-1]}}, width: {{choice: [32]}}}}
training: {{steps: {steps}, interval: {interval}}}
objective: {{maximize: val/accuracy}}
sampler: {{random: {{seed: 0}}}}
scheduler: none
budget: {{trials: {trials}}}
resources: {{gpu: 1/{slots}, cpu: 0.05}}
"""


def trained(key: jax.Array, rate: Any, steps: int) -> Any:
    """Take steps of the perceptron as a user would write them; return parameters and moments."""
    data, net, optimizer = digits()["train"], Perceptron(WIDTH), optax.adam(rate)
    inputs, targets = jnp.asarray(data["inputs"]), jnp.asarray(data["targets"])

    def step(index: Any, carry: Any) -> Any:
        params, moments = carry
        now = jax.random.fold_in(key, index)
        rows = jax.random.randint(now, (BATCH,), 0, len(targets))

        def loss(params: Any) -> Any:
            logits = net.apply({"params": params}, inputs[rows], train=True, rngs={"dropout": now})
            return optax.softmax_cross_entropy_with_integer_labels(logits, targets[rows]).mean()

        updates, moments = optimizer.update(jax.grad(loss)(params), moments, params)
        return optax.apply_updates(params, updates), moments

    return jax.lax.fori_loop(0, steps, step, started(key, rate))


def started(key: jax.Array, rate: Any) -> Any:
    """Return parameters and moments before the first step."""
    params = Perceptron(WIDTH).init(key, jnp.asarray(digits()["train"]["inputs"][:1]), train=False)["params"]
    return params, optax.adam(rate).init(params)


def by_hand(trials: int) -> float:
    """Return the steps per second of `jax.vmap` over all trials."""
    keys, rates = jax.random.split(jax.random.key(0), trials), jnp.linspace(1e-4, 1e-2, trials)
    together = jax.vmap(lambda key, rate: trained(key, rate, MEASURED))
    run = jax.jit(together).lower(keys, rates).compile()
    jax.block_until_ready(run(keys, rates))
    began = time.perf_counter()
    jax.block_until_ready(run(keys, rates))
    return trials * MEASURED / (time.perf_counter() - began)


def settings(rate: float, seed: int) -> ProgramSettings:
    """Return the settings of a trial of the program."""
    params = {"learning_rate": rate, "width": WIDTH}
    return ProgramSettings(
        "tests.trainables.digits:OfLinen", ".", params, Clock(10**6, 100), seed, ("learning_rate",)
    )


def in_slots(slots: int) -> float:
    """Return the steps per second of an engine with this many slots."""
    engine = Engine(settings(1e-3, 0), ProgramData.of(loaded(settings(1e-3, 0)), Path()), slots=slots)
    for slot in range(slots):
        engine.admit(slot, settings(1e-4 * (1 + slot), slot))
    for _ in range(3):
        engine.advance(dict.fromkeys(range(slots), 40))
    began = time.perf_counter()
    engine.advance(dict.fromkeys(range(slots), MEASURED))
    return slots * MEASURED / (time.perf_counter() - began)


def sweep(trials: int, steps: int, slots: int) -> float:
    """Return the seconds of a whole sweep."""
    folder = Path(tempfile.mkdtemp(prefix="many-"))
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "SWEEP_HOST_DEVICES": "1"}
    # A Ray of its own, which the sweep starts and ends.
    variables |= {"SWEEP_RUNTIME": str(folder / "run"), "SWEEP_RAY_LINGER": "0"}
    try:
        shutil.copy(ROOT / "tests" / "trainables" / "digits.py", folder / "model.py")
        file = folder / "digits.yaml"
        file.write_text(FILE.format(steps=steps, interval=steps // 4, trials=trials, slots=slots))
        command = [sys.executable, "-m", "orchestrator.sweep", str(file), "--root", str(folder / "mlruns")]
        began = time.perf_counter()
        subprocess.run([*command, "--here"], env=variables, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--steps", type=int, nargs="+", default=[2000, 20_000], help="of a trial, by sweep")
    parser.add_argument("--slots", type=int, default=16, help="of the program in the whole sweep")
    parser.add_argument("--skip-sweeps", action="store_true", help="measure training alone")
    options = parser.parse_args()
    rates: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        rates.setdefault(f"`jax.vmap` over {options.trials} by hand", []).append(by_hand(options.trials))
        for slots in (1, 8, options.trials):
            rates.setdefault(f"the engine, {slots} slots", []).append(in_slots(slots))
    print("| training alone | steps a second, median |\n|---|---|")
    for name, values in rates.items():
        print(f"| {name} | {np.median(values):,.0f} |")
    if options.skip_sweeps:
        return
    print(f"\n| steps of each of {options.trials} trials | seconds |\n|---|---|")
    for steps in options.steps:
        print(f"| {steps} | {sweep(options.trials, steps, options.slots):.1f} |", flush=True)


if __name__ == "__main__":
    main()
