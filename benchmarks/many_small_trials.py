"""Many trials of small networks in one program.

    python -m benchmarks.many_small_trials [--trials 64] [--steps 2000 20000] [--skip-sweeps]
    python -m benchmarks.many_small_trials --slots 16 --skip-sweeps     # the cost of a step beside `jax.vmap`

Two networks: a perceptron of 32 hidden units on the handwritten digits of scikit-learn, batches of 32, Adam,
dropout, as a program of a user; and a RotRNN of one layer (D 16, N 32, H 4) at L 24, batches of 16, AdamW,
dropout, as in a file. First a step of all trials together in the engine, in calls of 50 and of 400 steps,
relative to a hand-written `jax.vmap` over as many trials, by wall-clock time and by time of the processor:
all contenders in turns in one process. The number of steps is a constant of the program by hand. "traced"
(`--traced`) is the same program with that number as an argument, as in the engine: a GPU may then have to ask
the host after every step whether to go on. Then whole sweeps of the perceptron, whose trials share a
device, from the command to the end, with four reports a trial, a ledger, MLflow and a report. On a machine
without a GPU the device is the CPU (`SWEEP_HOST_DEVICES=1`). Without sweeps it needs this repository,
scikit-learn, jax, flax and optax alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import optax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from benchmarks.timing import circumstances, in_turns, line, table
from tests.trainables.digits import Perceptron, digits
from tests.trainables.toy import toy_data, toy_trial
from trainables.engine import Engine
from trainables.model import Model, Training
from trainables.program import ProgramData, loaded
from trainables.trial import Clock, ProgramSettings, TrialSettings

WIDTH = 32
HEADER = ["network", "trials", "steps a call", "by", "ms a step", "steps a second", "wall", "CPU"]
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


@dataclass(frozen=True)
class Network:
    """A network as its user would train it by hand, and as the engine trains it.

    Attributes:
        examples: Number of training examples.
        batch: Examples of a step.
        started: Function key -> parameters, running statistics.
        loss: Function (parameters, running statistics, rows, key of the step) -> mean loss of some examples,
            and new running statistics.
        optimizer: Function rate -> optimiser.
        data: Data of the engine.
        settings: Function (rate, seed) -> settings of a trial of the engine.
    """

    examples: int
    batch: int
    started: Callable[[Array], tuple[Any, Any]]
    loss: Callable[[Any, Any, Array, Array], tuple[Array, Any]]
    optimizer: Callable[[Any], optax.GradientTransformation]
    data: Any
    settings: Callable[[float, int], Any]


def perceptron() -> Network:
    """Return the perceptron."""
    data, net = digits()["train"], Perceptron(WIDTH)
    inputs, targets = jnp.asarray(data["inputs"]), jnp.asarray(data["targets"])

    def settings(rate: float, seed: int) -> ProgramSettings:
        params = {"learning_rate": rate, "width": WIDTH}
        return ProgramSettings(
            "tests.trainables.digits:OfLinen", ".", params, Clock(10**6, 100), seed, ("learning_rate",)
        )

    def loss(params: Any, stats: Any, rows: Array, key: Array) -> tuple[Array, Any]:
        logits = net.apply({"params": params}, inputs[rows], train=True, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets[rows]).mean(), stats

    def started(key: Array) -> tuple[Any, Any]:
        return net.init(key, inputs[:1], train=False)["params"], ()

    engine_data = ProgramData.of(loaded(settings(1e-3, 0)), Path())
    return Network(len(targets), 32, started, loss, optax.adam, engine_data, settings)


def rotrnn() -> Network:
    """Return the RotRNN."""
    data, model = toy_data(), {"d_model": 16, "d_state": 32, "bidirectional": False, "options": {"heads": 4}}

    def settings(rate: float, seed: int) -> TrialSettings:
        rates = {"learning_rate": rate, "recurrent_learning_rate": rate}
        return toy_trial(seed, model=model, steps=10**6, batch_size=16, **rates)

    drawn = settings(1e-3, 0).model
    inputs, lengths, targets = map(jnp.asarray, (data.train.inputs, data.train.lengths, data.train.targets))

    def built(key: Array) -> Model:
        return Model(drawn, drawn.complete().ranges, data.signature, rngs=nnx.Rngs(key))

    graph = nnx.split(nnx.eval_shape(lambda: built(jax.random.key(0))))[0]

    def apart(net: Model) -> tuple[Any, Any]:
        _, *states = nnx.split(net, nnx.Param, nnx.BatchStat)
        params, stats = map(nnx.to_pure_dict, states)
        return params, stats

    def loss(params: Any, stats: Any, rows: Array, key: Array) -> tuple[Array, Any]:
        net = nnx.merge(graph, nnx.State(params), nnx.State(stats))
        training = Training(jnp.float32(drawn.dropout), jax.random.key_data(key))
        logits = net(inputs[rows], lengths[rows], training)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets[rows])
        return losses.mean(), apart(net)[1]

    def started(key: Array) -> tuple[Any, Any]:
        return apart(built(key))

    return Network(len(targets), 16, started, loss, optax.adamw, data, settings)


NETWORKS = {"perceptron": perceptron, "rotrnn": rotrnn}


def by_hand(network: Network, trials: int, steps: int, *, traced: bool = False) -> Callable[[], Any]:
    """Return a function that takes further steps of all trials by `jax.vmap`."""

    def advanced(key: Array, rate: Array, state: Any, steps: Any) -> Any:
        optimizer = network.optimizer(rate)

        def step(_: Any, carry: Any) -> Any:
            params, stats, moments, index = carry
            now = jax.random.fold_in(key, index)
            rows = jax.random.randint(now, (network.batch,), 0, network.examples)
            gradient, stats = jax.grad(network.loss, has_aux=True)(params, stats, rows, now)
            updates, moments = optimizer.update(gradient, moments, params)
            return optax.apply_updates(params, updates), stats, moments, index + 1

        return jax.lax.fori_loop(0, steps, step, state)

    @jax.jit
    def start(key: Array) -> Any:
        params, stats = network.started(key)
        state = params, stats, network.optimizer(1e-4).init(params), jnp.int32(0)
        return jax.tree.map(lambda leaf: jnp.repeat(leaf[None], trials, axis=0), state)

    keys, rates = jax.random.split(jax.random.key(0), trials), jnp.linspace(1e-5, 1e-4, trials)
    together = jax.vmap(advanced, in_axes=(0, 0, 0, None))
    run = jax.jit(together, donate_argnums=2, static_argnums=() if traced else 3)
    state = [start(jax.random.key(1))]

    def further() -> Any:
        state[0] = run(keys, rates, state[0], steps)
        return state[0]

    return further


def in_slots(network: Network, slots: int, steps: int) -> Callable[[], Any]:
    """Return a function that takes further steps of all slots of an engine."""
    engine = Engine(network.settings(1e-5, 0), network.data, slots=slots, stacked=True)
    for slot in range(slots):
        engine.admit(slot, network.settings(1e-5 * (1 + slot / slots), slot))
    for _ in range(3):  # The engine limits its calls by the time of earlier steps.
        engine.advance(dict.fromkeys(range(slots), steps))
    return lambda: engine.advance(dict.fromkeys(range(slots), steps))


def steps_together(
    name: str, slots: int, steps: int, rounds: int, *, traced: bool = False
) -> Iterator[list[str]]:
    """Yield a row for each contender: ms and ratios of one step of all trials, and steps a second."""
    network = NETWORKS[name]()
    contenders = {"by hand": by_hand(network, slots, steps), "engine": in_slots(network, slots, steps)}
    if traced:
        contenders["by hand, traced"] = by_hand(network, slots, steps, traced=True)
    wall, cpu = (in_turns(contenders, rounds, clock) for clock in (time.perf_counter, time.process_time))
    for contender, seconds in wall.items():
        yield [
            name,
            str(slots),
            str(steps),
            contender,
            f"{1000 * seconds / steps:.3f}",
            f"{slots * steps / seconds:,.0f}",
            f"{seconds / wall['by hand']:.2f}",
            f"{cpu[contender] / cpu['by hand']:.2f}",
        ]


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
    parser.add_argument("--trials", type=int, default=64, help="of a whole sweep")
    parser.add_argument("--steps", type=int, nargs="+", default=[2000, 20_000], help="of a trial, by sweep")
    parser.add_argument("--slots", type=int, default=16, help="of one program, also in the whole sweep")
    parser.add_argument("--calls", type=int, nargs="+", default=[50, 400], help="steps of a device call")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--traced", action="store_true", help="a third contender, see above")
    parser.add_argument("--skip-sweeps", action="store_true", help="measure steps alone")
    options = parser.parse_args()
    print(table(HEADER, []), flush=True)
    for name in options.networks:
        for steps in options.calls:
            for row in steps_together(name, options.slots, steps, options.rounds, traced=options.traced):
                print(line(row), flush=True)
    print(f"\n{circumstances()}")
    if options.skip_sweeps:
        return
    print(f"\n| steps of each of {options.trials} trials | seconds |\n|---|---|")
    for steps in options.steps:
        print(f"| {steps} | {sweep(options.trials, steps, options.slots):.1f} |", flush=True)


if __name__ == "__main__":
    main()
