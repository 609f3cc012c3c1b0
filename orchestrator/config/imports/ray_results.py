"""Results of Ray Tune as a search-space file: the ranges of the configurations, as a proposal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.config.imports.search_draft import TRIALS, DraftBuilder, SearchDraft, shown
from orchestrator.errors import BadInput

_OF_RAY = frozenset(
    {
        "timestamp",
        "time_this_iter_s",
        "time_total_s",
        "training_iteration",
        "iterations_since_restore",
        "time_since_restore",
        "timesteps_total",
        "timesteps_since_restore",
        "episodes_total",
        "agent_timesteps_total",
        "num_healthy_workers",
        "warmup_time",
        "pid",
        "done",
        "should_checkpoint",
    }
)
"""Keys that Ray Tune itself adds to a result."""

_NO_METRICS = frozenset({"config", "perf", "timers", "info", "counters", "sampler_perf", "hist_stats"})
"""Mappings in a result that hold no metrics of the user."""

_MINIMIZED = ("loss", "error", "perplexity", "mse", "mae", "rmse", "nll")
_MAXIMIZED = ("acc", "score", "reward", "auc", "f1", "iou", "map", "bleu", "return", "r2")
_WIDE = 30
"""Smallest ratio of the ends of a range that is taken for a logarithmic one."""

_FEW = 10
"""Largest number of distinct numbers that count as a choice, if the trials are at least twice as many."""

_DEEPEST = 6
_MOST_KEYS = 1_000
_LARGEST = 2**63


@dataclass(frozen=True)
class RayTrial:
    """A trial of Ray Tune.

    Attributes:
        name: Name of its folder.
        config: Its configuration, as JSON.
        results: Its results in their order: finite numbers by name, as in `metrics_of`.
    """

    name: str
    config: Mapping[str, Any]
    results: tuple[Mapping[str, float], ...]


def ray_draft(
    trials: Sequence[RayTrial], origin: str, objective: Mapping[str, Any] | None, known: str | None
) -> SearchDraft:
    """Return the search-space file of the trials of a folder.

    Args:
        trials: Trials that have a configuration.
        origin: Name of the folder.
        objective: Section `objective` with one metric if the user names it, or None.
        known: Where the file finds the trials as known results, or None.

    Raises:
        BadInput: The configurations do not differ, or no result has the metric.
    """
    builder = DraftBuilder(f"the Ray Tune results {origin}")
    flat = [dict(_flat(trial.config)) for trial in trials]
    names: dict[str, str] = {}
    keys = list(dict.fromkeys(key for config in flat for key in config))
    if len(keys) > _MOST_KEYS:
        must = f"must have configurations of at most {_MOST_KEYS:,} values"
        raise BadInput(origin, must, f"{len(keys):,}", "Write the file by hand.")
    for key in keys:
        _add(builder, names, key, [config[key] for config in flat if key in config], len(flat))
    goal, metric = _objective(builder, trials, objective, origin)
    rows = list(_rows(names, flat, trials, metric, goal))
    if missing := len(trials) - len(rows):
        builder.leave_out(
            f"{missing} of {len(trials)} trials",
            None,
            f"have no finite {metric}, or lack a hyperparameter of other trials, and cannot be known results",
            "Nothing to do.",
        )
    steps = max((len(trial.results) for trial in trials), default=0)
    builder.guesses.append("search: ranges that hold the configurations of all trials; widen or narrow them.")
    builder.guesses.append(
        "trainable: the results do not name the script; the function `train(trial)` of train.py."
    )
    return builder.draft(
        {
            "trainable": {"function": "train.py:train"},
            "training": {"steps": max(1, steps), "interval": 1},
            "objective": {goal: metric},
            "budget": {"trials": TRIALS},
        },
        known,
        [(*names.values(), metric), *rows],
    )


def _flat(config: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping) and value and depth < _DEEPEST:
            yield from _flat(value, f"{prefix}{key}.", depth + 1)
        else:
            yield f"{prefix}{key}", value


def metrics_of(result: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a result by name, such as `loss`, or `eval/loss` in a nested mapping."""
    for key, value in result.items():
        if isinstance(value, Mapping) and key not in _NO_METRICS and depth < _DEEPEST:
            yield from metrics_of(value, f"{prefix}{key}/", depth + 1)
        elif _is_metric(key, value):
            yield f"{prefix}{key}", value


