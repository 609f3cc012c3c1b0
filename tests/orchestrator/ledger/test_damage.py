"""Damage to a file of the ledger is detected, reported and undone from the backup."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from orchestrator.errors import Busy, Damaged
from orchestrator.ledger import backup, compaction, integrity
from orchestrator.ledger.compaction import compact, compact_beside
from orchestrator.ledger.integrity import examine, verify
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.upkeep import recovery
from orchestrator.upkeep.recovery import recover
from tests.orchestrator.ledger.examples import (
    SWEEP_ID,
    complete,
    create_sweep,
    event,
    everything,
    sweep_record,
    trial_record,
    writer,
)
from tests.orchestrator.ledger.processes import start
from tests.programs import program

LOG = f"sweeps.backup/{SWEEP_ID}.log"
FILL = """
import os, sys
from orchestrator.ledger.ledger import Ledger
from tests.orchestrator.ledger.examples import *
ledger = Ledger.open(sys.argv[1])
create_sweep(ledger, sweep_record(), [event(SWEEP_ID, 0)])
for number in range(int(sys.argv[2])):
    key = complete(ledger, number)
    writer(ledger).record_mlflow_runs({key: f"run-{number}"})
writer(ledger).delivered(ledger.pending(SWEEP_ID, 20))
if sys.argv[3] == "orderly":
    ledger.close()
else:
    os.kill(os.getpid(), 9)
"""


def _filled(folder: Path, trials: int, end: str) -> tuple[Path, tuple[Any, ...]]:
    """Return a folder that a process wrote, and everything its ledger holds."""
    folder.mkdir()
    start(FILL, _url(folder), str(trials), end).communicate()
    reference = folder.with_name("reference")
    shutil.copytree(folder, reference)
    ledger = Ledger.open(_url(reference))
    says = everything(ledger)
    ledger.close()
    assert len(says[1]) == trials
    return folder, says


def _url(folder: Path) -> str:
    return f"sqlite:///{folder / 'sweeps.db'}"


def _flip(content: bytearray, at: int, draws: random.Random) -> None:
    content[at] ^= 1 << draws.randrange(8)


def _zero(content: bytearray, at: int, draws: random.Random) -> None:
    content[at : at + 512] = bytes(len(content[at : at + 512]))


def _cut(content: bytearray, at: int, draws: random.Random) -> None:
    del content[at:]


DAMAGES: tuple[Callable[[bytearray, int, random.Random], None], ...] = (_flip, _zero, _cut)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["orderly", "killed"])
def test_any_damage_is_detected_or_harmless(tmp_path: Path, end: str) -> None:
    """Damage to one file is harmless, or is detected and repaired from the other files.

    Damage to bytes that are never read, in free space or before a later copy, may stay undetected.
    """
    source, says = _filled(tmp_path / "source", 30, end)
    files = [
        name for name in ("sweeps.db", "sweeps.db-wal", "sweeps.db-shm", LOG) if (source / name).exists()
    ]
    draws, detected = random.Random(11), 0
    for case in range(25):
        folder = tmp_path / f"case-{case}"
        shutil.copytree(source, folder)
        file = folder / files[case % len(files)]
        content = bytearray(file.read_bytes())
        draws.choice(DAMAGES)(content, draws.randrange(len(content)), draws)
        file.write_bytes(content)
        detected += _is_detected(folder, says)
        shutil.rmtree(folder)
    assert detected >= 8


def _is_detected(folder: Path, says: tuple[Any, ...]) -> bool:
    """Open a damaged ledger as a driver does; return True if the damage was detected."""
    try:
        ledger = Ledger.open(_url(folder))
        noticed = bool(verify(ledger, SWEEP_ID))
    except Damaged:
        rebuilt = recover(_url(folder))
        assert not rebuilt.lost
        assert (rebuilt.damaged / "sweeps.db").exists()
        ledger, noticed = Ledger.open(_url(folder)), True
    assert everything(ledger) == says
    assert verify(ledger, SWEEP_ID) == []
    ledger.close()
    return noticed


@pytest.fixture
def held(sqlite_url: str) -> Iterator[Ledger]:
    """Return a ledger with two finished trials."""
    ledger = Ledger.open(sqlite_url)
    create_sweep(ledger, sweep_record(), [event(SWEEP_ID, 0)])
    keys = [complete(ledger, number) for number in range(2)]
    writer(ledger).record_mlflow_runs({key: f"run of {key}" for key in keys})
    yield ledger
    ledger.close()


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ("UPDATE trial SET value = 0.99 WHERE number = 1", rf"table trial, row key='{SWEEP_ID}-1'"),
        (
            "UPDATE report SET metrics = replace(metrics, '0', '1') WHERE step = 20",
            "table report, row .*step=20",
        ),
        ("UPDATE checkpoint SET path = '/else' WHERE step = 30", "table checkpoint, row .*step=30"),
        ("UPDATE attempt SET state = 'LOST'", r"table attempt, row id='.*\.1'"),
        ("UPDATE outbox SET kind = 'x' WHERE seq = 3", "table outbox, row seq=3"),
        ("UPDATE sweep SET digest = 'x'", "table sweep, row id="),
    ],
)
def test_a_changed_row_is_named(held: Ledger, change: str, where: str) -> None:
    """A value that the ledger did not write is refused when read, with its table and row."""
    _change(held, change)
    with pytest.raises(Damaged, match=where):
        everything(held)
    with pytest.raises(Damaged, match=where):
        verify(held, SWEEP_ID)


def test_a_text_that_is_no_utf_8_is_damage(held: Ledger) -> None:
    """Python's driver of SQLite raises an error without a code, as it does if a server is lost."""
    with held.writer() as connection, connection.begin():
        connection.execute(text("UPDATE report SET metrics = CAST(X'7BFF7D' AS TEXT) WHERE step = 10"))
    with pytest.raises(Damaged, match="Could not decode"):
        verify(held, SWEEP_ID)
    with pytest.raises(Damaged, match="Could not decode"):
        held.reports(SWEEP_ID)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ("UPDATE outbox SET delivered = 1 - delivered WHERE seq = 3", "table outbox, row seq=3"),
        ("UPDATE mlflow_run SET position = 9e9", f"table mlflow_run, row sweep_id='{SWEEP_ID}'"),
    ],
)
def test_a_forged_delivery_is_detected(held: Ledger, change: str, where: str) -> None:
    """A forged mark or position would lose a point for ever, so it is detected before anything is shipped."""
    _change(held, change)
    with pytest.raises(Damaged, match=where):
        verify(held, SWEEP_ID)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM report WHERE step = 20",
        "DELETE FROM outbox",
        "DELETE FROM tally",
        "UPDATE tally SET total = 1",
    ],
)
def test_a_lost_row_is_detected(held: Ledger, change: str) -> None:
    """Missing or outdated rows do not add up to the tally."""
    _change(held, change)
    with pytest.raises(Damaged, match="has missing, additional or outdated rows"):
        verify(held, SWEEP_ID)


