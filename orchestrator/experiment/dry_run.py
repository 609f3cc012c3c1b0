"""The dry run of an experiment: one training step of each static choice, on random examples.

The network has one block instead of `depth` equal ones, and a batch has two examples, so that a step at
published shapes takes seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.errors import BadInput
from orchestrator.experiment.file import Experiment, function_of
from orchestrator.training.process import worker_environment
from trainables.trial import TrialSettings

EXAMPLES = 2
"""Examples of a batch."""


def settings_of(sweep: SweepConfig) -> TrialSettings:
    """Return the settings of one training step with the published hyperparameters, or the largest ones."""
    settings = sweep.network_settings(sweep.published_params() or sweep.largest(), seed=0)
    batch = min(settings.training.batch_size, EXAMPLES)
    training = replace(settings.training, steps=1, interval=1, batch_size=batch, accumulate=1)
    return replace(settings, model=replace(settings.model, depth=1), training=training)


def dry_run(experiment: Experiment, compilations: Path) -> Iterator[str]:
    """Take one training step of every static choice in a subprocess; yield a line for each.

    If the experiment measures a function, the function is imported and not called.

    Args:
        experiment: Validated experiment.
        compilations: Folder of JAX's persistent compilation cache.

    Raises:
        BadInput: An arm cannot be trained, or the function does not exist.
    """
    if experiment.measure is not None:
        function_of(experiment.measure)
        yield f"{experiment.measure} exists; it is not called"
        return
    groups: dict[object, list[str]] = {}
    chosen: dict[str, TrialSettings] = {}
    for arm in experiment.arms:
        assert arm.sweep is not None, "only an experiment with sweeps has sweeps of arms"
        settings = settings_of(arm.sweep)
        alike = groups.setdefault(settings.static(), [])
        alike.append(arm.name)
        chosen.setdefault(alike[0], settings)
    of_first = {alike[0]: ", ".join(alike) for alike in groups.values()}
    for answer in _answers(chosen, compilations):
        names = of_first[answer["name"]]
        if "loss" not in answer:
            must = f"cannot take a training step: {answer['refused']}"
            raise BadInput(f"{experiment.name}: {names}", must, "", "Change the arm.")
        yield f"{names}: loss {answer['loss']:.4g} after one step on drawn examples"


def _answers(settings: dict[str, TrialSettings], compilations: Path) -> Iterator[dict[str, Any]]:
    """Yield the answer for each trial; `name` is its key in `settings`."""
    left = set(settings)
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(compilations),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "trainables.rehearsal"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **worker_environment(0), **cache},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        json.dump({name: asdict(trial) for name, trial in settings.items()}, process.stdin)
        process.stdin.close()
        for answer in map(json.loads, process.stdout):
            if answer.get("name") not in left:
                must, got = "must take a step of the requested arms", f"a step of {answer.get('name')}"
                raise BadInput("dry run", must, got, "Run it again.")
            left.remove(answer["name"])
            yield answer
    if process.returncode != 0 or left:
        got = f"exit code {process.returncode}"
        raise BadInput("dry run", "must take a step of every arm", got, "See its messages above.")
