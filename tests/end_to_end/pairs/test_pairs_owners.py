"""Two owners submit one file at once, by command line and over HTTP; a local sweep runs beside a service."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.api import user_admin
from orchestrator.client.http import HttpBackend
from orchestrator.errors import BadInput, Exit
from orchestrator.ledger.queue import submissions
from tests.end_to_end.commands import Commands, finish, wait_for
from tests.end_to_end.identities import Search
from tests.end_to_end.pairs.acts import LONG, Stage, gated, kill, service, stage

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(900)]

OWNERS = ("ada", "bob")


def owner(opened: Stage, sweep_id: str) -> str:
    entry = submissions.submission(opened.ledger, sweep_id)
    assert entry is not None
    return entry.owner


def at_once(opened: Stage, file: Path, *options: str) -> dict[str, str]:
    """Submit a file in the name of each owner at the same time; return the ids of the sweeps by owner."""
    with ThreadPoolExecutor(len(OWNERS)) as pool:
        started = {one: pool.submit(opened.submit, file, *options, SWEEP_OWNER=one) for one in OWNERS}
        return {one: submission.result() for one, submission in started.items()}


def test_two_owners_submit_one_file_at_once(commands: Commands, temporary: Path) -> None:
    """Without `--new` both have one sweep; with it each has its own, of the same script and values."""
    search = Search("function", trials=2, steps=4, seed=1, pause=0.05)
    file, gate = gated(search, commands.folder / "own", "same")
    with stage(commands, temporary) as opened, service(opened):
        gate.hold(after=2)
        [common] = set(at_once(opened, file).values())
        assert owner(opened, common) in OWNERS
        own = at_once(opened, file, "--new")
        sweeps = [common, *own.values()]
        assert len(set(sweeps)) == 3
        assert {one: owner(opened, sweep_id) for one, sweep_id in own.items()} == {one: one for one in OWNERS}
        # A plain submission follows the sweep that has begun last.
        wait_for(lambda: {*own.values()} <= {sweep.id for sweep in opened.ledger.sweeps()})
        newest = opened.ledger.sweeps()[-1].id
        assert at_once(opened, file) == dict.fromkeys(OWNERS, newest), "it is followed, and none is added"
        assert len(submissions.submissions(opened.ledger)) == len(sweeps)
        opened.until(lambda: any(opened.reports(one) >= 2 for one in own.values()), *sweeps)
        [victim, *_] = [one for one in own.values() if opened.reports(one) >= 2]
        assert any(map(kill, reversed(opened.processes_of(victim))))
        gate.release()
        opened.until_left(*sweeps)
        opened.require(*sweeps, trials=2)
        causes = {one: {row.cause for row in opened.ledger.attempts(one) if row.cause} for one in sweeps}
        assert causes.pop(victim) == {"worker lost"}
        assert not any(causes.values()), causes


def test_two_users_submit_one_file_at_once_over_http(commands: Commands, temporary: Path) -> None:
    """One of them gets the sweep; the other one is refused, and submits it as a new one."""
    file = Search("network", trials=2, steps=40, interval=10).write(commands.folder / "own", "same")
    commands.root.mkdir()
    tokens = {one: user_admin.add(one, root=commands.root)[1] for one in OWNERS}
    with (
        stage(commands, temporary) as opened,
        service(opened, "--http", "0") as printed,
        ThreadPoolExecutor(len(OWNERS)) as pool,
    ):
        address = printed.split()[5].removesuffix("/api/v1;")
        services = {one: HttpBackend(address, tokens[one]) for one in OWNERS}
        started = {one: pool.submit(services[one].submit, file, profile=None) for one in OWNERS}
        own = {one: answer.result().id for one, answer in started.items() if answer.exception() is None}
        assert len(own) == 1, [answer.exception() for answer in started.values()]
        [(first, common)] = own.items()
        [second] = set(OWNERS) - {first}
        with pytest.raises(BadInput, match=f"belongs to {first}"):
            started[second].result()
        own[second] = services[second].submit(file, profile=None, new=True).id
        with pytest.raises(BadInput, match="owner of the sweep or an admin"):
            services[second].stop(common)
        opened.until_left(*own.values())
        assert {one: owner(opened, sweep_id) for one, sweep_id in own.items()} == {one: one for one in own}
        opened.require(*own.values(), trials=2, calm=True)
        assert services[second].status(common).state == "COMPLETE", "every user may read every sweep"


def test_a_local_sweep_runs_beside_a_service(commands: Commands, temporary: Path) -> None:
    """Its driver is killed, and then the command repeated; what the service drives is not disturbed."""
    own = commands.folder / "own"
    served_file, served_gate = gated(Search("function", 2, 4, seed=1, pause=0.05), own, "served")
    local_file, local_gate = gated(Search("command", 2, 4, seed=2, pause=0.05), own, "local")
    with stage(commands, temporary) as opened, service(opened):
        served_gate.hold(after=2)
        local_gate.hold(after=2)
        served = opened.submit(served_file)
        opened.until_reports(2, served)
        driver = commands.start(str(local_file), "--here", **opened.environment)

        def local() -> str | None:
            return next((sweep.id for sweep in opened.ledger.sweeps() if sweep.id != served), None)

        opened.until(lambda: (found := local()) is not None and opened.reports(found) >= 2, served)
        code, printed = commands.run(str(served_file), "--here", **opened.environment)
        assert code == Exit.BUSY, printed
        driver.kill()
        finish(driver, LONG)
        local_gate.release()
        opened.run(str(local_file), "--here")
        served_gate.release()
        opened.until_left(served)
        ours = local()
        assert ours is not None
        assert submissions.submission(opened.ledger, ours) is None
        opened.require(served, ours, trials=2)
        assert [row.cause for row in opened.ledger.attempts(served)] == [None] * 2
        assert "interrupted" not in {row.cause for row in opened.ledger.attempts(served)}
