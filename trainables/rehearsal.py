"""Take one training step of settings without their data: `python -m trainables.rehearsal < settings.json`.

The input is a JSON object of `TrialSettings` by name. The output is one line of JSON for each: its name, and
the loss of the step or the reason why the settings cannot be trained. The examples are one random batch with
the signature of the task.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from trainables.data.task import Signature, Split, TaskData, completed
from trainables.engine import Engine
from trainables.errors import Refusal
from trainables.tasks import TASKS
from trainables.trial import TrialSettings


def rehearsed(settings: TrialSettings) -> float:
    """Return the training loss of one step.

    Raises:
        Refusal: The settings cannot be trained, or the loss is not finite.
    """
    batch = settings.training.batch_size * settings.training.accumulate
    engine = Engine(settings, drawn(signature_of(settings), batch, whole=settings.training.carry_state))
    engine.admit(0, settings)
    report = engine.advance({0: 1})[0]
    if not math.isfinite(report.loss):
        raise Refusal("the loss of one step", "must be finite", str(report.loss), "Check the rates.")
    return report.loss


def signature_of(settings: TrialSettings) -> Signature:
    """Return the signature of the data of a task, without reading them.

    Raises:
        Refusal: The signature depends on the data.
    """
    task = TASKS[settings.task]
    signature = task.outline(completed(settings.task, task.options, settings.task_options))
    if signature is None:
        must = "does not declare the signature of its data"
        raise Refusal(f"task {settings.task}", must, "", "Define `outline`.")
    return signature


def drawn(signature: Signature, count: int, *, whole: bool = False) -> TaskData:
    """Return random examples; the last one of tokens is shorter than L unless they are `whole`."""
    rng = np.random.default_rng(0)
    towers = (2,) if signature.towers == 2 else ()
    shape = (count, *towers, signature.length)
    lengths = np.full(shape[:-1], signature.length, np.int32)
    inputs: np.ndarray = rng.random((*shape, signature.features), np.float32)
    if signature.vocabulary is not None:
        inputs = rng.integers(signature.vocabulary, size=shape, dtype=np.int32)
        lengths[-1] = signature.length if whole else max(1, signature.length // 2)
    targets: np.ndarray = rng.random(count, np.float32)
    if signature.output != "value":
        steps = (signature.length,) if signature.output == "steps" else ()
        targets = rng.integers(signature.classes, size=(count, *steps), dtype=np.int32)
    split = Split(inputs, lengths, targets)
    chance = {"validation": 0.0, "test": 0.0}
    return TaskData(signature, split, split, lambda: split, "drawn", False, "", "", chance, chance)


def answer(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the loss of one step with the settings of a document, or the reason of a refusal."""
    try:
        return {"loss": rehearsed(TrialSettings.from_document(document))}
    except Refusal as refusal:
        return {"refused": str(refusal)}


if __name__ == "__main__":
    for name, settings in json.load(sys.stdin).items():
        print(json.dumps({"name": name, **answer(settings)}), flush=True)  # noqa: T201 - the answer of this process
