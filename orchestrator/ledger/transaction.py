"""Write transaction of a sweep: rows are written with their digests, and counted in the tally."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from sqlalchemy import (
    Connection,
    Delete,
    Executable,
    Insert,
    Select,
    Table,
    Update,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import sqlite

from orchestrator.ledger.backup import Change
from orchestrator.ledger.prepared import Answer, Stale, execute, send
from orchestrator.ledger.rows import DIGEST_MODULUS, Codec, Record, row_digest, sealed, verified
from orchestrator.ledger.sweeps.records import Event
from orchestrator.ledger.tables import OUTBOX, TALLY

Known = dict[tuple[Any, ...], Mapping[str, Any]]
"""Stored columns of rows, by table and key."""

_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Statements:
    """Statements of one table, built once: building a statement costs more than running it."""

    insert: Insert
    update: Update
    delete: Delete
    find: Select[Any]


@cache
def statements(table: Table) -> Statements:
    """Return the prepared statements of `table`; primary key columns are bound as `key_<column>`.

    A row with a digest is changed or deleted only if it still has the one that is bound as `key_row_digest`.
    """
    matches = [column == bindparam(f"key_{column.name}") for column in table.primary_key]
    same = [
        column == bindparam(f"key_{column.name}") for column in table.columns if column.name == "row_digest"
    ]
    return Statements(
        insert(table),
        update(table).where(*matches, *same),
        delete(table).where(*matches, *same),
        select(*table.columns).where(*matches).with_for_update(),
    )


class Transaction:
    """Transaction of a change, which verifies the rows it reads, and counts and logs those it writes.

    Args:
        connection: Connection of the transaction.
        now: Time of the change, seconds since the epoch.
        on_server: Whether the server itself compares the rows that change with those that were read or held,
            in place of `confirm`; only within `pipelined`.

    Attributes:
        now: Time of the change, seconds since the epoch; the same when it is retried.
        sweep_id: ID of the sweep that the transaction changes.
        changes: Rows written so far, for the backup.
    """

    def __init__(self, connection: Connection, now: float, *, on_server: bool = False) -> None:
        self.connection, self.now, self._on_server = connection, now, on_server
        self.sweep_id: str | None = None
        self.changes: list[Change] = []
        self._is_file = connection.dialect.name == "sqlite"
        self._rows, self._total = 0, 0
        # The stored columns, by table and key, of every row that this transaction read or wrote.
        self._known: Known = {}
        self._replaced: list[Answer] = []

    def left(self, *tables: Table) -> Known:
        """Return the final rows of this transaction in some tables, for `hold` of a later one."""
        names = {table.name for table in tables}
        return {identity: row for identity, row in self._known.items() if identity[0] in names}

    def hold(self, rows: Known) -> None:
        """Allow changes of rows that an earlier transaction has left, without reading them again.

        `confirm` finds out whether they were changed meanwhile.
        """
        self._known |= rows

    def confirm(self) -> None:
        """Check that every row which this transaction has changed or deleted was as it was read or held.

        Raises:
            Stale: A row has changed since.
        """
        replaced, self._replaced = self._replaced, []
        if any(each.rowcount != 1 for each in replaced):
            raise Stale

    def find(self, codec: Codec[Record], *key: Any) -> Record | None:
        """Return the record with this primary key, or None."""
        values = dict(zip(_key_names(codec.table), key, strict=True))
        rows = execute(self.connection, statements(codec.table).find, _bound(values))
        return self.read(codec, rows[0]) if rows else None

    def read(self, codec: Codec[Record], row: Sequence[Any]) -> Record:
        """Return the record of a selected row, which can then be changed or deleted in this transaction."""
        record, columns = codec.decode(row), dict(zip(codec.columns, row, strict=True))
        self._known[self._identity(codec.table, columns)] = columns
        return record

    def insert(self, codec: Codec[Record], *records: Record) -> None:
        """Add records whose keys are new."""
        rows = [codec.encode(record) for record in records]
        self._insert(codec.table, rows)
        self._known |= {self._identity(codec.table, row): row for row in rows}

    def change(self, codec: Codec[Record], old: Record, **changes: Any) -> Record:
        """Replace fields of a record of this transaction, and return the new record."""
        new = replace(old, **changes)  # type: ignore[type-var]
        row = self._known[self._identity(codec.table, vars(old))]
        self._update(codec.table, row, codec.changed(row, new, changes))
        return new

    def delete(self, codec: Codec[Record], record: Record) -> None:
        """Delete a record of this transaction."""
        row = self._known.pop(self._identity(codec.table, vars(record)))
        self._replace(statements(codec.table).delete, codec.table, row)
        self._record(codec.table, row, None, -1, -row["row_digest"])

    def emit(self, events: Sequence[Event]) -> None:
        """Add events to the outbox of the sweep."""
        rows = [
            sealed(
                OUTBOX,
                {
                    "sweep_id": self.sweep_id,
                    "kind": event.kind,
                    "run": event.run,
                    "payload": event.payload,
                    "at_ms": event.at_ms,
                    "delivered": False,
                },
            )
            for event in events
        ]
        if self._is_file and rows:
            # Assign the numbers here, under the write lock, so that the backup contains them.
            [(last,)] = execute(self.connection, _LAST_EVENT, {})
            rows = [{"seq": last + index, **row} for index, row in enumerate(rows, 1)]
        self._insert(OUTBOX, rows)

    def mark(self, rows: Sequence[Sequence[Any]], *, delivered: bool) -> None:
        """Mark selected rows of the outbox as delivered or undelivered."""
        olds = [verified(OUTBOX, row) for row in rows]
        digests = [row_digest(OUTBOX, {**old, "delivered": delivered}) for old in olds]
        news = [{"delivered": delivered, "row_digest": digest} for digest in digests]
        if olds:
            changed = list(zip(news, olds, strict=True))
            execute(
                self.connection, _MARK, *(columns | _bound(_key(OUTBOX, old)) for columns, old in changed)
            )
            for columns, old in changed:
                self._record(OUTBOX, old, columns, 0, columns["row_digest"] - old["row_digest"])

    def close(self) -> int | None:
        """Update the sweep's tally.

        Returns:
            The number of this commit; None if nothing was written, and for PostgreSQL, which needs no tally.
        """
        if not self.changes or not self._is_file:
            return None
        assert self.sweep_id is not None, "a transaction that writes must name its sweep"
        added = {"sweep_id": self.sweep_id, "rows": self._rows, "total": self._total}
        [(number,)] = execute(self.connection, _COUNT, added)
        return int(number)

    def _insert(self, table: Table, rows: list[dict[str, Any]]) -> None:
        if rows:
            execute(self.connection, statements(table).insert, *rows)
        for row in rows:
            self._record(table, row, row, 1, row["row_digest"])

    def _update(self, table: Table, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        changed = {name: value for name, value in new.items() if value != old[name]}
        if changed:
            self._replace(statements(table).update, table, old, changed)
            self._record(table, old, changed, 0, new["row_digest"] - old["row_digest"])
        self._known[self._identity(table, old)] = {**old, **changed}

    def _replace(
        self, statement: Executable, table: Table, old: Mapping[str, Any], new: Mapping[str, Any] = _NOTHING
    ) -> None:
        key = {f"key_{name}": old[name] for name in _key_names(table)}
        values = {**new, **key, "key_row_digest": old["row_digest"]}
        answer = send(self.connection, statement, values, matches=self._on_server)
        if not self._on_server:
            self._replaced.append(answer)
        if self._is_file:
            self.confirm()

    @staticmethod
    def _identity(table: Table, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return (table.name, *(row[name] for name in _key_names(table)))

    def _record(
        self, table: Table, row: Mapping[str, Any], columns: Mapping[str, Any] | None, rows: int, total: int
    ) -> None:
        if self._is_file:
            self.changes.append((table.name, _key(table, row), columns))
        self._rows += rows
        self._total = (self._total + total) % DIGEST_MODULUS


def _key(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in _key_names(table)}


@cache
def _key_names(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.primary_key)


def _bound(key: Mapping[str, Any]) -> dict[str, Any]:
    return {f"key_{name}": value for name, value in key.items()}


# With its columns named, so that one statement marks many rows.
_MARK = (
    update(OUTBOX)
    .where(OUTBOX.c.seq == bindparam("key_seq"))
    .values(delivered=bindparam("delivered"), row_digest=bindparam("row_digest"))
)
_LAST_EVENT = select(func.coalesce(func.max(OUTBOX.c.seq), 0))
_COUNT = (
    sqlite.insert(TALLY)
    .values(sweep_id=bindparam("sweep_id"), commits=1, rows=bindparam("rows"), total=bindparam("total"))
    .on_conflict_do_update(
        index_elements=["sweep_id"],
        set_={
            "commits": TALLY.c.commits + 1,
            "rows": TALLY.c.rows + bindparam("rows"),
            "total": (TALLY.c.total + bindparam("total")) % DIGEST_MODULUS,
        },
    )
    .returning(TALLY.c.commits)
)
