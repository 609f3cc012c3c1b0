"""A study of Optuna as a search-space file: the distributions of its trials are the space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.config.imports.search_draft import TRIALS, DraftBuilder, SearchDraft, objective_of, yaml_of
from orchestrator.config.space import MOST_CHOICES
from orchestrator.errors import BadInput

_LEAST_WITHOUT = 2
"""Trials that must lack a parameter before a condition is guessed."""


@dataclass(frozen=True)
class StudyTrial:
    """A trial of a study.

    Attributes:
        params: Values by name.
        entries: Entry of `search` of each parameter, as the trial was drawn.
        values: Values of the objectives, or None if the trial is not complete.
        steps: Reports of the trial.
    """

    params: Mapping[str, Any]
    entries: Mapping[str, Mapping[str, Any]]
    values: tuple[float, ...] | None
    steps: int = 0


@dataclass(frozen=True)
class RecordedStudy:
    """A study, as read from a storage.

    Attributes:
        name: Name of the study.
        goals: `minimize` or `maximize` of each objective.
        metrics: Names of the objectives, or none if the study has none.
        trials: Trials in their order.
    """

    name: str
    goals: tuple[str, ...]
    metrics: tuple[str, ...]
    trials: tuple[StudyTrial, ...]


def optuna_draft(
    study: RecordedStudy, origin: str, objective: Mapping[str, Any] | None, known: str | None
) -> SearchDraft:
    """Return the search-space file of a study.

    Args:
        study: The study.
        origin: Where it is stored, without a password.
        objective: Section `objective` if the user names the metric, or None.
        known: Where the file finds the complete trials as known results, or None.

    Raises:
        BadInput: The study has no parameters that a file can search, or not that objective.
    """
    builder = DraftBuilder(f"the Optuna study {study.name} in {origin}")
    names: dict[str, str] = {}
    finished = [trial for trial in study.trials if trial.values is not None]
    keys = dict.fromkeys(key for trial in study.trials for key in trial.entries)
    # What every trial has can explain what others lack.
    for key in sorted(keys, key=lambda key: any(key not in trial.params for trial in finished)):
        _add(builder, names, key, study.trials, finished)
    reports = max((trial.steps for trial in study.trials), default=0)
    builder.guesses.append(
        "trainable: a storage does not name the script; the function `train(trial)` of train.py."
    )
    length = f"the most reports that a trial has; {reports}" if reports else "trials report one value; 1"
    builder.guesses.append(f"training.steps: {length}.")
    metrics = _metrics(builder, study, objective)
    if known is not None and list(study.goals) != sorted(study.goals, key=study.goals.index):
        why = "cannot be known results, because a file names objectives of one direction together"
        builder.leave_out(
            "trials", ", ".join(study.goals), why, "Write them to a CSV file: `known: results.csv`."
        )
        known = None
    return builder.draft(
        {
            "trainable": {"function": "train.py:train"},
            "training": {"steps": max(1, reports), "interval": 1},
            "objective": objective_of(metrics, study.goals),
            "budget": {"trials": TRIALS},
        },
        known,
        _results(names, finished, metrics),
    )


def _results(
    names: Mapping[str, str], finished: Sequence[StudyTrial], metrics: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Return a row of names and one of values for each complete trial; a parameter that it lacks is ''."""
    rows = [(*(trial.params.get(key, "") for key in names), *(trial.values or ())) for trial in finished]
    return [(*names.values(), *metrics), *rows]


def _metrics(
    builder: DraftBuilder, study: RecordedStudy, objective: Mapping[str, Any] | None
) -> tuple[str, ...]:
    """Return the names of the objectives, in the order of the study.

    Raises:
        BadInput: The user names a metric with another direction, or one of several.
    """
    if objective is not None:
        ((goal, metric),) = objective.items()
        if study.goals != (goal,):
            must = "must be the direction of the only objective of the study"
            raise BadInput(f"--{goal}", must, ", ".join(study.goals), "Correct it, or leave it out.")
        return (str(metric),)
    if study.metrics:
        return study.metrics
    metrics = tuple(_metric(goal, number) for number, goal in enumerate(study.goals))
    builder.guesses.append(f"objective: the study does not name its metrics; {', '.join(metrics)}.")
    return metrics


def _metric(goal: str, number: int) -> str:
    if number > 0:
        return f"val/objective_{number}"
    return "val/loss" if goal == "minimize" else "val/score"


def _add(
    builder: DraftBuilder,
    names: dict[str, str],
    key: str,
    trials: Sequence[StudyTrial],
    finished: Sequence[StudyTrial],
) -> None:
    where = f"parameter {key}"
    entries = [trial.entries[key] for trial in trials if key in trial.entries]
    entry = dict(entries[-1])
    if any(other != entry for other in entries):
        merged = _merged(entries)
        if merged is None:
            why = "has distributions of several kinds"
            builder.leave_out(where, f"{yaml_of(entries[0])} and {yaml_of(entry)}", why, "Write one of them.")
            return
        builder.leave_out(
            where,
            f"{yaml_of(entries[0])} and {yaml_of(entry)}",
            "has several ranges, and here one that holds them all",
            "Narrow it.",
        )
        entry = merged
    without = [trial for trial in finished if key not in trial.params]
    if len(without) >= _LEAST_WITHOUT or (without and len(without) == len(finished)):
        condition = _condition(key, names, trials, finished)
        count = f"{len(finished) - len(without)} of {len(finished)} complete trials"
        if condition is None:
            why = "is drawn in some trials only, and here in all"
            builder.leave_out(where, count, why, "Write its condition as `when:`.")
        else:
            builder.guesses.append(f"{where}: its condition, from {count} that have it.")
            entry["when"] = condition
    name = builder.add(where, key, entry, yaml_of(entry))
    if name is not None:
        names[key] = name


def _merged(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the smallest range that holds all ranges of one kind, or all choices."""
    kinds = {next(iter(entry)) for entry in entries}
    if len(kinds) > 1:
        return None
    (kind,) = kinds
    if kind == "choice":
        found: list[Any] = []
        for entry in entries:
            found += [one for one in entry[kind] if not any(_same(one, other) for other in found)]
        return {kind: found[:MOST_CHOICES]}
    low = min(entry[kind][0] for entry in entries)
    high = max(entry[kind][1] for entry in entries)
    steps = {entry.get("step") for entry in entries}
    step = steps.pop() if len(steps) == 1 else None
    return {kind: [low, high], **({} if step is None or (high - low) % step else {"step": step})}


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


def _condition(
    key: str, names: Mapping[str, str], trials: Sequence[StudyTrial], finished: Sequence[StudyTrial]
) -> dict[str, list[Any]] | None:
    """Return the choice or the whole number that explains exactly which trials have a parameter."""
    for parent, name in names.items():
        if any(parent not in trial.params for trial in finished):
            continue
        entry = next(trial.entries[parent] for trial in trials if parent in trial.entries)
        if next(iter(entry)) not in {"choice", "int"}:
            continue
        having = [trial.params[parent] for trial in finished if key in trial.params]
        lacking = [trial.params[parent] for trial in finished if key not in trial.params]
        if having and not any(_same(one, other) for one in having for other in lacking):
            unique = [
                one for number, one in enumerate(having) if not any(_same(one, o) for o in having[:number])
            ]
            return {name: sorted(unique) if "int" in entry else unique}
    return None
