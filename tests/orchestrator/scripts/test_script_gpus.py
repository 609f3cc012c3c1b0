"""What a function or a command knows of its GPUs: placeholders, variables, and the bound of its memory."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.scripts.script_process import (
    CLIENT,
    AttemptFolder,
    Rank,
    command_of,
    environment_of,
)
from orchestrator.training.process import mps_environment
from tests.attempts import assignment
from trainables.trial import Clock, ScriptSettings

WORDS = ("torchrun", "--nproc-per-node={gpus}", "--nnodes={nodes}", "train.py")

TORCH = """
class cuda:
    @staticmethod
    def is_available():
        return True

    @staticmethod
    def set_per_process_memory_fraction(fraction):
        print("bounded to", fraction)
"""


def settings(gpu: float, nodes: int = 1) -> ScriptSettings:
    return ScriptSettings(None, WORDS, False, "/code", {"rate": 0.5}, Clock(4, 2), 7, gpu=gpu, nodes=nodes)


@pytest.mark.parametrize(("gpu", "shown"), [(0, "0"), (0.25, "1"), (1, "1"), (4, "4")])
def test_a_command_knows_how_many_gpus_it_sees(tmp_path: Path, gpu: float, shown: str) -> None:
    """A part of a GPU is one device; torchrun starts as many processes as there are GPUs."""
    place = AttemptFolder(tmp_path)
    asked = settings(gpu, nodes=2)
    expected = ["torchrun", f"--nproc-per-node={shown}", "--nnodes=2", "train.py"]
    assert command_of(asked, place, 0) == expected
    variables = environment_of(asked, place, 0)
    assert (variables["SWEEP_GPUS"], variables["SWEEP_NODES"]) == (shown, "2")


def test_only_a_trial_that_shares_a_gpu_has_a_bound_of_its_memory(tmp_path: Path) -> None:
    """A tenth is left for what every process holds besides."""
    assert [settings(gpu).gpu_memory for gpu in (0, 1, 2)] == [None, None, None]
    assert settings(0.25).gpu_memory == 0.225
    place = AttemptFolder(tmp_path)
    assert environment_of(settings(0.25), place, 0)["SWEEP_GPU_MEMORY"] == "0.225"
    assert "SWEEP_GPU_MEMORY" not in environment_of(settings(1), place, 0)


@pytest.mark.parametrize("first", [True, False], ids=["imported before the trial", "imported after it"])
def test_pytorch_is_bounded_once_it_is_imported(tmp_path: Path, first: bool) -> None:
    """The module `torch` here is a stand-in that prints the fraction: this machine has no GPU."""
    (tmp_path / "torch.py").write_text(TORCH)
    lines = ["import torch", "import sweep_client; trial = sweep_client.trial()"]
    text = "\n".join(
        [*(lines if first else lines[::-1]), "trial.report(2, {'a': 1}); trial.report(4, {'a': 1})"]
    )
    (tmp_path / "train.py").write_text(text)
    trial = {"attempt": "t-0.1", "params": {}, "seed": 0, "folder": ".", "resume": None, "start": 0}
    files = {name: str(tmp_path / name) for name in ("reports", "answers", "checkpoints")}

    (tmp_path / "trial.json").write_text(
        json.dumps({**trial, **files, "steps": 4, "interval": 2, "gpu_memory": 0.225})
    )
    (tmp_path / "answers").write_text("continue 2\nstop 4\n")
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(CLIENT), "SWEEP_TRIAL": str(tmp_path / "trial.json")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "bounded to 0.225\n"


def test_mps_is_used_where_its_daemon_has_made_its_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    place = AttemptFolder(tmp_path)
    assert mps_environment(0.25) == {}
    (tmp_path / "control").touch()
    of_script = environment_of(settings(1 / 3), place, 0)
    assert of_script["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "34"
    assert of_script["CUDA_MPS_PIPE_DIRECTORY"] == str(tmp_path)
    assert mps_environment(0.25)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert mps_environment(1) == mps_environment(2) == {}, "a whole GPU is not shared"


def test_the_nodes_of_a_trial_can_find_each_other(tmp_path: Path) -> None:
    """torchrun reads its options `--nnodes`, `--node-rank` and the address of the first from `PET_...`."""
    place, rank = AttemptFolder(tmp_path), Rank(1, "192.0.2.1", 4000)
    variables = environment_of(settings(8, nodes=2), place, 0, rank=rank)
    for prefix in ("", "PET_"):
        assert variables[f"{prefix}MASTER_ADDR"] == "192.0.2.1"
        assert variables[f"{prefix}MASTER_PORT"] == "4000"
        assert (variables[f"{prefix}NODE_RANK"], variables[f"{prefix}NNODES"]) == ("1", "2")
    assert "NODE_RANK" not in environment_of(settings(8), place, 0)


def test_a_part_of_a_gpu_is_no_slot_of_an_engine(tmp_path: Path) -> None:
    shared = replace(assignment(tmp_path, 0), gpu=0.25)
    assert shared.slots == 4
    own = replace(shared, settings=settings(0.25))
    assert (own.slots, own.nodes) == (1, 1)
    assert replace(own, settings=settings(8, nodes=2)).nodes == 2
