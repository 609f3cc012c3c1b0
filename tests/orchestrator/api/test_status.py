"""The state of sweeps, read from their ledger alone."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest

from orchestrator import BadInput, Sweep, status, sweeps
from orchestrator.api.live import live
from orchestrator.api.status import settled_version
from orchestrator.cli.app import run_command
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.people.notes import NoteChange, change_note
from orchestrator.ledger.people.shelf import shelve
from orchestrator.ledger.queue.queue_settings import change_settings
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.sweeps.records import CheckpointRecord, SweepState
from orchestrator.report import words
from orchestrator.storage.paths import Paths
from tests import sweeps as examples
from tests.orchestrator.ledger.examples import create_sweep


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Return a root with a sweep whose state is RUNNING."""
    return examples.filled(tmp_path / "mlruns")


def test_a_sweep_whose_driver_died_is_interrupted(paths: Paths) -> None:
    (row,) = sweeps(root=paths.root)
    assert (row.state, row.reason, row.driver) == ("INTERRUPTED", "its driver is gone", None)
    with Lease(Ledger.open(paths.ledger_url), row.id):
        driven = status(root=paths.root)
    assert driven.state == "RUNNING"
    assert driven.driver is not None


def test_the_details_are_those_of_the_trials(paths: Paths) -> None:
    now = status("retrieval", root=paths.root)
    records = examples.trials()
    assert now.metric == "val/accuracy"
    assert sum(now.progress.states.values()) == len(records)
    assert now.progress.best_key == f"{examples.SWEEP_ID}-7"
    assert sum(now.failures.values()) == len([row for row in records if row.state == "FAILED"])
    [listed] = sweeps(root=paths.root)
    assert {**asdict(now), **asdict(listed)} == asdict(now)


def test_the_command_that_confirms_the_best_trial_gives_a_sweep_of_its_settings(tmp_path: Path) -> None:
    """`confirm` is part of a sweep's identity, so that a finished sweep is confirmed by another one."""
    params = {
        **{"gamma_init.min": 0.5, "gamma_init.max": 0.99, "theta_init.max": 1.0},
        **{"learning_rate": 0.001, "recurrent_learning_rate": 0.0001},
    }
    root = examples.filled(tmp_path / "mlruns", [examples.trial(0, params=params)]).root
    again = status(root=root).again
    assert again is not None
    command = shlex.split(again.confirm or "")
    assert shlex.join(command[:7]) == again.run == words.run_again("retrieval", "laptop")
    changes = [change for option, change in pairwise(command) if option == "--set"]
    file = Path(__file__).parents[3] / "search_spaces" / "retrieval.yaml"
    found = Sweep.load(file, profile="laptop", overrides=changes, root=root).specification
    assert (found.budget.trials, found.confirm.seeds) == (1, 3)
    assert found.document()["try"] == [params]


@pytest.mark.parametrize("state", ["WAITING", "PAUSED"])
def test_the_progress_says_why_nothing_is_launched(
    paths: Paths, state: SweepState, capsys: pytest.CaptureFixture[str]
) -> None:
    """The terminal shows the reason once."""
    with closing(Ledger.open(paths.ledger_url)) as ledger, Lease(ledger, examples.SWEEP_ID) as lease:
        lease.writer.set_sweep_state(state, "a disk is full")
        progress = status(root=paths.root).progress
        assert run_command(["status", "--root", str(paths.root)]) == 0
    assert (progress.state, progress.reason) == (state, "a disk is full")
    lines = [line for line in capsys.readouterr().out.splitlines() if "a disk is full" in line]
    assert lines == [f"{examples.SWEEP_ID}: {state} (a disk is full)"]


@pytest.mark.parametrize(("sampler", "wanted"), [("grid", 6), ("random", 6)])
def test_a_space_that_is_smaller_than_the_budget_decides_the_number_of_trials(
    tmp_path: Path, sampler: str, wanted: int
) -> None:
    """Every setting is tried once."""
    search = {"learning_rate": {"choice": [1e-3, 1e-2]}, "heads": {"int": [2, 6], "step": 2}}
    document = {"sampler": {sampler: {"seed": 0}}, "search": search, "budget": {"trials": 64}}
    record = examples.sweep_record(state="RUNNING", finished_at=None)
    with closing(Ledger.open(Paths(tmp_path).ledger_url)) as ledger:
        create_sweep(ledger, replace(record, document={**record.document, **document}))
    assert status(root=tmp_path).progress.wanted == wanted


@pytest.mark.parametrize("name", ["nothing", "retrieval-full"])
def test_a_name_that_matches_no_sweep_is_refused(paths: Paths, name: str) -> None:
    with pytest.raises(BadInput, match="must be the ID of one sweep"):
        status(name, root=paths.root)


def test_an_empty_ledger_has_no_newest_sweep(tmp_path: Path) -> None:
    Ledger.open(Paths(tmp_path).ledger_url).close()
    assert sweeps(root=tmp_path) == []
    with pytest.raises(BadInput, match="has no sweeps"):
        status(root=tmp_path)


