"""Worth of a sampler under early stopping, and of a race; `docs/search.md` shows the results.

    python -m benchmarks.search --curves FOLDER            all parts
    python -m benchmarks.search --parts small race --curves FOLDER
    python -m benchmarks.search --dry-run                  one small landscape, without curves

Sweeps are simulated: `workers` trials run at a time, each of 20 steps, under ASHA (rungs at .1, .4 and 1 of
the steps, reduction 4, `keep: 0`), until trials have been launched for `cost` complete trainings. Proposals
and stops come from the classes that real sweeps use (`orchestrator.study.Study`,
`orchestrator.schedule.schedulers`). The chosen setting is the complete trial with the best final value; its
*rank* is the share of 4,000 random settings that are better. A *ratio* divides the mean rank by that of
random search under the same scheduler; intervals of 95 % are bootstrapped over repetitions.

Landscapes: S1 and S2 are kernel regressions on the curves of ConvNeXt and DeBERTa (from `--curves`; P1 and P2
are the settings themselves, of which the nearest one not tried yet replaces a proposal), S3 and S4 random
8-dimensional functions whose value at .1 of the steps has a correlation of .78 or .53 with the final one,
S5 random 4-dimensional ones (.78).

The part `race` retrains the three best trials of a stopped random search of 64 settings on each table of
`--curves`, whose final values are taken as true means, with noise of seeds and of 2,000 examples (half of it
the same for all seeds). The part `time` measures the CPU time of a suggestion after many trials.

The part `known` gives TPE 64 known results of a random search on an earlier function, whose correlation with
the present one is .95 (good), .7 (similar), 0 (unrelated) or -1 (opposite), on random functions of 4 and 8
dimensions. Sweeps have 64 trials, 4 at a time, without early stopping. A ratio divides the mean rank by that
of TPE without known results.
"""

from __future__ import annotations

import argparse
import heapq
import json
import lzma
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from orchestrator.assignment import shown_as
from orchestrator.config.resolve import load
from orchestrator.config.space import Distribution
from orchestrator.config.strategy import options_section
from orchestrator.config.sweep_config import KnownResults, Objective, Sampler, Scheduler, SweepConfig
from orchestrator.ledger.sweeps.records import TrialRecord, trial_key
from orchestrator.schedule import schedulers
from orchestrator.schedule.keyed import NO_CONTROLLER, KeyedTrial
from orchestrator.study.known_results import known_trials
from orchestrator.study.race import next_candidate
from orchestrator.study.study import Study

STEPS = 20
RUNGS = (2, 8, 20)
SHARES = (0.1, 0.4, 1.0)
METRIC = "val/accuracy"
FILE = Path(__file__).parents[1] / "search_spaces" / "retrieval.yaml"
SUFFIX = ".jsonl.xz"
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
    with lzma.open(folder / f"{name}{SUFFIX}", "rt") as file:
        rows = [json.loads(line) for line in file]
    settings, values = [], []
    for row in rows:
        if "learning_curves" in row:
            curve = [value for _, value in row["learning_curves"]["matched"]]
            logs: tuple[str, ...] = ("learning_rate",)
            keys: tuple[str, ...] = (
                "num_train_epochs",
                "train_batch_size",
                "learning_rate",
                "warmup_steps",
                "cls_drop_out",
            )
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


