"""One driver a sweep: a second one leaves, a dead one is followed, one that was cut off can do nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import time

import pytest
from sqlalchemy import func, select, update

from orchestrator.errors import Busy
from orchestrator.ledger.lease import Lease, holder
from orchestrator.ledger.lease_backends import PROBE_SECONDS, Holder, RowLease
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.tables import LEASE
from tests.orchestrator.ledger.examples import SWEEP_ID, event, sweep_record, trial_record
from tests.orchestrator.ledger.processes import line, start

DRIVE = """
import sys, time
from orchestrator.errors import Busy
from orchestrator.ledger.lease import Lease
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


def _say(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_one_of_five_drivers_drives(ledger: Ledger, url: str) -> None:
    """Of five that start together one drives; the others name it within 3 s; one may follow at its end."""
    drivers = [_drive(url) for _ in range(5)]
    began = time.monotonic()
    for driver in drivers:
        _say(driver)
    said = [line(driver) for driver in drivers]
    assert time.monotonic() - began < 3.0
    assert said.count("driving") == 1
    first = drivers[said.index("driving")]
    refusal = next(words for words in said if words != "driving")
    assert refusal.startswith("refused")
    assert f"process {first.pid} on {socket.gethostname()}" in refusal
    found = holder(ledger, SWEEP_ID)
    assert found is not None
    assert (found.pid, found.host) == (first.pid, socket.gethostname())
    _say(first)
    for driver in drivers:
        driver.communicate(timeout=30)
    assert holder(ledger, SWEEP_ID) is None
    with Lease(ledger, SWEEP_ID):
        pass


def test_a_dead_driver_is_followed_at_once(ledger: Ledger, url: str) -> None:
    """A killed driver holds nothing, whatever is written of it."""
    driver = _drive(url)
    _say(driver)
    assert line(driver) == "driving"
    with pytest.raises(Busy, match=f"process {driver.pid}"), Lease(ledger, SWEEP_ID):
        pass
    driver.kill()
    driver.communicate()
    assert holder(ledger, SWEEP_ID) is None
    began = time.monotonic()
    with Lease(ledger, SWEEP_ID):
        mine = holder(ledger, SWEEP_ID)
        assert mine is not None
        assert mine.pid == os.getpid()
    assert time.monotonic() - began < 1.0


def test_a_second_driver_does_not_wait(ledger: Ledger) -> None:
    """That another drives is known at once; only a glance of `status` at the lock is waited for."""
    with Lease(ledger, SWEEP_ID):
        began = time.monotonic()
        with pytest.raises(Busy), Lease(ledger, SWEEP_ID):
            pass
        assert time.monotonic() - began < 5 * PROBE_SECONDS


def test_sweeps_have_leases_of_their_own(ledger: Ledger) -> None:
    """Two sweeps of one ledger are driven at the same time; one of them not twice, even by one process."""
    with Lease(ledger, SWEEP_ID), Lease(ledger, "other"):
        with pytest.raises(Busy), Lease(ledger, "other"):
            pass
        assert holder(ledger, "other") is not None
    assert holder(ledger, "never") is None


def test_a_driver_elsewhere_is_waited_for(postgres_url: str) -> None:
    """A driver on another machine is taken to live as long as its row does, by the server's clock."""
    ledger = Ledger.open(postgres_url)
    ledger.create_sweep(sweep_record())
    with Lease(ledger, SWEEP_ID):
        elsewhere = Holder(1, "far-away", "another boot", 0.0, time.time() - 100)
        _set(ledger, holder=elsewhere.write())
        with pytest.raises(Busy, match=r"process 1 on far-away, for 10\d s"), Lease(ledger, SWEEP_ID):
            pass
        _set(ledger, expires_at=0.0)
        other = Ledger.open(postgres_url)
        with Lease(other, SWEEP_ID):
            other.add_trial(trial_record(0))
            with pytest.raises(Busy):
                ledger.add_trial(trial_record(1), [event("x", 1)])
        assert [trial.number for trial in other.trials(SWEEP_ID)] == [0]
        assert other.backlog(SWEEP_ID) == 0
        other.close()
    ledger.add_trial(trial_record(1))
    ledger.close()


def test_the_lease_of_a_lost_machine_is_outwaited(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver on another machine that renews is refused to within 3 s; one that does not is followed."""
    ledger, other = Ledger.open(postgres_url), Ledger.open(postgres_url)
    elsewhere = Holder(1, "far-away", "another boot", 0.0, time.time()).write()
    told: list[str] = []
    with Lease(ledger, SWEEP_ID):
        _set(ledger, holder=elsewhere)
        began = time.monotonic()
        with pytest.raises(Busy, match="process 1 on far-away"), Lease(other, SWEEP_ID, told.append):
            pass
        assert time.monotonic() - began < 3.0
        assert not told
    with ledger.writer() as connection, connection.begin():
        ends = connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one()
    _set(ledger, holder=elsewhere, expires_at=float(ends) + 3.0)
    with pytest.raises(Busy), Lease(other, SWEEP_ID):
        pass
    with Lease(other, SWEEP_ID, told.append):
        mine = holder(other, SWEEP_ID)
        assert mine is not None
        assert mine.pid == os.getpid()
    assert told == ["process 1 on far-away is silent: waiting until its lease expires, 45 s at most."]
    ledger.close()
    other.close()


def test_a_lease_is_renewed_until_it_is_lost(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row is kept alive while it is held; a driver whose row was taken learns of it."""
    monkeypatch.setattr("orchestrator.ledger.lease_backends.LIFE_SECONDS", 1.0)
    monkeypatch.setattr("orchestrator.ledger.lease_backends.RENEW_SECONDS", 0.2)
    ledger = Ledger.open(postgres_url)
    lease = RowLease(ledger.writer, SWEEP_ID)
    lease.take()
    time.sleep(1.5)
    assert holder(ledger, SWEEP_ID) is not None
    _set(ledger, token=lease.token + 1)
    time.sleep(0.6)
    assert lease.lost
    lease.release()
    ledger.close()


def test_a_reused_process_number_is_not_a_holder() -> None:
    """A process of the same number that began at another time is another process."""
    mine = Holder.here()
    assert not mine.is_dead()
    assert Holder(mine.pid, mine.host, mine.place, mine.started - 100, mine.since).is_dead()
    assert not Holder(mine.pid, mine.host, "another boot", 0.0, mine.since).is_dead()
    assert Holder.read("not JSON") is None
    assert Holder.read(mine.write()) == mine


def _set(ledger: Ledger, **columns: object) -> None:
    with ledger.writer() as connection:
        connection.execute(update(LEASE).values(**columns))
        connection.commit()
