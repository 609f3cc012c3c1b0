"""Trials share a device: one engine under real Ray, with a processor of this machine in place of a GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import TrialRecord
from tests.end_to_end.commands import SMALL, Commands, finish, wait_for

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

DEVICE = {"SWEEP_HOST_DEVICES": "1"}
SHARED = [*SMALL, "--profile", "laptop", "--set", "sampler={random: {seed: 1}}"]
EIGHT = [*SHARED, "--set", "resources={gpu: 1/8, cpu: 0.1}", "--set", "budget.trials=11"]
EIGHT += ["--set", "scheduler={asha: {reduction: 2, grace: 0.25}}"]
ENDLESS = [*SHARED, "--set", "resources={gpu: 1/4, cpu: 0.1}", "--set", "scheduler={none: {}}"]
ENDLESS += ["--set", "training.steps=100_000", "--set", "budget.trials=4"]


def engines(commands: Commands) -> list:
    """Return the processes that run an engine."""
    return commands.titled("ray::Engine")


def test_trials_in_slots_equal_the_same_trials_alone(commands: Commands) -> None:
    """One engine of eight slots trains eleven trials; each has the curve of the same trial trained alone."""
    driver = commands.start(*EIGHT, **DEVICE)
    seen: set[int] = set()
    wait_for(
        lambda: seen.update(engine.pid for engine in engines(commands)) or driver.poll() is not None, 600
    )
    code, output = finish(driver)
    assert code == 0, output
    assert len(seen) == 1, "a device has one engine"
    ledger = commands.ledger
    (record,) = ledger.sweeps()
    trials = ledger.trials(record.id)
    assert {trial.state for trial in trials} == {"COMPLETE", "PRUNED"}
    assert len(trials) == 11
    for trial in trials[:8:3]:
        _assert_alone(commands, trial)
    busy = [report.metrics["slots/busy"] for report in ledger.reports(record.id)]
    assert all(0 <= share <= 1 for share in busy)
    assert max(busy) > 0.5


def _assert_alone(commands: Commands, trial: TrialRecord) -> None:
    """Export a trial and train it alone: every recorded value must be reproduced to the last digit."""
    folder = commands.folder / trial.key
    code, output = commands.run("export", trial.key, "--to", str(folder), **DEVICE)
    assert code == 0, output
    done = subprocess.run(
        [str(folder / "run.sh"), "--data", str(commands.shared / "data")],
        env={
            **os.environ,
            "PYTHON": sys.executable,
            "JAX_COMPILATION_CACHE_DIR": os.environ["JAX_COMPILATION_CACHE_DIR"],
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_killed_engine_costs_each_of_its_trials_one_attempt(commands: Commands) -> None:
    """Every trial resumes from its checkpoint in another engine; a death of their worker costs the same."""
    driver = commands.start(*ENDLESS, **DEVICE)
    wait_for(lambda: (commands.root / "sweeps.db").exists())
    ledger = commands.ledger
    wait_for(lambda: len(_reported(ledger, attempt=1)) == 4)
    (engine,) = engines(commands)
    engine.kill()
    wait_for(lambda: len(_reported(ledger, attempt=2)) == 4)
    (worker,) = commands.titled("ray::SharedWorker")
    worker.kill()
    wait_for(lambda: len(_reported(ledger, attempt=3)) == 4)
    (sweep,) = ledger.sweeps()
    code, output = commands.run("stop", sweep.id)
    assert code == 0, output
    code, output = finish(driver, timeout=60)
    assert code == 4, output
    causes = [attempt.cause for attempt in ledger.attempts(sweep.id) if attempt.cause != "interrupted"]
    assert sorted(cause or "" for cause in causes) == [*["engine lost"] * 4, *["slot lost"] * 4]
    for trial in ledger.trials(sweep.id):
        curve = [report.step for report in ledger.trial_reports(trial.key)]
        assert curve == list(range(10, 10 * len(curve) + 1, 10))


def _reported(ledger: Ledger, attempt: int) -> set[str]:
    """Return the trials whose attempt of this number has reported."""
    reports = [report for sweep in ledger.sweeps() for report in ledger.reports(sweep.id)]
    return {report.trial_key for report in reports if report.attempt_id.endswith(f".{attempt}")}