def _add(builder: DraftBuilder, names: dict[str, str], key: str, values: Sequence[Any], trials: int) -> None:
    where = f"config {key}"
    if odd := [value for value in values if isinstance(value, str) and value.startswith("<")]:
        why = "was no JSON value, of which Ray Tune keeps only a description"
        builder.leave_out(where, odd[0], why, "Set it in the script.")
        return
    unique = _unique(values)
    if len(unique) == 1 and len(values) == trials:
        builder.fix(where, key, unique[0])
        return
    if len(values) < trials:
        builder.leave_out(
            where,
            f"{len(values)} of {trials} trials",
            "is in some trials only",
            "Write its condition as `when:`.",
        )
    name = builder.add(where, key, _observed(unique, len(values)), shown(unique[:8]))
    if name is not None:
        names[key] = name


def _unique(values: Sequence[Any]) -> list[Any]:
    found: dict[str, Any] = {}
    for value in values:
        found.setdefault(f"{type(value).__name__} {value!r}", value)
    return list(found.values())


def _observed(unique: Sequence[Any], count: int) -> dict[str, Any]:
    """Return an entry of `search` that holds all observed values.

    Args:
        unique: Different values.
        count: Number of trials that have one.
    """
    numbers = [value for value in unique if _is_number(value)]
    if len(numbers) < len(unique):
        return {"choice": list(unique)}
    if len(unique) == 1 or (len(unique) <= _FEW and 2 * len(unique) <= count):
        return {"choice": sorted(numbers)}
    low, high = min(numbers), max(numbers)
    is_wide = low > 0 and high / low >= _WIDE
    if all(isinstance(number, int) for number in numbers):
        return {"log_int" if is_wide else "int": [low, high]}
    return {"log_uniform" if is_wide else "uniform": [low, high]}


def _objective(
    builder: DraftBuilder, trials: Sequence[RayTrial], given: Mapping[str, Any] | None, origin: str
) -> tuple[str, str]:
    reported = dict.fromkeys(key for trial in trials for result in trial.results for key in result)
    if given is not None:
        ((goal, metric),) = given.items()
        if metric not in reported:
            must = f"has no result with {metric}"
            raise BadInput(origin, must, ", ".join(reported) or "no metrics", "Name one of its metrics.")
        return goal, metric
    ranked = sorted(
        reported, key=lambda name: (_goal(name) is None, "val" not in name and "test" not in name)
    )
    if not ranked:
        remedy = "Name a folder with result.json files that hold numbers."
        raise BadInput(origin, "has no result with a metric", "", remedy)
    metric = ranked[0]
    goal = _goal(metric) or "minimize"
    others = ", ".join(name for name in ranked[1:8])
    builder.guesses.append(
        f"objective: {goal} {metric}, from its name. Choose with `--minimize` or `--maximize`"
        f"{f' among {metric}, {others}' if others else ''}."
    )
    return goal, metric


def _is_number(value: Any) -> bool:
    """Return True for a finite number of 64 bits."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST


def _is_metric(key: str, value: Any) -> bool:
    return _is_number(value) and key.rpartition("/")[2] not in _OF_RAY


def _goal(name: str) -> str | None:
    lowered = name.lower()
    if any(part in lowered for part in _MINIMIZED):
        return "minimize"
    return "maximize" if any(part in lowered for part in _MAXIMIZED) else None


def _rows(
    names: Mapping[str, str],
    flat: Sequence[Mapping[str, Any]],
    trials: Sequence[RayTrial],
    metric: str,
    goal: str,
) -> Iterator[tuple[Any, ...]]:
    """Yield the values of each trial, the best one of the metric last."""
    for config, trial in zip(flat, trials, strict=True):
        values = [result[metric] for result in trial.results if metric in result]
        if values and names.keys() <= config.keys():
            yield (*(config[key] for key in names), min(values) if goal == "minimize" else max(values))
