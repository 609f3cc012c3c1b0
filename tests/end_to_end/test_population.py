"""Population based training under real Ray: an exploit is a new attempt from another trial's checkpoint."""

from __future__ import annotations

import pytest

from tests.end_to_end.commands import SMALL, Commands

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

RATES = "search={learning_rate: {choice: [1e-7, 1e-2]}}"
PBT = "scheduler={pbt: {mutations: [learning_rate], period: 0.25, quantile: 0.5}}"


def test_worse_trials_copy_better_ones(commands: Commands) -> None:
    overrides = [RATES, PBT, "sampler=null", "published=null", "budget.trials=4", "confirm=null"]
    overrides.append("training.recurrent_learning_rate=1e-3")
    options = [part for override in overrides for part in ("--set", override)]
    code, output = commands.run(*SMALL, "--profile", "laptop", *options)
    assert code == 0, output
    (sweep,) = commands.ledger.sweeps()
    trials = commands.ledger.trials(sweep.id)
    assert [trial.state for trial in trials] == ["COMPLETE"] * 4
    copies = [trial for trial in trials if trial.system_attrs.get("segments")]
    assert copies, "no trial has copied another one's checkpoint"
    for trial in copies:
        attempts = commands.ledger.trial_attempts(trial.key)
        assert len(attempts) == 1 + len(trial.system_attrs["segments"])
        assert trial.system_attrs["segments"][-1]["params"] == trial.params
    code, output = commands.run("check", sweep.id)
    assert code == 0, output


FUNCTION = """
import json, time

def train(trial):
    saved = trial.resume / "sum.json" if trial.resume else None
    total = json.loads(saved.read_text()) if saved else 0.0
    for step in range(trial.start + 1, trial.steps + 1):
        total += trial.params["rate"]
        time.sleep(0.5)  # only a trial that goes on beside this one can be copied
        (trial.folder / "sum.json").write_text(json.dumps(total))
        if not trial.report(step, {"val/sum": total}, checkpoint=trial.folder):
            return
"""
FILE = """
trainable: {function: train.py:train, mutable: [rate]}
search: {rate: {uniform: [0.1, 1]}}
training: {steps: 16, interval: 1}
objective: {maximize: val/sum}
scheduler: {pbt: {mutations: [rate], period: 0.25, quantile: 0.5}}
budget: {trials: 4}
"""


def test_a_function_goes_on_from_another_trial_with_other_values(commands: Commands) -> None:
    """The first value after a copy is that of the donor and one step at the new rate."""
    (commands.folder / "train.py").write_text(FUNCTION)
    file = commands.folder / "sums.yaml"
    file.write_text(FILE)
    code, output = commands.run(str(file))
    assert code == 0, output
    (sweep,) = commands.ledger.sweeps()
    trials = commands.ledger.trials(sweep.id)
    sums = {(one.trial_key, one.step): one.metrics["val/sum"] for one in commands.ledger.reports(sweep.id)}
    copied = [
        (trial.key, segment) for trial in trials for segment in trial.system_attrs.get("segments", [])[-1:]
    ]
    assert copied, "no trial has copied another one's checkpoint"
    for key, segment in copied:
        before = sums[segment["donor"], segment["step"]]
        assert sums[key, segment["step"] + 1] == pytest.approx(before + segment["params"]["rate"])
    code, output = commands.run("check", sweep.id)
    assert code == 0, output
