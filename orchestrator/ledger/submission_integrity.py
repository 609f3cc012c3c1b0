"""The integrity of the submissions in a SQLite ledger: compares each with its file in the backup."""

from __future__ import annotations

from sqlalchemy import select

from orchestrator.errors import Damaged
from orchestrator.ledger.connect import RECOVER, database_file
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.submission_backup import Row, keep, keeping, kept, kept_files, submission_file
from orchestrator.ledger.tables import SUBMISSION


def verify_submissions(ledger: Ledger, *, repair_backup: bool = True) -> list[str]:
    """Compare every submission with its file in the backup.

    Args:
        ledger: holds the submissions. PostgreSQL has checksums and backups of its own: nothing is compared.
        repair_backup: whether to rewrite a file that is missing, damaged or behind.

    Returns:
        One sentence for each fault of the backup.

    Raises:
        Damaged: the database has lost a commit, or a row is not as it was written.
    """
    if not ledger.is_file:
        return []
    rows = _rows(ledger)
    names = {file.stem for file in kept_files(ledger.address)}
    if not rows and not names:
        return []
    with keeping(ledger.address):
        rows = _rows(ledger)
        faults = [_fault(ledger, sweep_id, rows.get(sweep_id)) for sweep_id in sorted({*rows, *names})]
        if repair_backup:
            keep(ledger.address, [rows[sweep_id] for sweep_id, _ in filter(None, faults) if sweep_id in rows])
    return [sentence for _, sentence in filter(None, faults)]


def _rows(ledger: Ledger) -> dict[str, Row]:
    def read() -> dict[str, Row]:
        with ledger.reader() as connection:
            rows = connection.execute(select(*SUBMISSION.columns)).mappings()
            return {row["sweep_id"]: dict(row) for row in rows}

    return ledger.retried(read)


def _fault(ledger: Ledger, sweep_id: str, row: Row | None) -> tuple[str, str] | None:
    """Return the id of a submission and what is wrong with its file, or None if the file equals the row.

    Raises:
        Damaged: the file proves that the database is damaged.
    """
    file = submission_file(ledger.address, sweep_id)
    copy = kept(file)
    if copy is None:
        return sweep_id, f"The backup {file} of a submission was missing or damaged."
    if row is None or copy["revision"] > row["revision"]:
        got = f"{row['revision'] if row else 'none'} of {copy['revision']} changes of submission {sweep_id}"
        must = "must hold every commit that was made"
        raise Damaged(f"ledger {database_file(ledger.address)}", must, got, RECOVER)
    if copy["revision"] < row["revision"]:
        return sweep_id, f"The backup {file} of a submission was behind."
    if {**row, **copy} != row:  # an earlier version wrote fewer columns
        must, got = "must hold each row as it was written", f"another submission {sweep_id}"
        raise Damaged(f"ledger {database_file(ledger.address)}", must, got, RECOVER)
    return None
