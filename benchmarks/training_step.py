"""A training step of a small RotRNN model: our recurrence against the form printed in the paper.

    python -m benchmarks.training_step [--processes 5] [--rounds 20]

2 layers, D 32, N 64, H 8, L 256, batch 16, 100 tokens, 2 classes: the program that a trial runs; only the
layer differs between the two. Ten steps per call: batch, forward pass, gradient, AdamW. Measured once on one
core, a trial's share when a sweep has as many trials as cores, and once in a process that has every core to
itself.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
from jax import numpy as jnp

from benchmarks.printed import PrintedRotRNN
from benchmarks.timing import circumstances, in_processes, in_turns, milliseconds, ratios, table
from trainables.data.task import Signature
from trainables.engine.calls import Calls
from trainables.engine.network import NetworkProgram, Sequences
from trainables.engine.state import free_of
from trainables.layers.rotrnn import RotRNN
from trainables.trial import ModelSettings, TrainingSettings, TrialSettings

IMPLEMENTATIONS = {"ours": RotRNN, "printed": PrintedRotRNN}
BATCH, EXAMPLES, STEPS = 16, 512, 10
SETTINGS = TrialSettings(
    task="text",
    task_options={},
    model=ModelSettings(
        "rotrnn",
        depth=2,
        d_model=32,
        d_state=64,
        dropout=0.1,
        options={"heads": 8},
        ranges={"gamma_init": (0.5, 0.999), "theta_init": (0.0, 6.28)},
    ),
    training=TrainingSettings(
        steps=1000, interval=100, batch_size=BATCH, learning_rate=1e-3, recurrent_learning_rate=1e-3
    ),
    seed=0,
)


def training_steps(implementation: str, length: int) -> Callable[[], Any]:
    """Return a compiled function that takes ten steps of a new trial."""
    program = NetworkProgram(SETTINGS, Signature("class", 2, 100, 1, length), padded=True, evaluated=BATCH)
    tokens = jax.random.randint(jax.random.key(0), (EXAMPLES, length), 0, 100).astype(jnp.uint8)
    train = Sequences(tokens, jnp.full(EXAMPLES, length), tokens[:, 0].astype(jnp.int32) % 2)
    with mock.patch("trainables.model.LAYERS", {"rotrnn": IMPLEMENTATIONS[implementation]}):
        arguments = (program.initialise(free_of(SETTINGS)), jnp.int32(STEPS), train)
        advance = jax.jit(Calls(program).advance).lower(*arguments).compile()
    return lambda: advance(*arguments)


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--one-core", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if options.child:
        taken = in_turns(
            {
                implementation: training_steps(implementation, options.length)
                for implementation in IMPLEMENTATIONS
            },
            options.rounds,
        )
        print(json.dumps({implementation: seconds / STEPS for implementation, seconds in taken.items()}))
        return
    sizes = [f"--{name}={getattr(options, name)}" for name in ("length", "rounds")]
    rows = []
    for cores, option in (("one core", ["--one-core"]), ("every core", [])):
        runs = in_processes("benchmarks.training_step", options.processes, *sizes, *option)
        times = [milliseconds(runs, implementation) for implementation in ("printed", "ours")]
        rows.append([cores, *times, ratios(runs, "printed", "ours")])
    print(table(["training step", "printed form, ms", "ours, ms", "printed / ours: median (range)"], rows))
    print(f"\nMedians over {options.processes} processes. {circumstances()}")


if __name__ == "__main__":
    main()
