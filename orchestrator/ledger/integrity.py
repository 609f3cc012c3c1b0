"""The integrity of a SQLite ledger: compares its rows with their digests, their tally and the backup."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, Table, select, text

from orchestrator.errors import Damaged
from orchestrator.ledger import backup
from orchestrator.ledger.backup import Entry
from orchestrator.ledger.connect import RECOVER, database_file
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.rows import DIGEST_MODULUS, later_columns, verified
from orchestrator.ledger.tables import (
    ATTEMPT,
    CHECKPOINT,
    EVALUATION,
    FORMER_NAMES,
    METADATA,
    MLFLOW_RUN,
    OUTBOX,
    REPORT,
    SWEEP,
    TALLY,
    TRIAL,
)


@dataclass(frozen=True)
class Tally:
    """The sums over all rows of a sweep.

    Attributes:
        commits: number of the last commit, 0 for a sweep that does not exist.
        rows: number of rows, over all tables.
        total: sum of the row digests, modulo `DIGEST_MODULUS`.
    """

    commits: int
    rows: int
    total: int


def verify(ledger: Ledger, sweep_id: str, *, repair_backup: bool = True) -> list[str]:
    """Compare everything that the ledger holds of a sweep with its digests, tally and backup.

    The driver calls this under its lease, before it resumes a sweep.

    Args:
        ledger: holds the sweep. In PostgreSQL, which has checksums and backups of its own, nothing is
            compared.
        sweep_id: of the sweep, which need not exist.
        repair_backup: whether to rewrite a backup that is damaged or behind.

    Returns:
        One sentence for each fault of the backup, with the number of commits that it alone had in part.

    Raises:
        Damaged: a row, a page or the tail of the write-ahead log is not what was written.
    """
    if not ledger.is_file:
        return []
    if repair_backup:
        backup.keep_id(ledger.address, ledger.id)
    return ledger.retried(lambda: _verify(ledger, sweep_id, repair_backup))


def _verify(ledger: Ledger, sweep_id: str, repair_backup: bool) -> list[str]:
    file, log = database_file(ledger.address), backup.backup_file(ledger.address, sweep_id)
    # A line of the backup is written after its commit, so read first it is not ahead of an intact database.
    newest = backup.newest(log)
    # A snapshot delays no writer. Under the lease of the sweep its rows do not change meanwhile.
    with ledger.reader() as connection:
        _check_pages(connection, file)
        stored = _checked(connection, sweep_id, file)
        # If neither file reaches the newest commit, as after a power failure, the further one counts.
        if newest > stored.commits and (not stored.commits or _rebuildable(log) > stored.commits):
            must, got = "must hold every commit that was made", f"{stored.commits} of {newest} of {sweep_id}"
            raise Damaged(f"ledger {file} and {file.name}-wal", must, got, RECOVER)
        if stored.commits == 0 or _is_complete(log, stored.commits):
            return []
    if repair_backup:
        _rewrite(ledger, sweep_id, log)
    repaired = " and has been rewritten" if repair_backup else ""
    lost = f" Lost with it: {newest - stored.commits} newer commits." if newest > stored.commits else ""
    return [f"The backup {log} was damaged or behind{repaired}.{lost}"]


def _rewrite(ledger: Ledger, sweep_id: str, log: Path) -> None:
    """Rewrite the backup of a sweep; the write lock keeps its lines in the order of the commits."""
    with ledger.writer() as connection:
        commits = connection.execute(select(TALLY.c.commits).where(TALLY.c.sweep_id == sweep_id)).scalar_one()
        backup.replace(log, _whole_state(connection, sweep_id, commits))


def _check_pages(connection: Connection, file: Path) -> None:
    result = connection.execute(text("PRAGMA integrity_check(1)")).scalar_one()
    if result != "ok":
        got = str(result).splitlines()[0]
        raise Damaged(f"ledger {file}", "must be an intact SQLite database", got, RECOVER)


def _checked(connection: Connection, sweep_id: str, file: Path) -> Tally:
    """Verify every row of a sweep, and return their tally, which must equal the stored one."""
    kept = connection.execute(select(TALLY).where(TALLY.c.sweep_id == sweep_id)).one_or_none()
    actual = tally(0 if kept is None else kept.commits, (row for _, row in _rows(connection, sweep_id)))
    if (actual.rows, actual.total) != ((0, 0) if kept is None else (kept.rows, kept.total)):
        must = "must hold as many rows as were written, each as it was last written"
        raise Damaged(f"ledger {file}, sweep {sweep_id}", must, "fewer, more or older ones", RECOVER)
    return actual


def tally(commits: int, rows: Iterable[Mapping[str, Any]]) -> Tally:
    """Return the tally of rows."""
    count = total = 0
    for row in rows:
        count, total = count + 1, (total + row["row_digest"]) % DIGEST_MODULUS
    return Tally(commits, count, total)


def _rows(connection: Connection, sweep_id: str) -> Iterator[tuple[Table, dict[str, Any]]]:
    """Yield every row of a sweep, verified; a row comes after the rows that it refers to."""
    for table, query in _queries(sweep_id):
        for row in connection.execute(query):
            yield table, verified(table, row)


def _queries(sweep_id: str) -> Iterator[tuple[Table, Select[Any]]]:
    yield SWEEP, select(*SWEEP.columns).where(SWEEP.c.id == sweep_id)
    yield TRIAL, select(*TRIAL.columns).where(TRIAL.c.sweep_id == sweep_id).order_by(TRIAL.c.number)
    for table in (ATTEMPT, REPORT, CHECKPOINT, EVALUATION):
        of_trial = table.c.trial_key == TRIAL.c.key
        yield table, select(*table.columns).join(TRIAL, of_trial).where(TRIAL.c.sweep_id == sweep_id)
    yield MLFLOW_RUN, select(*MLFLOW_RUN.columns).where(MLFLOW_RUN.c.sweep_id == sweep_id)
    yield OUTBOX, select(*OUTBOX.columns).where(OUTBOX.c.sweep_id == sweep_id).order_by(OUTBOX.c.seq)


def _whole_state(connection: Connection, sweep_id: str, commits: int) -> Entry:
    return Entry(
        commits,
        [
            (table.name, {column.name: row[column.name] for column in table.primary_key}, row)
            for table, row in _rows(connection, sweep_id)
        ],
    )


def _rebuildable(log: Path) -> int:
    """Return the number of the last commit that a backup can rebuild; lines behind a damaged one are lost."""
    number = 0
    for entry in backup.entries(log):
        if not number and not starts_whole(entry):
            break
        number = entry.number
    return number


def _is_complete(log: Path, commits: int) -> bool:
    """Return True if a backup starts with its sweep, and every commit since then is in it as it was made."""
    first = next(backup.entries(log), None)
    return first is not None and starts_whole(first) and backup.complete_until(log) == commits


def starts_whole(first: Entry) -> bool:
    """Return True if a log's first entry holds its sweep, as the first commit and a whole state do."""
    return any(name == SWEEP.name and row is not None and "document" in row for name, _, row in first.changes)


def replay(entry: Entry, rows: dict[tuple[Any, ...], dict[str, Any]]) -> None:
    """Apply an entry, perhaps of an earlier version, to rows by table and key."""
    for name, key, columns in entry.changes:
        table = FORMER_NAMES.get(name, name)
        identity = (table, *key.values())
        if columns is None:
            rows.pop(identity, None)
            continue
        row = rows.setdefault(identity, dict.fromkeys(later_columns(METADATA.tables[table])))
        row.update(columns)
