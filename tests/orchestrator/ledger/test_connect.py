"""The addresses of ledgers, and the refusals of other addresses."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from orchestrator.errors import BadInput, NoDatabase, NoSpace
from orchestrator.ledger import connect
from orchestrator.ledger import ledger as ledger_module
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.system import System
from tests.orchestrator.ledger.examples import SWEEP_ID, create_sweep, sweep_record
from tests.orchestrator.ledger.processes import ROOT
from tests.postgres import Server

SECRET = "correct-horse"


class Unhurried(System):
    """A system in which waiting takes no time."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    "url", ["", "sqlite://", "sqlite:///:memory:", "mysql://u@h/d", "postgresql://h", f"x:{SECRET}", "no url"]
)
def test_other_addresses_are_refused(url: str) -> None:
    """Only a file or a PostgreSQL database can be a ledger, and the refusal names both."""
    with pytest.raises(BadInput, match=r"sqlite:///.*postgresql://") as refusal:
        Ledger.open(url)
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "lustre"])
def test_a_network_disk_is_refused(sqlite_url: str, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A SQLite file is refused on a file system without reliable locks, before anything is written."""
    monkeypatch.setattr(connect, "file_system", lambda _: kind)
    with pytest.raises(BadInput, match=f"local disk.*{kind}.*postgresql://"):
        Ledger.open(sqlite_url)
    assert not Path(sqlite_url.removeprefix("sqlite:///")).exists()


def test_file_systems_are_known(tmp_path: Path) -> None:
    """The type is that of the innermost mount, even for a folder that does not exist."""
    assert connect.file_system(Path("/proc/self")) == "proc"
    assert connect.file_system(tmp_path / "does" / "not-exist") == connect.file_system(tmp_path) != ""


def test_a_password_is_never_shown() -> None:
    """No refusal, cause of a refusal or representation holds it."""
    url = f"postgresql://sweep:{SECRET}@127.0.0.1:1/database"
    with pytest.raises(NoDatabase, match="does not answer") as refusal:
        Ledger.open(url)
    error: BaseException | None = refusal.value
    while error is not None:
        assert SECRET not in f"{error!r} {error}"
        error = error.__cause__ or error.__context__
    address = connect.parse(url)
    assert SECRET not in repr(Ledger(address, connect.connect(address)))


def test_a_ledger_is_created_only_if_asked_for(sqlite_url: str) -> None:
    """Opening for reading creates no file."""
    with pytest.raises(BadInput, match="Run a sweep first"):
        Ledger.open(sqlite_url, create=False)
    assert list(Path(sqlite_url.removeprefix("sqlite:///")).parent.iterdir()) == []
    Ledger.open(sqlite_url).close()
    Ledger.open(sqlite_url, create=False).close()


class Waiting(System):
    """A system on which time passes only while a process waits."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


LOST = OperationalError("SELECT 1", {}, Exception("connection refused"))


def test_a_server_may_be_away_for_any_time() -> None:
    """A driver waits, and reports once that it waits and once that the server answers; a command gives up."""
    lines: list[str] = []

    def attempt() -> str:
        if system.now < 600.0:
            raise LOST
        return "answered"

    system = Waiting()
    with pytest.raises(NoDatabase, match="connection refused"):
        connect.with_retries(attempt, "here", system=system)
    assert system.now < 100.0
    system = Waiting()
    got = connect.with_retries(
        attempt, "here", reconnect_seconds=math.inf, system=system, notify=lines.append
    )
    assert got == "answered"
    assert len(lines) == 2
    assert "here has not answered since" in lines[0]
    assert "connection refused" in lines[0]
    assert lines[1].startswith("here answers again, after 60")


@pytest.mark.parametrize(("sqlstate", "name"), [("40P01", "a deadlock"), ("55P03", "a lock timeout")])
def test_a_server_whose_transactions_block_each_other_answers(sqlstate: str, name: str) -> None:
    """A blocked transaction is tried again a few times; the server is not reported as lost."""
    tries: list[str] = []

    def attempt() -> None:
        tries.append(name)
        blocked = Exception(name)
        blocked.sqlstate = sqlstate  # type: ignore[attr-defined]
        raise OperationalError("UPDATE", {}, blocked)

    with pytest.raises(BadInput, match=rf"here: transactions block each other \(got {name}\)"):
        connect.with_retries(attempt, "here", system=Unhurried())
    assert len(tries) == connect.BUSY_TRIES


def test_a_migration_waits_by_the_clock_of_its_system(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, migrate = Unhurried(), ledger_module.migrate

    def locked(engine: Any, address: Any) -> None:
        if not system.now:
            blocked = Exception("locked")
            blocked.sqlite_errorname = "SQLITE_BUSY"  # type: ignore[attr-defined]
            raise OperationalError("BEGIN IMMEDIATE", {}, blocked)
        migrate(engine, address)

    monkeypatch.setattr(ledger_module, "migrate", locked)
    Ledger.open(sqlite_url, system=system).close()
    assert system.now > 0.0


def test_every_connection_to_a_server_has_timeouts(postgres_url: str) -> None:
    """A server that is cut off, or a lock that another driver holds, must not block for ever."""
    ledger = Ledger.open(postgres_url)
    with ledger.reader() as connection:
        for name, value in {"statement_timeout": "1min", "lock_timeout": "20s"}.items():
            assert connection.execute(text(f"SHOW {name}")).scalar_one() == value
        idle = connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one()
        assert idle == "30s"
        driver: Any = connection.connection.driver_connection
        parameters = driver.info.get_parameters()
    assert {name: int(parameters[name]) for name in connect.SOCKET_OPTIONS} == connect.SOCKET_OPTIONS
    ledger.close()


@pytest.mark.parametrize("last", [True, False], ids=["before the commit", "before a statement"])
def test_a_transaction_that_a_server_ends_is_run_again(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    """A driver that is stopped inside a transaction loses the session, and repeats the transaction."""
    name = "idle_in_transaction_session_timeout"
    monkeypatch.setattr(connect, "SERVER_TIMEOUTS", {**connect.SERVER_TIMEOUTS, name: "100ms"})
    engine, tries = connect.connect(connect.parse(postgres_url)), []

    def attempt() -> None:
        with engine.begin() as connection:
            connection.execute(text("SELECT 1"))
            tries.append(last)
            time.sleep(0.5 if len(tries) == 1 else 0.0)
            if not last:
                connection.execute(text("SELECT 2"))

    connect.with_retries(attempt, "here")
    engine.dispose()
    assert len(tries) == 2


def test_a_refusal_is_not_replaced_when_the_server_is_gone(
    postgres_server: Server, postgres_url: str
) -> None:
    """A failure to release the lease is ignored: the row expires by itself."""
    ledger = Ledger.open(postgres_url)

    def fail() -> None:
        with Lease(ledger, SWEEP_ID):
            postgres_server.stop()
            raise NoSpace("disk", "needs space", "none", "Free some.")

    try:
        with pytest.raises(NoSpace):
            fail()
    finally:
        postgres_server.start()
    ledger.close()


def test_a_full_disk_is_refused_and_changes_nothing(sqlite_url: str) -> None:
    """If the file cannot grow, the whole change is refused; with more space it succeeds."""
    ledger = Ledger.open(sqlite_url)
    with ledger.writer() as connection:
        pages = connection.execute(text("PRAGMA page_count")).scalar_one()
        connection.execute(text(f"PRAGMA max_page_count={pages}"))
        connection.commit()
    large = sweep_record(document={"x": "x" * 100_000})
    with pytest.raises(NoSpace, match="space"):
        create_sweep(ledger, large)
    assert ledger.sweeps() == []
    with ledger.writer() as connection:
        connection.execute(text(f"PRAGMA max_page_count={10 * pages}"))
        connection.commit()
    create_sweep(ledger, large)
    assert ledger.sweeps() == [large]


def test_opening_a_ledger_imports_little(sqlite_url: str) -> None:
    """Opening a current ledger imports neither Alembic nor any package that takes seconds."""
    Ledger.open(sqlite_url).close()
    code = (
        "import sys; from orchestrator.ledger.ledger import Ledger; Ledger.open(sys.argv[1]).sweeps();"
        "print(sorted({'alembic', 'ray', 'optuna', 'mlflow', 'jax', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, sqlite_url], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_ledger_knows_how_long_its_database_has_kept_it_waiting(sqlite_url: str) -> None:
    """A transaction of more than five seconds counts, and what two of them wait for at once counts once."""
    system = Waiting()
    with closing(Ledger.open(sqlite_url, system=system, reconnect_seconds=math.inf)) as ledger:

        def away_until(end: float) -> None:
            if system.now < end:
                raise LOST

        ledger.retried(lambda: away_until(3.0))
        assert ledger.outages.seconds == 0.0
        began = system.now
        ledger.retried(lambda: away_until(600.0))
        assert ledger.outages.seconds == system.now - began
        ledger.outages.add(began, system.now + 20.0)
        ledger.outages.add(began - 10.0, system.now)
        assert ledger.outages.seconds == system.now - began + 30.0
        ledger.outages.add(system.now + 100.0, system.now + 110.0)
        ledger.outages.add(began - 20.0, system.now + 120.0)
        assert ledger.outages.seconds == system.now - began + 140.0
