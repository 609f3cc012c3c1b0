"""A small valid search-space file, and edits of it, for the tests of the file format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import SweepConfig, load
from orchestrator.errors import BadInput

VALID = """\
task: listops
data: {length: 2048}
model: {layer: rotrnn, depth: 2, d_model: 32, d_state: 64, heads: 8, dropout: 0.1}
training: {steps: 1_000, interval: 100, batch_size: 16}
evaluate: {examples: 200}
search:
  gamma_init.min: {uniform: [0.1, 0.9]}
  gamma_init.max: {choice: [0.99, 0.999]}
  theta_init.max: {choice: [pi/10, 2*pi]}
  learning_rate: {log_uniform: [1e-5, 1e-2]}
  recurrent_learning_rate: {log_uniform: [1e-6, 1e-3]}
objective: {maximize: val/accuracy}
sampler: {tpe: {seed: 3}}
scheduler: {asha: {reduction: 4, grace: 0.1}}
budget: {trials: 16}
resources: {gpu: 1/8, cpu: 1}
published:
  source: "A paper, Table 1"
  values: {gamma_init.min: 0.5, gamma_init.max: 0.999, theta_init.max: 2*pi,
    learning_rate: 1e-4, recurrent_learning_rate: 1e-5}
  test/accuracy: 0.611
profiles:
  laptop:
    data: {length: 256, min_length: 20, max_length: 200}
    training: {steps: 200}
    search:
      theta_init.max: null
    published: null
    resources: {cpu: 2}
"""


def written(folder: Path, text: str | bytes = VALID, name: str = "space.yaml") -> Path:
    """Write a file and return its path."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def loaded(folder: Path, text: str = VALID, **options: Any) -> SweepConfig:
    """Write a file and load it, as on a machine with a GPU."""
    return load(written(folder, text), **{"profile": "auto", "gpus": 1, **options})


def edited(old: str, new: str, text: str = VALID) -> str:
    """Return the file with one piece of text replaced; the file must contain the piece exactly once."""
    assert text.count(old) == 1, old
    return text.replace(old, new)


def refused(folder: Path, text: str | bytes, **options: Any) -> BadInput:
    """Return the error that loading `text` raises, after checking that it is one line."""
    with pytest.raises(BadInput) as caught:
        load(written(folder, text), **{"profile": "auto", "gpus": 1, **options})
    assert "\n" not in str(caught.value)
    return caught.value
