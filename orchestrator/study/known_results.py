"""Known results: reading them from a CSV file or from a study of Optuna, and adding them to a study here."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.config.sweep_config import Objective, SweepConfig
from orchestrator.errors import BadInput
from orchestrator.ledger.sweeps.records import CurvePoint, TrialRecord
from orchestrator.study.stored_studies import opened_storage
from trainables.errors import in_one_line

MOST_ROWS = 100_000
"""Rows of a CSV file that are read."""


def rows_of_csv(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a CSV file by the names in its first line.

    Raises:
        BadInput: It cannot be read, or has too many rows.
    """
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            rows = [row for _, row in zip(range(MOST_ROWS + 1), csv.DictReader(lines), strict=False)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        remedy = "Correct the path, or write optuna://... or mlflow://..."
        raise BadInput("known", "must name a CSV file that can be read", f"{file}: {error}", remedy) from None
    if len(rows) > MOST_ROWS:
        raise BadInput("known", f"must have at most {MOST_ROWS:,} rows", str(file), "Shorten the file.")
    return rows


def rows_of_study(storage: str, name: str, objectives: tuple[Objective, ...]) -> list[dict[str, Any]]:
    """Return the complete trials of a study of Optuna: hyperparameters and objectives by name.

    Args:
        storage: Address of an SQL database, of which a SQLite file is opened for reading only.
        name: Name of the study.
        objectives: Objectives of the search, to which those of the study must correspond in order.

    Raises:
        BadInput: The study cannot be read, or has other objectives.
    """
    import optuna  # takes seconds, and few files name a study
    from optuna.trial import TrialState

    try:
        with opened_storage(storage) as opened:
            study = optuna.load_study(study_name=name, storage=opened)
            directions = [direction.name.lower() for direction in study.directions]
            trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    except Exception as error:  # noqa: BLE001 - whatever the driver of a database raises
        remedy = "Write optuna://sqlite:///study.db#NAME, for example."
        must = f"study {name} cannot be read"
        raise BadInput("known", must, in_one_line(error), remedy) from None
    if directions != (own := [objective.direction for objective in objectives]):
        must = f"must name a study with the same objectives: {', '.join(own)}"
        raise BadInput("known", must, f"{', '.join(directions)} in {name}", "Leave it out.")
    metrics = [objective.metric for objective in objectives]
    return [{**trial.params, **dict(zip(metrics, trial.values, strict=True))} for trial in trials]


def known_trials(sweep: SweepConfig) -> tuple[list[TrialRecord], list[CurvePoint]]:
    """Return the known results of a sweep as complete trials of earlier sweeps, and their reports."""
    trials, points = [], []
    for known in sweep.known:
        for number, result in enumerate(known.results or ()):
            params: Mapping[str, Any] = {name: each for name, each in result.items() if name in sweep.search}
            key = f"{known.source}-{number}"
            metrics = {metric: result[metric] for metric in sweep.objective_metrics}
            trials.append(
                TrialRecord(
                    key=key,
                    sweep_id=known.source,
                    number=number,
                    role="search",
                    state="COMPLETE",
                    cause=None,
                    params=params,
                    system_attrs={},
                    seed=0,
                    value=result[sweep.metric],
                    best_step=0,
                    step=0,
                    total_steps=0,
                    attempts=0,
                    created_at=0.0,
                )
            )
            points.append(CurvePoint(key, 0, metrics, 0.0))
    return trials, points
