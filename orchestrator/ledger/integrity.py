"""Whether a SQLite ledger still is what was written to it, by its digests, its tally and its backup."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, Table, select, text

from orchestrator.errors import Damaged
from orchestrator.ledger import backup
from orchestrator.ledger.backup import Entry
from orchestrator.ledger.connect import database_file
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.retry import patiently
from orchestrator.ledger.rows import DIGEST_MODULUS, opened
from orchestrator.ledger.tables import ATTEMPT, CHECKPOINT, OUTBOX, READING, REPORT, SWEEP, TALLY, TRIAL

REMEDY = "Run `recover` to rebuild the ledger from its backup."


@dataclass(frozen=True)
class Tally:
    """What the rows of a sweep sum up to.

    Attributes:
        commits: number of the last commit, 0 for a sweep that is not there.
        rows: how many there are, over all tables.
        total: the sum of their digests, modulo `DIGEST_MODULUS`.
    """

    commits: int
    rows: int
    total: int


def verify(ledger: Ledger, sweep_id: str, *, mend: bool = True) -> list[str]:
    """Compare all that the ledger holds of a sweep with its digests, tally and backup.

    To be called by the driver, under its lease, before it goes on with a sweep.

    Args:
        ledger: where it is kept; in PostgreSQL, which keeps sums and backups of its own, nothing is compared.
        sweep_id: of the sweep, which need not be there.
        mend: whether to write a backup anew that is damaged or behind.

    Returns:
        What is wrong with the backup, and mended.

    Raises:
        Damaged: a row, a page or the tail of the write-ahead log is not what was written.
    """
    if not ledger.is_file:
        return []
    return patiently(lambda: _verify(ledger, sweep_id, mend), ledger.where)


def _verify(ledger: Ledger, sweep_id: str, mend: bool) -> list[str]:
    file, log = database_file(ledger.address), backup.backup_file(ledger.address, sweep_id)
    with ledger.writing() as connection:
        _check_pages(connection, file)
        there = _checked(connection, sweep_id, file)
        newest = backup.newest(log)
        if newest > there.commits:
            must, got = "must hold every commit that was made", f"{there.commits} of {newest} of {sweep_id}"
            raise Damaged(f"ledger {file} and {file.name}-wal", must, got, REMEDY)
        if there.commits == 0 or there == _tally_of(log):
            return []
        if mend:
            backup.replace(log, _whole_state(connection, sweep_id, there.commits))
    return [f"the backup {log} is damaged or behind" + (", and was written anew" if mend else "")]


def _check_pages(connection: Connection, file: Path) -> None:
    found = connection.execute(text("PRAGMA integrity_check(1)")).scalar_one()
    if found != "ok":
        got = str(found).splitlines()[0]
        raise Damaged(f"ledger {file}", "must be a sound SQLite database", got, REMEDY)


def _checked(connection: Connection, sweep_id: str, file: Path) -> Tally:
    kept = connection.execute(select(TALLY).where(TALLY.c.sweep_id == sweep_id)).one_or_none()
    there = tally(0 if kept is None else kept.commits, (row for _, row in _rows(connection, sweep_id)))
    if (there.rows, there.total) != ((0, 0) if kept is None else (kept.rows, kept.total)):
        must = "must hold as many rows as were written, each as it was last written"
        raise Damaged(f"ledger {file}, sweep {sweep_id}", must, "fewer, more or older ones", REMEDY)
    return there


def tally(commits: int, rows: Iterable[Mapping[str, Any]]) -> Tally:
    """Return what rows sum up to."""
    count = total = 0
    for row in rows:
        count, total = count + 1, (total + row["row_digest"]) % DIGEST_MODULUS
    return Tally(commits, count, total)


def _rows(connection: Connection, sweep_id: str) -> Iterator[tuple[Table, dict[str, Any]]]:
    """Yield every row of a sweep, verified; what others refer to comes first."""
    for table, query in _queries(sweep_id):
        for row in connection.execute(query):
            opened(table, row)
            yield table, dict(row._mapping)


def _queries(sweep_id: str) -> Iterator[tuple[Table, Select[Any]]]:
    yield SWEEP, select(*SWEEP.columns).where(SWEEP.c.id == sweep_id)
    yield TRIAL, select(*TRIAL.columns).where(TRIAL.c.sweep_id == sweep_id).order_by(TRIAL.c.number)
    for table in (ATTEMPT, REPORT, CHECKPOINT, READING):
        mine = table.c.trial_key == TRIAL.c.key
        yield table, select(*table.columns).join(TRIAL, mine).where(TRIAL.c.sweep_id == sweep_id)
    yield OUTBOX, select(*OUTBOX.columns).where(OUTBOX.c.sweep_id == sweep_id).order_by(OUTBOX.c.seq)


def _whole_state(connection: Connection, sweep_id: str, commits: int) -> Entry:
    return Entry(
        commits,
        [
            (table.name, {column.name: row[column.name] for column in table.primary_key}, row)
            for table, row in _rows(connection, sweep_id)
        ],
    )


def _tally_of(log: Path) -> Tally | None:
    """Return what a backup leads to, or None if it does not start with its sweep."""
    digests: dict[tuple[Any, ...], dict[str, Any]] = {}
    commits = 0
    for entry in backup.entries(log):
        if commits == 0 and not starts_whole(entry):
            return None
        replay(entry, digests, only=("row_digest",))
        commits = entry.number
    return tally(commits, digests.values())


def starts_whole(first: Entry) -> bool:
    """Tell whether a log that begins so begins with its sweep: the first commit, or the whole state."""
    return any(name == SWEEP.name and row is not None and "document" in row for name, _, row in first.changes)


def replay(
    entry: Entry, rows: dict[tuple[Any, ...], dict[str, Any]], only: tuple[str, ...] | None = None
) -> None:
    """Do to rows, by table and key, what an entry says; keep some of their columns or all."""
    for table, key, columns in entry.changes:
        place = (table, *key.values())
        if columns is None:
            rows.pop(place, None)
            continue
        row = rows.setdefault(place, {})
        row.update(columns if only is None else {name: columns[name] for name in only})
