"""Warm workers are killed, or change hands between two sweeps that are stopped in turn."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.errors import Exit
from tests.end_to_end.commands import Commands, finish
from tests.end_to_end.identities import Search
from tests.end_to_end.pairs.acts import LONG, Stage, gated, kill, service, stage

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(900)]

KINDS = [("function", "first", 1), ("command", "second", 2)]


def test_warm_workers_are_killed_between_short_trials_of_two_sweeps(
    commands: Commands, temporary: Path
) -> None:
    """A worker serves one short trial after the other, by `reset`; any may be killed at any report."""
    trials, steps, kills = 8, 2, 5
    with stage(commands, temporary) as opened, service(opened):
        folder = commands.folder / "own"
        files = [
            Search(kind, trials, steps, seed=seed, pause=0.05).write(folder, name)
            for kind, name, seed in KINDS
        ]
        sweeps = [opened.submit(file) for file in files]
        every = 2 * trials * steps // (kills + 1)
        killed: list[int] = []
        for number in range(1, kills + 1):
            opened.until(lambda count=number * every: sum(map(opened.reports, sweeps)) >= count, *sweeps)
            workers = sorted(one.pid for one in opened.warm_workers())
            if workers and kill(workers[number % len(workers)]):
                killed.append(workers[number % len(workers)])
        opened.until_left(*sweeps)
        opened.require(*sweeps, trials=trials)
        assert len(killed) >= kills - 1, "there must be warm workers to kill"
        lost = [one for sweep_id in sweeps for one in opened.ledger.attempts(sweep_id) if one.cause]
        assert {one.cause for one in lost} == {"worker lost"}, lost
        served = [pid for sweep_id in sweeps for pid in opened.processes_of(sweep_id)]
        assert len(served) > len(set(served)), "a worker must have served several attempts"


def test_workers_change_hands_between_two_sweeps_that_are_stopped_in_turn(
    commands: Commands, temporary: Path
) -> None:
    """The one that goes on borrows the workers that the other one gives back while it is being stopped."""
    trials, steps, turns = 2, 12, 4
    with stage(commands, temporary) as opened, service(opened):
        written = [
            gated(
                Search(kind, trials, steps, seed=seed, pause=0.05, resources="{cpu: 1}"),
                commands.folder / "own",
                name,
            )
            for kind, name, seed in KINDS
        ]
        for _, gate in written:
            gate.hold(after=2)
        sweeps, followers = [opened.submit(written[0][0])], list[subprocess.Popen[str]]()
        opened.until_reports(2 * trials, *sweeps)
        sweeps.append(opened.submit(written[1][0]))
        for turn in range(turns):
            here, there = sweeps[turn % 2], sweeps[1 - turn % 2]
            stopping = commands.start("stop", here, **opened.environment)
            if turn:
                written[1 - turn % 2][1].hold(after=last_step(opened, there) + 2)
                followers.append(commands.start("resume", there, **opened.environment))
            opened.until_more(2 * trials, there)
            code, printed = finish(stopping, LONG)
            assert code == Exit.COMPLETE, printed
            opened.until_left(here)
            assert opened.state(here) == "INTERRUPTED"
        for _, gate in written:
            gate.release()
        followers.append(commands.start("resume", sweeps[1 - turns % 2], **opened.environment))
        opened.until_left(*sweeps)
        for follower in followers:
            finish(follower, LONG)
        opened.require(*sweeps, trials=trials)
        for sweep_id in sweeps:
            causes = [row.cause for row in opened.ledger.attempts(sweep_id) if row.cause]
            assert set(causes) == {"interrupted"}, causes
            assert len(causes) == trials * turns // 2
        first, second = (set(opened.processes_of(one)) for one in sweeps)
        assert first & second, "a worker must have served both sweeps"


def last_step(opened: Stage, sweep_id: str) -> int:
    """Return the last step that all trials of a sweep have reported."""
    steps: dict[str, int] = {}
    for report in opened.ledger.reports(sweep_id):
        steps[report.trial_key] = max(report.step, steps.get(report.trial_key, 0))
    return min(steps.values())
