"""The backup of submissions: what it holds and reveals; a rebuilt ledger has every submission."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete, update

from orchestrator.errors import Damaged
from orchestrator.ledger.connect import parse
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.integrity import verify_submissions
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.submissions import Submission, SubmissionRequest, SubmissionWriter
from orchestrator.ledger.row_backup import kept, row_file
from orchestrator.ledger.tables import SUBMISSION
from orchestrator.upkeep.check import check_submissions
from orchestrator.upkeep.recovery import recover
from tests.orchestrator.ledger.examples import writer

DRIVER = Holder(pid=7, host="here", place="boot", start=1, since=2.0)


@pytest.fixture
def ledger(sqlite_url: str) -> Iterator[Ledger]:
    """Open an empty ledger with a backup."""
    opened = Ledger.open(sqlite_url)
    yield opened
    opened.close()


def submit(ledger: Ledger, sweep_id: str) -> Submission:
    order = SubmissionRequest(
        "ada", {"name": sweep_id}, "task: copying # ü\n", {"wait": None}, None, "c0ffee"
    )
    return submissions.submit(ledger, order, lambda is_known: sweep_id)[0]


def service(ledger: Ledger) -> SubmissionWriter:
    return SubmissionWriter(ledger, writer(ledger, "serve").token)


def in_every_state(ledger: Ledger) -> list[Submission]:
    """Return submissions that wait, run, are parked and have ended, each written by the calls that do so."""
    own = service(ledger)
    submit(ledger, "waiting-1")
    assert own.change(submit(ledger, "running-1"), state="STARTED", starts=1, started_at=3.5, crashed_at=1.0)
    submissions.begin(ledger, "running-1", 1, DRIVER)
    parked = {"state": "PARKED", "crashes": 5, "tries": 5, "cause": "it crashed"}
    assert own.change(submit(ledger, "parked-1"), **parked)
    assert own.change(submit(ledger, "ended-1"), state="STARTED", starts=1, started_at=3.5)
    assert submissions.end(ledger, "ended-1", 1, 3, None)
    ended = submissions.submission(ledger, "ended-1")
    assert ended is not None
    assert own.change(ended, state="ENDED")
    own.go_on()
    return submissions.submissions(ledger)


def lose_database(ledger: Ledger) -> None:
    ledger.close()
    file = Path(str(ledger.address.database))
    for path in file.parent.glob(f"{file.name}*"):
        path.unlink()


def test_a_rebuilt_ledger_has_every_submission(ledger: Ledger, sqlite_url: str) -> None:
    """Nothing but the backup is left. No sweep has begun."""
    before = in_every_state(ledger)
    assert len(before) == 4
    lose_database(ledger)
    with pytest.raises(Damaged, match="is empty, but its backup is not"):
        Ledger.open(sqlite_url)
    rebuilt = recover(sqlite_url)
    assert (sorted(rebuilt.submissions), rebuilt.lost_submissions) == (sorted(e.sweep_id for e in before), [])
    again = Ledger.open(sqlite_url)
    assert submissions.submissions(again) == before
    assert verify_submissions(again) == []
    again.close()


def test_a_damaged_file_loses_its_own_submission_alone(ledger: Ledger, sqlite_url: str) -> None:
    submit(ledger, "a-1")
    other = submit(ledger, "b-1")
    lose_database(ledger)
    file = row_file(parse(sqlite_url), SUBMISSION, "a-1")
    file.write_bytes(file.read_bytes().replace(b"ada", b"bob"))
    rebuilt = recover(sqlite_url)
    assert (rebuilt.submissions, rebuilt.lost_submissions) == (["b-1"], ["a-1"])
    again = Ledger.open(sqlite_url)
    assert submissions.submissions(again) == [other]
    again.close()


@pytest.mark.parametrize("content", [None, b"", b"0011 {}"])
def test_a_missing_or_damaged_file_is_written_again(ledger: Ledger, content: bytes | None) -> None:
    submit(ledger, "a-1")
    file = row_file(ledger.address, SUBMISSION, "a-1")
    intact = file.read_bytes()
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    assert len(verify_submissions(ledger, repair_backup=False)) == 1
    assert not file.exists() or file.read_bytes() == content
    assert len(verify_submissions(ledger)) == 1
    assert file.read_bytes() == intact
    assert verify_submissions(ledger) == []


def test_a_file_that_is_behind_is_written_again(ledger: Ledger) -> None:
    """The disk was full when the file was to be replaced."""
    submit(ledger, "a-1")
    file = row_file(ledger.address, SUBMISSION, "a-1")
    behind = file.read_bytes()
    assert submissions.end(ledger, "a-1", 0, 2, "bad data")
    current = kept(file)
    file.write_bytes(behind)
    [fault] = verify_submissions(ledger)
    assert "was behind" in fault
    assert kept(file) == current


def test_a_lost_commit_is_revealed_and_undone(ledger: Ledger, sqlite_url: str) -> None:
    """The database is an older copy of itself."""
    submit(ledger, "a-1")
    ledger.close()
    file = Path(str(ledger.address.database))
    shutil.copy(file, file.with_suffix(".copy"))
    assert submissions.end(ledger, "a-1", 0, 2, "bad data")
    later = submissions.submissions(ledger)
    ledger.close()
    file.with_suffix(".copy").replace(file)
    with pytest.raises(Damaged, match="has lost commits"):
        verify_submissions(ledger)
    ledger.close()
    recover(sqlite_url)
    assert submissions.submissions(ledger) == later


def test_a_submission_that_the_database_has_lost_is_revealed(ledger: Ledger) -> None:
    submit(ledger, "a-1")
    with ledger.writer() as connection, connection.begin():
        connection.execute(delete(SUBMISSION))
    with pytest.raises(Damaged, match="has lost commits"):
        verify_submissions(ledger)


def test_a_changed_row_is_revealed(ledger: Ledger) -> None:
    submit(ledger, "a-1")
    with ledger.writer() as connection, connection.begin():
        connection.execute(update(SUBMISSION).values(owner="bob"))
    with pytest.raises(Damaged, match="has a row that differs from its backup"):
        verify_submissions(ledger)
    [finding] = check_submissions(ledger, submissions.submissions(ledger))
    assert "has a row that differs from its backup" in finding.problem


def test_submissions_in_every_state_have_no_findings(ledger: Ledger) -> None:
    assert check_submissions(ledger, in_every_state(ledger)) == []


@pytest.mark.parametrize(
    ("columns", "finding"),
    [
        ({"state": "LOST"}, "has the unknown state LOST"),
        ({"state": "STARTED"}, "is STARTED without a start time"),
        ({"state": "PARKED"}, "is PARKED without a cause"),
        ({"state": "ENDED"}, "is ENDED without an exit code"),
        ({"crashes": 2, "tries": 1}, "has 2 crashes, but 1 failed starts"),
    ],
)
def test_each_violation_is_reported(ledger: Ledger, columns: dict[str, object], finding: str) -> None:
    assert service(ledger).change(submit(ledger, "a-1"), **columns)
    findings = check_submissions(ledger, submissions.submissions(ledger))
    assert [(entry.where, entry.problem) for entry in findings] == [("submission a-1", finding)]
