"""Worth of a sampler under early stopping: rank of the chosen setting against random search at equal cost.

    python -m benchmarks.search [--cost 64] [--workers 8] [--repetitions 200] [--landscapes S1 S2 S3 S4 S5]
                                [--curves FOLDER] [--samplers tpe] [--processes 2] [--json FILE]

Sweeps are simulated: `workers` trials run at a time, each of 20 steps, under ASHA (rungs at .1, .4 and 1 of
the steps, reduction 4), until trials have been launched for `cost` complete trainings. Proposals and stops
come from the classes that real sweeps use (`orchestrator.study.Study`, `orchestrator.schedule.schedulers`).
The chosen setting is the complete trial with the best final value; its *rank* is the share of 4,000 random
settings that are better. A *ratio* divides the mean rank by that of random search under the same scheduler;
intervals of 95 % are bootstrapped over repetitions.

Landscapes: S1 and S2 are kernel regressions on the curves of ConvNeXt and DeBERTa (from `--curves`; P1 and P2
are the settings themselves, of which the nearest one not tried yet replaces a proposal), S3 and S4 random
8-dimensional functions whose value at .1 of the steps has a correlation of .78 or .53 with the final one,
S5 random 4-dimensional ones (.78).
"""

from __future__ import annotations

import argparse
import heapq
import json
import lzma
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.assignment import shown_as
from orchestrator.config.resolve import load
from orchestrator.config.space import Distribution
from orchestrator.config.strategy import options_section
from orchestrator.config.sweep_config import Objective, Sampler, Scheduler, SweepConfig
from orchestrator.schedule import schedulers
from orchestrator.schedule.keyed import NO_CONTROLLER, KeyedTrial
from orchestrator.study.study import Study

STEPS = 20
RUNGS = (2, 8, 20)
SHARES = (0.1, 0.4, 1.0)
METRIC = "val/accuracy"
FILE = Path(__file__).parents[1] / "search_spaces" / "retrieval.yaml"
CURVES = {"S1": "convnext-tiny", "S2": "deberta-base", "P1": "convnext-tiny", "P2": "deberta-base"}
RANDOM = {"S3": (8, 0.78), "S4": (8, 0.53), "S5": (4, 0.78)}


@dataclass(frozen=True)
class Landscape:
    """Values of all settings of a space at the rungs.

    Attributes:
        dimensions: Number of hyperparameters, each from 0 to 1.
        values: Returns the values at the rungs, an array of shape [len(RUNGS)], for a setting.
        finals: Final values of random settings, rising.
        settings: Settings of a finite pool, of shape [settings, dimensions], or None.
    """

    dimensions: int
    values: Callable[[np.ndarray], np.ndarray]
    finals: np.ndarray
    settings: np.ndarray | None = None

    def rank(self, final: float) -> float:
        """Return the share of settings that are better than a final value, at least half of one setting."""
        better = len(self.finals) - int(np.searchsorted(self.finals, final, side="right"))
        return (better + 0.5) / len(self.finals)


def random_function(dimensions: int, correlation: float, seed: int) -> Landscape:
    """Return a smooth random function of the unit cube, whose early values correlate with the final ones.

    It is a sum of 500 random cosines, which approximates a Gaussian process with a length scale of .5. At a
    share t of training the value is `a(t) f(x) + sqrt(1 - a(t)^2) g(x)`, with f and g independent, a(.1) the
    correlation, a(1) = 1, and between them linear in log t.
    """
    draws = np.random.default_rng([seed, dimensions])
    weights = [_cosines(dimensions, draws) for _ in range(2)]
    early, late = math.log(SHARES[0]), 0.0
    part = [correlation + (1 - correlation) * (math.log(t) - early) / (late - early) for t in SHARES]

    def raw(points: np.ndarray) -> np.ndarray:
        one, other = (np.cos(points @ w.T + b) @ a for w, b, a in weights)
        return np.stack([p * one + math.sqrt(1 - p * p) * other for p in part], axis=-1)

    sample = raw(draws.uniform(size=(4_000, dimensions)))
    return Landscape(dimensions, lambda point: raw(point[None])[0], np.sort(sample[:, -1]))


