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
