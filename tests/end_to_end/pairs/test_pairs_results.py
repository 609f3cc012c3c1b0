"""The best checkpoint is exported and evaluated while its trial trains on and replaces it again and again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from orchestrator.api.local_trial import Trial
from orchestrator.ledger.sweeps.records import TrialRecord
from tests.end_to_end import identities
from tests.end_to_end.commands import Commands
from tests.end_to_end.identities import Search
from tests.end_to_end.pairs.acts import Stage, service, stage

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(900)]

ENDLESS = 1_000_000


def test_the_best_is_exported_and_evaluated_while_it_trains(commands: Commands, temporary: Path) -> None:
    """A function and a program get better with every report: no best checkpoint stays for long."""
    with stage(commands, temporary) as opened, service(opened):
        folder = commands.folder / "own"
        first = Search("function", 1, ENDLESS, seed=1, pause=0.02).write(folder, "first")
        second = Search("program", 1, ENDLESS, interval=20, seed=2).write(folder, "second")
        second.write_text(second.read_text().replace("minimize: val/loss", "maximize: val/echo_step"))
        script, program = opened.submit(first), opened.submit(second)
        opened.until_reports(5, script, program)
        exported = check_exports(opened, script, rounds=25)
        assert len(set(exported)) > 5, "the best one must have changed"
        check_program(opened, program)
        for sweep_id in (script, program):
            opened.run("stop", sweep_id)
        opened.until_left(script, program)
        evidence = opened.evidence(script, program)
        identities.require(*evidence, finished=False)
        opened.run("check")


def check_exports(opened: Stage, sweep_id: str, rounds: int) -> list[int]:
    """Export the best files of a script again and again; return the steps from which they are."""
    steps = []
    [trial] = opened.ledger.trials(sweep_id, "search")
    for number in range(rounds):
        target = opened.commands.folder / f"exported-{number}"
        if number % 8:
            Trial.find(trial.key, root=opened.commands.root).export(target)
        else:
            opened.run("export", trial.key, "--to", str(target))
        facts = json.loads((target / "trial.json").read_text())
        held = json.loads((target / "checkpoint" / "held.json").read_text())
        assert facts["params"] == dict(trial.params)
        assert held == facts["step"] + trial.params["x"]
        assert facts["metrics"]["echo_step"] == facts["step"]
        steps.append(facts["step"])
    assert steps == sorted(steps)
    return steps


def check_program(opened: Stage, sweep_id: str) -> None:
    """Evaluate and export the best state of a program that trains; both must be of one step of its trial."""
    [trial] = opened.ledger.trials(sweep_id, "search")
    before = opened.reports(sweep_id)
    printed = opened.run("evaluate", trial.key, "--json")
    answer = json.loads(printed)
    target = opened.commands.folder / "exported-program"
    opened.run("export", trial.key, "--to", str(target))
    assert opened.reports(sweep_id) > before, "it must train meanwhile"
    check_arrays(trial, np.load(target / "checkpoint.npz"))
    assert answer["metrics"]["echo_step"] == answer["step"]
    assert answer["metrics"]["loss"] == pytest.approx(trial.params["x"], rel=1e-6)


def check_arrays(trial: TrialRecord, arrays: dict[str, np.ndarray]) -> None:
    """Check that a saved state is that of a trial."""
    named = {name.rpartition("/")[2]: array for name, array in arrays.items()}
    x = np.float32(trial.params["x"])
    assert named["least"] == x
    assert named["most"] == x
