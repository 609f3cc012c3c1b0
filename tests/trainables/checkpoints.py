"""Small checkpoints for the tests of predictors and served models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from trainables import checkpoint
from trainables.engine import Engine
from trainables.tasks import TASKS
from trainables.trial import ModelSettings, TrainingSettings, TrialSettings

LISTOPS = {
    "source": "generated",
    "length": 40,
    "min_length": 3,
    "max_length": 30,
    "examples": 64,
    "held_out": 40,
}


def settings(task: str, task_options: Mapping[str, Any], **model: Any) -> TrialSettings:
    """Return a small trial; the arguments replace fields of its network."""
    network = ModelSettings("rotrnn", depth=2, d_model=8, d_state=8, options={"heads": 2})
    recipe = TrainingSettings(
        steps=20, interval=10, batch_size=8, learning_rate=1e-2, recurrent_learning_rate=1e-3
    )
    return TrialSettings(task, replace(network, **model), recipe, 3, task_options)


def saved(folder: Path, trial: TrialSettings) -> tuple[checkpoint.Saved, Engine]:
    """Return a checkpoint of a trial, and an engine whose one slot holds the same arrays.

    The network is not trained, because compiling that takes longest; its running statistics are random, as if
    it had been.
    """
    data = TASKS[trial.task].load(trial.task_options, folder)
    engine = Engine(trial, data)
    engine.admit(0, trial)
    random = np.random.default_rng(0)
    arrays = {
        name: random.uniform(0.5, 2, array.shape).astype(array.dtype) if name.startswith("stats/") else array
        for name, array in engine.snapshot(0).items()
    }
    engine.evict(0)
    engine.restore(0, trial, arrays)
    facts = {
        "trial": "t-0",
        "settings": asdict(trial),
        "signature": asdict(data.signature),
        "characters": data.characters,
    }
    return checkpoint.save(folder / f"{trial.model.layer}-{trial.task}", arrays, facts), engine
