"""Rebuild a damaged SQLite ledger from its backup, exactly up to the last commit that the backup holds."""

from __future__ import annotations

import fcntl
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, insert

from orchestrator.errors import Busy, Damaged
from orchestrator.ledger import backup
from orchestrator.ledger.connect import WRITING, connect, database_file, is_file, parse
from orchestrator.ledger.integrity import replay, starts_whole, tally
from orchestrator.ledger.rows import opened
from orchestrator.ledger.schema import exclusively, lock_folder, make_tables
from orchestrator.ledger.tables import METADATA, TALLY

MIGRATION = "migration"
PARTS = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True)
class Recovery:
    """What was done.

    Attributes:
        commits: by sweep, the number of commits that it was brought back to.
        lost: by sweep, the number of commits that only a damaged part of its log holds.
        damaged: where the damaged database was put aside.
    """

    commits: dict[str, int]
    lost: dict[str, int]
    damaged: Path


def recover(url: str) -> Recovery:
    """Rebuild the ledger at `url` and put the damaged files aside.

    Raises:
        BadInput: the address is not a ledger.
        Busy: a driver uses the ledger.
        Damaged: there is no backup to rebuild it from.
    """
    address = parse(url)
    file = database_file(address)
    logs = sorted(backup.backup_folder(address).glob("*.log")) if is_file(address) else []
    if not logs:
        where = address.render_as_string(hide_password=True)
        remedy = "Restore it from a backup of your own, or start anew."
        raise Damaged(where, "must have a backup beside it to be rebuilt", "none", remedy)
    with exclusively(lock_folder(address) / MIGRATION):
        _refuse_while_driven(lock_folder(address))
        fresh = file.with_name(f"{file.name}.recovering")
        _remove(fresh)
        engine = connect(address.set(database=str(fresh)))
        make_tables(engine, fresh)
        done = {log.stem: _replay(engine, log) for log in logs}
        engine.dispose()
        aside = _put_aside(file)
        fresh.replace(file)
    lost = {name: there - brought for name, (brought, there) in done.items() if there > brought}
    return Recovery({name: brought for name, (brought, _) in done.items()}, lost, aside)


def _refuse_while_driven(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name == MIGRATION:
            continue
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                remedy = "Stop it first, with `stop`."
                raise Busy(f"sweep {path.name}", "no driver may run", "a running one", remedy) from None


def _replay(engine: Engine, log: Path) -> tuple[int, int]:
    """Write what a log leads to; return its last commit and the last one it knows of."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    commits = 0
    for entry in backup.entries(log):
        if commits == 0 and not starts_whole(entry):
            break
        replay(entry, rows)
        commits = entry.number
    if not rows:
        remedy = "Remove it, to go on without its sweep."
        raise Damaged(str(log), "must start with its sweep", "a damaged first line", remedy)
    with engine.connect().execution_options(**{WRITING: True}) as connection, connection.begin():
        for (name, *_), row in rows.items():
            opened(METADATA.tables[name], [row[column.name] for column in METADATA.tables[name].columns])
            connection.execute(insert(METADATA.tables[name]), row)
        summed = tally(commits, rows.values())
        connection.execute(insert(TALLY), {"sweep_id": log.stem, **asdict(summed)})
    return commits, max(commits, backup.newest(log))


def _put_aside(file: Path) -> Path:
    aside = file.with_name(f"{file.stem}.damaged-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")
    aside.mkdir(exist_ok=True)
    for part in PARTS:
        path = file.with_name(file.name + part)
        if path.exists():
            path.replace(aside / path.name)
    return aside


def _remove(file: Path) -> None:
    for part in PARTS:
        file.with_name(file.name + part).unlink(missing_ok=True)
