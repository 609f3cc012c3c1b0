"""64 trials of a small network on a table, in one program and otherwise.

    python -m benchmarks.many_small_trials [--trials 64] [--steps 2000 20000] [--skip-sweeps]

A perceptron of 32 hidden units on the handwritten digits of scikit-learn, batches of 32, Adam, dropout. First
the rate of training alone, in steps a second of all trials together: a hand-written `jax.vmap` over all
trials, which is the limit, and the engine with K slots. Then whole sweeps, from the command to the end, with
four reports a trial: a program of this service whose trials share a device, the same training as a function
of this service, and as a function of plain Ray Tune, as many trials at a time as there are processors. The
two functions run the same code: every trial has a process of its own, which imports JAX, compiles one program
for its initialisation and one for a quarter of its steps with the evaluation, which it calls four times. All
train, evaluate and report as often, and all times
include the start of Ray; the service also keeps a ledger, MLflow's runs and a report, and of the program
checkpoints and the best trial's results on test. On a machine without a GPU the program's device is the CPU
(`SWEEP_HOST_DEVICES=1`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
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
trainable: {{{trainable}}}
search: {{learning_rate: {{log_uniform: [1e-4, 1e-1]}}, width: {{choice: [32]}}}}
training: {{steps: {steps}, interval: {interval}}}
objective: {{maximize: val/accuracy}}
sampler: {{random: {{seed: 0}}}}
scheduler: none
budget: {{trials: {trials}}}
resources: {{{resources}}}
"""
PROGRAM = 'program: "model.py:OfLinen"'
FUNCTION = 'function: "benchmarks.many_small_trials:service_trial"'

PLAIN = """
import sys
from ray import tune
from benchmarks.many_small_trials import plain_trial
steps, trials = int(sys.argv[1]), int(sys.argv[2])
tune.Tuner(
    tune.with_parameters(plain_trial, steps=steps),
    param_space={"learning_rate": tune.loguniform(1e-4, 1e-1), "seed": tune.randint(0, 2**31)},
    tune_config=tune.TuneConfig(num_samples=trials, metric="accuracy", mode="max"),
    run_config=tune.RunConfig(storage_path=sys.argv[3], verbose=0),
).fit()
"""


def trained(key: jax.Array, rate: Any, steps: int, start: Any = None) -> Any:
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

    return jax.lax.fori_loop(0, steps, step, started(key, rate) if start is None else start)


def started(key: jax.Array, rate: Any) -> Any:
    """Return parameters and moments before the first step."""
    params = Perceptron(WIDTH).init(key, jnp.asarray(digits()["train"]["inputs"][:1]), train=False)["params"]
    return params, optax.adam(rate).init(params)


def by_hand(trials: int) -> float:
    """Return steps a second of `jax.vmap` over so many trials."""
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
    """Return steps a second of an engine with so many slots."""
    engine = Engine(settings(1e-3, 0), ProgramData.of(loaded(settings(1e-3, 0)), Path()), slots=slots)
    for slot in range(slots):
        engine.admit(slot, settings(1e-4 * (1 + slot), slot))
    for _ in range(3):
        engine.advance(dict.fromkeys(range(slots), 40))
    began = time.perf_counter()
    engine.advance(dict.fromkeys(range(slots), MEASURED))
    return slots * MEASURED / (time.perf_counter() - began)


def in_quarters(seed: int, rate: float, steps: int) -> Iterator[float]:
    """Train one trial as a function does; yield its accuracy after each quarter of its steps."""
    validation, net, key = digits()["validation"], Perceptron(WIDTH), jax.random.key(seed)

    def quarter(carry: Any) -> Any:
        carry = trained(key, rate, steps // 4, carry)
        logits: Any = net.apply({"params": carry[0]}, validation["inputs"], train=False)
        return carry, (logits.argmax(-1) == validation["targets"]).mean()

    compiled, carry = jax.jit(quarter), jax.jit(lambda: started(key, rate))()
    for _ in range(4):
        carry, accuracy = compiled(carry)
        yield float(accuracy)


def plain_trial(config: dict[str, Any], steps: int) -> None:
    """Train one trial under plain Ray Tune, with four reports."""
    from ray import tune

    for accuracy in in_quarters(config["seed"], config["learning_rate"], steps):
        tune.report({"accuracy": accuracy})


def service_trial(trial: Any) -> None:
    """Train one trial as a function of this service, with four reports and no checkpoints."""
    accuracies = in_quarters(trial.seed, trial.params["learning_rate"], trial.steps)
    for number, accuracy in enumerate(accuracies, 1):
        if not trial.report(number * trial.interval, {"val/accuracy": accuracy}):
            return


def sweeps(trials: int, steps: int, slots: int) -> Iterator[tuple[str, float]]:
    """Yield the name and the seconds of whole sweeps."""
    folder = Path(tempfile.mkdtemp(prefix="many-"))
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0"}
    try:
        shutil.copy(ROOT / "tests" / "trainables" / "digits.py", folder / "model.py")
        numbers = {"steps": steps, "interval": steps // 4, "trials": trials}
        for name, trainable, resources in (
            (f"a program, {slots} slots", PROGRAM, f"gpu: 1/{slots}, cpu: 0.05"),
            ("a function", FUNCTION, "cpu: 1"),
        ):
            file = folder / "digits.yaml"
            file.write_text(FILE.format(trainable=trainable, resources=resources, **numbers))
            root = str(folder / trainable.partition(":")[0])
            command = [sys.executable, "-m", "orchestrator.sweep", str(file), "--root", root, "--here"]
            yield name, timed(command, {**variables, "SWEEP_HOST_DEVICES": "1"})
        command = [sys.executable, "-c", PLAIN, str(steps), str(trials), str(folder / "tune")]
        yield "plain Ray Tune", timed(command, {**variables, "JAX_PLATFORMS": "cpu"})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def timed(command: list[str], environment: dict[str, str]) -> float:
    """Return the seconds of a command that must succeed."""
    began = time.perf_counter()
    subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


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
    for steps in options.steps:
        print(f"\n| {options.trials} trials of {steps} steps | seconds |\n|---|---|")
        for name, seconds in sweeps(options.trials, steps, options.slots):
            print(f"| {name} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
