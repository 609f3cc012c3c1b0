"""A sweep has one driver: a second one is refused, a dead one is replaced, a stale one is fenced off."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from orchestrator.errors import Busy, NoSpace
from orchestrator.ledger import connect, row_backup
from orchestrator.ledger.compaction import compact
from orchestrator.ledger.holder import Holder
from orchestrator.ledger.lease_backends import PROBE_SECONDS, next_token
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue.queue_settings import ask_to_stop
from orchestrator.ledger.sweeps.lease import Lease, holder
from orchestrator.ledger.tables import LEASE
from orchestrator.system import System
from orchestrator.upkeep.recovery import recover
from tests.orchestrator.ledger.examples import SWEEP_ID, create_sweep, event, sweep_record, trial_record
from tests.orchestrator.ledger.processes import line, start

DRIVE = """
import sys, time
from orchestrator.errors import Busy
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.ledger import Ledger
ledger = Ledger.open(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
try:
    with Lease(ledger, "copy-laptop-0123abcd"):
        print("driving", flush=True)
        sys.stdin.readline()
except Busy as refusal:
    print("refused", refusal, flush=True)
"""


def _drive(url: str) -> subprocess.Popen[str]:
    process = start(DRIVE, url)
    assert line(process) == "ready"
    return process


def _proceed(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.slow_after(1)
def test_one_of_five_drivers_drives(ledger: Ledger, url: str) -> None:
    """Of five drivers that start together one drives, and the others name it within 3 s."""
    drivers = [_drive(url) for _ in range(5)]
    began = time.monotonic()
    for driver in drivers:
        _proceed(driver)
    said = [line(driver) for driver in drivers]
    assert time.monotonic() - began < 3.0
    assert said.count("driving") == 1
    first = drivers[said.index("driving")]
    refusal = next(words for words in said if words != "driving")
    assert refusal.startswith("refused")
    assert f"process {first.pid} on {socket.gethostname()}" in refusal
    holding = holder(ledger, SWEEP_ID)
    assert holding is not None
    assert (holding.pid, holding.host) == (first.pid, socket.gethostname())
    _proceed(first)
    for driver in drivers:
        driver.communicate(timeout=30)
    assert holder(ledger, SWEEP_ID) is None
    with Lease(ledger, SWEEP_ID):
        pass


def test_a_lease_is_renewed_while_another_process_writes(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number is read, so the renewal does not wait for the write lock of SQLite."""
    monkeypatch.setattr(connect, "BUSY_SECONDS", 0.1)
    held = Ledger.open(sqlite_url)
    with Lease(held, SWEEP_ID, renew_seconds=60.0) as lease:
        with held.writer() as connection, connection.begin():
            lease._renew()
        assert not lease.lost
    held.close()


def test_a_dead_driver_is_replaced_at_once(ledger: Ledger, url: str) -> None:
    """A killed driver holds no lease, although the file or the row still names it."""
    driver = _drive(url)
    _proceed(driver)
    assert line(driver) == "driving"
    with pytest.raises(Busy, match=f"process {driver.pid}"), Lease(ledger, SWEEP_ID):
        pass
    driver.kill()
    driver.communicate()
    assert holder(ledger, SWEEP_ID) is None
    began = time.monotonic()
    with Lease(ledger, SWEEP_ID):
        holding = holder(ledger, SWEEP_ID)
        assert holding is not None
        assert holding.pid == os.getpid()
    assert time.monotonic() - began < 1.0


def test_a_second_driver_does_not_wait(ledger: Ledger) -> None:
    """It is refused at once; only a short probe of the lock by `status` is waited for."""
    with Lease(ledger, SWEEP_ID):
        began = time.monotonic()
        with pytest.raises(Busy), Lease(ledger, SWEEP_ID):
            pass
        assert time.monotonic() - began < 5 * PROBE_SECONDS


def leased(ledger: Ledger) -> None:
    with Lease(ledger, SWEEP_ID):
        pass


REFUSED = {
    "a lease": ("a+", leased),
    "a change without a lease": ("a", lambda ledger: ask_to_stop(ledger, SWEEP_ID)),
    "recover": ("a", lambda ledger: recover(str(ledger.address), System())),
}


@pytest.mark.parametrize("change", REFUSED)
def test_a_full_disk_refuses_what_needs_the_file_of_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A file may be new: that of a lease for each sweep, that of changes once after the ledger was moved."""
    ledger = Ledger.open(f"sqlite:///{tmp_path}/sweeps.db")
    create_sweep(ledger)
    opened = Path.open
    full, run = REFUSED[change]

    def refuse(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if mode == full:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return opened(path, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(NoSpace, match="needs space for a lock"):
        run(ledger)
    monkeypatch.undo()
    with (tmp_path / "sweeps.locks" / "recovery").open("a") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    ledger.close()


NEEDING_THE_BACKUP = {
    "compaction": ("for a backup", lambda ledger: compact(ledger, SWEEP_ID)),
    "a submission": ("for a lock", lambda ledger: row_backup.keeping(ledger).__enter__()),
}


@pytest.mark.parametrize("change", NEEDING_THE_BACKUP)
def test_a_full_disk_refuses_what_locks_the_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    ledger = Ledger.open(f"sqlite:///{tmp_path}/sweeps.db")
    create_sweep(ledger)
    opened = os.open

    def refuse(path: str, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & os.O_CREAT and str(path).endswith("lock"):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return opened(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    what, run = NEEDING_THE_BACKUP[change]
    with pytest.raises(NoSpace, match=f"needs space {what}"):
        run(ledger)
    monkeypatch.undo()
    run(ledger)
    ledger.close()


def test_a_damaged_lock_file_refuses_a_lease_all_the_same(tmp_path: Path) -> None:
    """The lock counts, whatever the file says about its holder."""
    ledger = Ledger.open(f"sqlite:///{tmp_path}/sweeps.db")
    with Lease(ledger, SWEEP_ID):
        (lock,) = (tmp_path / "sweeps.locks").glob(f"{SWEEP_ID}*")
        lock.write_bytes(b"\xff\xfe{")
        with pytest.raises(Busy, match="another driver"), Lease(ledger, SWEEP_ID):
            pass
        assert holder(ledger, SWEEP_ID) is None
    ledger.close()


def test_each_sweep_has_its_own_lease(ledger: Ledger) -> None:
    """Two sweeps of a ledger can be driven at the same time, but no sweep twice, even by one process."""
    with Lease(ledger, SWEEP_ID), Lease(ledger, "other"):
        with pytest.raises(Busy), Lease(ledger, "other"):
            pass
        assert holder(ledger, "other") is not None
    assert holder(ledger, "never") is None


def test_a_driver_that_has_lost_its_lease_creates_no_sweep(ledger: Ledger) -> None:
    """Its lease is lost while it loads the data, before the row of a new sweep is written."""
    with Lease(ledger, SWEEP_ID) as first:
        next_token(ledger.writer, SWEEP_ID, Holder.here())
        with pytest.raises(Busy):
            first.writer.create_sweep(sweep_record(), [event(SWEEP_ID, 0)])
    assert ledger.sweep(SWEEP_ID) is None


def test_a_driver_whose_trial_another_one_has_ended_has_lost_its_lease(ledger: Ledger) -> None:
    """It reads the row of the new driver, for which its own change makes no sense."""
    create_sweep(ledger)
    ended = trial_record(0, state="COMPLETE", value=0.5)
    with Lease(ledger, SWEEP_ID) as first:
        first.writer.add_trial(ended)
        with pytest.raises(ValueError, match="COMPLETE"):
            first.writer.start_attempt(ended.key)
        next_token(ledger.writer, SWEEP_ID, Holder.here())
        with pytest.raises(Busy):
            first.writer.start_attempt(ended.key)


def test_a_driver_on_another_machine_holds_its_lease_until_it_expires(postgres_url: str) -> None:
    """A driver on another machine counts as alive until its row expires, by the server's clock."""
    ledger = Ledger.open(postgres_url)
    create_sweep(ledger)
    with Lease(ledger, SWEEP_ID) as first:
        elsewhere = Holder(1, "far-away", "another boot", 0, time.time() - 100)
        _set(ledger, holder=elsewhere.write())
        with pytest.raises(Busy, match=r"process 1 on far-away, for 10\d s"), Lease(ledger, SWEEP_ID):
            pass
        _set(ledger, expires_at=0.0)
        other = Ledger.open(postgres_url)
        with Lease(other, SWEEP_ID) as second:
            second.writer.add_trial(trial_record(0))
            with pytest.raises(Busy):
                first.writer.add_trial(trial_record(1), [event("x", 1)])
        assert [trial.number for trial in other.trials(SWEEP_ID)] == [0]
        assert other.backlog(SWEEP_ID) == 0
        other.close()
    ledger.close()


@pytest.mark.slow
def test_the_lease_of_a_lost_machine_is_waited_for(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the other driver renews, Busy is raised within 3 s; otherwise it is replaced when it expires."""
    ledger, other = Ledger.open(postgres_url), Ledger.open(postgres_url)
    elsewhere = Holder(1, "far-away", "another boot", 0, time.time()).write()
    reasons: list[str] = []
    with Lease(ledger, SWEEP_ID):
        _set(ledger, holder=elsewhere)
        began = time.monotonic()
        with pytest.raises(Busy, match="process 1 on far-away"), Lease(other, SWEEP_ID, reasons.append):
            pass
        assert time.monotonic() - began < 3.0
        assert not reasons
    with ledger.writer() as connection, connection.begin():
        ends = connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one()
    _set(ledger, holder=elsewhere, expires_at=float(ends) + 3.0)
    with pytest.raises(Busy), Lease(other, SWEEP_ID):
        pass
    with Lease(other, SWEEP_ID, reasons.append):
        holding = holder(other, SWEEP_ID)
        assert holding is not None
        assert holding.pid == os.getpid()
    assert reasons == ["process 1 on far-away is silent: waiting until its lease expires, 45 s at most."]
    ledger.close()
    other.close()


@pytest.mark.slow_after(1)
def test_a_lease_is_renewed_until_it_is_lost(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease is renewed while it is held; a driver whose number was raised by another one notices it."""
    monkeypatch.setattr("orchestrator.ledger.lease_backends.LIFE_SECONDS", 1.0)
    monkeypatch.setattr("orchestrator.ledger.sweeps.lease.RENEW_SECONDS", 0.2)
    create_sweep(ledger)
    lost = threading.Event()
    with Lease(ledger, SWEEP_ID, on_lost=lost.set) as lease:
        time.sleep(1.5)
        assert holder(ledger, SWEEP_ID) is not None
        lease.check()
        _set(ledger, number=lease.token.number + 1)
        assert lost.wait(10.0)
        with pytest.raises(Busy):
            lease.check()
        with pytest.raises(Busy):
            lease.writer.add_trial(trial_record(0))


def test_each_lease_taken_has_a_higher_number(ledger: Ledger) -> None:
    """A token with a higher number is newer, on either database."""
    numbers = []
    for _ in range(3):
        with Lease(ledger, SWEEP_ID) as lease:
            numbers.append(lease.token.number)
    assert numbers == [1, 2, 3]


def test_a_reused_process_id_is_not_the_holder() -> None:
    """A process with the same id and another start time is another process."""
    this = Holder.here()
    assert not this.is_dead()
    assert Holder(this.pid, this.host, this.place, this.start - 100, this.since).is_dead()
    assert not Holder(this.pid, this.host, "another boot", 0, this.since).is_dead()
    assert Holder.read("not JSON") is None
    assert Holder.read(this.write().replace(f'"pid": {this.pid}', f'"pid": "{this.pid}"')) is None
    assert Holder.read(this.write()) == this


def test_a_step_of_the_clock_kills_no_holder() -> None:
    """The start of a process is compared by the count of its machine, not by the wall clock."""

    class Stepped(System):
        def read(self, path: Path) -> str:
            text = super().read(path)
            return text if path != Path("/proc/stat") else re.sub(r"btime \d+", "btime 1", text)

        def time(self) -> float:
            return super().time() - 3600.0

    assert Holder.here().start == Holder.here(Stepped()).start
    assert not Holder.here().is_dead(Stepped())


def _set(ledger: Ledger, **columns: object) -> None:
    with ledger.writer() as connection:
        connection.execute(update(LEASE).values(**columns))
        connection.commit()