def _cosines(dimensions: int, draws: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    count, scale = 500, 0.5
    frequencies = draws.normal(size=(count, dimensions)) / scale
    amplitudes = draws.normal(size=count) * math.sqrt(2 / count)
    return frequencies, draws.uniform(0, 2 * math.pi, count), amplitudes


@cache
def pool(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return settings in the unit cube, and values at the rungs, of a published table of learning curves."""
    rows = [json.loads(line) for line in lzma.open(folder / f"{name}.jsonl.xz", "rt")]
    settings, values = [], []
    for row in rows:
        if "learning_curves" in row:
            curve = [value for _, value in row["learning_curves"]["matched"]]
            logs = ("learning_rate",)
            keys = ("num_train_epochs", "train_batch_size", "learning_rate", "warmup_steps", "cls_drop_out")
        else:
            curve = [point["top_1"] for point in row["learning_curve"]]
            logs = ("lr", "weight_decay", "batch_size")
            keys = ("epochs", "batch_size", "lr", "momentum", "weight_decay", "label_smoothing")
            if row["nan_train_loss"]:
                curve = [math.nan]
        settings.append([math.log(row[key]) if key in logs else row[key] for key in keys])
        values.append([curve[max(0, math.ceil(share * len(curve)) - 1)] for share in SHARES])
    table = np.array(settings, float)
    low, high = table.min(axis=0), table.max(axis=0)
    return (table - low) / (high - low), np.array(values)


def finite_pool(folder: Path, name: str) -> Landscape:
    """Return a table as a landscape; a setting that diverged has values that are not finite."""
    settings, values = pool(folder, name)

    def at(point: np.ndarray) -> np.ndarray:
        return values[int(np.argmin(((settings - point) ** 2).sum(axis=1)))]

    finals = np.where(np.isfinite(values[:, -1]), values[:, -1], -np.inf)
    return Landscape(settings.shape[1], at, np.sort(finals), settings)


def surrogate(folder: Path, name: str) -> Landscape:
    """Return a Gaussian-process regression on the settings of a table that did not diverge."""
    from sklearn.gaussian_process import GaussianProcessRegressor  # takes seconds to import
    from sklearn.gaussian_process.kernels import RBF, WhiteKernel

    settings, values = pool(folder, name)
    kept = np.isfinite(values).all(axis=1)
    points, logits = settings[kept], values[kept]
    mean, spread = logits.mean(axis=0), logits.std(axis=0)
    kernel = RBF(np.full(points.shape[1], 0.5), (0.05, 10)) + WhiteKernel(0.1, (1e-4, 1))
    fitted = GaussianProcessRegressor(kernel, random_state=0).fit(points, ((logits - mean) / spread)[:, -1])
    scales = fitted.kernel_.k1.length_scale
    inverse = np.linalg.solve(
        _kernel(points, points, scales) + fitted.kernel_.k2.noise_level * np.eye(len(points)),
        (logits - mean) / spread,
    )

    def raw(at: np.ndarray) -> np.ndarray:
        return np.asarray(_kernel(at, points, scales) @ inverse)

    sample = raw(np.random.default_rng(0).uniform(size=(4_000, points.shape[1])))
    return Landscape(points.shape[1], lambda point: raw(point[None])[0], np.sort(sample[:, -1]))


def _kernel(one: np.ndarray, other: np.ndarray, scales: np.ndarray) -> np.ndarray:
    differences = (one[:, None] - other[None]) / scales
    return np.asarray(np.exp(-0.5 * (differences**2).sum(axis=-1)))


@cache
def landscape(name: str, seed: int, curves: Path | None) -> Landscape:
    """Return a landscape by its name; S3 to S5 are twenty functions each, chosen by the seed."""
    if name in RANDOM:
        return random_function(*RANDOM[name], seed=seed % 20)
    assert curves is not None, f"{name} needs --curves"
    return (surrogate if name.startswith("S") else finite_pool)(curves, CURVES[name])


def sweep_of(dimensions: int, sampler: str, seed: int, options: Mapping[str, Any]) -> SweepConfig:
    """Return the specification of a simulated sweep."""
    base = load(FILE, profile=None, gpus=8)
    search = {f"x{axis}": Distribution("uniform", 0.0, 1.0) for axis in range(dimensions)}
    given = options_section("sampler", sampler)(seed=seed, **options).model_dump(mode="json")
    asha = options_section("scheduler", "asha")(reduction=4.0, grace=SHARES[0]).model_dump(mode="json")
    return replace(
        base,
        search=search,
        sampler=Sampler(sampler, given),
        scheduler=Scheduler("asha", asha),
        objectives=(Objective(METRIC, "maximize"),),
        constraints=(),
        published=None,
        training=base.training.model_copy(update={"steps": STEPS, "interval": 1}),
    )


def run(
    scene: Landscape, sampler: str, seed: int, cost: int, workers: int, options: Mapping[str, Any]
) -> tuple[float, float, int]:
    """Simulate one sweep; return the rank of the chosen setting, CPU seconds of suggestions, and trials."""
    sweep = sweep_of(scene.dimensions, sampler, seed, options)
    study = Study(sweep)
    rule = schedulers.build(sweep, ())._rule
    pace = np.random.default_rng([seed, 1])
    running: list[tuple[float, int, int]] = []
    curves: dict[int, np.ndarray] = {}
    trials: dict[int, KeyedTrial] = {}
    free = None if scene.settings is None else np.ones(len(scene.settings), bool)
    spent, asked, best, now = 0.0, 0.0, -math.inf, 0.0
    while True:
        while len(running) < workers and spent < cost:
            started = time.process_time()
            number = len(curves)
            proposal = study.ask(number)
            asked += time.process_time() - started
            assert proposal is not None
            point = np.array([proposal.params[f"x{axis}"] for axis in range(scene.dimensions)])
            if free is not None and scene.settings is not None:
                if not free.any():
                    break
                distances = np.where(free, ((scene.settings - point) ** 2).sum(axis=1), np.inf)
                nearest = int(np.argmin(distances))
                free[nearest], point = False, scene.settings[nearest]
            curves[number] = scene.values(point)
            trials[number] = KeyedTrial(f"s-{number}")
            rule.on_trial_add(NO_CONTROLLER, trials[number])
            spent += SHARES[0]
            heapq.heappush(running, (now + SHARES[0] * pace.uniform(0.95, 1.05), number, 0))
        if not running:
            break
        now, number, rung = heapq.heappop(running)
        value = float(curves[number][rung])
        if not math.isfinite(value):
            study.tell(number, "FAILED", None, RUNGS[rung])
            continue
        study.report(number, RUNGS[rung], value)
        answer = rule.on_trial_result(
            NO_CONTROLLER, trials[number], {"step": RUNGS[rung], shown_as(METRIC): value}
        )
        if rung == len(RUNGS) - 1:
            study.tell(number, "COMPLETE", value, STEPS, {METRIC: value})
            best = max(best, value)
        elif answer == "STOP":
            study.tell(number, "PRUNED", value, RUNGS[rung], {METRIC: value})
        else:
            further = SHARES[rung + 1] - SHARES[rung]
            spent += further
            heapq.heappush(running, (now + further * pace.uniform(0.95, 1.05), number, rung + 1))
    return scene.rank(best) if math.isfinite(best) else 1.0, asked, len(curves)


def _one(
    seed: int, *, name: str, sampler: str, cost: int, workers: int, curves: Path | None, options: Mapping[str, Any]
) -> tuple[float, float, int]:
    return run(landscape(name, seed, curves), sampler, seed, cost, workers, options)


def ratio(ranks: Sequence[float], others: Sequence[float], draws: int = 2_000) -> tuple[float, float, float]:
    """Return the ratio of mean ranks, and its bootstrapped interval of 95 %."""
    generator = np.random.default_rng(0)
    one, other = np.array(ranks), np.array(others)
    resampled = [
        generator.choice(one, len(one)).mean() / generator.choice(other, len(other)).mean() for _ in range(draws)
    ]
    low, high = np.percentile(resampled, [2.5, 97.5])
    return float(one.mean() / other.mean()), float(low), float(high)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cost", type=int, default=64)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--landscapes", nargs="+", default=["S3", "S4", "S5"], choices=[*RANDOM, *CURVES])
    parser.add_argument("--curves", type=Path)
    parser.add_argument("--sampler", default="tpe")
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args(arguments)
    ratios = []
    with ProcessPoolExecutor(given.processes) as executor:
        for name in given.landscapes:
            one = partial(
                _one, name=name, cost=given.cost, workers=given.workers, curves=given.curves
            )
            chunk = max(1, given.repetitions // (4 * given.processes))
            seeds = range(given.repetitions)
            found = list(
                executor.map(partial(one, sampler=given.sampler, options=given.options), seeds, chunksize=chunk)
            )
            chance = list(executor.map(partial(one, sampler="random", options={}), seeds, chunksize=chunk))
            middle, low, high = ratio([each[0] for each in found], [each[0] for each in chance])
            ratios.append(middle)
            asks = sum(each[2] for each in found)
            print(
                f"{name}: {middle:.2f} [{low:.2f}, {high:.2f}]  {asks / given.repetitions:.0f} trials,"
                f" {1e3 * sum(each[1] for each in found) / asks:.1f} ms of CPU a suggestion",
                flush=True,
            )
    print(f"geometric mean: {math.exp(np.mean(np.log(ratios))):.2f}")


if __name__ == "__main__":
    main()
