"""Replays of sweeps and of published learning curves under other schedulers."""

from __future__ import annotations

import json
import lzma
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from orchestrator.api.loaded_sweep import LoadedSweep
from orchestrator.client.answers import ReplayedScheduler, ReplayReport
from orchestrator.config import from_dict
from orchestrator.config.document import Violation
from orchestrator.config.strategy import SCHEDULERS, read_scheduler
from orchestrator.config.sweep_config import Scheduler, SweepConfig
from orchestrator.errors import BadInput, counted
from orchestrator.report.html import replay_page
from orchestrator.schedule.scheduler_replay import LearningCurve, recorded_curves, repeated, worth

ALTERNATIVES = (
    "none",
    "median",
    "asha",
    "asha:keep=3",
    "asha:mode=promote",
    "asha:reduction=3",
    "asha:mode=promote,reduction=3",
)
"""Schedulers that are replayed if none is named."""

MOST_PER_DRAW = 64
LONGEST_LINE = 16 << 20
"""Largest size of an unpacked line of a table in bytes."""

STEPS = 1000
"""Steps into which a published curve is divided: steps of each trial are fractions of its own length."""


def replay_sweep(
    sweep: LoadedSweep, named: Sequence[str] = (), workers: Sequence[int] = (), draws: int = 1, seed: int = 0
) -> ReplayReport:
    """Replay the search of a sweep of the ledger.

    Args:
        sweep: Sweep with ended trials.
        named: Schedulers, such as `asha:reduction=3`; the recorded one and `ALTERNATIVES` if empty.
        workers: Numbers of concurrent trials; `resources.concurrent`, or 8, if empty.
        draws: Number of replays, each after the first with the trials in another order.
        seed: Seed of the orders.

    Raises:
        BadInput: A scheduler or a number is wrong, the sweep has never run, or no trial has ended.
    """
    if draws < 1 or any(count < 1 for count in workers):
        got = f"{counted(draws, 'draw')}, workers: {', '.join(map(str, workers)) or 'default'}"
        raise BadInput("replay", "needs at least one draw and one worker", got, "Write positive numbers.")
    specification = sweep.specification
    with sweep.workspace.ledger() as ledger:
        trials = ledger.trials(sweep.id, role="search")
        points = ledger.curves(sweep.id, specification.finite_metrics)
    curves = recorded_curves(specification, trials, points)
    if not any(curve.values for curve in curves):
        raise BadInput("replay", "needs a trial that has ended", f"none in {sweep.id}", "Wait for one.")
    again = repeated(specification, trials, points)
    alternatives = {
        name: _comparing(read_alternative(name), specification.scheduler) for name in named or ALTERNATIVES
    }
    if not named:
        alternatives = {"recorded": specification.scheduler, **alternatives}
    orders = [curves]
    for number in range(1, draws):
        orders.append(random.Random(f"{seed}/{number}").sample(curves, len(curves)))
    rows = _rows(specification, alternatives, orders, workers or (specification.resources.concurrent or 8,))
    truncated = sum(curve.ending == "PRUNED" and not curve.is_stopped for curve in curves)
    return ReplayReport(rows, len(curves), truncated, again.decisions, again.differing)


def _comparing(scheduler: Scheduler, recorded: Scheduler) -> Scheduler:
    """Return a scheduler that compares the metric of the recorded one, whose curves are replayed.

    Raises:
        BadInput: It names another metric.
    """
    compared = {name: recorded.options.get(name) for name in ("metric", "direction")}
    if scheduler.options.get("metric") not in (None, compared["metric"]):
        must = f"must compare {compared['metric'] or 'the objective'}, as the sweep did"
        raise BadInput("--scheduler", must, str(scheduler.options["metric"]), "Leave out metric.")
    if "metric" not in scheduler.options:
        return scheduler
    return replace(scheduler, options={**scheduler.options, **compared})


def replay_curves(
    file: Path,
    values: str,
    length: str | None = None,
    named: Sequence[str] = (),
    workers: Sequence[int] = (8,),
    *,
    maximize: bool = True,
    trials: int = MOST_PER_DRAW,
    draws: int = 100,
    seed: int = 0,
) -> ReplayReport:
    """Replay schedulers on draws from a table of published learning curves.

    Args:
        file: Table; see `read_table`.
        values: Field of the values, as in `read_table`.
        length: Field of the length of the training, as in `read_table`.
        named: Schedulers; `ALTERNATIVES` if empty.
        workers: Numbers of concurrent trials.
        maximize: Whether larger values are better.
        trials: Number of trials of a draw, without replacement.
        draws: Number of draws.
        seed: Seed of the draws.

    Raises:
        BadInput: The table or a scheduler is wrong.
    """
    table = read_table(file, values, length)
    drawn = [
        random.Random(f"{seed}/{number}").sample(table, min(trials, len(table))) for number in range(draws)
    ]
    document = {
        "trainable": {"command": ["true"]},
        "training": {"steps": STEPS, "interval": 1},
        "search": {"setting": {"uniform": [0.0, 1.0]}},
        "objective": {"maximize" if maximize else "minimize": "value"},
        "scheduler": "none",
        "budget": {"trials": trials},
    }
    sweep = from_dict(document, name="curves", profile=None, gpus=0)
    alternatives = {name: read_alternative(name) for name in named or ALTERNATIVES}
    return ReplayReport(_rows(sweep, alternatives, drawn, workers), min(trials, len(table)), 0)


