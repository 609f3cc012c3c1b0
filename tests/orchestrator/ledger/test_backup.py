"""The log of a sweep's commits: only its end is read, and a missing line is detected."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.ledger import backup
from orchestrator.ledger.backup import Entry


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Write five commits, the third of which is longer than a block."""
    path = tmp_path / "sweep.log"
    with backup.locked(path) as log:
        for number in range(1, 6):
            text = "x" * (3 * backup.BLOCK if number == 3 else 10)
            log.append(Entry(number, [("sweep", {"id": "s"}, {"document": text})]))
    return path


def test_a_whole_log_reaches_to_its_last_commit(log: Path) -> None:
    assert (backup.newest(log), backup.complete_until(log)) == (5, 5)


def test_a_log_that_does_not_exist_has_no_commit(tmp_path: Path) -> None:
    assert (backup.newest(tmp_path / "none"), backup.complete_until(tmp_path / "none")) == (0, 0)


@pytest.mark.parametrize("lines", range(5))
def test_a_torn_end_is_passed_over(log: Path, lines: int) -> None:
    """The number of whole lines before the torn one does not matter."""
    whole = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(whole[:lines]) + whole[lines][:-1])
    assert (backup.newest(log), backup.complete_until(log)) == (lines, 0)


def test_a_line_after_a_damaged_one_counts(log: Path) -> None:
    """It shows that a database with fewer commits has lost some."""
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    assert (backup.newest(log), backup.complete_until(log)) == (5, 0)


def test_a_line_that_the_disk_has_no_space_for_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Neither when it is written nor when the log is closed: the commit before it stands."""
    with backup.locked(Path("/dev/full")) as log:
        log.append(Entry(1, []))
    assert "The ledger's backup /dev/full falls behind" in caplog.text


def test_a_missing_line_is_detected(log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:1] + lines[2:]))
    assert (backup.newest(log), backup.complete_until(log)) == (5, 0)


@pytest.fixture
def rewritten(tmp_path: Path) -> Path:
    """Write a whole state in three parts, and two commits after it."""
    path = tmp_path / "sweep.log"
    state = [Entry(7, [("sweep", {"id": "s"}, {"document": str(left)})], left) for left in (2, 1, 0)]
    with backup.locked(path) as log:
        log.replace(backup.write(path, state), length=0)
    with backup.locked(path) as log:
        for number in (8, 9):
            log.append(Entry(number, []))
    return path


def test_a_state_in_parts_comes_before_the_commits_after_it(rewritten: Path) -> None:
    entries = [(entry.number, entry.following) for entry in backup.entries(rewritten)]
    assert entries == [(7, 2), (7, 1), (7, 0), (8, 0), (9, 0)]
    assert (backup.newest(rewritten), backup.complete_until(rewritten)) == (9, 9)


@pytest.mark.parametrize("missing", [1, 2])
def test_a_missing_part_is_noticed(rewritten: Path, missing: int) -> None:
    lines = rewritten.read_bytes().splitlines(keepends=True)
    rewritten.write_bytes(b"".join(lines[:missing] + lines[missing + 1 :]))
    assert (backup.newest(rewritten), backup.complete_until(rewritten)) == (9, 0)


def test_a_state_without_its_last_part_is_no_commit(rewritten: Path) -> None:
    lines = rewritten.read_bytes().splitlines(keepends=True)
    rewritten.write_bytes(b"".join(lines[:2]))
    assert backup.complete_until(rewritten) == 0
