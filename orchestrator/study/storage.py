"""A study as an SQLite file of Optuna's own, for optuna-dashboard and Optuna's own functions."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import RDBStorage

from orchestrator.study.study import Study


def store(study: Study, file: Path, name: str) -> int:
    """Write a study to a new file under a name; return how many trials it has.

    The file appears under its name when it is whole: a thousand trials take Optuna most of a minute.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.absolute().with_name(f".{file.name}.{os.getpid()}")
    storage = RDBStorage(f"sqlite:///{beside}")
    try:
        trials = study.trials()
        written = optuna.create_study(storage=storage, study_name=name, directions=study.directions)
        with warnings.catch_warnings():
            # It has been called experimental since Optuna 3.2; without it the pages say "Objective 0".
            warnings.simplefilter("ignore", ExperimentalWarning)
            written.set_metric_names(list(study.metrics))
        written.add_trials(trials)
    finally:
        storage.engine.dispose()
    beside.replace(file)
    return len(trials)