def test_the_best_so_far_is_that_of_a_running_trial_too(paths: Paths) -> None:
    """Before any trial is complete, and where a running one has a better value than all that are."""
    with closing(Ledger.open(paths.ledger_url)) as ledger, Lease(ledger, examples.SWEEP_ID) as lease:
        running = examples.trial(8, "RUNNING", step=120, value=None, best_step=None)
        examples.start_trial(lease.writer, running, paths.checkpoints(examples.SWEEP_ID))
        row = CheckpointRecord(running.key, 120, "best", "/step", "ab", 1, {"val/accuracy": 0.99})
        lease.writer.record_report(f"{running.key}.1", 130, {"val/accuracy": 0.99}, [row])
        progress = status(root=paths.root).progress
        assert (progress.best_key, progress.best_value) == (running.key, 0.99)
        assert progress.states["RUNNING"] == 1
    assert status(root=paths.root).progress.states.get("RUNNING") is None, "its driver is gone"


@pytest.mark.parametrize(("state", "running"), [("RUNNING", 1), ("PAUSED", 1), ("WAITING", None)])
def test_a_sweep_that_waits_runs_no_trial(paths: Paths, state: SweepState, running: int | None) -> None:
    """Its launched attempts have found no worker yet."""
    with closing(Ledger.open(paths.ledger_url)) as ledger, Lease(ledger, examples.SWEEP_ID) as lease:
        lease.writer.add_trial(examples.trial(8, "WAITING", step=0, value=None, best_step=None, attempts=0))
        lease.writer.start_attempt(f"{examples.SWEEP_ID}-8")
        lease.writer.set_sweep_state(state, None if state == "RUNNING" else "no node")
        now = status(root=paths.root)
        assert now.trials.get("RUNNING") == now.progress.states.get("RUNNING") == running
        assert live(root=paths.root).status.trials.get("RUNNING") == running


def test_a_sweep_that_has_failed_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = Paths(tmp_path / "mlruns")
    paths.create()
    failed = [examples.trial(number, "FAILED", attempts=0) for number in range(3)]
    with closing(Ledger.open(paths.ledger_url)) as ledger:
        create_sweep(ledger, examples.sweep_record(state="RUNNING", finished_at=None))
        for record in failed:
            examples.writer_of(ledger).add_trial(record)
        examples.writer_of(ledger).set_sweep_state("FAILED")
    (row,) = sweeps(root=paths.root)
    assert row.reason == f"3 of 3 trials failed: {failed[0].cause}"
    for verb in ("list", "status"):
        assert run_command([verb, "--root", str(paths.root)]) == 0
        assert row.reason in capsys.readouterr().out


def test_the_budget_counts_what_runs_now(paths: Paths) -> None:
    with closing(Ledger.open(paths.ledger_url)) as ledger, Lease(ledger, examples.SWEEP_ID) as lease:
        before = live(root=paths.root).budget
        running = examples.trial(8, "RUNNING", step=120, value=None, best_step=None)
        examples.start_trial(lease.writer, running, paths.checkpoints(examples.SWEEP_ID))
        lease.writer.take_attempt(f"{running.key}.1", 36.0)
        now = live(root=paths.root).budget
    assert before is not None
    assert now is not None
    assert now.spent_hours - before.spent_hours >= 0.01


def test_the_version_of_a_settled_status_differs_after_every_change(paths: Paths) -> None:
    """A service keeps the status of 10,000 trials while its version is the same."""
    asked = Asked("ada", "change", examples.SWEEP_ID)

    def note(ledger: Ledger) -> None:
        change_note(ledger, examples.SWEEP_ID, examples.SWEEP_ID, NoteChange(favourite=True), asked)

    def report(ledger: Ledger) -> None:
        trial = examples.trial(8, "RUNNING", value=None, best_step=None, finished_at=None)
        examples.start_trial(examples.writer_of(ledger), trial, paths.root)

    changes: list[Callable[[Ledger], object]] = [
        note,
        lambda ledger: shelve(ledger, examples.SWEEP_ID, "archived", asked),
        lambda ledger: change_settings(ledger, examples.SWEEP_ID, priority_class="urgent"),
        report,
    ]
    with closing(Ledger.open(paths.ledger_url)) as ledger:
        for change in changes:
            before = status(examples.SWEEP_ID, root=paths.root), settled_version(ledger, examples.SWEEP_ID)
            same = status(examples.SWEEP_ID, root=paths.root), settled_version(ledger, examples.SWEEP_ID)
            change(ledger)
            after = status(examples.SWEEP_ID, root=paths.root), settled_version(ledger, examples.SWEEP_ID)
            assert None not in before
            assert same == before
            assert after[0] != before[0]
            assert after[1] != before[1]
        with Lease(ledger, examples.SWEEP_ID):
            assert settled_version(ledger, examples.SWEEP_ID) is None, "the time left depends on the time"
        assert settled_version(ledger, examples.SWEEP_ID) is not None
