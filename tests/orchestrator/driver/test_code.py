"""The code of a function or a command is looked at before anything starts."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.config.trainable import Trainable
from orchestrator.driver.user_code import check_code
from orchestrator.errors import BadInput

TRAIN = """
import json
from json import dumps as written
try:
    import no_such_package
except ImportError:
    def fallback(trial): ...
def train(trial, verbose=False): ...
def takes_all(*trials): ...
def nothing(): ...
def two(trial, data): ...
def named(trial, *, data): ...
async def later(trial): ...
class Training:
    def __init__(self, trial): ...
partly = json.loads
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "wrong.py").write_text("def train(trial) ...")
    (tmp_path / "everything.py").write_text("from train import *")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text(TRAIN)
    (tmp_path / "run").write_text("#!/bin/sh\n")
    (tmp_path / "run").chmod(0o755)
    (tmp_path / "text").write_text("no program")
    return tmp_path


def trainable(target: str | tuple[str, ...], folder: Path, *, shell: bool = False) -> Trainable:
    return Trainable("function" if isinstance(target, str) else "command", target, str(folder), shell)


@pytest.mark.parametrize(
    "target",
    [
        *(f"train.py:{name}" for name in ("train", "takes_all", "fallback", "Training", "partly", "written")),
        "everything.py:train",
        "package.train:train",
        "json.decoder:JSONDecoder",
        "math:sqrt",
        (sys.executable, "train.py", "{rate}"),
        (sys.executable, "-m", "package.train"),
        (sys.executable, "{script}.py"),
        ("./run",),
        ("sh", "anything"),
        ("{program}", "x"),
    ],
)
def test_what_is_there_is_accepted(folder: Path, target: str | tuple[str, ...]) -> None:
    check_code(trainable(target, folder))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("training.py:train", "must name a file beside the search-space file"),
        ("train.py:trian", "Did you mean `train`?"),
        ("train.py:nothing", "must take one argument"),
        ("train.py:two", "two(trial, data)"),
        ("train.py:named", "must take one argument"),
        ("train.py:later", "must not be an async function"),
        ("wrong.py:train", "must be valid Python"),
        ("package.training:train", "no module package.training"),
        ("no_such_package.train:train", "must name a module that is installed"),
        ((sys.executable, "training.py"), "no file training.py"),
        (("no-such-program", "x"), "a program that can be run"),
        (("./text",), "chmod"),
    ],
)
def test_what_is_not_there_is_refused(
    folder: Path, target: str | tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(BadInput) as caught:
        check_code(trainable(target, folder))
    assert message in str(caught.value)


def test_the_function_of_a_predictor_is_looked_at_too(folder: Path) -> None:
    own = Trainable("command", ("sh", "anything"), str(folder), predictor="train.py:train")
    check_code(own)
    for name, message in (("two", "must take one argument, the folder"), ("trian", "Did you mean `train`?")):
        with pytest.raises(BadInput, match=r"trainable\.predictor") as caught:
            check_code(replace(own, predictor=f"train.py:{name}"))
        assert message in str(caught.value)


def test_another_machine_may_have_the_program_of_a_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "host:6379")
    check_code(trainable(("no-such-program", "x"), folder))
    with pytest.raises(BadInput):
        check_code(trainable(("./text",), folder))


def test_a_shell_finds_its_own_programs(folder: Path) -> None:
    check_code(trainable(("no-such-program | tee x",), folder, shell=True))


def test_a_folder_that_is_gone_is_refused(folder: Path) -> None:
    with pytest.raises(BadInput, match="must be a folder"):
        check_code(trainable("train.py:train", folder / "gone"))
