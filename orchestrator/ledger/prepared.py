"""Statements that SQLite runs on its own cursor, compiled once.

SQLAlchemy takes 30 to 100 microseconds for an execution and SQLite itself 3 to 10; a report consists of a
dozen of them. PostgreSQL gets them through SQLAlchemy: its answers take longer than that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from sqlalchemy import Connection, Executable
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import ClauseElement

Values = Mapping[str, Any]


def execute(connection: Connection, statement: Executable, *values: Values) -> list[Sequence[Any]]:
    """Run a statement once for each of `values`, and return the rows that it yields.

    SQLite returns a boolean as 0 or 1.

    Args:
        connection: begins a transaction if it is in none.
        statement: built at the import of a module: its compiled form is kept for ever.
        values: the parameters. The first ones name the columns that an INSERT or UPDATE sets.

    Raises:
        DBAPIError: the database refuses the statement, or is lost.
    """
    if connection.dialect.name != sqlite.dialect.name:
        result = connection.execute(statement, values[0] if len(values) == 1 else list(values))
        return list(result) if result.returns_rows else []
    if not connection.in_transaction():
        connection.begin()
    prepared = _prepared(statement, tuple(values[0]))
    with _cursor(connection) as cursor:
        if len(values) == 1:
            cursor.execute(prepared.text, prepared.arranged(values[0]))
        else:
            cursor.executemany(prepared.text, [prepared.arranged(row) for row in values])
        return list(cursor.fetchall()) if cursor.description else []


def command(connection: Connection, text: str) -> None:
    """Let SQLite run a statement that has no parameters and yields no rows.

    Raises:
        DBAPIError: the database refuses the statement.
    """
    with _cursor(connection) as cursor:
        cursor.execute(text)


def fetched(cursor: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Yield the rows of a cursor of SQLite.

    Raises:
        DBAPIError: the database cannot read a row.
    """
    try:
        yield from cursor
    except sqlite3.Error as error:
        raise DBAPIError.instance(None, None, error, sqlite3.Error, hide_parameters=True) from error


@contextmanager
def _cursor(connection: Connection) -> Iterator[DBAPICursor]:
    """Open a cursor of SQLite; raise its errors as SQLAlchemy does."""
    cursor = connection.connection.cursor()
    try:
        yield cursor
    except sqlite3.Error as error:
        raise DBAPIError.instance(None, None, error, sqlite3.Error, hide_parameters=True) from error
    finally:
        cursor.close()


@dataclass(frozen=True)
class _Prepared:
    """A statement in the words of SQLite.

    Attributes:
        text: of the statement.
        order: names of its parameters.
        constants: parameters that the statement itself sets.
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
