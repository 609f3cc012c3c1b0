"""Rows of a ledger for `ledger.sql`: the file of a SQLite one, or copies of the tables of a PostgreSQL one.

PostgreSQL can neither limit a query to some columns without a further role, nor the functions that a query
may call. So the tables that the query needs are copied in a read-only transaction into a database in memory,
which SQLite queries.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from itertools import chain

from sqlalchemy import Connection, select, text

from orchestrator.errors import BadInput
from orchestrator.ledger.connect import database_file
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sql import SECONDS, Found, read_by, readable_columns
from orchestrator.ledger.sql import selected as selected_in
from orchestrator.ledger.tables import METADATA

MOST_COPIED = 1_000_000
"""Largest number of rows of a PostgreSQL table that a query may need."""

_BATCH = 10_000
"""Rows that are copied from PostgreSQL at a time."""


def selected(ledger: Ledger, query: str, rows: int) -> Found:
    """Return the rows of a SELECT over the views of a ledger.

    Args:
        ledger: Ledger.
        query: One statement in the dialect of SQLite.
        rows: Largest number of rows.

    Raises:
        BadInput: The query is wrong, reads something else than the views, or exceeds a limit.
        Damaged: SQLite cannot read the file of the ledger.
    """
    if ledger.is_file:
        return selected_in(database_file(ledger.address), query, rows)
    with closing(empty_copy()) as connection:
        return selected_in(connection, query, rows, partial(_copy, ledger, query=query))


def empty_copy() -> sqlite3.Connection:
    """Return a database in memory with the tables of a ledger, without rows."""
    connection = sqlite3.connect(":memory:")
    for table in METADATA.sorted_tables:
        connection.execute(f"CREATE TABLE {table.name} ({', '.join(map(_quoted, table.columns.keys()))})")
    return connection


def _copy(ledger: Ledger, connection: sqlite3.Connection, query: str) -> None:
    """Copy the columns that a query reads through the views from PostgreSQL."""
    readable = readable_columns(connection)
    wanted = {table for table, _ in read_by(connection, f"EXPLAIN {query}", readable)}

    def copy(source: Connection) -> None:
        source.execute(text("SET TRANSACTION READ ONLY"))
        source.execute(text(f"SET LOCAL statement_timeout = '{SECONDS:g}s'"))
        for table in METADATA.sorted_tables:
            columns = [column for column in table.columns if (table.name, column.name) in readable.columns]
            if table.name not in wanted:
                continue
            names = ", ".join(_quoted(column.name) for column in columns)
            statement = f"INSERT INTO {table.name} ({names}) VALUES ({', '.join('?' * len(columns))})"
            connection.execute(f"DELETE FROM {table.name}")  # of an earlier try
            found = source.execution_options(stream_results=True).execute(
                select(*columns).limit(MOST_COPIED + 1)
            )
            rows = chain.from_iterable(found.partitions(_BATCH))
            if connection.executemany(statement, map(tuple, rows)).rowcount > MOST_COPIED:
                must = f"must read tables of at most {MOST_COPIED:,} rows on PostgreSQL"
                remedy = "Leave out the view that reads it, or query the database by psql."
                raise BadInput("query", must, f"more in {table.name}", remedy)

    ledger.query(copy)


def _quoted(name: str) -> str:
    return f'"{name}"'
