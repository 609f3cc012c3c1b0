"""Every scheduler that a file may name can be built."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config import load
from orchestrator.config.strategy import SCHEDULERS
from orchestrator.driver import preflight
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule.schedulers import build

SPACE = """
task: retrieval
model: {layer: rotrnn, depth: 1, d_model: 8, d_state: 8, heads: 2}
training: {steps: 300, interval: 10, batch_size: 4, recurrent_learning_rate: 1e-3}
search: {learning_rate: {log_uniform: [1e-4, 1e-2]}}
objective: {maximize: val/accuracy}
sampler: {random: {seed: 0}}
scheduler: {NAME: {OPTIONS}}
budget: {trials: 4}
resources: {cpu: 1}
"""
HERE = Hardware(cpus=2, gpus=0)


def sweep(folder: Path, name: str, options: str = ""):
    file = folder / "space.yaml"
    text = SPACE.replace("NAME", name).replace("OPTIONS", options)
    # Population based training takes no sampler.
    file.write_text(text if name != "pbt" else text.replace("sampler: {random: {seed: 0}}\n", ""))
    return load(file, profile=None, gpus=0)


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
def test_every_scheduler_can_be_built_with_its_defaults(tmp_path: Path, name: str) -> None:
    specification = sweep(tmp_path, name, "mutations: [learning_rate]" if name == "pbt" else "")
    preflight.check_sweep(specification, HERE, tmp_path)
    assert build(specification, []).metric in ("val/accuracy", None)
