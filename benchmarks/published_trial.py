"""RotRNN's published trial on ListOps (L = 2,048), for as many of its 80,000 steps as time permits.

    python -m benchmarks.published_trial [--minutes 10] [--seeds 3] [--data data] [--keep FOLDER]
    python -m benchmarks.published_trial --dry-run        # tiny shapes; runs on a CPU too

Trial 0 of `search_spaces/listops.yaml --profile full`, in the engine and without the service; several seeds
are slots of one engine. Prints the validation curves as a table, the test accuracy of each seed's weights
that were best on validation, and the steps per second; the published figure for an LRU of the same size is
2.1 on an A100. With `--keep` another run goes on exactly where this one ended. Needs this repository, jax,
flax, optax, numpy and pillow; the first run generates the data.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
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
    """One row of the curves.

    Attributes:
        seed: of the trial.
        step: updates done.
        seconds: since the first step of the run that took it, compilation and evaluations included.
        rate: steps per second of each seed in the last interval, training only.
        compiled: seconds spent compiling in the interval; excluded from `rate`.
        train_loss: mean over the interval.
        loss: on validation.
        accuracy: on validation.
    """

    seed: int
    step: int
    seconds: float
    rate: float
    compiled: float
    train_loss: float
    loss: float
    accuracy: float


@dataclass
class Course:
    """What is known of one seed.

    Attributes:
        trial: its settings.
        readings: its curve.
        last: snapshot after the last reading.
        best: snapshot after the best reading on validation; of equal ones, the first.
    """

    trial: TrialSettings
    readings: list[Reading] = field(default_factory=list)
    last: Mapping[str, np.ndarray] = field(default_factory=dict)
    best: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """Return the updates done."""
        return self.readings[-1].step if self.readings else 0

    def add(self, reading: Reading, snapshot: Mapping[str, np.ndarray]) -> None:
        """Add a reading.

        Source: RotRNN, section 5.1, which tests the best on validation.
        """
        if not self.readings or reading.accuracy > max(earlier.accuracy for earlier in self.readings):
            self.best = snapshot
        self.readings.append(reading)
        self.last = snapshot

    def keep(self, folder: Path) -> None:
        """Write a seed to a folder, each file whole or not at all."""
        curve = json.dumps([asdict(reading) for reading in self.readings])
        written = folder / f"seed-{self.trial.seed}.new.npz"
        files: dict[str, Any] = {"best": self.best, "last": {**self.last, "curve": np.array(curve)}}
        for name, snapshot in files.items():
            np.savez(written, **snapshot)
            written.replace(folder / f"seed-{self.trial.seed}-{name}.npz")

    @classmethod
    def kept(cls, trial: TrialSettings, folder: Path) -> Course:
        """Return what `keep` wrote, or a seed of which nothing is known."""
        if not (folder / f"seed-{trial.seed}-last.npz").exists():
            return cls(trial)
        last, best = (dict(np.load(folder / f"seed-{trial.seed}-{name}.npz")) for name in ("last", "best"))
        readings = [Reading(**reading) for reading in json.loads(str(last.pop("curve")))]
        return cls(trial, readings, last, best)


def train(engine: Engine, courses: list[Course], seconds: float, folder: Path | None) -> None:
    """Train all seeds together, an interval at a time, until all steps are done or time runs out."""
    for slot, course in enumerate(courses):
        if course.last:
            engine.restore(slot, course.trial, course.last)
        else:
            engine.admit(slot, course.trial)
    began = time.perf_counter()
    training = courses[0].trial.training
    # A run that was killed may have kept some of the seeds an interval further than the others.
    first = min(course.step for course in courses)
    for end in range(first + training.interval, training.steps + 1, training.interval):
        left = {slot: end - course.step for slot, course in enumerate(courses) if course.step < end}
        reports = engine.advance(left)
        for slot, report in reports.items():
            course = courses[slot]
            scores = engine.evaluate(slot, "validation", course.trial.evaluate_examples)
            reading = Reading(
                seed=course.trial.seed,
                step=end,
                seconds=time.perf_counter() - began,
                rate=left[slot] / report.train_seconds,
                compiled=report.compile_seconds,
                train_loss=report.loss,
                loss=scores["loss"],
                accuracy=scores["accuracy"],
            )
            course.add(reading, engine.snapshot(slot))
            print(row(reading), flush=True)
            if folder:
                course.keep(folder)
        if time.perf_counter() - began > seconds or not all(report.finite for report in reports.values()):
            return


def row(reading: Reading) -> str:
    """Return a reading as a row of the table."""
    return (
        f"| {reading.seed} | {reading.step:,} | {reading.seconds / 60:.1f} | {reading.rate:.1f} "
        f"| {reading.train_loss:.3f} | {reading.loss:.3f} | {100 * reading.accuracy:.1f} % |"
    )


def test(engine: Engine, slot: int, course: Course) -> dict[str, Any]:
    """Return the figures of one seed, whose best weights replace those in a slot."""
    engine.evict(slot)
    engine.restore(slot, course.trial, course.best)
    step = int(course.best["step"])
    return {
        "seed": course.trial.seed,
        "best_step": step,
        "validation_accuracy": next(each.accuracy for each in course.readings if each.step == step),
        "test_accuracy": engine.evaluate(slot, "test")["accuracy"],
    }


def summary(courses: list[Course]) -> dict[str, Any]:
    """Return the figures of all seeds; the median rate omits the first interval if there are more."""
    readings = courses[0].readings
    rates = sorted(reading.rate for reading in readings[1:] or readings)
    return {
        "device": jax.devices()[0].device_kind,
        "steps": readings[-1].step,
        "of": courses[0].trial.training.steps,
        "steps_per_second": rates[len(rates) // 2],
        "steps_per_second_of_all": len(courses) * rates[len(rates) // 2],
        "compile_seconds": max(reading.compiled for reading in readings),
    }


def main() -> None:
    """Print the curves and their summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="training time in minutes")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds, which train together")
    parser.add_argument("--algorithm", default="auto", help="of the recurrence")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the data sets")
    parser.add_argument("--keep", type=Path, default=None, help="folder of the state, to go on with later")
    parser.add_argument("--json", type=Path, default=None, help="also write the figures to this file")
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes")
    options = parser.parse_args()
    trial = TINY if options.dry_run else PUBLISHED
    chosen = {**trial.model.options, "algorithm": options.algorithm}
    trial = replace(trial, model=replace(trial.model, options=chosen))
    data = TASKS[trial.task].load(trial.task_options, options.data)
    print(f"{data.source}; chance {100 * data.chance['validation']:.1f} %\n")
    print("| seed | step | minutes | steps/s | training loss | validation loss | validation accuracy |")
    print("|---|---|---|---|---|---|---|", flush=True)
    trials = [replace(trial, seed=seed) for seed in range(options.seeds)]
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    courses = [Course.kept(each, options.keep) if options.keep else Course(each) for each in trials]
    engine = Engine(trial, data, slots=options.seeds)
    train(engine, courses, 60 * options.minutes, options.keep)
    figures = summary(courses)
    tested = [test(engine, slot, course) for slot, course in enumerate(courses)]
    for line in (figures, *tested):
        print("\n" + "\n".join(f"{name}: {value}" for name, value in line.items()))
    if options.json:
        curves = [asdict(reading) for course in courses for reading in course.readings]
        options.json.write_text(json.dumps({**figures, "seeds": tested, "curves": curves}, indent=1))


if __name__ == "__main__":
    main()
