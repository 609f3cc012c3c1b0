"""The root is kept in order while sweeps run: `gc --delete`, `check`, and MLflow's database is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.api import maintenance
from orchestrator.errors import Exit
from orchestrator.ledger.sweeps.lease import holder
from tests.end_to_end.commands import Commands
from tests.end_to_end.identities import Search
from tests.end_to_end.pairs.acts import LONG, Stage, gated, kill, service, stage

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(900)]

KINDS = [("function", "first", 1), ("command", "second", 2)]


def test_garbage_is_collected_and_all_is_checked_while_sweeps_run(
    commands: Commands, temporary: Path
) -> None:
    """Workers and a driver are killed meanwhile. Nothing needed is deleted, and no check finds fault."""
    trials, steps = 3, 8
    with stage(commands, temporary) as opened, service(opened):
        folder = commands.folder / "own"
        sweeps = [
            opened.submit(Search(kind, trials, steps, seed=seed, pause=0.2).write(folder, name))
            for kind, name, seed in KINDS
        ]
        opened.until_reports(1, *sweeps)
        beside = [commands.start(verb, *more, **opened.environment) for verb, *more in VERBS]
        rounds, orphaned, since = 0, "", 0
        acts = [4, 8, 12]
        while not all(opened.has_left(one) for one in sweeps):
            collected = maintenance.collect_garbage(delete=True, root=commands.root)
            assert not collected.unknown
            # Until the service has started another driver, `check` says that there is none.
            is_driven = not orphaned or opened.reports(orphaned) > since
            found = [
                one
                for one in maintenance.check(root=commands.root).findings
                if is_driven
                or not (one.where.startswith(orphaned) and "but no driver runs it" in one.problem)
            ]
            assert not found, (rounds, found)
            if acts and min(map(opened.reports, sweeps)) >= acts[0]:
                if acts.pop(0) == 8:
                    orphaned, since = sweeps[1], opened.reports(sweeps[1])
                    kill_driver(opened, orphaned)
                else:
                    assert any(map(kill, reversed(opened.processes_of(sweeps[0]))))
            rounds += 1
            for process in beside:
                assert process.poll() in {None, 0}, process.communicate()
            opened.until(lambda: True, *sweeps)
        assert not acts
        assert rounds > 5
        opened.until_left(*sweeps)
        opened.run("gc", "--delete")
        opened.require(*sweeps, trials=trials)
        kept = maintenance.collect_garbage(root=commands.root)
        assert (list(kept.garbage), list(kept.busy)) == ([], [])


VERBS = [("gc", "--delete"), ("check",)]


def kill_driver(opened: Stage, sweep_id: str) -> None:
    driver = holder(opened.ledger, sweep_id)
    assert driver is not None
    assert kill(driver.pid)


def test_mlflow_loses_its_database_while_two_sweeps_run(commands: Commands, temporary: Path) -> None:
    """The sweeps complete; `check` says what to do; after that MLflow has every point again."""
    trials = 2
    with stage(commands, temporary) as opened, service(opened):
        folder = commands.folder / "own"
        written = [
            gated(Search(kind, trials, 4, seed=seed, pause=0.05), folder, name) for kind, name, seed in KINDS
        ]
        for _, gate in written:
            gate.hold(after=2)
        sweeps = [opened.submit(file, SWEEP_TRACKING_PATIENCE="5") for file, _ in written]
        opened.until_reports(2, *sweeps)
        opened.until(lambda: not any(map(opened.ledger.backlog, sweeps)), *sweeps)
        database = commands.root / "mlflow.db"
        for path in commands.root.glob("mlflow.db*"):
            path.unlink()
        for _, gate in written:
            gate.release()
        opened.until(lambda: all(opened.has_left(one) for one in sweeps), *sweeps)
        states = {one: opened.ledger.sweep(one) for one in sweeps}
        assert all(sweep is not None and sweep.state == "COMPLETE" for sweep in states.values()), states
        code, printed = commands.run("check", **opened.environment)
        assert (code, "`mlflow rebuild`" in printed) in {(1, True), (0, False)}, printed
        assert code == 1 or any(map(opened.ledger.backlog, sweeps)), "what is lost must be told"
        until_recovered(opened)
        assert database.exists()
        opened.until_left(*sweeps)
        opened.require(*sweeps, trials=trials, calm=True)


def until_recovered(opened: Stage) -> None:
    """Deliver everything again; the service may hold a sweep for a while, to deliver what it has left."""

    def recovered() -> bool:
        code, printed = opened.commands.run("mlflow", "rebuild", timeout=LONG, **opened.environment)
        assert code in {Exit.COMPLETE, Exit.BUSY}, printed
        return code == Exit.COMPLETE

    opened.until(recovered)
