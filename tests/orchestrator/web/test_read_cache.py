"""The sweep list is read incrementally: ended sweeps are not read again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Request
from sqlalchemy import event
from sqlalchemy.pool import Pool

from orchestrator.api.priorities import move
from orchestrator.api.status import changes
from orchestrator.api.workspace import Workspace
from orchestrator.client.statuses import Status
from orchestrator.errors import NotFound
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.web import event_routes, sweep_routes, trial_routes
from orchestrator.web.access import admit
from orchestrator.web.app_state import AppState
from orchestrator.web.read_cache import PEOPLE, KeptReports, ReadCache, SweepListCache
from tests import sweeps
from tests.orchestrator.ledger.examples import create_sweep
from tests.orchestrator.web.server import Client, order

SWEEPS = 40
"""Sweeps that have ended, besides the one of `tests.sweeps`."""


@pytest.fixture
def state(tmp_path: Path) -> AppState:
    """Return a state with many ended sweeps, whose cached answers expire at once."""
    root = sweeps.filled(tmp_path / "mlruns").root
    ledger = Ledger.open(Workspace.at(root).paths.ledger_url)
    record = sweeps.sweep_record()
    for number in range(SWEEPS):
        create_sweep(ledger, replace(record, id=f"copy-{number:08d}", state="COMPLETE"))
    ledger.close()
    cache, sweep_list = ReadCache(lambda: 0.0, fresh=0.0), SweepListCache(fresh=0.0)
    return AppState(Workspace.at(root), cache=cache, sweep_list=sweep_list)


@contextmanager
def statements() -> Iterator[list[str]]:
    """Collect the statements that SQLite runs for ledgers during a `with` block."""
    found: list[str] = []

    def listen(connection: Any, *_: Any) -> None:
        connection.set_trace_callback(found.append)

    event.listen(Pool, "checkout", listen)
    try:
        yield found
    finally:
        event.remove(Pool, "checkout", listen)


def test_a_reader_does_not_wait_for_a_slow_read_if_there_is_an_older_answer() -> None:
    seconds, go_on, reads = [0.0], threading.Event(), list[int]()
    cache = ReadCache(lambda: seconds[0], fresh=1.0)

    def read() -> int:
        reads.append(len(reads))
        assert len(reads) == 1 or go_on.wait(60)
        return len(reads)

    assert cache.get("analysis", read, patience=0.05) == 1, "the first one waits"
    assert cache.get("analysis", read, patience=0.05) == 1
    seconds[0] = 2.0
    assert [cache.get("analysis", read, patience=0.05) for _ in range(3)] == [1, 1, 1]
    go_on.set()
    assert cache.get("analysis", read, patience=60) == 2
    assert len(reads) == 2, "read once for all who waited, and not again while it is fresh"


def test_an_old_answer_is_kept_while_its_version_is_the_same() -> None:
    seconds, versions, reads = [0.0], ["a", "a", "b", None, None], list[int]()
    cache = ReadCache(lambda: seconds[0], fresh=1.0)

    def read() -> int:
        reads.append(len(reads))
        return len(reads)

    found = []
    for _ in range(len(versions)):
        found.append(cache.get("trials", read, version=lambda: versions.pop(0)))
        seconds[0] += 2.0
    assert found == [1, 1, 2, 3, 4], "without a version it is read each time"
    assert not versions


def test_a_change_of_a_sweep_leaves_answers_about_other_sweeps_and_about_people() -> None:
    """Otherwise each note would let the service read every user, sweep and curve again."""
    cache, reads = ReadCache(lambda: 0.0), list[str]()
    about = {"users": PEOPLE, "sweeps": None, "status of a": "a", "status of b": "b"}

    def look() -> list[str]:
        reads.clear()
        for key, what in about.items():
            cache.get(key, lambda key=key: reads.append(key), about=what)  # type: ignore[misc]
        return list(reads)

    assert look() == list(about)
    assert not look()
    cache.clear("a")
    assert look() == ["sweeps", "status of a"]
    cache.clear()
    assert look() == list(about)


def test_a_sweep_with_a_driver_is_read_again_after_a_commit_a_change_or_a_second(state: AppState) -> None:
    seconds = [0.0]
    rows = SweepListCache(lambda: seconds[0])
    with state.ledger() as ledger, Lease(ledger, sweeps.SWEEP_ID) as lease:
        lease.writer.set_sweep_state("RUNNING")

        def row() -> Status:
            return next(found for found in rows.read(ledger) if found.id == sweeps.SWEEP_ID)

        first = row()
        seconds[0] = 0.9
        assert row() is first
        seconds[0] = 1.0
        second = row()
        assert second is not first, "its time left has changed"
        lease.writer.add_trial(sweeps.trial(50, "WAITING", value=None, best_step=None, step=0))
        third = row()
        assert (first.trials.get("WAITING", 0), third.trials["WAITING"]) == (0, 1)
        rows.forget(sweeps.SWEEP_ID)
        assert row() is not third


def test_the_table_of_trials_is_read_again_after_every_commit(state: AppState) -> None:
    """Also while a driver has the sweep: each commit of a SQLite ledger counts."""
    with state.ledger() as ledger, Lease(ledger, sweeps.SWEEP_ID) as lease:
        first = trial_routes._table(state, sweeps.SWEEP_ID, metrics=False)
        assert trial_routes._table(state, sweeps.SWEEP_ID, metrics=False) is first
        waiting = sweeps.trial(8, "WAITING", value=None, best_step=None, step=0, attempts=0, finished_at=None)
        lease.writer.add_trial(waiting)
        later = trial_routes._table(state, sweeps.SWEEP_ID, metrics=False)
    assert [len(table.rows) for table in (first, later)] == [8, 9]


def test_requests_in_turn_open_no_ledger(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    open_ledger = Ledger.open

    def count_opened(url: str, **options: Any) -> Ledger:
        opened.append(url)
        return open_ledger(url, **options)

    client.get(f"/sweeps/{sweeps.SWEEP_ID}/trials")
    monkeypatch.setattr(Ledger, "open", count_opened)
    for _ in range(3):
        client.get(f"/sweeps/{sweeps.SWEEP_ID}/trials")
    assert not opened


def test_a_request_with_cached_users_is_admitted_without_another_thread(client: Client) -> None:
    state = AppState(client.workspace)
    scope = {
        "type": "http",
        "app": SimpleNamespace(state=SimpleNamespace(shared=state)),
        "route": SimpleNamespace(name="show_sweep"),
        "path_params": {"sweep_id": sweeps.SWEEP_ID},
        "headers": [(b"authorization", b"Bearer " + client.tokens["vera"].encode())],
    }
    asyncio.run(admit(Request(scope)))  # reads the users and the owners of sweeps
    request = Request(scope)
    with pytest.raises(StopIteration):  # the end of the coroutine, which has waited for nothing
        admit(request).send(None)
    assert request.state.user.name == "vera"


def test_an_error_of_a_read_in_the_background_reaches_the_reader() -> None:
    seconds = [0.0]
    cache = ReadCache(lambda: seconds[0], fresh=1.0)

    def fail() -> int:
        raise NotFound("sweep", "must exist", "s", "`list` shows all.")

    cache.get("analysis", lambda: 1, patience=60)
    seconds[0] = 2.0
    with pytest.raises(NotFound):
        cache.get("analysis", fail, patience=60)


def test_a_report_is_built_again_only_after_a_change(tmp_path: Path) -> None:
    reports, kept, builds = KeptReports(), tmp_path / "report.html", list[int]()

    def write() -> Path:
        builds.append(len(builds))
        kept.write_text(str(len(builds)))
        return kept

    for version in (1, 1, 2):
        assert reports.get("s", version, kept, write) == kept
    assert len(builds) == 2


def test_a_reader_does_not_wait_for_a_slow_build_if_there_is_an_older_report(tmp_path: Path) -> None:
    reports, kept, go_on = KeptReports(patience=0.05), tmp_path / "report.html", threading.Event()

    def write() -> Path:
        assert go_on.wait(60)
        kept.write_text("new")
        return kept

    kept.write_text("old")
    assert reports.get("s", 1, kept, write).read_text() == "old"
    go_on.set()
    assert KeptReports(patience=60).get("s", 1, kept, write).read_text() == "new"
    reports._builder.shutdown()
    assert reports.get("s", 1, kept, write).read_text() == "new", "built meanwhile, and not again"


def test_later_readers_do_not_wait_again_for_the_same_build(tmp_path: Path) -> None:
    seconds = iter((0.0, 61.0, 62.0))
    reports = KeptReports(patience=60.0, clock=lambda: next(seconds))
    kept, go_on = tmp_path / "report.html", threading.Event()

    def write() -> Path:
        assert go_on.wait(60)
        return kept

    kept.write_text("old")
    began = time.monotonic()
    for _ in range(2):
        assert reports.get("s", 1, kept, write).read_text() == "old"
    assert time.monotonic() - began < 30
    go_on.set()
    reports._builder.shutdown()


def test_a_report_that_cannot_be_built_is_an_error_each_time(tmp_path: Path) -> None:
    reports = KeptReports()

    def write() -> Path:
        raise NotFound("sweep", "must exist", "s", "`list` shows all.")

    for _ in range(2):
        with pytest.raises(NotFound):
            reports.get("s", 1, tmp_path / "report.html", write)


def count(state: AppState) -> int:
    """Return the number of statements of one look at all sweeps and at the events of their list."""
    with statements() as found:
        sweep_routes.all_sweeps(state)
        event_routes.list_entries(state)
    return len(found)


def test_a_second_look_reads_no_sweep_that_has_ended(state: AppState) -> None:
    """A look takes as many statements as one at a ledger with a single sweep."""
    first = len(sweep_routes.all_sweeps(state))
    assert first == SWEEPS + 1
    alone = AppState(Workspace.at(sweeps.filled(state.workspace.paths.root.parent / "alone").root))
    sweep_routes.all_sweeps(alone)
    small = count(replace(alone, cache=ReadCache(lambda: 0.0, fresh=0.0)))
    assert count(state) == small


def test_one_sweep_that_has_changed_is_read_again(state: AppState) -> None:
    sweep_routes.all_sweeps(state)
    settled = count(state)
    with state.ledger() as ledger, Lease(ledger, "copy-00000007") as lease:
        lease.writer.set_sweep_state("RUNNING")
        driven = count(state)
        assert settled < driven < settled + 30, "what is driven is read at each look, twice here"
    assert settled < count(state) < settled + 15
    assert count(state) == settled


def test_a_look_shows_every_change(state: AppState) -> None:
    """After each kind of change, the cache equals a new one."""

    def check() -> None:
        with state.ledger() as ledger:
            assert state.sweep_list.read(ledger) == SweepListCache().read(ledger)

    check()
    with state.ledger() as ledger:
        with Lease(ledger, sweeps.SWEEP_ID) as lease:
            check()
            lease.writer.add_trial(sweeps.trial(50, "WAITING", value=None, best_step=None, step=0))
            check()
        check()
        submissions.submit(ledger, order("ada", "key"), lambda used: "waiting")
        check()
        submissions.submit(ledger, order("bob", "other"), lambda used: "copy-00000003")
        check()
    move(sweeps.SWEEP_ID, "idle", root=state.workspace.paths.root)
    check()
    by_id = {row.id: row for row in sweep_routes.all_sweeps(state)}
    assert by_id[sweeps.SWEEP_ID].priority_class == "idle"
    assert by_id[sweeps.SWEEP_ID].trials["WAITING"] == 1
    assert by_id["waiting"].state == "QUEUED"
    assert by_id["copy-00000003"].owner == "bob"


def test_the_differences_of_a_sweep_read_two_documents(state: AppState) -> None:
    root = state.workspace.paths.root
    with statements() as found:
        assert changes(f"copy-{SWEEPS - 1:08d}", root=root).previous is not None
    documents = [line for line in found if "document" in line and "digest" in line]
    assert len(documents) == 2
    assert all("WHERE sweep.id =" in line for line in documents)
