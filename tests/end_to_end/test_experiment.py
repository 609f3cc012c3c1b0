"""A whole experiment by the command line: interrupted, resumed, shown and published."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.experiment import experiment_results
from tests.end_to_end.commands import Commands, finish, wait_for

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

EXPERIMENT = """
title: Two layers on copy memory
source: "A paper, Table 1"
claim: Both learn to answer blanks.
seeds: 2
compare: {metric: test/loss, better: lower, tolerance: 0.1}
common:
  task: copy
  data: {delay: 300, held_out: 20}
  model: {depth: 1, d_model: 8, d_state: 8}
  training: {steps: 40, interval: 10, batch_size: 8, learning_rate: 1e-2, recurrent_learning_rate: 1e-3}
  search: {seed: {choice: [0]}}
  sampler: grid
  scheduler: none
  budget: {trials: 1}
arms:
  lru: {model: {layer: lru}, paper: {at_most: 3}, cell: [LRU, copy]}
  s5: {model: {layer: s5}, paper: {at_least: 3}, cell: [S5, copy]}
claims: [{better: lru, than: s5}]
"""


def test_an_experiment_from_command_to_pages(commands: Commands) -> None:
    """A signal ends it between two trials; again, with other resources, it goes on and runs nothing twice."""
    file = commands.folder / "table-1.yaml"
    file.write_text(EXPERIMENT)
    docs = commands.folder / "docs" / "experiments"
    words = ("experiment", str(file), "--publish", str(docs), "--index", str(docs))

    first = commands.start(*words)
    wait_for(lambda: "COMPLETE" in _states(commands))
    first.send_signal(signal.SIGINT)
    code, output = finish(first)
    assert code == 4, output

    code, output = commands.run(*words, "--set", "training.steps=20")
    assert code == 2, output
    assert "must override a key of `resources`" in output

    code, output = commands.run(*words, "--set", "resources.cpu=1/2")
    assert code == 0, output
    assert "Arm 2 of 2, s5" in output
    (kept,) = docs.glob("*.json")
    present = experiment_results.read(kept)
    assert [len(arm.values) for arm in present.arms] == [2, 2]
    assert [verdict.outcome for verdict in present.verdicts.values()] == ["undetermined", "undetermined"]
    assert all(arm.data_digest and arm.trials == 2 and arm.core_seconds > 0 for arm in present.arms)
    assert all(len(seed.steps) == 4 for arm in present.arms for seed in arm.seeds)
    _check_pages(commands.root / "experiments" / "table-1", docs)

    code, output = commands.run(*words)
    assert code == 0, output
    assert "Arm" not in output
    ledger = commands.ledger
    assert [sweep.document["resources"]["cpu"] for sweep in ledger.sweeps()] == [0.5, 0.5]
    assert all(", no GPU, " in hardware for sweep in ledger.sweeps() for hardware in sweep.facts["hardware"])
    trials = [trial for sweep in ledger.sweeps() for trial in ledger.trials(sweep.id)]
    assert len(trials) == 4
    assert {trial.state for trial in trials} == {"COMPLETE"}


LIMITED = """
import sys
from orchestrator.cli import experiments
from orchestrator.cli.app import run_command

experiments.CALL_SECONDS = float(sys.argv[1])
sys.exit(run_command(sys.argv[2:]))
"""
"""The command line, whose calls with `--gpu` are given so many seconds."""

LENT = EXPERIMENT.replace("seeds: 2", "seeds: 1").replace("common:\n", "common:\n  resources: {gpu: 1}\n")
LENT = LENT.replace("steps: 40, interval: 10", "steps: 6000, interval: 200")


@pytest.mark.timeout(1200)
def test_calls_on_a_lent_device_go_on_exactly(commands: Commands, tmp_path: Path) -> None:
    """A killed call, one that ends by its time, and the rest give every number of an undisturbed call.

    The device is a processor. Calls are given more and more seconds until one begins to train.
    """
    file = commands.folder / "table-1.yaml"
    file.write_text(LENT)
    words = ("experiment", str(file), "--only", "lru", "--gpu")
    device = {"SWEEP_HOST_DEVICES": "1"}

    began = time.monotonic()
    first = commands.start(*words, **device)
    wait_for(lambda: len(_reports(commands)) >= 3, 400)
    seconds = (time.monotonic() - began) / 2
    first.kill()
    first.wait()
    killed_at = len(_reports(commands))

    while (ended_at := len(_reports(commands))) == killed_at:
        second = commands.start_python("-c", LIMITED, f"{seconds:.1f}", *words, **device)
        code, output = finish(second, 500)
        assert code == 4, output
        seconds *= 1.25
    assert killed_at < ended_at < 30

    code, output = commands.run(*words, timeout=500, **device)
    assert code == 0, output
    resumed = _reports(commands)
    ledger = commands.ledger
    assert len([attempt for sweep in ledger.sweeps() for attempt in ledger.attempts(sweep.id)]) >= 3

    alone = replace(commands, folder=tmp_path / "alone")
    alone.folder.mkdir()
    code, output = alone.run(*words, timeout=500, **device)
    assert code == 0, output
    assert list(resumed) == [200 * k for k in range(1, 31)]
    assert resumed == _reports(alone)
    assert _tested(commands) == _tested(alone)


def _reports(commands: Commands) -> dict[int, dict[str, float]]:
    """Return what is not a time in the reports of the only trial, by step; empty before it begins."""
    if not (commands.root / "sweeps.db").exists():
        return {}
    ledger = commands.ledger
    rows = [row for sweep in ledger.sweeps() for row in ledger.reports(sweep.id)]
    timed = ("seconds/", "tokens_per_second", "slots/", "memory/")
    return {
        row.step: {name: value for name, value in row.metrics.items() if not name.startswith(timed)}
        for row in rows
    }


def _tested(commands: Commands) -> dict[str, float]:
    """Return the test metrics of the only trial."""
    ledger = commands.ledger
    (row,) = [row for sweep in ledger.sweeps() for row in ledger.evaluations(sweep.id)]
    return {name: value for name, value in row.metrics.items() if name.startswith("test/")}


def _states(commands: Commands) -> set[str]:
    if not (commands.root / "sweeps.db").exists():
        return set()
    ledger = commands.ledger
    return {trial.state for sweep in ledger.sweeps() for trial in ledger.trials(sweep.id)}


def _check_pages(folder: Path, docs: Path) -> None:
    page = (folder / "page.html").read_text()
    assert page.count('data-figure="') == 1
    assert "Beside the paper" in page
    assert (docs / "table-1.md").read_text() == (folder / "page.md").read_text()
    index = (docs.parent / "results.md").read_text()
    assert "| table-1 | A paper, Table 1 | 3 | 0 | 0 | 0 | 0 | 0 | 2 | 4 |" in index
