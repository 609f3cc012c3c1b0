"""Prepared statements, compiled once, that SQLite runs on its own cursor.

SQLAlchemy takes 30 to 100 microseconds for an execution and SQLite itself 3 to 10, and a report needs a dozen
of them. PostgreSQL, whose answers take longer, gets them through SQLAlchemy.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol, cast

from sqlalchemy import Connection, Engine, Executable, PoolProxiedConnection
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import ClauseElement

Values = Mapping[str, Any]


def execute(connection: Connection, statement: Executable, *values: Values) -> list[Sequence[Any]]:
    """Run a statement once for each of `values`, and return its rows; SQLite returns a boolean as 0 or 1.

    Args:
        connection: Connection, on which a transaction begins if necessary.
        statement: Statement built at the import of a module, because its compiled form is cached for ever.
        values: Parameters. The first ones name the columns that an INSERT or UPDATE sets.

    Raises:
        DBAPIError: The database refuses the statement, or is lost.
    """
    if connection.dialect.name != sqlite.dialect.name:
        result = connection.execute(statement, values[0] if len(values) == 1 else list(values))
        return list(result) if result.returns_rows else []
    if not connection.in_transaction():
        connection.begin()
    return _run(connection.connection, statement, values).rows


class Replaced(Protocol):
    """Result of a statement.

    Attributes:
        rowcount: Number of rows that it has changed or deleted.
    """

    @property
    def rowcount(self) -> int:
        """Return the number of rows."""


def replacing(connection: Connection, statement: Executable, values: Values) -> Replaced:
    """Run an UPDATE or DELETE, and return a result that knows the number of its rows; see `execute`."""
    if connection.dialect.name != sqlite.dialect.name:
        return connection.execute(statement, values)
    if not connection.in_transaction():
        connection.begin()
    return _run(connection.connection, statement, (values,))


def read(engine: Engine, query: Executable, values: Values) -> list[Sequence[Any]]:
    """Run a query in its own transaction, and return its rows.

    SQLite reads the rows of one statement from one snapshot. It needs no transaction, whose bookkeeping in
    SQLAlchemy takes longer than most queries.

    Args:
        engine: Engine of the database.
        query: Query built at the import of a module, because its compiled form is cached for ever.
        values: Parameters.

    Raises:
        DBAPIError: The database refuses the query, or is lost.
    """
    if engine.dialect.name != sqlite.dialect.name:
        with engine.connect() as connection:
            return execute(connection, query, values)
    try:
        raw = engine.raw_connection()
    except sqlite3.Error as error:
        raise _as_of_sqlalchemy(error) from error
    try:
        return _run(raw, query, (values,)).rows
    finally:
        raw.close()


class _Answer(NamedTuple):
    """Rows that a statement returns, and the number of those that it has changed."""

    rows: list[Sequence[Any]]
    rowcount: int


def _run(connection: PoolProxiedConnection, statement: Executable, values: Sequence[Values]) -> _Answer:
    prepared, cursor = _prepared(statement, tuple(values[0])), connection.cursor()
    try:
        if len(values) == 1:
            cursor.execute(prepared.text, prepared.arranged(values[0]))
        else:
            cursor.executemany(prepared.text, [prepared.arranged(row) for row in values])
        return _Answer(cursor.fetchall() if cursor.description else [], cursor.rowcount)
    except sqlite3.Error as error:
        raise _as_of_sqlalchemy(error) from error
    finally:
        cursor.close()


def fetched(cursor: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Yield the rows of a cursor of SQLite.

    Raises:
        DBAPIError: The database cannot read a row.
    """
    try:
        yield from cursor
    except sqlite3.Error as error:
        raise _as_of_sqlalchemy(error) from error


def command(connection: Connection, text: str) -> None:
    """Run a statement without parameters and rows in SQLite.

    Raises:
        DBAPIError: The database refuses the statement.
    """
    cursor = connection.connection.cursor()
    try:
        cursor.execute(text)
    except sqlite3.Error as error:
        raise _as_of_sqlalchemy(error) from error
    finally:
        cursor.close()


def _as_of_sqlalchemy(error: sqlite3.Error) -> BaseException:
    """Return SQLAlchemy's error for an error of SQLite."""
    return DBAPIError.instance(None, None, error, sqlite3.Error, hide_parameters=True)


@dataclass(frozen=True)
class _Prepared:
    """Statement in SQLite's dialect.

    Attributes:
        text: Text of the statement.
        order: Names of its parameters in their order.
        constants: Parameters that the statement itself sets.
    """

    text: str
    order: Sequence[str]
    constants: Values

    def arranged(self, values: Values) -> list[Any]:
        """Return the parameters in their order."""
        every = {**self.constants, **values} if self.constants else values
        return [every[name] for name in self.order]


@cache
def _prepared(statement: Executable, names: tuple[str, ...]) -> _Prepared:
    columns = [name for name in names if not name.startswith("key_")]
    is_change = getattr(statement, "is_dml", False)
    compiled = cast(ClauseElement, statement).compile(
        dialect=sqlite.dialect(), column_keys=columns if is_change else None
    )
    assert isinstance(compiled, SQLCompiler)
    constants = {name: value for name, value in compiled.params.items() if name not in names}
    return _Prepared(compiled.string, compiled.positiontup or (), constants)
