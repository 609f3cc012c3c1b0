"""Rebuild a damaged SQLite ledger from its backup, up to the last commit that the backup holds."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar
from urllib.parse import unquote

from sqlalchemy import URL, Engine, Table, insert, update

from orchestrator.errors import Busy, Damaged
from orchestrator.ledger import backup
from orchestrator.ledger.connect import SQLITE_PARTS, WRITING, connect, database_file, is_file, parse
from orchestrator.ledger.integrity import replay, starts_whole, tally
from orchestrator.ledger.lease_backends import is_held
from orchestrator.ledger.row_backup import kept, row_files
from orchestrator.ledger.rows import opened
from orchestrator.ledger.schema import (
    MIGRATION_LOCK,
    RECOVERY_LOCK,
    create_tables,
    ledger_id,
    lock_folder,
    migration_lock,
    refused_without_space,
)
from orchestrator.ledger.tables import (
    IDENTITY,
    LEASE,
    METADATA,
    MLFLOW_RUN,
    NOTE,
    OWNER,
    PRIORITY,
    SERVICE_USER,
    SHELF,
    STOP_REQUEST,
    SUBMISSION,
    TALLY,
    TRIAL_REQUEST,
    WANTED_SETTING,
)
from orchestrator.system import System

WRITER_SECONDS = 30.0
"""Longest wait for changes that other processes make without a lease."""

POLL_SECONDS = 0.1

Result = TypeVar("Result")


@dataclass(frozen=True)
class Recovery:
    """The result of a recovery.

    Attributes:
        commits: Number of commits in the rebuilt ledger, by sweep.
        lost: Number of commits that only a damaged part of the log holds, by sweep.
        submissions: Ids of the submissions in the rebuilt ledger.
        lost_submissions: Ids of the submissions whose files in the backup are damaged.
        users: Names of the users of the HTTP API in the rebuilt ledger.
        lost_users: Names of the users whose files in the backup are damaged, who must be added again.
        decisions: Tables and keys of stop requests, settings to try, priorities and owners in the rebuilt
            ledger, such as `priority a-1`.
        lost_decisions: Tables and keys of the decisions whose files in the backup are damaged, which must be
            made again.
        damaged: Folder to which the damaged database was moved.
    """

    commits: dict[str, int]
    lost: dict[str, int]
    submissions: list[str]
    lost_submissions: list[str]
    users: list[str]
    lost_users: list[str]
    decisions: list[str]
    lost_decisions: list[str]
    damaged: Path


def recover(url: str, system: System = System()) -> Recovery:
    """Rebuild the ledger at `url`, and move the damaged files aside.

    Args:
        url: URL of the ledger.
        system: System of this process.

    Raises:
        BadInput: `url` cannot be a ledger.
        Busy: A driver uses the ledger, or another process has been changing it for `WRITER_SECONDS`.
        Damaged: The ledger has no backup.
    """
    address = parse(url)
    file = database_file(address)
    if not (is_file(address) and backup.has_backup(address)):
        where = address.render_as_string(hide_password=True)
        remedy = "Restore it from a backup of your own, or start with an empty ledger."
        raise Damaged(where, "has no backup beside it", "", remedy)
    with migration_lock(address), _alone(lock_folder(address), system):
        fresh = file.with_name(f"{file.name}.recovering")
        _remove(fresh)
        engine = connect(address.set(database=str(fresh)))
        create_tables(engine, fresh)
        _restore_id(engine, address)
        logs = sorted(backup.backup_folder(address).glob("*.log"))
        replayed = {log.stem: _replay(engine, log, int(system.time())) for log in logs}
        submissions, lost_submissions = _restore(engine, address, SUBMISSION)
        users, lost_users = _restore(engine, address, SERVICE_USER)
        decisions, lost_decisions = [], []
        for table in (STOP_REQUEST, WANTED_SETTING, TRIAL_REQUEST, NOTE, SHELF, PRIORITY, OWNER):
            intact, damaged = _restore(engine, address, table)
            decisions += [f"{table.name} {key}" for key in intact]
            lost_decisions += [f"{table.name} {key}" for key in damaged]
        engine.dispose()
        aside = _put_aside(file, system.time())
        fresh.replace(file)
    lost = {name: known - rebuilt for name, (rebuilt, known) in replayed.items() if known > rebuilt}
    commits = {name: rebuilt for name, (rebuilt, _) in replayed.items()}
    return Recovery(
        commits,
        lost,
        submissions,
        lost_submissions,
        users,
        lost_users,
        decisions,
        lost_decisions,
        aside,
    )


def rebuilding_if_damaged(
    work: Callable[[], Result], url: str, say: Callable[[str], None], system: System = System()
) -> Result:
    """Return the result of `work`; if the ledger is damaged, rebuild it and call `work` once more.

    Args:
        work: Function that uses the ledger.
        url: URL of the ledger's database.
        say: Function that receives the damage, and where the damaged file is kept.
        system: System of this process.

    Raises:
        Busy: A process uses the ledger; it cannot be replaced now.
        Damaged: The ledger is damaged beyond its backup.
    """
    try:
        return work()
    except Damaged as damage:
        say(str(damage))
        kept_as = recover(url, system).damaged
        say(f"The ledger is rebuilt from its backup; the damaged file is kept as {kept_as}.")
        return work()


@contextmanager
def _alone(folder: Path, system: System) -> Iterator[None]:
    """Prevent drivers from taking a lease, and other processes from changing rows, within a `with` block.

    A change without a lease takes milliseconds unless the database is locked, and is waited for.

    Raises:
        Busy: A driver holds a lease, or a change does not end.
        NoSpace: The disk is full, and the file of the lock does not exist yet.
    """
    with refused_without_space(folder):
        alone = (folder / RECOVERY_LOCK).open("a")
    with alone:
        began = system.monotonic()
        while not _locked(alone):
            others = {MIGRATION_LOCK, RECOVERY_LOCK}
            driven = [path.name for path in folder.iterdir() if path.name not in others and is_held(path)]
            if driven:
                raise Busy(f"sweep {driven[0]}", "has a running driver", "", "Stop it first, with `stop`.")
            if system.monotonic() - began > WRITER_SECONDS:
                raise Busy("ledger", "is being changed by another process", "", "Try again in a minute.")
            system.sleep(POLL_SECONDS)
        yield


def _locked(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _replay(engine: Engine, log: Path, now: int) -> tuple[int, int]:
    """Write the rows of a log; return the numbers of their last commit and of the newest known commit."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    commits = 0
    for entry in backup.entries(log):
        if not rows and not starts_whole(entry):
            break
        replay(entry, rows)
        # The sweep was never in a state that only the first parts describe.
        commits = 0 if entry.following else entry.number
    if commits == 0:
        remedy = "Remove the log, to recover the ledger without its sweep."
        raise Damaged(str(log), "has a damaged first record", "", remedy)
    with engine.connect().execution_options(**{WRITING: True}) as connection, connection.begin():
        for (name, *_), row in rows.items():
            opened(METADATA.tables[name], [row[column.name] for column in METADATA.tables[name].columns])
            connection.execute(insert(METADATA.tables[name]), row)
        summed = tally(commits, [row["row_digest"] for row in rows.values()])
        connection.execute(insert(TALLY), {"sweep_id": log.stem, **asdict(summed)})
        lease = {"number": _lease_number(rows, now), "holder": "", "expires_at": 0.0}
        connection.execute(insert(LEASE), {"sweep_id": log.stem, **lease})
    return commits, max(commits, backup.newest(log))


