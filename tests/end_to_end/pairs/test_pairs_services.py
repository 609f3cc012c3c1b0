"""Services that follow one another on one root, and trainables of all kinds in one service."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.end_to_end.commands import Commands
from tests.end_to_end.identities import KINDS, Search
from tests.end_to_end.pairs.scenes import held, leave, scene

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(1800)]

TWO = "{cpu: 0.25, concurrent: 2}"
"""Two trials at a time, beside those of another sweep: what waits for a test gives no place up."""


def test_two_services_one_after_the_other_and_warm_workers(commands: Commands, temporary: Path) -> None:
    """The first one is killed beside two sweeps, and a driver with it; the second one goes on with all."""
    own = commands.folder / "own"
    first = Search("function", trials=3, steps=2, seed=0).write(own, "first")
    kept = Search("function", trials=6, steps=8, seed=1, resources=TWO, pause=0.2).write(own, "kept")
    lost = Search("command", trials=6, steps=8, seed=2, resources=TWO, pause=0.2).write(own, "lost")
    last = Search("function", trials=4, steps=4, seed=3).write(own, "last")
    goes = [held(own / f"of_{file.stem}.py", step=4) for file in (kept, lost)]
    with scene(commands, temporary) as this:
        service = this.serve()
        [of_first] = this.submit(first)
        this.wait_until_delivered(of_first)
        warm = {*this.workers(of_first).values()}
        assert all(map(psutil.pid_exists, warm)), "the workers of a sweep that has ended are kept"
        of_kept, of_lost = this.submit(kept, lost)
        for sweep in (of_kept, of_lost):
            this.wait_for_reports(sweep, 3)
        this.kill(service)
        this.kill_driver(of_lost)
        service = this.serve()
        [of_last] = this.submit(last)
        for go in goes:
            go.touch()
        this.wait_until_delivered(of_kept, of_lost, of_last)
        assert [this.starts(one) for one in (of_first, of_kept, of_lost, of_last)] == [1, 1, 2, 1]
        found = this.require(of_first, of_kept, of_lost, of_last)
        assert {one.state for some in found for one in some.trials} == {"COMPLETE"}
        assert this.causes(of_lost) >= {"driver lost"}
        used = [pid for some in (of_first, of_kept, of_lost, of_last) for pid in this.workers(some).values()]
        assert len({*used}) < len(used), "some worker must have served several attempts"
        leave(service)


def test_functions_commands_programs_and_networks_in_one_service(commands: Commands, temporary: Path) -> None:
    """Functions and commands wait in the middle until programs and networks have reported, too."""
    own = commands.folder / "own"
    files = [
        Search(
            kind,
            trials=3,
            steps=60,
            interval=10,
            seed=seed,
            resources="{cpu: 0.125, concurrent: 2}",
            pause=0.03,
        ).write(own, kind)
        for seed, kind in enumerate(KINDS)
    ]
    goes = [held(own / f"of_{kind}.py", step=11) for kind in ("function", "command")]
    with scene(commands, temporary) as this:
        service = this.serve()
        sweeps = this.submit(*files)
        for sweep in sweeps:
            this.wait_for_reports(sweep, 1)
        for go in goes:
            go.touch()
        this.wait_until_delivered(*sweeps)
        found = this.require(*sweeps)
        assert [len(one.trials) for one in found] == [3] * len(KINDS)
        assert {trial.state for one in found for trial in one.trials} == {"COMPLETE"}
        for sweep in sweeps:
            assert this.causes(sweep) <= {"shared"}
        leave(service)