@cache
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
def digits(settings: int = 1_000) -> Landscape:
    """Return the accuracy of real trainings: a small perceptron on 600 handwritten digits of scikit-learn.

    Searched are the learning rate, the penalty, the batch size, the width and the momentum. The value is the
    accuracy on the 1,197 other digits. A training takes about 30 ms.

    Args:
        settings: Number of random settings that the final values are of.
    """
    from sklearn.datasets import load_digits  # takes seconds to import

    data = load_digits()
    inputs = np.column_stack([data.data / 16.0, np.ones(len(data.data))]).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(inputs))
    inputs, labels = inputs[order], data.target[order]
    train, test = (inputs[:600], np.eye(10, dtype=np.float32)[labels[:600]]), (inputs[600:], labels[600:])

    def values(point: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return trained(point, train, test)

    sample = np.random.default_rng(1).uniform(size=(settings, 5))
    finals = np.array([values(point)[-1] for point in sample])
    return Landscape(5, values, np.sort(np.where(np.isfinite(finals), finals, -np.inf)))


def trained(
    point: np.ndarray, train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Return the accuracies of a perceptron with one hidden layer at the rungs; NaN once it has diverged.

    It is trained by stochastic gradient descent with Nesterov's momentum on the cross-entropy with an L2
    penalty, one pass over the examples for each step.

    Args:
        point: Setting in the unit cube, of shape [5].
        train: Inputs of shape [examples, features], whose last one is 1, and labels of shape [examples, 10].
        test: Inputs, and labels of shape [examples].
    """
    rate, penalty = np.float32(1e-4 * 1e4 ** point[0]), np.float32(1e-6 * 1e6 ** point[1])
    batch, width = round(8 * 16 ** point[2]), round(4 * 16 ** point[3])
    momentum = np.float32(0.99 * point[4])
    draws, features = np.random.default_rng(0), train[0].shape[1]
    split = features * width
    weights = np.empty(split + (width + 1) * 10, np.float32)
    gradient, velocity = np.empty_like(weights), np.zeros_like(weights)
    first, second = weights[:split].reshape(features, width), weights[split:].reshape(width + 1, 10)
    of_first, of_second = gradient[:split].reshape(first.shape), gradient[split:].reshape(second.shape)
    first[:] = draws.normal(size=first.shape) * math.sqrt(2 / features)
    second[:] = draws.normal(size=second.shape) * math.sqrt(1 / width)
    accuracies = []
    for step in range(1, STEPS + 1):
        order = draws.permutation(len(train[0]))
        inputs, labels = train[0][order], train[1][order]
        for start in range(0, len(inputs), batch):
            x, y = inputs[start : start + batch], labels[start : start + batch]
            hidden = np.maximum(x @ first, 0)
            logits = hidden @ second[:-1] + second[-1]
            shares = np.exp(logits - logits.max(axis=1, keepdims=True))
            errors = (shares / shares.sum(axis=1, keepdims=True) - y) / len(x)
            of_second[:-1], of_second[-1] = hidden.T @ errors, errors.sum(axis=0)
            of_first[:] = x.T @ ((errors @ second[:-1].T) * (hidden > 0))
            gradient += penalty * weights
            velocity *= momentum
            velocity -= rate * gradient
            weights += momentum * velocity - rate * gradient
        if step in RUNGS:
            logits = np.maximum(test[0] @ first, 0) @ second[:-1] + second[-1]
            is_finite = bool(np.isfinite(logits).all())
            accuracies.append(float(np.mean(logits.argmax(axis=1) == test[1])) if is_finite else math.nan)
    return np.array(accuracies)


@cache
def landscape(name: str, seed: int, curves: Path | None) -> Landscape:
    """Return a landscape by its name; S3 to S5 are twenty functions each, chosen by the seed."""
    if name == "digits":
        return digits()
    if name in RANDOM:
        return random_function(*RANDOM[name], seed=seed % 20)
    assert curves is not None, f"{name} needs --curves"
    return (surrogate if name.startswith("S") else finite_pool)(curves, CURVES[name])


def sweep_of(dimensions: int, sampler: str, seed: int, options: Mapping[str, Any]) -> SweepConfig:
    """Return the specification of a simulated sweep."""
    base = load(FILE, profile=None, gpus=8)
    search = {f"x{axis}": Distribution("uniform", 0.0, 1.0) for axis in range(dimensions)}
    given = (
        options_section("sampler", sampler).model_validate({"seed": seed, **options}).model_dump(mode="json")
    )
    asha = options_section("scheduler", "asha").model_validate(
        {"reduction": 4.0, "grace": SHARES[0], "keep": 0}
    )
    return replace(
        base,
        search=search,
        sampler=Sampler(sampler, given),
        scheduler=Scheduler("asha", asha.model_dump(mode="json")),
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
    rule: Any = schedulers.build(sweep, ())._rule
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


def _one(seed: int, *, name: str, sampler: str, part: Part, curves: Path | None) -> tuple[float, float, int]:
    return run(landscape(name, seed, curves), sampler, seed, part.cost, part.workers, {})


def ratio(ranks: Sequence[float], others: Sequence[float], draws: int = 2_000) -> tuple[float, float, float]:
    """Return the ratio of mean ranks, and its bootstrapped interval of 95 %."""
    generator = np.random.default_rng(0)
    means = [generator.choice(values, (draws, len(values))).mean(axis=1) for values in (ranks, others)]
    low, high = np.percentile(means[0] / means[1], [2.5, 97.5])
    return float(np.mean(ranks) / np.mean(others)), float(low), float(high)


@dataclass(frozen=True)
class Part:
    """One part of the table: a cost in complete trainings, workers, landscapes and repetitions."""

    cost: int
    workers: int
    landscapes: Sequence[str]
    repetitions: int


SURROGATES = ("S1", "S2", "S3", "S4", "S5")
PARTS = {
    "main": Part(64, 8, SURROGATES, 200),
    "pools": Part(32, 8, ("P1", "P2"), 200),
    "small": Part(16, 8, SURROGATES, 200),
    "wide": Part(64, 32, SURROGATES, 60),
    "long": Part(256, 32, ("S3", "S4"), 20),
    "real": Part(32, 8, ("digits",), 40),
}


def compare(part: Part, sampler: str, curves: Path | None, processes: int) -> None:
    """Print the ratio of a sampler on each landscape, and their geometric mean."""
    ratios, seeds = [], range(part.repetitions)
    with ProcessPoolExecutor(processes) as executor:
        for name in part.landscapes:
            one = partial(_one, name=name, part=part, curves=curves)
            chunk = max(1, part.repetitions // (4 * processes))
            found = list(executor.map(partial(one, sampler=sampler), seeds, chunksize=chunk))
            chance = list(executor.map(partial(one, sampler="random"), seeds, chunksize=chunk))
            middle, low, high = ratio([each[0] for each in found], [each[0] for each in chance])
            ratios.append(middle)
            asks = sum(each[2] for each in found)
            print(
                f"{name}: {middle:.2f} [{low:.2f}, {high:.2f}]  {asks / part.repetitions:.0f} trials,"
                f" {1e3 * sum(each[1] for each in found) / asks:.1f} ms of CPU a suggestion",
                flush=True,
            )
    print(f"geometric mean: {math.exp(np.mean(np.log(ratios))):.2f}", flush=True)


def suggestion_seconds(trials: int, asks: int = 20) -> float:
    """Return the CPU seconds of a suggestion of TPE after so many trials, a quarter of them complete."""
    scene, sweep = random_function(8, 0.78, 0), sweep_of(8, "tpe", 0, {})
    draws = np.random.default_rng(0)
    records = []
    for number in range(trials):
        point = draws.uniform(size=scene.dimensions)
        is_complete = number % 4 == 0
        step = STEPS if is_complete else RUNGS[0]
        record = TrialRecord(
            key=trial_key(sweep.id, number, "search"),
            sweep_id=sweep.id,
            number=number,
            role="search",
            state="COMPLETE" if is_complete else "PRUNED",
            cause=None,
            params={f"x{axis}": float(value) for axis, value in enumerate(point)},
            system_attrs={},
            seed=number,
            value=float(scene.values(point)[-1 if is_complete else 0]),
            best_step=step,
            step=step,
            total_steps=STEPS,
            attempts=1,
            created_at=float(number),
        )
        records.append(record)
    study = Study(sweep, records)
    study.ask(trials)  # builds the caches
    started = time.process_time()
    for number in range(trials + 1, trials + 1 + asks):
        study.ask(number)
    return (time.process_time() - started) / asks


def raced(table: np.ndarray, deviation: float, unstable: float, draws: np.random.Generator) -> float:
    """Return the gain in points of a race between the three best of 64 random trials, over the best one.

    Args:
        table: Values at the rungs in percent, of shape [settings, 3].
        deviation: Standard deviation over seeds, in points.
        unstable: Share of settings of which 30 % of the seeds lose 10 points.
        draws: Random numbers.
    """
    rows = table[draws.choice(len(table), 64, replace=False)]
    shares = np.clip(rows[:, -1] / 100, 0.0, 1.0)
    examples = 100 * np.sqrt(np.maximum(shares * (1 - shares), 1e-4) / 2_000)
    shared, shaky = draws.normal(size=64), draws.random(64) < unstable

    def seed_of(trial: int) -> float:
        return float(draws.normal() * deviation - 10.0 * (shaky[trial] and draws.random() < 0.3))

    def final(trial: int) -> float:
        noise = math.sqrt(0.5) * (shared[trial] + draws.normal()) * examples[trial]
        return float(rows[trial, -1] + seed_of(trial) + noise)

    seen: list[list[float]] = [[] for _ in RUNGS[:-1]]
    complete = []
    for trial in range(64):
        offset, goes_on = seed_of(trial), True
        for values, early in zip(seen, rows[trial, :-1], strict=True):
            values.append(early + offset + examples[trial] * draws.normal())
            if goes_on := len(values) < 4 or bool(values[-1] >= np.quantile(values, 0.75)):
                continue
            break
        if goes_on:
            noise = math.sqrt(0.5) * (shared[trial] + draws.normal()) * examples[trial]
            complete.append((rows[trial, -1] + offset + noise, trial))
    best = [trial for _, trial in sorted(complete, reverse=True)[:3]]
    truth = [rows[trial, -1] - 3.0 * shaky[trial] for trial in best]
    fresh: list[list[float]] = [[] for _ in best]
    while (index := next_candidate(fresh, 6)) is not None:
        fresh[index].append(final(best[index]))
    means = [float(np.mean(values)) if values else -math.inf for values in fresh]
    return float(truth[int(np.argmax(means))] - truth[0])


def race(curves: Path, repetitions: int) -> None:
    """Print the gain of a race for several deviations of the seeds, as the mean over all tables."""
    names = sorted(file.name.removesuffix(SUFFIX) for file in curves.glob(f"*{SUFFIX}"))
    for deviation, unstable in ((0.3, 0.0), (1.0, 0.0), (2.0, 0.0), (1.0, 0.15)):
        gains, errors = [], []
        for name in names:
            values = pool(curves, name)[1]
            table = 100 * values[np.isfinite(values).all(axis=1)] / (100 if np.nanmax(values) > 1 else 1)
            draws = np.random.default_rng(5)
            each = [raced(table, deviation, unstable, draws) for _ in range(repetitions)]
            gains.append(np.mean(each))
            errors.append(1.96 * float(np.std(each)) / math.sqrt(repetitions))
        each_table = ", ".join(f"{gain:.3f} {name}" for gain, name in zip(gains, names, strict=True))
        print(
            f"race, seeds {deviation:g}, {unstable:.0%} unstable: {np.mean(gains):.3f} points"
            f" +- {math.hypot(*errors) / len(names):.3f} ({each_table})",
            flush=True,
        )


@dataclass(frozen=True)
class KnownPart:
    """Size of the part `known`: trials of a sweep, known results, workers, dimensions and repetitions."""

    trials: int = 64
    results: int = 64
    workers: int = 4
    dimensions: Sequence[int] = (4, 8)
    repetitions: int = 400


CORRELATIONS = {"good": 0.95, "similar": 0.7, "unrelated": 0.0, "opposite": -1.0}


def with_known(
    sweep: SweepConfig, correlation: float, tasks: Sequence[Landscape], part: KnownPart
) -> SweepConfig:
    """Return a sweep with known results of random settings.

    Args:
        sweep: Sweep without them.
        correlation: Correlation of the known results with the present task.
        tasks: Present task, and one that is independent of it.
        part: Size of the simulation.
    """
    known, rest = [], math.sqrt(1 - correlation**2)
    draws = np.random.default_rng([sweep.sampler.seed, 2])
    for point in draws.uniform(size=(part.results, tasks[0].dimensions)):
        own, other = (float(task.values(point)[-1]) for task in tasks)
        setting = {f"x{axis}": float(value) for axis, value in enumerate(point)}
        known.append({**setting, METRIC: correlation * own + rest * other})
    return replace(sweep, known=(KnownResults("earlier", tuple(known), {}),))


def searched(sweep: SweepConfig, scene: Landscape, workers: int) -> list[float]:
    """Return the rank of the best setting after each trial of a search whose trials run to their end."""
    trials, curves = known_trials(sweep)
    study, pace = Study(sweep, (), curves, trials), np.random.default_rng([sweep.sampler.seed, 1])
    running: list[tuple[float, int, float]] = []
    ranks: list[float] = []
    best, now, asked = -math.inf, 0.0, 0
    while len(ranks) < sweep.budget.trials:
        while len(running) < workers and asked < sweep.budget.trials:
            proposal = study.ask(asked)
            assert proposal is not None
            point = np.array([proposal.params[f"x{axis}"] for axis in range(scene.dimensions)])
            heapq.heappush(running, (now + pace.uniform(0.95, 1.05), asked, float(scene.values(point)[-1])))
            asked += 1
        now, number, value = heapq.heappop(running)
        study.tell(number, "COMPLETE", value, STEPS, {METRIC: value})
        best = max(best, value)
        ranks.append(scene.rank(best))
    return ranks


def known_ranks(seed: int, *, dimensions: int, part: KnownPart) -> list[list[float]]:
    """Return the ranks after each trial of TPE, without known results and with those of each correlation."""
    tasks = [random_function(dimensions, 0.78, seed + offset) for offset in (0, 1_000_000)]
    sweep = sweep_of(dimensions, "tpe", seed, {})
    budget = sweep.budget.model_copy(update={"trials": part.trials})
    cold = replace(sweep, scheduler=Scheduler("none", {}), budget=budget)
    sweeps = [cold, *(with_known(cold, each, tasks, part) for each in CORRELATIONS.values())]
    return [searched(each, tasks[0], part.workers) for each in sweeps]


def known_results(part: KnownPart, processes: int) -> None:
    """Print the ratio of TPE with known results to TPE without, by their correlation."""
    early, draws = part.trials // 4, np.random.default_rng(0)
    logs: dict[str, list[np.ndarray]] = {name: [] for name in CORRELATIONS}
    with ProcessPoolExecutor(processes) as executor:
        for dimensions in part.dimensions:
            one = partial(known_ranks, dimensions=dimensions, part=part)
            chunk = max(1, part.repetitions // (8 * processes))
            cold, *arms = np.swapaxes(list(executor.map(one, range(part.repetitions), chunksize=chunk)), 0, 1)
            for name, warm in zip(CORRELATIONS, arms, strict=True):
                chosen = draws.integers(part.repetitions, size=(2, 2_000, part.repetitions))
                means = warm[chosen[0], -1].mean(axis=1) / cold[chosen[1], -1].mean(axis=1)
                middle = warm[:, -1].mean() / cold[:, -1].mean()
                logs[name].append(np.log([*means, middle]))
                low, high = np.percentile(means, [2.5, 97.5])
                reached = np.flatnonzero(warm.mean(axis=0) <= cold[:, -1].mean())
                print(
                    f"{name}, {dimensions} dimensions: {middle:.2f} [{low:.2f}, {high:.2f}],"
                    f" after {early} trials {warm[:, early - 1].mean() / cold[:, early - 1].mean():.2f};"
                    f" trials to the value without them: {reached[0] + 1 if len(reached) else '-'}",
                    flush=True,
                )
    for name, each in logs.items():
        both = np.exp(np.mean(each, axis=0))
        low, high = np.percentile(both[:-1], [2.5, 97.5])
        print(f"{name}, geometric mean: {both[-1]:.2f} [{low:.2f}, {high:.2f}]")


def needs_curves(parts: Collection[str]) -> bool:
    """Return True if one of the parts uses the published curves."""
    used = {name for part in parts if part in PARTS for name in PARTS[part].landscapes}
    return "race" in parts or not used.isdisjoint(CURVES)


DRY_KNOWN = KnownPart(trials=8, results=8, workers=2, dimensions=(2,), repetitions=2)
DRY = {"main": Part(2, 2, ("S5",), 2)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    format_of = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=format_of)
    names = [*PARTS, "time", "race", "known"]
    parser.add_argument("--parts", nargs="+", default=names, choices=names)
    parser.add_argument("--curves", type=Path, help="folder of the learning curves")
    parser.add_argument("--sampler", default="tpe")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args(arguments)
    if given.curves is None and not given.dry_run and needs_curves(given.parts):
        parser.error("--curves is needed for the landscapes of published curves")
    with threadpool_limits(1):  # matrices are small, and each process has a core
        for name, part in (DRY if given.dry_run else PARTS).items():
            if name in given.parts:
                print(f"{name}: cost {part.cost}, {part.workers} workers, {part.repetitions} repetitions")
                compare(part, given.sampler, given.curves, given.processes)
        if "time" in given.parts:
            for trials in (50,) if given.dry_run else (100, 1_000, 5_000):
                print(f"a suggestion after {trials} trials: {1e3 * suggestion_seconds(trials):.1f} ms of CPU")
        if "known" in given.parts:
            known_results(DRY_KNOWN if given.dry_run else KnownPart(), given.processes)
        if "race" in given.parts and given.curves is not None:
            race(given.curves, 1_500)


if __name__ == "__main__":
    main()
