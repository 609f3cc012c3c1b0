"""A PyTorch script that is killed at any report has the curve of one that was not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.assignment import Assignment, Outcome
from tests.orchestrator.scripts.test_script_attempt import Runs

PYTHON = os.environ.get("SWEEP_TEST_TORCH", "")
"""A Python interpreter of an environment with PyTorch and NumPy, which this project does not install."""

pytestmark = pytest.mark.skipif(not PYTHON, reason="needs SWEEP_TEST_TORCH, an interpreter with PyTorch")

SCRIPT = """
import random
import numpy
import torch
import torch.distributed
import sweep_client

trial = sweep_client.trial()
is_group = "RANK" in __import__("os").environ
if is_group:
    torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank() if is_group else 0
torch.set_num_threads(1)
torch.manual_seed(trial.seed)
inputs = torch.randn(96, 8)
data = torch.utils.data.TensorDataset(inputs, (inputs[:, :1] > 0).float())
model = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1)
)
if is_group:
    model = torch.nn.parallel.DistributedDataParallel(model)
torch.manual_seed(trial.seed + rank)
random.seed(rank)
numpy.random.seed(rank)
order = numpy.random.default_rng(rank)
loader = torch.utils.data.DataLoader(
    data, 16, shuffle=True, generator=torch.Generator().manual_seed(rank), num_workers=0
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
parts = dict(model=model, optimizer=optimizer, schedule=schedule, loader=loader, order=order)
sweep_client.torch.checkpoint(trial.start, **parts)
for step in range(trial.start, trial.steps):
    total = 0.0
    for x, y in loader:
        x = x * (1 + 0.1 * random.random()) + 0.1 * numpy.random.rand() + 0.1 * order.random()
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    schedule.step()
    saved = sweep_client.torch.checkpoint(step + 1, **parts)
    if not trial.report(step + 1, {"val/loss": total}, checkpoint=saved):
        break
"""
STEPS = 4
COMMANDS = {
    "one process": (PYTHON, "script.py"),
    "two gloo ranks": (
        PYTHON,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "script.py",
    ),
}


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    started = Runs(tmp_path)
    yield started
    started.own.release()


def assigned(runs: Runs, command: tuple[str, ...], script: str = SCRIPT) -> Assignment:
    own = runs.command(script, steps=STEPS, interval=1)
    return replace(own, settings=replace(own.settings, command=command))


def curve(outcomes: list[Outcome]) -> list[float]:
    return [outcome.metrics["val/loss"] for outcome in outcomes if "val/loss" in outcome.metrics]


@pytest.mark.parametrize(("how", "killed_at"), [("one process", range(1, STEPS)), ("two gloo ranks", [2])])
def test_a_script_that_is_killed_has_the_same_curve(runs: Runs, how: str, killed_at: list[int]) -> None:
    own = assigned(runs, COMMANDS[how])
    whole = curve(runs.all(own))
    assert len(set(whole)) == STEPS
    for at in killed_at:
        first = []
        while len(first) < at:
            outcome = runs.own.advance(own)
            first += [outcome] if outcome.metrics else []
        runs.own.release()
        resumed = replace(own, resume=first[-1].checkpoint, attempt_id=f"{own.trial_key}.{at + 1}")
        rest = runs.all(resumed)
        assert curve(first) + curve(rest) == whole, f"killed at report {at}"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ("a=3", "a must have a state_dict"),
        ("model=torch.nn.Linear(1, 1), a=print", "a must have a state_dict"),
    ],
)
def test_a_part_without_a_state_is_refused(runs: Runs, parts: str, message: str) -> None:
    text = f"import sweep_client, torch\nsweep_client.trial()\nsweep_client.torch.checkpoint(1, {parts})\n"
    (outcome,) = runs.all(assigned(runs, COMMANDS["one process"], text))
    assert message in str(outcome.message)
