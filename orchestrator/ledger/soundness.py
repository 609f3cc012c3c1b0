"""Whether a SQLite ledger still is what was written to it, by its digests, its tally and its backup."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, Table, select, text

from orchestrator.errors import Damaged
from orchestrator.ledger import backup
from orchestrator.ledger.backup import Change, Entry
from orchestrator.ledger.connect import database_file
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.rows import DIGEST_MODULUS, opened
from orchestrator.ledger.tables import ATTEMPT, CHECKPOINT, OUTBOX, READING, REPORT, SWEEP, TALLY, TRIAL

REMEDY = "Run `recover` to rebuild the ledger from its backup."


@dataclass(frozen=True)
class Content:
    """All rows of a sweep, each verified.

    Attributes:
        commits: number of the last commit, 0 for a sweep that is not there.
        rows: by table, with their digests.
        sound: whether the rows are as many, and sum up to, what the tally says.
    """

    commits: int
    rows: tuple[tuple[Table, dict[str, Any]], ...]
    sound: bool

    def entry(self) -> Entry:
        """Return the whole state as one entry of a backup."""
        changes: list[Change] = []
        for table, row in self.rows:
            changes.append((table.name, {column.name: row[column.name] for column in table.primary_key}, row))
        return Entry(self.commits, changes)


def verify(ledger: Ledger, sweep_id: str) -> list[str]:
    """Compare all that the ledger holds of a sweep with its digests, tally and backup; mend the backup.

    To be called by the driver, under its lease, before it goes on with a sweep.

    Returns:
        What was mended, one phrase each.

    Raises:
        Damaged: a row, a page or the tail of the write-ahead log is not what was written.
    """
    if not ledger.is_file:
        return []
    with ledger.writing() as connection:
        _check_pages(connection, ledger)
        content = read_content(connection, sweep_id)
        file = database_file(ledger.address)
        if not content.sound:
            must = "must hold as many rows as were written, each as it was last written"
            raise Damaged(f"ledger {file}, sweep {sweep_id}", must, "fewer, more or older ones", REMEDY)
        log = backup.backup_file(ledger.address, sweep_id)
        newest = backup.newest(log)
        if newest > content.commits:
            got = f"{content.commits} of {newest} commits of sweep {sweep_id}"
            raise Damaged(
                f"ledger {file} and {file.name}-wal", "must hold every commit that was made", got, REMEDY
            )
        if _is_whole(log, content):
            return []
        backup.replace(log, content.entry())
        return [f"the backup {log.name} was damaged or behind, and is written anew"] if newest else []


def read_content(connection: Connection, sweep_id: str) -> Content:
    """Return all rows of a sweep.

    Raises:
        Damaged: a row does not match its digest.
    """
    tally = connection.execute(select(TALLY).where(TALLY.c.sweep_id == sweep_id)).one_or_none()
    rows = tuple(
        (table, row) for table, query in _queries(sweep_id) for row in _verified(connection, table, query)
    )
    total = sum(row["row_digest"] for _, row in rows) % DIGEST_MODULUS
    if tally is None:
        return Content(0, rows, sound=not rows)
    return Content(tally.commits, rows, sound=(len(rows), total) == (tally.rows, tally.total))


def _queries(sweep_id: str) -> Iterator[tuple[Table, Select[Any]]]:
    yield SWEEP, select(*SWEEP.columns).where(SWEEP.c.id == sweep_id)
    yield TRIAL, select(*TRIAL.columns).where(TRIAL.c.sweep_id == sweep_id).order_by(TRIAL.c.number)
    for table in (ATTEMPT, REPORT, CHECKPOINT, READING):
        mine = table.c.trial_key == TRIAL.c.key
        yield table, select(*table.columns).join(TRIAL, mine).where(TRIAL.c.sweep_id == sweep_id)
    yield OUTBOX, select(*OUTBOX.columns).where(OUTBOX.c.sweep_id == sweep_id).order_by(OUTBOX.c.seq)


def _verified(connection: Connection, table: Table, query: Select[Any]) -> Iterator[dict[str, Any]]:
    for row in connection.execute(query):
        opened(table, row)
        yield dict(row._mapping)


def _check_pages(connection: Connection, ledger: Ledger) -> None:
    found = connection.execute(text("PRAGMA integrity_check(1)")).scalar_one()
    if found != "ok":
        file = database_file(ledger.address)
        raise Damaged(f"ledger {file}", "must be a sound SQLite database", str(found).splitlines()[0], REMEDY)


def _is_whole(log: Any, content: Content) -> bool:
    """Tell whether a log leads to the content."""
    entries = backup.read(log)
    if not entries or entries[-1].number != content.commits or not starts_whole(entries):
        return content.commits == 0 and not entries
    rows = replayed(entries)
    total = sum(row["row_digest"] for row in rows.values()) % DIGEST_MODULUS
    mine = sum(row["row_digest"] for _, row in content.rows) % DIGEST_MODULUS
    return (len(rows), total) == (len(content.rows), mine)


def starts_whole(entries: list[Entry]) -> bool:
    """Tell whether a log starts with a sweep itself: its first commit, or its whole state."""
    return bool(entries) and any(name == SWEEP.name for name, _, _ in entries[0].changes)


def replayed(entries: list[Entry]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the rows that a log leads to, by table and key, in the order they were first written."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for entry in entries:
        for table, key, columns in entry.changes:
            place = (table, *key.values())
            if columns is None:
                rows.pop(place, None)
            else:
                rows[place] = {**rows.get(place, {}), **columns}
    return rows
