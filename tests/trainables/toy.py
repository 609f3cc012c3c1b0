"""A toy task and small trials, shared by the tests of model and engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from trainables.data.task import Signature, Split, TaskData
from trainables.trial import ModelSettings, TrainingSettings, TrialSettings

LENGTH, VOCABULARY, CLASSES = 24, 6, 3


def split(examples: int, seed: int) -> Split:
    """Return sequences of tokens 4 and 5 whose class is the one token of 1, 2, 3 that they hold."""
    random = np.random.default_rng(seed)
    inputs = random.integers(4, VOCABULARY, (examples, LENGTH)).astype(np.uint8)
    lengths = random.integers(LENGTH // 2, LENGTH + 1, examples).astype(np.int32)
    targets = random.integers(0, CLASSES, examples).astype(np.int32)
    inputs[np.arange(examples), random.integers(0, LENGTH // 2, examples)] = targets + 1
    inputs[np.arange(LENGTH) >= lengths[:, None]] = 0
    return Split(inputs, lengths, targets)


def task_data(signature: Signature, train: Split, validation: Split, test: Split) -> TaskData:
    """Return a task's data around given splits."""
    return TaskData(
        signature=signature,
        train=train,
        validation=validation,
        open_test=lambda: test,
        source="made for tests",
        comparable=False,
        note="",
        digest="",
        chance={"validation": 1 / CLASSES, "test": 1 / CLASSES},
        trivial_loss=dict.fromkeys(("validation", "test"), float(np.log(CLASSES))),
    )


def toy_data() -> TaskData:
    """Return the toy task: 203 + 50 + 150 examples."""
    signature = Signature("class", CLASSES, VOCABULARY, 1, LENGTH)
    return task_data(signature, split(203, 0), split(50, 1), split(150, 2))


def toy_trial(seed: int = 0, *, model: dict[str, Any] | None = None, **training: Any) -> TrialSettings:
    """Return a small bidirectional RotRNN trial; the arguments replace fields of its model and training."""
    network = ModelSettings(
        "rotrnn", depth=1, d_model=8, d_state=8, bidirectional=True, dropout=0.1, options={"heads": 2}
    )
    recipe = TrainingSettings(
        steps=200, interval=50, batch_size=8, learning_rate=3e-3, recurrent_learning_rate=1e-3
    )
    return TrialSettings("toy", replace(network, **(model or {})), replace(recipe, **training), seed=seed)
