"""One step of every task on drawn examples, without any data."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

import pytest

from tests.published import SMALL
from trainables.errors import Refusal
from trainables.rehearsal import answer, rehearsed
from trainables.trial import ModelSettings, TrainingSettings, TrialSettings

OPTIONS = {"speech_commands": {"every": 16}, "pathx": {}}


def settings(task: str, rate: float = 1e-3, layer: str = "lru") -> TrialSettings:
    training = TrainingSettings(1, 1, 2, rate, rate)
    options = OPTIONS.get(task, SMALL[task])
    return TrialSettings(task, ModelSettings(layer, 1, 4, 4), training, 0, options)


FAST = {"copy", "char_lm"}
"""One task of each kind of target; the tests of a task take steps on it too."""


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=[] if task in FAST else pytest.mark.slow) for task in sorted(SMALL)]
)
def test_a_step_of_every_task(task: str) -> None:
    assert rehearsed(settings(task)) > 0


@pytest.mark.slow
def test_a_process_answers_for_each_settings_by_their_name() -> None:
    good, bad = settings("copy"), settings("copy")
    documents = {"good": asdict(good), "bad": {**asdict(bad), "task_options": {"dely": 3}}}
    done = subprocess.run(
        [sys.executable, "-m", "trainables.rehearsal"],
        input=json.dumps(documents),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert answers["good"]["loss"] > 0
    assert "is not an option of the task" in answers["bad"]["refused"]


def test_settings_that_cannot_be_trained_are_refused() -> None:
    with pytest.raises(Refusal, match="is not an option of the task"):
        rehearsed(
            TrialSettings("copy", ModelSettings("lru", 1, 4, 4), TrainingSettings(1, 1, 2, 1, 1), 0, {"a": 1})
        )
    assert "refused" in answer({**asdict(settings("copy")), "task_options": {"a": 1}})
