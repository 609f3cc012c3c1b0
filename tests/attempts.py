"""Assignments of tiny trials, for the tests of attempts and engines."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.assignment import Assignment
from orchestrator.training import process
from trainables.trial import ModelSettings, TrainingSettings, TrialSettings

STEPS, INTERVAL = 30, 10


def assignment(folder: Path, number: int, *, attempt: int = 1, **changes: Any) -> Assignment:
    """Return an attempt of a trial of the adding task, which compiles in a second."""
    model = ModelSettings("rotrnn", depth=1, d_model=8, d_state=8, options={"heads": 2})
    training = TrainingSettings(
        STEPS, INTERVAL, batch_size=4, learning_rate=1e-3 * (1 + number), recurrent_learning_rate=1e-3
    )
    options = {"length": 16, "examples": 64, "held_out": 16}
    settings = TrialSettings("adding", model, training, seed=number, task_options=options)
    first = Assignment(
        attempt_id=f"s-{number}.{attempt}",
        trial_key=f"s-{number}",
        ledger="l",
        settings=settings,
        cpu=1.0,
        gpu=0.25,
        data=str(folder / "data"),
        checkpoints=str(folder / f"checkpoints-{number}"),
        resume=None,
        log=str(folder / f"{number}.log"),
        compilations=os.environ["JAX_COMPILATION_CACHE_DIR"],
    )
    return replace(first, **changes)


@contextmanager
def asked_since_the_last_look(trial: Assignment) -> Iterator[None]:
    """Publish a stop request for an attempt just after this process has looked for one."""
    asked: list[str] = []
    looked = threading.Event()

    def published(_: str) -> Collection[str]:
        read = tuple(asked)
        looked.set()
        return read

    process.forget(trial.channel)  # another test may have watched a sweep of this id
    process.watch(trial.channel, published)
    assert looked.wait(60)
    asked.append(trial.attempt_id)
    try:
        yield
    finally:
        process.forget(trial.channel)
