"""One write transaction: rows go in with their digests, and the sweep's tally is kept beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from sqlalchemy import (
    Connection,
    Delete,
    Insert,
    Select,
    Table,
    Update,
    bindparam,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import sqlite

from orchestrator.ledger.records import Event
from orchestrator.ledger.rows import DIGEST_MODULUS, Codec, Record, opened, sealed
from orchestrator.ledger.tables import OUTBOX, TALLY


@dataclass(frozen=True)
class Statements:
    """The statements of one table, built once, for building them costs more than running them."""

    insert: Insert
    update: Update
    delete: Delete
    find: Select[Any]


@cache
def statements(table: Table) -> Statements:
    """Return the prepared statements of `table`; keys are bound as `key_<column>`."""
    here = [column == bindparam(f"key_{column.name}") for column in table.primary_key]
    return Statements(
        insert(table),
        update(table).where(*here),
        delete(table).where(*here),
        select(*table.columns).where(*here).with_for_update(),
    )


class Transaction:
    """What a ledger method works on: it verifies what it reads and counts what it writes."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.sweep_id: str | None = None
        self._rows, self._total = 0, 0
        self._touched = False

    def find(self, codec: Codec[Record], *key: Any) -> Record | None:
        """Return the record with this primary key, or None."""
        names = [f"key_{column.name}" for column in codec.table.primary_key]
        row = self.connection.execute(
            statements(codec.table).find, dict(zip(names, key, strict=True))
        ).one_or_none()
        return None if row is None else codec.decode(row)

    def insert(self, codec: Codec[Record], *records: Record) -> None:
        """Add records that are not there yet."""
        self._insert(codec.table, [codec.encode(record) for record in records])

    def change(self, codec: Codec[Record], old: Record, **changes: Any) -> Record:
        """Replace fields of a record that was read in this transaction, and return what it is now."""
        new = replace(old, **changes)  # type: ignore[type-var]
        self._update(codec.table, codec.encode(old), codec.encode(new))
        return new

    def delete(self, codec: Codec[Record], record: Record) -> None:
        """Remove a record that was read in this transaction."""
        row = codec.encode(record)
        self.connection.execute(statements(codec.table).delete, _key(codec.table, row))
        self._count(-1, -row["row_digest"])

    def emit(self, events: Sequence[Event]) -> None:
        """Put events in the outbox of the sweep."""
        rows = [
            {"sweep_id": self.sweep_id, "kind": e.kind, "run": e.run, "payload": e.payload, "at_ms": e.at_ms}
            for e in events
        ]
        self._insert(OUTBOX, [sealed(OUTBOX, {**row, "delivered": False}) for row in rows])

    def deliver(self, rows: Sequence[Sequence[Any]]) -> None:
        """Mark selected rows of the outbox as delivered."""
        for row in rows:
            values = opened(OUTBOX, row)
            seq = {"seq": values.pop("seq")}
            old = sealed(OUTBOX, values) | seq
            self._update(OUTBOX, old, sealed(OUTBOX, {**values, "delivered": True}) | seq)

    def close(self) -> None:
        """Write the sweep's tally, if anything was written."""
        if not self._touched:
            return
        assert self.sweep_id is not None, "a transaction that writes names its sweep"
        if self.connection.dialect.name == "sqlite":
            change = {"sweep_id": self.sweep_id, "rows": self._rows, "total": self._total}
            self.connection.execute(_COUNT, change)

    def _insert(self, table: Table, rows: list[dict[str, Any]]) -> None:
        if rows:
            self.connection.execute(statements(table).insert, rows)
            self._count(len(rows), sum(row["row_digest"] for row in rows))

    def _update(self, table: Table, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        changed = {name: value for name, value in new.items() if value != old[name]}
        if changed:
            self.connection.execute(statements(table).update, changed | _key(table, old))
            self._count(0, new["row_digest"] - old["row_digest"])

    def _count(self, rows: int, total: int) -> None:
        self._touched = True
        self._rows += rows
        self._total = (self._total + total) % DIGEST_MODULUS


def _key(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    return {f"key_{column.name}": row[column.name] for column in table.primary_key}


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
