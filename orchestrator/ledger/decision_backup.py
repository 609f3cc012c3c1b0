"""The backup of what people have decided in a SQLite ledger: one file for each of them.

    <sweeps>.backup/decisions/stop_request/<sweep id>.json      <digest> <columns of the row>
    <sweeps>.backup/decisions/priority/<sweep id>.json
    <sweeps>.backup/decisions/owner/<name>.json                 weight, quotas, use until they were set

A file is brought up to date after each commit that changes its row, and before the change is acknowledged. A
kill in between leaves one file behind its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

from sqlalchemy import URL, RowMapping, Table, select

from orchestrator.ledger.backup import decision_folder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.submission_backup import keep_row, keeping
from orchestrator.ledger.tables import OWNER, PRIORITY, STOP_REQUEST
from trainables.durable import make_folder

DECISIONS: Mapping[str, Table] = MappingProxyType(
    {table.name: table for table in (STOP_REQUEST, PRIORITY, OWNER)}
)
"""The tables of decisions, each with one column as its key."""


def renew(ledger: Ledger, table: Table, key: str) -> None:
    """Bring the file of a decision up to date with its row; delete it if there is no row.

    Args:
        ledger: of the decision. PostgreSQL has backups of its own: nothing is written.
        table: one of `DECISIONS`.
        key: of the row, which was changed by a commit.
    """
    if not ledger.is_file:
        return
    [column] = table.primary_key.columns
    query = select(*table.columns).where(column == key)
    file = decision_folder(ledger.address) / table.name / f"{quote(key, safe='')}.json"

    def read() -> RowMapping | None:
        with ledger.reader() as connection:
            return connection.execute(query).mappings().one_or_none()

    with keeping(ledger.address):  # so that the file of the last commit is not replaced by an earlier row
        if (row := ledger.retried(read)) is None:
            file.unlink(missing_ok=True)
        else:
            make_folder(file.parent)
            keep_row(file, dict(row))


def kept_decisions(address: URL, table: Table) -> list[Path]:
    """Return the backup files of the decisions in a table, damaged ones included."""
    return sorted((decision_folder(address) / table.name).glob("*.json"))
