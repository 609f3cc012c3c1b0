"""The state of sweeps, read from their ledger alone."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import BadInput, status, sweeps
from orchestrator.cli.app import run_command
from orchestrator.ledger.lease import Lease
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import SweepState
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
    assert now.document() == sweeps(root=paths.root)[0].document()


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


@pytest.mark.parametrize(("sampler", "wanted"), [("grid", 6), ("random", 64)])
def test_a_grid_that_is_smaller_than_its_budget_decides_the_number_of_trials(
    tmp_path: Path, sampler: str, wanted: int
) -> None:
    """Every combination is tried once; another sampler has no limit but its budget."""
    search = {"learning_rate": {"choice": [1e-3, 1e-2]}, "heads": {"int": [2, 6], "step": 2}}
    document = {"sampler": {sampler: {"seed": 0}}, "search": search, "budget": {"trials": 64}}
    record = examples.sweep_record(state="RUNNING", finished_at=None)
    with closing(Ledger.open(Paths(tmp_path).ledger_url)) as ledger:
        create_sweep(ledger, replace(record, document={**record.document, **document}))
    assert status(root=tmp_path).progress.wanted == wanted


@pytest.mark.parametrize("name", ["nothing", "retrieval-full"])
def test_a_name_that_matches_no_sweep_is_refused(paths: Paths, name: str) -> None:
    with pytest.raises(BadInput, match="must be the id of one sweep"):
        status(name, root=paths.root)


def test_an_empty_ledger_has_no_newest_sweep(tmp_path: Path) -> None:
    Ledger.open(Paths(tmp_path).ledger_url).close()
    assert sweeps(root=tmp_path) == []
    with pytest.raises(BadInput, match="must hold a sweep"):
        status(root=tmp_path)
