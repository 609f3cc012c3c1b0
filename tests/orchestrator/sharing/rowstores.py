"""Rows that drivers share: in memory, and in a database."""

from __future__ import annotations

import sqlite3
from dataclasses import astuple, dataclass, field, fields, replace
from typing import Any, Protocol

from orchestrator.sharing.rows import Claim, DriverState, Holding, Node, Owner, Pool, Snapshot

TABLES: dict[str, Any] = {
    "nodes": Node,
    "owners": Owner,
    "claims": Claim,
    "states": DriverState,
    "holdings": Holding,
}


class Rows(Protocol):
    """Where drivers read and write."""

    def read(self) -> Snapshot:
        """Return all rows."""

    def write(self, version: int, rows: Snapshot) -> bool:
        """Replace all rows; return False, and change nothing, if they are newer than `version`."""


@dataclass
class Memory:
    """Rows in memory."""

    rows: Snapshot = field(default_factory=lambda: Snapshot(Pool(())))

    def read(self) -> Snapshot:
        return self.rows

    def write(self, version: int, rows: Snapshot) -> bool:
        if version != self.rows.pool.version:
            return False
        self.rows = replace(rows, pool=replace(rows.pool, version=version + 1))
        return True


class Database:
    """Rows in tables of SQLite, a column a field; every write is one transaction."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.execute("CREATE TABLE pool (version INTEGER)")
        self._connection.execute("INSERT INTO pool VALUES (0)")
        for table, row in TABLES.items():
            self._connection.execute(f"CREATE TABLE {table} ({', '.join(each.name for each in fields(row))})")
        self._connection.execute("CREATE UNIQUE INDEX device ON holdings (node, device)")
        self._connection.execute("CREATE UNIQUE INDEX holding ON holdings (sweep, node, coalesce(device, -1))")

    def read(self) -> Snapshot:
        rows = {
            table: tuple(row(*values) for values in self._connection.execute(f"SELECT * FROM {table}"))
            for table, row in TABLES.items()
        }
        return Snapshot(Pool(rows.pop("nodes"), self._version()), **rows)

    def write(self, version: int, rows: Snapshot) -> bool:
        self._connection.execute("BEGIN IMMEDIATE")
        if self._version() != version:
            self._connection.execute("ROLLBACK")
            return False
        self._connection.execute("UPDATE pool SET version = version + 1")
        for table, kind in TABLES.items():
            written = rows.pool.nodes if table == "nodes" else getattr(rows, table)
            marks = ", ".join("?" for _ in fields(kind))
            self._connection.execute(f"DELETE FROM {table}")
            self._connection.executemany(f"INSERT INTO {table} VALUES ({marks})", [astuple(row) for row in written])
        self._connection.execute("COMMIT")
        return True

    def _version(self) -> int:
        return int(self._connection.execute("SELECT version FROM pool").fetchone()[0])