def test_lost_commits_are_detected(held: Ledger, sqlite_url: str, tmp_path: Path) -> None:
    """An old copy of the database is behind its backup, and is recovered to the last commit."""
    old = tmp_path / "old"
    _change(held, "PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copytree(tmp_path, old, ignore=shutil.ignore_patterns("old"))
    complete(held, 2)
    says = everything(held)
    held.close()
    shutil.copy(old / "sweeps.db", tmp_path / "sweeps.db")
    ledger = Ledger.open(sqlite_url)
    with pytest.raises(Damaged, match="has lost commits"):
        verify(ledger, SWEEP_ID)
    ledger.close()
    recover(sqlite_url)
    assert everything(Ledger.open(sqlite_url)) == says


def test_a_backup_that_is_behind_is_rewritten(held: Ledger, sqlite_url: str, tmp_path: Path) -> None:
    """After a power failure or on a full disk the database is right and the backup is not."""
    log = tmp_path / LOG
    lines = log.read_bytes().splitlines(keepends=True)
    for kept in (lines[:-2], [*lines[:4], *lines[5:]], [*lines[:-1], lines[-1][:20]], []):
        log.write_bytes(b"".join(kept))
        assert (
            verify(held, SWEEP_ID, repair_backup=False) == verify(held, SWEEP_ID, repair_backup=False) != []
        )
        assert "rewritten" in verify(held, SWEEP_ID)[0]
        assert verify(held, SWEEP_ID) == []
    complete(held, 2)
    assert verify(held, SWEEP_ID) == []
    says = everything(held)
    held.close()
    os.truncate(tmp_path / "sweeps.db", 5000)
    recover(sqlite_url)
    assert everything(Ledger.open(sqlite_url)) == says


def test_a_backup_of_which_only_a_torn_line_is_left_is_begun_anew(sqlite_url: str, tmp_path: Path) -> None:
    """After a power failure during the first commit of a sweep; later lines would join the torn one."""
    log = tmp_path / LOG
    ledger = Ledger.open(sqlite_url)
    log.write_bytes(b"7350effa8db79193 [1,[[")
    assert verify(ledger, SWEEP_ID, repair_backup=False) == []
    assert log.stat().st_size
    assert verify(ledger, SWEEP_ID) == []
    create_sweep(ledger, sweep_record(), [event(SWEEP_ID, 0)])
    complete(ledger, 0)
    assert verify(ledger, SWEEP_ID, repair_backup=False) == []
    ledger.close()


@pytest.mark.parametrize("leads", ["database", "backup"])
def test_the_file_that_leads_further_counts_if_neither_is_complete(
    held: Ledger, sqlite_url: str, tmp_path: Path, leads: str
) -> None:
    """After a power failure the database lacks its last commits, and a line of the backup is torn."""
    log, old = tmp_path / LOG, tmp_path / "old"
    lines = log.read_bytes().splitlines(keepends=True)
    _change(held, "PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copytree(tmp_path, old, ignore=shutil.ignore_patterns("old"))
    says = everything(held)
    complete(held, 2)
    held.close()
    shutil.copy(old / "sweeps.db", tmp_path / "sweeps.db")
    later = log.read_bytes().splitlines(keepends=True)
    at = len(lines) + (2 if leads == "backup" else -4)
    log.write_bytes(b"".join([*later[:at], later[at][:-9] + b"\n", *later[at + 1 :]]))
    ledger = Ledger.open(sqlite_url)
    if leads == "database":
        (note,) = verify(ledger, SWEEP_ID)
        assert f"Lost with it: {len(later) - len(lines)} newer commits." in note
        assert everything(ledger) == says
    else:
        with pytest.raises(Damaged, match="has lost commits"):
            verify(ledger, SWEEP_ID)
        ledger.close()
        assert recover(sqlite_url).commits == {SWEEP_ID: at}
        ledger = Ledger.open(sqlite_url)
        assert "rewritten" in verify(ledger, SWEEP_ID)[0]
    assert verify(ledger, SWEEP_ID) == []


@pytest.fixture
def long_backup(held: Ledger, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """Return a ledger whose backup is longer than the state that it leads to, by low limits."""
    monkeypatch.setattr(integrity, "SHORT_LOG", 1000)
    monkeypatch.setattr(integrity, "LONG_LOG", 0.1)
    monkeypatch.setattr(compaction, "ROWS_A_PART", 5)
    return held


def test_a_long_backup_is_rewritten_in_parts(long_backup: Ledger, sqlite_url: str, tmp_path: Path) -> None:
    """It then holds the state, and leads to the same ledger."""
    log = tmp_path / LOG
    before = log.stat().st_size
    assert verify(long_backup, SWEEP_ID, repair_backup=False) == []
    assert log.stat().st_size == before, "a check changes nothing"
    assert verify(long_backup, SWEEP_ID) == []
    assert log.stat().st_size < before
    assert len(log.read_bytes().splitlines()) > 2
    complete(long_backup, 2)
    assert verify(long_backup, SWEEP_ID, repair_backup=False) == []
    says = everything(long_backup)
    long_backup.close()
    os.truncate(tmp_path / "sweeps.db", 5000)
    assert not recover(sqlite_url).lost
    assert everything(Ledger.open(sqlite_url)) == says


def test_commits_during_a_rewriting_are_in_the_new_backup(
    held: Ledger, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = backup.write

    def write_slowly(*arguments: Any) -> Path:
        complete(held, 2)
        fresh = real(*arguments)
        complete(held, 3)
        return fresh

    monkeypatch.setattr(backup, "write", write_slowly)
    compact(held, SWEEP_ID)
    assert verify(held, SWEEP_ID, repair_backup=False) == []
    says = everything(held)
    held.close()
    os.truncate(tmp_path / "sweeps.db", 5000)
    assert not recover(sqlite_url).lost
    assert everything(Ledger.open(sqlite_url)) == says


def test_a_commit_while_the_backup_is_replaced_is_in_the_new_backup(
    held: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that has opened the old log and waits for its lock must not write to it any more."""
    waits = threading.Event()
    later = threading.Thread(target=complete, args=[held, 2])
    lock, rename = fcntl.flock, Path.replace

    def announced(file: Any, operation: int) -> None:
        if threading.current_thread() is later:
            waits.set()
        lock(file, operation)

    def replaced(fresh: Path, log: Path) -> Path:
        monkeypatch.setattr(Path, "replace", rename)
        later.start()
        assert waits.wait(60), "the commit has reached the lock of the log"
        return rename(fresh, log)

    monkeypatch.setattr(fcntl, "flock", announced)
    monkeypatch.setattr(Path, "replace", replaced)
    compact(held, SWEEP_ID)
    later.join(60)
    assert verify(held, SWEEP_ID, repair_backup=False) == []


def test_a_backup_is_not_replaced_once_that_is_refused(held: Ledger, tmp_path: Path) -> None:
    before = (tmp_path / LOG).read_bytes()
    compact(held, SWEEP_ID, may_replace=lambda: False)
    assert (tmp_path / LOG).read_bytes() == before


@pytest.mark.slow
def test_a_driver_leaves_a_long_backup_to_another_process(long_backup: Ledger, tmp_path: Path) -> None:
    before = (tmp_path / LOG).stat().st_size
    assert examine(long_backup, SWEEP_ID, ()).is_long
    assert (tmp_path / LOG).stat().st_size == before
    compact_beside(long_backup, SWEEP_ID)
    (process,) = multiprocessing.active_children()
    process.join(60)
    assert process.exitcode == 0
    assert (tmp_path / LOG).stat().st_size < before
    assert verify(long_backup, SWEEP_ID, repair_backup=False) == []


def test_a_short_backup_is_kept(held: Ledger, tmp_path: Path) -> None:
    before = (tmp_path / LOG).read_bytes()
    assert verify(held, SWEEP_ID) == []
    assert (tmp_path / LOG).read_bytes() == before


def test_a_state_with_a_damaged_part_is_not_recovered(
    long_backup: Ledger, sqlite_url: str, tmp_path: Path
) -> None:
    """The sweep was never in a state that only its first parts describe."""
    verify(long_backup, SWEEP_ID)
    log = tmp_path / LOG
    first, second, *others = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([first, b"x" + second, *others]))
    long_backup.close()
    os.truncate(tmp_path / "sweeps.db", 5000)
    with pytest.raises(Damaged, match="has a damaged first record"):
        recover(sqlite_url)


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("step", ["write", "flush", "rename", "end"])
def test_a_process_can_be_killed_while_it_rewrites_a_backup(
    held: Ledger, sqlite_url: str, tmp_path: Path, step: str
) -> None:
    process = start(program("rewrites_rows"), sqlite_url, step)
    process.communicate()
    assert process.returncode == -9
    assert verify(held, SWEEP_ID, repair_backup=False) == []
    says = everything(held)
    held.close()
    os.truncate(tmp_path / "sweeps.db", 5000)
    assert not recover(sqlite_url).lost
    assert everything(Ledger.open(sqlite_url)) == says


def test_recovery_counts_what_both_damaged_files_have_lost(
    held: Ledger, sqlite_url: str, tmp_path: Path
) -> None:
    """With both files damaged the ledger is recovered to the last intact commit of its log."""
    log = tmp_path / LOG
    held.close()
    (tmp_path / "sweeps.db").write_bytes(b"")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:8], b"x" + lines[8], *lines[9:]]))
    rebuilt = recover(sqlite_url)
    assert (rebuilt.commits, rebuilt.lost) == ({SWEEP_ID: 8}, {SWEEP_ID: len(lines) - 8})
    ledger = Ledger.open(sqlite_url)
    assert [trial.state for trial in ledger.trials(SWEEP_ID)] == ["COMPLETE", "WAITING"]
    ledger.close()
    log.unlink()
    with pytest.raises(Damaged, match="backup"):
        recover(sqlite_url)


def test_nothing_is_recovered_under_a_driver(held: Ledger, sqlite_url: str) -> None:
    """Files are not replaced while a driver writes to them."""
    with Lease(held, SWEEP_ID), pytest.raises(Busy, match=SWEEP_ID):
        recover(sqlite_url)


def test_a_driver_that_starts_during_a_recovery_writes_to_the_rebuilt_ledger(
    held: Ledger, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the recovery to end; the file that it had opened before is put aside."""
    replaying, go_on = threading.Event(), threading.Event()
    put_aside = recovery._put_aside

    def wait(file: Path, now: float) -> Path:
        replaying.set()
        assert go_on.wait(60)
        return put_aside(file, now)

    monkeypatch.setattr(recovery, "_put_aside", wait)
    rebuilding = threading.Thread(target=recover, args=[sqlite_url])
    rebuilding.start()
    assert replaying.wait(60)
    taken = threading.Event()

    def drive() -> None:
        with Lease(held, "another") as lease:
            taken.set()
            lease.writer.create_sweep(sweep_record(id="another"))
            lease.writer.add_trial(trial_record(0, sweep_id="another"))

    driver = threading.Thread(target=drive)
    driver.start()
    assert not taken.wait(1.0)
    go_on.set()
    rebuilding.join()
    driver.join()
    rebuilt = Ledger.open(sqlite_url)
    assert [trial.number for trial in rebuilt.trials("another")] == [0]
    assert len(rebuilt.trials(SWEEP_ID)) == 2
    rebuilt.close()


def test_a_commit_stands_although_its_backup_cannot_be_written(
    held: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning is logged, and the next start repairs the backup."""

    def full(_: object) -> bytes:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("orchestrator.ledger.backup._line", full)
        writer(held).add_trial(trial_record(2))
    assert "falls behind" in caplog.text
    assert held.trial(trial_record(2).key) == trial_record(2)
    assert "rewritten" in verify(held, SWEEP_ID)[0]


def _change(ledger: Ledger, statement: str) -> None:
    with ledger.writer() as connection:
        if statement.startswith("PRAGMA"):
            connection.exec_driver_sql("COMMIT")
        connection.execute(text(statement))
        if not statement.startswith("PRAGMA"):
            connection.commit()
