"""Integrity of a SQLite ledger: comparison of its rows with their digests, their tally and the backup.

PostgreSQL has checksums and backups of its own: nothing is compared there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import unquote

from sqlalchemy import Connection, select, text
from sqlalchemy.exc import DBAPIError

from orchestrator.errors import RECOVER, Damaged
from orchestrator.ledger import backup
from orchestrator.ledger.backup import Entry
from orchestrator.ledger.compaction import compact
from orchestrator.ledger.connect import database_file
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.row_backup import Row, keep, keeping, kept, row_file, row_files
from orchestrator.ledger.rows import DIGEST_MODULUS, curve_points, rows_of_sweep
from orchestrator.ledger.sweeps.records import CurvePoint
from orchestrator.ledger.tables import REPORT, SUBMISSION, SWEEP, TALLY

SHORT_LOG = 1 << 20
"""Bytes up to which a backup is never compacted."""

LONG_LOG = 4.0
"""Length of a backup, as a multiple of its rows, from which it is compacted."""


@dataclass(frozen=True)
class Tally:
    """Sums over all rows of a sweep.

    Attributes:
        commits: Number of the last commit, 0 for a sweep that does not exist.
        rows: Number of rows, over all tables.
        total: Sum of the row digests, modulo `DIGEST_MODULUS`.
    """

    commits: int
    rows: int
    total: int


@dataclass(frozen=True)
class Examination:
    """Result of a comparison.

    Attributes:
        faults: One sentence for each fault of the backup.
        curves: Chosen metrics of every report, by trial and step.
        is_long: Whether the backup is worth compacting, in which case it was not compared.
    """

    faults: list[str]
    curves: list[CurvePoint]
    is_long: bool = False


def verify(ledger: Ledger, sweep_id: str, *, repair_backup: bool = True) -> list[str]:
    """Compare all rows of a sweep with their digests, tally and backup.

    Args:
        ledger: Ledger of the sweep.
        sweep_id: ID of the sweep, which need not exist.
        repair_backup: Whether to rewrite a backup that is damaged, behind or long.

    Returns:
        One sentence for each fault of the backup, with the number of commits that it alone had in part.

    Raises:
        Damaged: A row, a page or the tail of the write-ahead log is not what was written.
    """
    if not ledger.is_file:
        return []
    examined = examine(ledger, sweep_id, (), repair_backup=repair_backup)
    if examined.is_long:
        ledger.retried(lambda: compact(ledger, sweep_id))
    return examined.faults


def examine(
    ledger: Ledger, sweep_id: str, metrics: Sequence[str], *, repair_backup: bool = True
) -> Examination:
    """Verify a sweep and return chosen metrics of its reports, in one pass over the rows.

    The driver calls this under its lease, before it resumes a sweep.

    Args:
        ledger: Ledger of the sweep.
        sweep_id: ID of the sweep, which need not exist.
        metrics: Names of the metrics.
        repair_backup: Whether to rewrite a backup that is damaged or behind; a long one is left to the
            caller.

    Raises:
        Damaged: A row, a page or the tail of the write-ahead log is not what was written.
    """
    if not ledger.is_file:
        return Examination([], ledger.curves(sweep_id, metrics))
    if repair_backup:
        backup.keep_id(ledger.address, ledger.id)
    return ledger.retried(lambda: _examine(ledger, sweep_id, metrics, repair_backup))


def _examine(ledger: Ledger, sweep_id: str, metrics: Sequence[str], repair_backup: bool) -> Examination:
    file, log = database_file(ledger.address), backup.backup_file(ledger.address, sweep_id)
    # A line of the backup is written after its commit, so read first it is not ahead of an intact database.
    newest = backup.newest(log)
    # A snapshot delays no writer. Under the lease of the sweep its rows do not change meanwhile.
    with ledger.reader() as connection, _checking_pages(ledger, file):
        stored = _checked(connection, sweep_id, file, metrics)
    commits = stored.tally.commits
    # If neither file reaches the newest commit, as after a power failure, the further one counts.
    if newest > commits and (not commits or _rebuildable(log) > commits):
        must, got = "has lost commits", f"{commits} of {newest} commits of {sweep_id}"
        raise Damaged(f"ledger {file} and {file.name}-wal", must, got, RECOVER)
    if commits == 0:
        if repair_backup:
            backup.drop_torn_start(log)
        return Examination([], stored.curves)
    # A log that is about to be rewritten from verified rows need not be compared with them.
    if repair_backup and newest == commits and _is_long(log, stored.bytes):
        return Examination([], stored.curves, is_long=True)
    if _is_complete(log, commits):
        return Examination([], stored.curves)
    if repair_backup:
        compact(ledger, sweep_id)
    repaired = " and has been rewritten" if repair_backup else ""
    lost = f" Lost with it: {newest - commits} newer commits." if newest > commits else ""
    fault = f"The backup {log} was damaged or behind{repaired}.{lost}"
    return Examination([fault], stored.curves)


@contextmanager
def _checking_pages(ledger: Ledger, file: Path) -> Iterator[None]:
    """Let SQLite check the pages of a database in a thread meanwhile.

    Raises:
        Damaged: A page is not what was written; replaces an error of reading the rows.
        DBAPIError: The database refuses the check, or is lost.
    """
    outcome: list[str | DBAPIError] = []

    def check() -> None:
        try:
            with ledger.reader() as connection:
                outcome.append(str(connection.execute(text("PRAGMA integrity_check(1)")).scalar_one()))
        except DBAPIError as error:
            outcome.append(error)

    thread = ledger.system.thread(check, "pages")
    thread.start()
    try:
        yield
    finally:
        thread.join()
        for result in outcome:
            if isinstance(result, DBAPIError):
                raise result
            if result != "ok":
                got = result.splitlines()[0]
                raise Damaged(f"ledger {file}", "must be an intact SQLite database", got, RECOVER)


@dataclass(frozen=True)
class _Stored:
    """Verified rows of a sweep, and the approximate bytes that they take in a backup."""

    tally: Tally
    curves: list[CurvePoint]
    bytes: float


def _checked(connection: Connection, sweep_id: str, file: Path, metrics: Sequence[str]) -> _Stored:
    """Verify every row of a sweep, and the stored tally."""
    kept = connection.execute(select(TALLY).where(TALLY.c.sweep_id == sweep_id)).one_or_none()
    digests: list[int] = []
    lengths: list[int] = []
    curves: list[CurvePoint] = []
    for table, batches in rows_of_sweep(connection, sweep_id):
        for rows in batches:
            digests.extend([row[-1] for row in rows])
            lengths.append(len(repr(rows[0])))
            if table is REPORT and metrics:
                curves.extend(curve_points(rows, metrics))
    actual = tally(0 if kept is None else kept.commits, digests)
    if (actual.rows, actual.total) != ((0, 0) if kept is None else (kept.rows, kept.total)):
        must = "has missing, additional or outdated rows"
        raise Damaged(f"ledger {file}, sweep {sweep_id}", must, "fewer, more or older rows", RECOVER)
    return _Stored(actual, curves, len(digests) * fmean(lengths) if lengths else 0.0)


def tally(commits: int, digests: Collection[int]) -> Tally:
    """Return the tally of rows with these digests."""
    return Tally(commits, len(digests), sum(digests) % DIGEST_MODULUS)


def _is_long(log: Path, state: float) -> bool:
    """Return True if a log is worth compacting, given the bytes of its state."""
    size = log.stat().st_size if log.exists() else 0
    return size > SHORT_LOG and size > LONG_LOG * state


def _rebuildable(log: Path) -> int:
    """Return the number of the last commit that a backup can rebuild, up to its first damaged line."""
    number: int | None = None
    for entry in backup.entries(log):
        if number is None and not starts_whole(entry):
            break
        # The first parts of a state alone are not a state of the sweep.
        number = 0 if entry.following else entry.number
    return number or 0


def _is_complete(log: Path, commits: int) -> bool:
    """Return True if a backup starts with its sweep and has every commit since."""
    first = next(backup.entries(log), None)
    return first is not None and starts_whole(first) and backup.complete_until(log) == commits


def starts_whole(first: Entry) -> bool:
    """Return True if the first entry of a log holds its sweep, as the first commit and a whole state do."""
    return any(name == SWEEP.name and row is not None and "document" in row for name, _, row in first.changes)


def replay(entry: Entry, rows: dict[tuple[Any, ...], dict[str, Any]]) -> None:
    """Apply an entry to rows by table and key."""
    for table, key, columns in entry.changes:
        identity = (table, *key.values())
        if columns is None:
            rows.pop(identity, None)
        else:
            rows.setdefault(identity, {}).update(columns)


def verify_submissions(ledger: Ledger, *, repair_backup: bool = True) -> list[str]:
    """Compare every submission with its file in the backup.

    Args:
        ledger: Ledger of the submissions.
        repair_backup: Whether to rewrite a file that is missing, damaged or behind.

    Returns:
        One sentence for each fault of the backup.

    Raises:
        Damaged: The database has lost a commit, or a row is not as it was written.
    """
    if not ledger.is_file:
        return []
    rows = _submission_rows(ledger)
    names = {unquote(file.stem) for file in row_files(ledger.address, SUBMISSION)}
    if not rows and not names:
        return []
    faults = []
    with keeping(ledger):
        rows = _submission_rows(ledger)
        for sweep_id in sorted({*rows, *names}):
            row = rows.get(sweep_id)
            if fault := _submission_fault(ledger, sweep_id, row):
                faults.append(fault)
                if repair_backup and row is not None:
                    keep(ledger.address, SUBMISSION, row)
    return faults


def _submission_rows(ledger: Ledger) -> dict[str, Row]:
    def read() -> dict[str, Row]:
        with ledger.reader() as connection:
            rows = connection.execute(select(*SUBMISSION.columns)).mappings()
            return {row["sweep_id"]: dict(row) for row in rows}

    return ledger.retried(read)


def _submission_fault(ledger: Ledger, sweep_id: str, row: Row | None) -> str | None:
    """Return the fault of a submission's file, or None if the file equals the row.

    Raises:
        Damaged: The file proves that the database is damaged.
    """
    file = row_file(ledger.address, SUBMISSION, sweep_id)
    copy = kept(file)
    if copy is None:
        return f"The backup {file} of a submission was missing or damaged."
    if row is None or copy["revision"] > row["revision"]:
        got = f"{row['revision'] if row else 0} of {copy['revision']} changes of submission {sweep_id}"
        must = "has lost commits"
        raise Damaged(f"ledger {database_file(ledger.address)}", must, got, RECOVER)
    if copy["revision"] < row["revision"]:
        return f"The backup {file} of a submission was behind."
    if copy != row:
        must, got = "has a row that differs from its backup", f"submission {sweep_id}"
        raise Damaged(f"ledger {database_file(ledger.address)}", must, got, RECOVER)
    return None
