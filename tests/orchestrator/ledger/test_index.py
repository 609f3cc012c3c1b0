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
from orchestrator.ledger.sweeps.index import KnownSweep, begun, known_sweeps
from orchestrator.web import sweep_routes
from orchestrator.web.app_state import AppState
from tests import sweeps
from tests.orchestrator.ledger.examples import create_sweep
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
