"""Superseded checkpoints are deleted from the store in the end, whatever fails; `gc` deletes orphans."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import Busy, NoStore
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.storage import store
from orchestrator.storage.paths import Paths
from orchestrator.upkeep import deletions
from orchestrator.upkeep.deletions import delete_batch, deleting
from orchestrator.upkeep.orphans import YOUNG_SECONDS, collect, garbage_of, stored_garbage
from tests.orchestrator.ledger.examples import (
    SWEEP_ID,
    create_sweep,
    saved,
    trial_record,
    writer,
)

STORE = "s3://bucket"


@pytest.fixture
def lease(sqlite_url: str) -> Iterator[Lease]:
    """Hold the lease of a sweep whose trial 0 has superseded the checkpoints of steps 1 to 8."""
    ledger = Ledger.open(sqlite_url)
    create_sweep(ledger)
    with Lease(ledger, SWEEP_ID) as lease:
        trial = trial_record()
        lease.writer.add_trial(trial)
        attempt = lease.writer.start_attempt(trial.key)
        for step in range(1, 11):
            checkpoints = [saved(trial.key, step)]
            lease.writer.record_report(
                attempt.id, step, {}, checkpoints, stored=lambda it: f"{STORE}/{it.name}"
            )
        yield lease
    ledger.close()


def pending(lease: Lease) -> list[str]:
    return [target.rpartition("-")[2] for target in lease.writer.ledger.deletions(SWEEP_ID, 100)]


def test_the_commit_that_supersedes_a_checkpoint_notes_its_deletion(lease: Lease) -> None:
    assert pending(lease) == [str(step) for step in range(1, 9)]


def test_what_was_deleted_is_forgotten_and_what_failed_is_tried_again(lease: Lease) -> None:
    """The failed deletion does not delay the others."""
    deleted: list[str] = []

    def delete(url: str) -> None:
        if url.endswith("-3") and len(deleted) < 7:
            raise NoStore(url, "must answer", "a timeout", "Wait.")
        deleted.append(url)

    with pytest.raises(NoStore):
        delete_batch(lease, delete)
    assert len(deleted) == 2
    assert pending(lease)[-1] == "3"
    assert delete_batch(lease, delete) == 6
    assert pending(lease) == []
    assert len(deleted) == len(set(deleted)) == 8
    assert deleted[-1].endswith("-3"), "failed deletions come after those that were not tried"


def test_a_thread_deletes_until_nothing_is_left_whatever_fails(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletions, "BATCH", 2)
    monkeypatch.setattr(deletions, "RETRY_SECONDS", 0.05)
    calls: list[str] = []

    def delete(url: str) -> None:
        calls.append(url)
        if len(calls) % 3 == 0:
            raise NoStore(url, "must answer", "a timeout", "Wait.")

    with deleting(lease, delete) as nudge:
        nudge()
        deadline = time.monotonic() + 20
        while pending(lease) and time.monotonic() < deadline:
            time.sleep(0.02)
    assert pending(lease) == []


def test_a_deletion_that_failed_is_not_tried_again_at_each_nudge(lease: Lease) -> None:
    """A driver nudges twice a second; a store that is out gets one call in `RETRY_SECONDS`."""
    calls: list[str] = []

    def delete(url: str) -> None:
        calls.append(url)
        raise NoStore(url, "must answer", "a timeout", "Wait.")

    with deleting(lease, delete) as nudge:
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            nudge()
            time.sleep(0.02)
        assert len(calls) == 1
    assert len(calls) == 2, "the last try of the driver"


def test_a_driver_that_lost_its_lease_deletes_nothing(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    writer(lease.writer.ledger)  # another driver takes the next token

    def lost() -> None:
        raise Busy(SWEEP_ID, "must have one driver", "another", "Leave.")

    monkeypatch.setattr(lease, "check", lost)
    deleted: list[str] = []
    with pytest.raises(Busy):
        delete_batch(lease, deleted.append)
    assert deleted == []


def test_orphans_in_the_store_are_collected_once_they_are_old(sqlite_url: str, tmp_path: Path) -> None:
    """Files that a row refers to, recent ones and those of another ledger are kept."""
    ledger, paths = Ledger.open(sqlite_url), Paths(tmp_path, store=f"file://{tmp_path}/store")
    create_sweep(ledger)
    write, trial = writer(ledger), trial_record()
    write.add_trial(trial)
    attempt = write.start_attempt(trial.key)
    write.record_report(attempt.id, 10, {}, [saved(trial.key, 10, path="/elsewhere/known")])
    own = tmp_path / "store" / ledger.id / SWEEP_ID / trial.key
    other = tmp_path / "store" / "another" / SWEEP_ID / trial.key
    for folder in (own / "known", own / "orphan", own / "young", other / "orphan"):
        folder.mkdir(parents=True)
        (folder / "arrays.npz").write_bytes(b"0123456789")
        if folder.name != "young":
            before = time.time() - YOUNG_SECONDS - 60
            os.utime(folder / "arrays.npz", (before, before))
    (garbage,) = stored_garbage(ledger, SWEEP_ID, paths)
    assert (garbage.path, garbage.bytes) == (f"file://{own}/orphan", 10)
    collect(garbage)
    assert sorted(path.name for path in own.iterdir()) == ["known", "young"]
    assert (other / "orphan").exists()
    assert stored_garbage(ledger, SWEEP_ID, paths) == []
    assert store.stored(f"file://{tmp_path}/store/{ledger.id}/none") == []
    ledger.close()


def test_garbage_is_listed_after_a_flush_of_what_made_it_garbage(
    lease: Lease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a ledger that loses its last commits with its power refers to what `gc` has deleted."""
    flushed: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115 - a descriptor
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    garbage_of(lease.writer.ledger, SWEEP_ID, Paths(tmp_path))
    assert str(tmp_path / "sweeps.db-wal") in flushed