def _restore(engine: Engine, address: URL, table: Table) -> tuple[list[str], list[str]]:
    """Write the rows of the backup's files; return their keys, and the keys of damaged files."""
    [key] = table.primary_key.columns
    rows = {unquote(file.stem): kept(file) for file in row_files(address, table)}
    intact = [row for row in rows.values() if row is not None]
    with engine.connect().execution_options(**{WRITING: True}) as connection, connection.begin():
        for row in intact:
            connection.execute(insert(table), dict(row))
    return [row[key.name] for row in intact], [name for name, row in rows.items() if row is None]


def _lease_number(rows: Mapping[tuple[Any, ...], Mapping[str, Any]], now: int) -> int:
    """Return a number above every token of the damaged ledger, because MLflow's runs carry these tokens.

    The backup holds only the tokens that recorded a run. Tokens count up from 1, or from the time of an
    earlier recovery, and no sweep is driven more than once a second, so no token exceeds the present time.
    """
    recorded: list[int] = [row["number"] for (name, *_), row in rows.items() if name == MLFLOW_RUN.name]
    return max([now, *recorded])


def _restore_id(engine: Engine, address: URL) -> None:
    """Set the id of a rebuilt ledger to that in its backup, because it identifies checkpoints in a store."""
    if (kept := backup.kept_id(address)) is not None:
        with engine.connect().execution_options(**{WRITING: True}) as connection, connection.begin():
            connection.execute(update(IDENTITY).values(id=kept))
    backup.keep_id(address, ledger_id(engine))


def _put_aside(file: Path, now: float) -> Path:
    aside = file.with_name(f"{file.stem}.damaged-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}")
    aside.mkdir(exist_ok=True)
    for part in SQLITE_PARTS:
        path = file.with_name(file.name + part)
        if path.exists():
            path.replace(aside / path.name)
    return aside


def _remove(file: Path) -> None:
    for part in SQLITE_PARTS:
        file.with_name(file.name + part).unlink(missing_ok=True)
