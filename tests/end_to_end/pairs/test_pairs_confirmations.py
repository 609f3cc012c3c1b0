"""Confirmations of scripts in two sweeps of one service: each keeps its own seed, value and checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config.resolve import load
from tests.end_to_end.commands import Commands
from tests.end_to_end.identities import Search
from tests.end_to_end.pairs.acts import Gate, Stage, gated, kill, newest_attempt, service, stage

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(900)]

SEEDS, TRIALS = 2, 2


def confirming(folder: Path, kind: str, name: str, seed: int) -> tuple[Path, Gate]:
    """Write a search whose first confirmation is held after its second report."""
    search = Search(kind, TRIALS, steps=4, seed=seed, pause=0.05, further=f"confirm: {{seeds: {SEEDS}}}")
    file, gate = gated(search, folder, name)
    gate.hold(after=2, seed=load(file, profile=None, gpus=0).confirmation_seed(0))
    return file, gate


def test_confirmations_in_two_sweeps_that_lose_their_workers(commands: Commands, temporary: Path) -> None:
    with stage(commands, temporary) as opened, service(opened):
        written = [
            confirming(commands.folder / "own", kind, name, seed)
            for kind, name, seed in [("function", "first", 1), ("command", "second", 2)]
        ]
        sweeps = [opened.submit(file) for file, _ in written]
        opened.until(lambda: all(held(opened, one) for one in sweeps), *sweeps)
        for sweep_id, (_, gate) in zip(sweeps, written, strict=True):
            pid = opened.processes_of(sweep_id, f"{sweep_id}-c0")[-1]
            assert kill(pid)
            gate.release()
        opened.until_left(*sweeps)
        opened.require(*sweeps, trials=TRIALS)
        for sweep_id in sweeps:
            check_confirmations(opened, sweep_id)


def held(opened: Stage, sweep_id: str) -> bool:
    """Return True once the first confirmation has made the reports before it is held."""
    return len(opened.ledger.trial_reports(f"{sweep_id}-c0")) == 2


def check_confirmations(opened: Stage, sweep_id: str) -> None:
    """Check what the confirmations of a sweep have run: the best values, and seeds of their own."""
    search = opened.ledger.trials(sweep_id, "search")
    confirmations = opened.ledger.trials(sweep_id, "confirmation")
    best = min(search, key=lambda trial: trial.value or 0.0)
    assert [one.state for one in confirmations] == ["COMPLETE"] * SEEDS
    assert [one.params for one in confirmations] == [best.params] * SEEDS
    assert len({one.seed for one in confirmations} - {one.seed for one in search}) == SEEDS
    assert [newest_attempt(opened, one) for one in confirmations] == [2, 1]
    seeds = {trial.key: trial.seed for trial in [*search, *confirmations]}
    for report in opened.ledger.reports(sweep_id):
        own = seeds[report.trial_key]
        resumed = newest_attempt_of(report.attempt_id) > 1
        found = report.metrics["seed"], report.metrics["held_seed"]
        assert found == (own, own if resumed else -1.0), report


def newest_attempt_of(attempt_id: str) -> int:
    return int(attempt_id.rpartition(".")[2])
