"""RotRNN's published trial on ListOps (L = 2,048), for as many of its 80,000 steps as time permits.

    python -m benchmarks.published_trial [--minutes 10] [--data data] [--json FILE]
    python -m benchmarks.published_trial --dry-run        # tiny shapes; runs on a CPU too

Trial 0 of `search_spaces/listops.yaml --profile full`, in the engine and without the service. Prints the
validation curve as a table, the test accuracy of the weights that were best on validation, and the steps per
second; the published figure for an LRU of the same size is 2.1 on an A100. Needs this repository, jax, flax,
optax, numpy and pillow; the first run generates the data.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from trainables.engine import Engine
from trainables.tasks import TASKS
from trainables.trial import ModelSettings, TrainingSettings, TrialSettings

PUBLISHED = TrialSettings(
    task="listops",
    model=ModelSettings(
        "rotrnn",
        depth=6,
        d_model=128,
        d_state=256,
        options={
            "heads": 32,
            "normalisation": "input",
            "basis": "learned",
            "train_theta": True,
            "train_gamma": True,
            "algorithm": "auto",
            "activations": "float32",
        },
        ranges={"gamma_init": (0.5, 0.999), "theta_init": (0.0, math.pi / 100)},
    ),
    training=TrainingSettings(
        steps=80_000,
        interval=1000,
        batch_size=32,
        learning_rate=1e-3,
        recurrent_learning_rate=1e-3,
        weight_decay=0.05,
    ),
    seed=0,
    task_options={"length": 2048, "min_length": 500, "max_length": 2000},
    evaluate_examples=2000,
)
"""Source: RotRNN, table 3."""

TINY = replace(
    PUBLISHED,
    model=replace(PUBLISHED.model, depth=1, d_model=8, d_state=8, options={"heads": 2}),
    training=replace(PUBLISHED.training, steps=40, interval=10, batch_size=4),
    task_options={"length": 64, "min_length": 8, "max_length": 60, "examples": 60, "held_out": 20},
    evaluate_examples=20,
)


@dataclass(frozen=True)
class Reading:
    """One row of the curve.

    Attributes:
        step: updates done.
        seconds: since the first step, compilation and evaluations included.
        rate: steps per second of the last interval, training only.
        compiled: seconds spent compiling in the interval; excluded from `rate`.
        train_loss: mean over the interval.
        loss: on validation.
        accuracy: on validation.
    """

    step: int
    seconds: float
    rate: float
    compiled: float
    train_loss: float
    loss: float
    accuracy: float


def curve(engine: Engine, trial: TrialSettings, seconds: float) -> Iterator[Reading]:
    """Train a trial; yield a reading after each interval until all steps are done or time runs out."""
    engine.admit(0, trial)
    began = time.perf_counter()
    for end in range(trial.training.interval, trial.training.steps + 1, trial.training.interval):
        report = engine.advance({0: trial.training.interval})[0]
        scores = engine.evaluate(0, "validation", trial.evaluate_examples)
        yield Reading(
            step=end,
            seconds=time.perf_counter() - began,
            rate=trial.training.interval / report.train_seconds,
            compiled=report.compile_seconds,
            train_loss=report.loss,
            loss=scores["loss"],
            accuracy=scores["accuracy"],
        )
        if time.perf_counter() - began > seconds or not report.finite:
            return


def best_of(engine: Engine, trial: TrialSettings, readings: Iterable[Reading]) -> list[Reading]:
    """Return all readings, and leave the engine with the weights that were best on validation.

    Source: RotRNN, section 5.1, which tests the best on validation. Of equal ones, the first is kept.
    """
    done: list[Reading] = []
    best: Mapping[str, np.ndarray] = {}
    for reading in readings:
        if not done or reading.accuracy > max(earlier.accuracy for earlier in done):
            best = engine.snapshot(0)
        done.append(reading)
        print(row(reading), flush=True)
    engine.evict(0)
    engine.restore(0, trial, best)
    return done


def row(reading: Reading) -> str:
    """Return a reading as a row of the table."""
    return (
        f"| {reading.step:,} | {reading.seconds / 60:.1f} | {reading.rate:.1f} | {reading.train_loss:.3f} "
        f"| {reading.loss:.3f} | {100 * reading.accuracy:.1f} % |"
    )


def summary(readings: list[Reading], tested: int, test: Mapping[str, float], steps: int) -> dict[str, Any]:
    """Return the figures below the table; the median rate omits the first interval if there are more.

    Args:
        readings: of the curve.
        tested: step of the weights that were tested.
        test: their scores.
        steps: of the whole trial.
    """
    rates = sorted(reading.rate for reading in readings[1:] or readings)
    return {
        "device": jax.devices()[0].device_kind,
        "steps": readings[-1].step,
        "of": steps,
        "steps_per_second": rates[len(rates) // 2],
        "compile_seconds": sum(reading.compiled for reading in readings),
        "best_step": tested,
        "validation_accuracy": next(each.accuracy for each in readings if each.step == tested),
        "test_accuracy": test["accuracy"],
    }


def main() -> None:
    """Print the curve and its summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="training time in minutes")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the data sets")
    parser.add_argument("--json", type=Path, default=None, help="also write the figures to this file")
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes")
    options = parser.parse_args()
    trial = TINY if options.dry_run else PUBLISHED
    data = TASKS[trial.task].load(trial.task_options, options.data)
    print(f"{data.source}; chance {100 * data.chance['validation']:.1f} %\n")
    print("| step | minutes | steps/s | training loss | validation loss | validation accuracy |")
    print("|---|---|---|---|---|---|", flush=True)
    engine = Engine(trial, data)
    readings = best_of(engine, trial, curve(engine, trial, 60 * options.minutes))
    tested = int(engine.snapshot(0)["step"])
    figures = summary(readings, tested, engine.evaluate(0, "test"), trial.training.steps)
    print("\n" + "\n".join(f"{name}: {value}" for name, value in figures.items()))
    if options.json:
        options.json.write_text(
            json.dumps({**figures, "curve": [asdict(reading) for reading in readings]}, indent=1)
        )


if __name__ == "__main__":
    main()