def write_page(report: ReplayReport, file: Path) -> None:
    """Write an HTML page that shows the cost of each scheduler against its regret.

    Raises:
        BadInput: No replay found a complete trial, so that no regret is known.
    """
    several = len({row.workers for row in report.rows}) > 1
    known = [
        (f"{row.scheduler}, {row.workers}" if several else row.scheduler, row.cost, row.regret)
        for row in report.rows
        if row.regret is not None
    ]
    if not known:
        remedy = "Replay a sweep with `scheduler: none`."
        raise BadInput("replay", "has no complete trial, so no regret can be drawn", "", remedy)
    file.write_text(replay_page(known), encoding="utf-8")


def read_alternative(text: str) -> Scheduler:
    """Return the scheduler of a text such as `asha:mode=promote,reduction=3`.

    Raises:
        BadInput: The name or an option is wrong, or the scheduler changes hyperparameters during training.
    """
    name, _, rest = text.partition(":")
    options = {
        key: _value(value) for key, _, value in (pair.partition("=") for pair in rest.split(",") if pair)
    }
    if name in SCHEDULERS and SCHEDULERS.settings(name).mutations is not None:
        must = "must not change the hyperparameters of a trial"
        raise BadInput("--scheduler", must, f"`{name}`", "Name another one.")
    try:
        return read_scheduler({name: options})
    except Violation as violation:
        raise BadInput(
            "--scheduler", violation.must, violation.got or f"`{text}`", violation.remedy
        ) from None


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _rows(
    sweep: SweepConfig,
    alternatives: Mapping[str, Scheduler],
    draws: Sequence[Sequence[LearningCurve]],
    workers: Sequence[int],
) -> list[ReplayedScheduler]:
    rows = [
        ReplayedScheduler(name, count, **vars(worth(replace(sweep, scheduler=scheduler), draws, count)))
        for name, scheduler in alternatives.items()
        for count in workers
    ]
    return sorted(rows, key=lambda row: row.cost)


def read_table(file: Path, values: str, length: str | None = None) -> list[LearningCurve]:
    """Return the curves of a table in JSON lines, one trial each, optionally compressed (`.xz`).

    Args:
        file: Table.
        values: Path of a list of pairs of step and value in each line, such as `learning_curves.matched`. For
            a list of objects, the last part of the path is the key of the value, and steps count from 1.
        length: Field of the last step of the training; that of the list if None. A trial whose list ends
            before it, or contains a value that is not finite, counts as failed at that step.

    Raises:
        BadInput: The file cannot be read, contains no curve, or lacks a field.
    """
    try:
        with lzma.open(file) if file.suffix == ".xz" else file.open("rb") as lines:
            curves = [
                _curve(f"{file}:{number}", line, values, length)
                for number, line in enumerate(iter(partial(lines.readline, LONGEST_LINE + 1), b""), 1)
            ]
    except FileNotFoundError:
        raise BadInput(str(file), "does not exist", "", "Name another file with --curves.") from None
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise BadInput(str(file), "cannot be read", str(error), "Download it again.") from None
    if not curves:
        raise BadInput(str(file), "has no learning curve", "", "Name another file with --curves.")
    return curves


def _curve(where: str, line: bytes, values: str, length: str | None) -> LearningCurve:
    if len(line) > LONGEST_LINE:
        raise BadInput(where, f"must be shorter than {LONGEST_LINE:,} bytes", "", "Write one trial a line.")
    try:
        row = json.loads(line.decode())
    except UnicodeDecodeError:
        raise BadInput(where, "must be UTF-8 text", "", "Save the table as JSON lines.") from None
    except (ValueError, RecursionError) as error:
        got = str(error).partition(": line")[0]
        raise BadInput(where, "must be JSON", got, "Write one JSON object a line.") from None
    try:
        points = _points(row, values.split("."))
        total = float(row[length] if length else points[-1][0])
        _check_steps([step for step, _ in points], total)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        must = f"must have a list of reports at {values}" + (f", and {length}" if length else "")
        raise BadInput(where, must, f"{type(error).__name__}: {error}", "Name other fields.") from None
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    is_whole = len(finite) == len(points) and bool(points) and points[-1][0] >= total
    steps = [round(STEPS * step / total) for step, _ in finite]
    return LearningCurve(steps, [value for _, value in finite], "COMPLETE" if is_whole else "FAILED")


def _check_steps(steps: Sequence[float], total: float) -> None:
    """Raise ValueError unless steps are positive, finite and rising, and the length is positive."""
    if not 0 < total < math.inf:
        raise ValueError(f"a length of {total}")
    if not all(low < high < math.inf for low, high in pairwise([0.0, *steps])):
        raise ValueError("steps that do not rise from above 0")


def _points(row: Any, path: Sequence[str]) -> list[tuple[float, float]]:
    *parents, last = path
    for name in parents:
        row = row[name]
    if isinstance(row, list):
        return [(number, float(report[last])) for number, report in enumerate(row, 1)]
    return [(float(step), float(value)) for step, value in row[last]]
