"""What people ask for while `recover` replaces the file of a SQLite ledger is in the rebuilt ledger."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from orchestrator.errors import Busy
from orchestrator.ledger.backup import row_folder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people import users
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.people.notes import NoteChange, change_note, note_of
from orchestrator.ledger.people.shelf import shelve, shelved
from orchestrator.ledger.pool import claims
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.queue_settings import ask_to_stop, asked_to_stop, change_settings
from orchestrator.ledger.queue.submissions import SubmissionRequest
from orchestrator.ledger.queue.trial_requests import ask_about_trial, pending_requests
from orchestrator.ledger.queue.wanted_settings import ask_to_try, wanted_settings
from orchestrator.ledger.tables import SUBMISSION
from orchestrator.sharing.pool_rows import UNIT
from orchestrator.upkeep import recovery
from orchestrator.upkeep.recovery import recover
from tests.orchestrator.ledger.examples import SWEEP_ID, create_sweep, event, sweep_record

ORDER = SubmissionRequest("ada", {"name": "a-1"}, "", {}, None, "c0ffee")

WRITES: dict[str, tuple[Callable[[Ledger], object], Callable[[Ledger], object]]] = {
    "setting": (
        lambda ledger: ask_to_try(ledger, SWEEP_ID, {"rate": 1.0}, Asked("ada", "try", SWEEP_ID)),
        lambda ledger: wanted_settings(ledger, SWEEP_ID),
    ),
    "stop request": (
        lambda ledger: ask_to_stop(ledger, SWEEP_ID),
        lambda ledger: asked_to_stop(ledger, SWEEP_ID),
    ),
    "note": (
        lambda ledger: change_note(
            ledger, SWEEP_ID, SWEEP_ID, NoteChange("good"), Asked("ada", "note", SWEEP_ID)
        ),
        lambda ledger: note_of(ledger, SWEEP_ID),
    ),
    "trial request": (
        lambda ledger: ask_about_trial(ledger, f"{SWEEP_ID}-0", "stop", Asked("ada", "stop", SWEEP_ID)),
        lambda ledger: pending_requests(ledger, SWEEP_ID).trials,
    ),
    "shelf": (lambda ledger: shelve(ledger, SWEEP_ID, "deleted", Asked("ada", "shelve", SWEEP_ID)), shelved),
    "class": (
        lambda ledger: change_settings(ledger, SWEEP_ID, priority_class="urgent"),
        claims.priority_classes,
    ),
    "quota": (lambda ledger: claims.set_owner(ledger, "ada", weight=3 * UNIT), claims.owners),
    "user": (lambda ledger: users.add_user(ledger, "ada", "member", "grace"), users.users),
    "submission": (
        lambda ledger: submissions.submit(ledger, ORDER, lambda is_known: "a-1"),
        submissions.submissions,
    ),
    "browser session": (lambda ledger: users.open_session(ledger, "c0ffee", 1e12), users.sessions),
}
"""Each kind of change that needs no lease: the change, and what is in the ledger after it."""

KEPT = [kind for kind in WRITES if kind != "browser session"]
"""The kinds whose rows are in the backup."""


@pytest.fixture
def ledger(sqlite_url: str) -> Iterator[Ledger]:
    """Open a ledger with one sweep, and use its connection."""
    opened = Ledger.open(sqlite_url)
    create_sweep(opened, sweep_record(), [event(SWEEP_ID, 0)])
    yield opened
    opened.close()


@pytest.mark.parametrize("kind", WRITES)
def test_a_process_that_has_the_replaced_file_open_writes_to_the_rebuilt_one(
    ledger: Ledger, sqlite_url: str, kind: str
) -> None:
    write, read = WRITES[kind]
    recover(sqlite_url)
    write(ledger)
    _require(sqlite_url, read)


def test_a_process_that_has_the_replaced_file_open_reads_the_rebuilt_one(
    ledger: Ledger, sqlite_url: str
) -> None:
    recover(sqlite_url)
    other = Ledger.open(sqlite_url)
    create_sweep(other, sweep_record(id="another"), [])
    other.close()
    assert ledger.sweep("another") is not None
    assert {sweep.id for sweep in ledger.sweeps()} == {SWEEP_ID, "another"}


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("kind", KEPT)
def test_a_recovery_waits_for_a_change_that_waits_for_the_database(
    ledger: Ledger, sqlite_url: str, kind: str
) -> None:
    """Another process has locked the database, so that the change has a connection and no transaction yet."""
    write, read = WRITES[kind]
    with ledger.writer() as connection, connection.begin():
        changing = _started(lambda: write(ledger))
        changing.join(0.3)
        assert changing.is_alive()
        rebuilding = _started(lambda: recover(sqlite_url))
        rebuilding.join(0.3)
    changing.join()
    rebuilding.join()
    _require(sqlite_url, read)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("kind", KEPT)
def test_a_recovery_waits_between_a_commit_and_the_backup_of_its_row(
    ledger: Ledger, sqlite_url: str, kind: str
) -> None:
    """Otherwise it would rebuild the ledger from a backup without the row."""
    write, read = WRITES[kind]
    folder = row_folder(ledger.address, SUBMISSION)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        changing = _started(lambda: write(ledger))
        changing.join(0.3)
        assert changing.is_alive()
        rebuilding = _started(lambda: recover(sqlite_url))
        rebuilding.join(0.3)
    changing.join()
    rebuilding.join()
    _require(sqlite_url, read)


def test_a_recovery_is_refused_while_a_change_does_not_end(
    ledger: Ledger, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "WRITER_SECONDS", 0.2)
    with ledger.in_place(), pytest.raises(Busy, match="is being changed by another process"):
        recover(sqlite_url)
    assert Path(str(ledger.address.database)).exists()


def _started(run: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=run)
    thread.start()
    return thread


def _require(url: str, read: Callable[[Ledger], object]) -> None:
    """Require that a process that opens the ledger finds the change."""
    rebuilt = Ledger.open(url)
    assert read(rebuilt)
    rebuilt.close()
