"""A search-space file names the targets of its notifications; their addresses reach no file of the sweep."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.commands import Commands

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPT = """
import sys, time
import sweep_client
trial = sweep_client.trial()
time.sleep(1)
trial.report(1, {"val/loss": trial.params["rate"]})
"""
FILE = """
trainable: {command: [PYTHON, train.py]}
search: {rate: {uniform: [0.1, 0.5]}}
training: {steps: 1, interval: 1}
objective: {minimize: val/loss}
sampler: {random: {seed: 1}}
scheduler: none
budget: {trials: 2}
notify: {team: [best, ended], own: all}
"""


def heard(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().replace("}{", "}\n{").splitlines()]


def test_a_driver_without_a_service_tells_the_targets_that_its_file_names(commands: Commands) -> None:
    folder = commands.folder / "own"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    file = folder / "rates.yaml"
    file.write_text(FILE.replace("PYTHON", sys.executable))
    code, printed = commands.run(str(file))
    assert (code, "`sweep notify URL --name team`" in printed) == (2, True), printed
    team, own = commands.folder / "canary-team", commands.folder / "canary-own"
    code, printed = commands.run("notify", f"tee -a {team}", "--name", "team")
    assert (code, "whose file names team" in printed) == (0, True), printed
    code, printed = commands.run(str(file), SWEEP_NOTIFY_OWN=f"tee -a {own}")
    assert code == 0, printed
    [sweep] = commands.ledger.sweeps()
    for messages in (heard(team), heard(own)):
        assert {message["sweep"] for message in messages} == {sweep.id}
        assert messages[-1] == {"event": "ended", "sweep": sweep.id, "exit": 0, "result": "complete"}
        best = min(commands.ledger.trials(sweep.id), key=lambda trial: trial.value or 1.0)
        told = [message for message in messages if message["event"] == "best"]
        assert (told[-1]["trial"], told[-1]["value"]) == (best.key, best.value)
        assert len(messages) == len(told) + 1
    assert sweep.document["notify"] == {"team": ["best", "ended"], "own": "all"}
    assert "canary" not in printed
    files = [path for path in commands.root.rglob("*") if path.is_file()]
    holders = {path.name for path in files if b"canary" in path.read_bytes()}
    assert holders == {"notices.json"}
