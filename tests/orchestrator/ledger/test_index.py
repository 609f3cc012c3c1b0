"""Which sweeps a ledger knows; what is asked about one of them does not read the others."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.api.local_sweep import Sweep
from orchestrator.api.workspace import Workspace
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.sweeps.index import KnownSweep, begun, known_sweeps, oldest_pending
from orchestrator.ledger.sweeps.records import Pending
from orchestrator.web import sweep_routes
from orchestrator.web.app_state import AppState
from tests import sweeps
from tests.orchestrator.ledger.examples import SWEEP_ID, create_sweep, event, trial_record, writer
from tests.orchestrator.web.server import order

SWEEPS = 100
"""Sweeps that the larger ledger has more than the smaller one."""


def test_a_ledger_names_what_has_begun_and_what_was_submitted(ledger: Ledger) -> None:
    assert known_sweeps(ledger) == {}
    create_sweep(ledger, sweeps.sweep_record(id="first", created_at=5.0))
    submissions.submit(ledger, order("ada", "key"), lambda is_known: "waiting")
    submissions.submit(ledger, order("bob", "other"), lambda is_known: "first")
    entry = submissions.submission(ledger, "waiting")
    assert entry is not None
    assert known_sweeps(ledger) == {
        "first": KnownSweep(5.0, True, "bob"),
        "waiting": KnownSweep(entry.at, False, "ada"),
    }
    assert begun(ledger) == ["first"]


def test_the_oldest_pending_record_is_an_event_or_a_report(ledger: Ledger) -> None:
    create_sweep(ledger, None, [event(SWEEP_ID, 5_000)])
    write, key = writer(ledger), trial_record().key
    write.add_trial(trial_record())
    attempt = write.start_attempt(key)
    assert oldest_pending(ledger, []) is None
    for step in (10, 20):
        write.record_report(attempt.id, step, {"val/accuracy": 0.5}, at=step / 10)
    assert oldest_pending(ledger, [SWEEP_ID]) == 1.0
    write.record_mlflow_runs({key: "run"})
    both = ledger.pending(SWEEP_ID, 10)
    write.delivered(Pending([], both.reports[:1]))
    assert oldest_pending(ledger, [SWEEP_ID]) == 2.0
    write.delivered(Pending([], both.reports))
    assert oldest_pending(ledger, [SWEEP_ID]) == 5.0
    write.delivered(both)
    assert oldest_pending(ledger, [SWEEP_ID]) is None


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sweeps.filled(tmp_path_factory.mktemp("known") / "mlruns").root


@pytest.mark.parametrize(
    "ask",
    [
        lambda root: AppState(Workspace.at(root)).owners(),
        lambda root: sweep_routes.show_sweep(AppState(Workspace.at(root)), sweeps.SWEEP_ID),
        lambda root: Sweep.find(sweeps.SWEEP_ID, root=root),
    ],
    ids=["owners", "one sweep", "find"],
)
def test_the_memory_of_a_question_about_one_sweep_does_not_grow_with_all(
    root: Path, ask: Callable[[Path], object]
) -> None:
    """A service that read all of them grew by 0.05 MB with each sweep that had ever run."""
    ask(root)
    small = peak(lambda: ask(root))
    add_sweeps(root)
    assert peak(lambda: ask(root)) < small + 1_000 * SWEEPS


def add_sweeps(root: Path) -> None:
    """Add sweeps whose documents take 10 kB each, unless an earlier test has."""
    ledger = Ledger.open(Workspace.at(root).paths.ledger_url)
    record = sweeps.sweep_record()
    facts = {**record.facts, "specification": "x" * 10_000}
    assert len(json.dumps(facts)) > 10_000
    for number in range(len(known_sweeps(ledger)) - 1, SWEEPS):
        create_sweep(ledger, replace(record, id=f"copy-{number:08d}", facts=facts))
    ledger.close()


def peak(call: Callable[[], object]) -> int:
    """Return the most bytes that Python holds at once during a call, beyond those it held before."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
