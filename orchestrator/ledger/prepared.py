"""Prepared statements, compiled once, that SQLite runs on its own cursor.

SQLAlchemy takes 30 to 100 microseconds for an execution and SQLite itself 3 to 10, and a report needs eight
of them. PostgreSQL, whose answers take longer, gets them through SQLAlchemy, or, within `pipelined`, all at
once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol, cast

from sqlalchemy import Connection, Dialect, Engine, Executable, PoolProxiedConnection
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import ClauseElement

Values = Mapping[str, Any]


class Stale(Exception):
    """A row was changed after this transaction had read or held it; repeat the transaction."""


class Answer(Protocol):
    """Answer to a statement; within `pipelined`, one that has not come yet is waited for when it is read."""

    @property
    def rows(self) -> Sequence[Sequence[Any]]:
        """Return the rows of a query."""

    @property
    def rowcount(self) -> int:
        """Return the number of rows that an UPDATE or DELETE has changed; only after `pipelined`."""


def execute(connection: Connection, statement: Executable, *values: Values) -> list[Sequence[Any]]:
    """Run a statement once for each of `values`, and return its rows; see `send`."""
    return list(send(connection, statement, *values).rows)


def send(connection: Connection, statement: Executable, *values: Values, matches: bool = False) -> Answer:
    """Run a statement once for each of `values`; SQLite returns a boolean as 0 or 1.

    Args:
        connection: Connection, on which a transaction begins if necessary.
        statement: Statement built at the import of a module, because its compiled form is cached for ever.
        values: Parameters. The first ones name the columns that an INSERT or UPDATE sets.
        matches: Whether the server ends the transaction if the statement finds no row; only within
            `pipelined` on PostgreSQL, which then raises `Stale`.

    Raises:
        DBAPIError: The database refuses the statement, or is lost.
    """
    if not connection.in_transaction():
        connection.begin()
    if connection.dialect.name == sqlite.dialect.name:
        return _run(connection.connection, statement, values)
    if _is_pipelined(connection):
        return _queue(connection, statement, values, matches)
    assert not matches, "only a pipeline has statements that must match"
    result = connection.execute(statement, values[0] if len(values) == 1 else list(values))
    return _Answer(list(result) if result.returns_rows else [], result.rowcount)


def has_pipelines(engine: Engine) -> bool:
    """Return True if `pipelined` sends the statements of a database together."""
    return engine.dialect.name != sqlite.dialect.name


@contextmanager
def pipelined(connection: Connection) -> Iterator[None]:
    """Send the statements of a `with` block to PostgreSQL without waiting for their answers.

    The answers have come when the block is left, and those of a query when its rows are read: a block that
    reads nothing costs one round trip, with the beginning of its transaction. The transaction goes on after
    the block; within, only `execute` and `send` may be used. For SQLite this does nothing.

    Source: PostgreSQL's manual, 32.5 Pipeline Mode.

    Raises:
        DBAPIError: The database has refused a statement, or is lost.
        Stale: A statement that must match a row has found none.
    """
    if connection.dialect.name == sqlite.dialect.name:
        yield
        return
    with ExitStack() as pipeline:
        # psycopg would wait for the answer to a BEGIN of its own. The pool turns its way of transactions on
        # again when the connection is returned.
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.begin()
        with _errors_of(connection):
            pipeline.enter_context(_driver(connection).pipeline())
            _driver(connection).execute("BEGIN")
        try:
            yield
        except BaseException:
            with suppress(Exception):  # statements after the one that has failed
                pipeline.close()
            raise
        with _errors_of(connection):
            pipeline.close()


def commit(connection: Connection) -> None:
    """Commit within `pipelined`, as its last statement, so that the commit costs no round trip of its own.

    The server skips what follows a statement that fails, and so commits nothing unless each statement before
    has succeeded and has matched a row if it must.

    Source: PostgreSQL's manual, 54.2.4 Pipelining (of the extended query protocol).
    """
    with _errors_of(connection):
        # Not prepared, so that what looks at the connection, as a proxy may, sees a COMMIT.
        _driver(connection).execute("COMMIT", prepare=False)


def _driver(connection: Connection) -> Any:
    """Return the connection of psycopg."""
    return connection.connection.driver_connection


def _is_pipelined(connection: Connection) -> bool:
    return bool(_driver(connection).pgconn.pipeline_status)


@dataclass(frozen=True)
class _Queued:
    """Answer of PostgreSQL within `pipelined`."""

    connection: Connection
    cursor: Any
    is_query: bool

    @property
    def rows(self) -> Sequence[Sequence[Any]]:
        with _errors_of(self.connection):
            return self.cursor.fetchall() if self.is_query else []

    @property
    def rowcount(self) -> int:
        return int(self.cursor.rowcount)


_MATCHES = "WITH matched AS ({} RETURNING 1) SELECT 1 / count(*) FROM matched"
"""Statement that fails, because it divides by zero, if the one in its place changes no row."""

NO_MATCH = "22012"
"""Error of PostgreSQL by which a statement fails that must match a row: its division_by_zero."""


def _queue(connection: Connection, statement: Executable, values: Sequence[Values], matches: bool) -> _Queued:
    prepared = _prepared(statement, tuple(values[0]), connection.dialect)
    text = prepared.text
    if matches and not statement.is_select:
        text = _MATCHES.format(text)
    every = [{**prepared.constants, **row} for row in values]
    cursor = _driver(connection).cursor()
    with _errors_of(connection):
        if len(every) == 1:
            cursor.execute(text, every[0])
        else:
            cursor.executemany(text, every)
    return _Queued(connection, cursor, statement.is_select)


@contextmanager
def _errors_of(connection: Connection) -> Iterator[None]:
    """Raise SQLAlchemy's error for one of psycopg, or Stale, and close a connection that is lost."""
    kind = connection.dialect.loaded_dbapi.Error
    try:
        yield
    except kind as error:
        if error.sqlstate == NO_MATCH:
            raise Stale from error
        is_lost = connection.dialect.is_disconnect(error, _driver(connection), None)
        if is_lost:
            connection.invalidate(error)
        raise DBAPIError.instance(
            None, None, error, kind, hide_parameters=True, connection_invalidated=is_lost
        ) from error


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
        return list(_run(raw, query, (values,)).rows)
    finally:
        raw.close()


_SQLITE = sqlite.dialect()


class _Answer(NamedTuple):
    """Answer that has come."""

    rows: Sequence[Sequence[Any]]
    rowcount: int


def _run(connection: PoolProxiedConnection, statement: Executable, values: Sequence[Values]) -> _Answer:
    prepared, cursor = _prepared(statement, tuple(values[0]), _SQLITE), connection.cursor()
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
    """Statement in the dialect of a database.

    Attributes:
        text: Text of the statement.
        order: Names of its parameters in their order; empty for PostgreSQL, which has them by name.
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
def _prepared(statement: Executable, names: tuple[str, ...], dialect: Dialect) -> _Prepared:
    columns = [name for name in names if not name.startswith("key_")]
    is_change = getattr(statement, "is_dml", False)
    compiled = cast(ClauseElement, statement).compile(
        dialect=dialect, column_keys=columns if is_change else None
    )
    assert isinstance(compiled, SQLCompiler)
    constants = {name: value for name, value in compiled.params.items() if name not in names}
    return _Prepared(compiled.string, compiled.positiontup or (), constants)
