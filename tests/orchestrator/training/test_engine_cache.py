"""The engine that a process keeps: it never trains code, or reads neighbours, of another time or folder."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.training.attempt import OwnEngine
from orchestrator.training.engine_cache import EngineCache
from orchestrator.training.evaluation import evaluate
from tests.attempts import assignment
from tests.trainables.digits import digits
from trainables.trained_program import TrainedProgram
from trainables.trial import Clock, ProgramSettings

pytestmark = pytest.mark.usefixtures("device")

NET = """
from layers_of_the_net import WIDTH
from tests.trainables.digits import OfLinen

class Net(OfLinen):
    def __init__(self):
        super().__init__(WIDTH)
"""


def written(folder: Path, width: int) -> ProgramSettings:
    """Write a program whose width is in a neighbour; return the settings of a trial."""
    folder.mkdir(exist_ok=True)
    (folder / "net.py").write_text(NET)
    (folder / "layers_of_the_net.py").write_text(f"WIDTH = {width}\n")
    return ProgramSettings(
        "net.py:Net", str(folder), {"learning_rate": 1e-2}, Clock(4, 2), 0, ("learning_rate",)
    )


def width(cache: EngineCache, settings: ProgramSettings) -> int:
    """Return the width of the network that the cache's engine trains."""
    engine = cache.engine(settings, "")
    engine.admit(0, settings)
    arrays: dict[str, Any] = engine.snapshot(0)
    engine.evict(0)
    (kernel,) = (array for name, array in arrays.items() if "params" in name and array.shape[0] == 64)
    return int(kernel.shape[1])


def test_changed_code_is_trained_by_the_next_sweep_and_not_by_this_one(tmp_path: Path) -> None:
    cache = EngineCache()
    settings = written(tmp_path, 4)
    assert width(cache, settings) == 4
    kept = cache.engine(settings, "")
    written(tmp_path, 16)
    assert cache.engine(settings, "") is kept, "a sweep trains one version of the code in a process"
    cache.forget_files()
    assert width(cache, settings) == 16
    written(tmp_path, 4)
    cache.forget_files()
    assert width(cache, settings) == 4


def test_unchanged_code_keeps_its_engine(tmp_path: Path) -> None:
    cache = EngineCache()
    settings = written(tmp_path, 4)
    kept = cache.engine(settings, "")
    cache.forget_files()
    assert cache.engine(settings, "") is kept


def test_neighbours_of_one_folder_are_not_those_of_another(tmp_path: Path) -> None:
    cache = EngineCache()
    first, second = written(tmp_path / "a", 4), written(tmp_path / "b", 16)
    assert [width(cache, one) for one in (first, second, first)] == [4, 16, 4]


@pytest.mark.slow
def test_a_program_is_evaluated_after_its_folder_was_moved(tmp_path: Path) -> None:
    settings = written(tmp_path / "before", 4)
    engine = OwnEngine()
    assigned = replace(assignment(tmp_path, 0), settings=settings, store=None)
    outcome = engine.advance(assigned)
    engine.release()
    assert outcome.checkpoint is not None, outcome.message
    shutil.move(tmp_path / "before", tmp_path / "after")
    words = (outcome.checkpoint.path, outcome.checkpoint.digest, "", "validation", assigned.compilations)
    answer = evaluate(*words, program_folder=str(tmp_path / "after"))
    assert answer["metrics"]["loss"] == outcome.metrics["val/loss"]


def test_a_trained_program_answers_as_its_evaluation_did(tmp_path: Path) -> None:
    settings = written(tmp_path / "before", 4)
    engine = OwnEngine()
    outcome = engine.advance(replace(assignment(tmp_path, 0), settings=settings, store=None))
    engine.release()
    assert outcome.checkpoint is not None, outcome.message
    shutil.move(tmp_path / "before", tmp_path / "after")
    saved = outcome.checkpoint
    trained = TrainedProgram(Path(saved.path), saved.digest, tmp_path / "after")
    batch = digits()["validation"]
    answers = np.asarray(trained.outputs(batch)).argmax(-1)
    assert np.mean(answers == batch["targets"]) == pytest.approx(outcome.metrics["val/accuracy"])
    assert trained.step == outcome.step
