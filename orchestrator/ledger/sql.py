"""Read-only SQL over views of the ledger, in the dialect of SQLite.

The text of a query reaches SQLite alone, which opens the file of a SQLite ledger read-only.
`ledger.sql_source` copies what a query needs of a PostgreSQL ledger.

An authorizer (https://www.sqlite.org/c3ref/set_authorizer.html) permits a query to read the columns of the
views and those that the views read, and nothing else: no statement that writes, attaches or configures, no
other table and no function outside of `FUNCTIONS`. Tokens, sessions and idempotency keys are in columns that
no view reads.

A service answers each query in a process of its own, so this module imports nothing that takes longer than a
query: no SQLAlchemy, which takes 0.3 s.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from orchestrator.errors import RECOVER, BadInput, Damaged

VIEWS: Mapping[str, str] = {
    "sweeps": """
        SELECT sweep.id, sweep.name, sweep.profile, sweep.task, sweep.state, sweep.reason, submission.owner,
            submission.state AS submission, priority.priority_class, note.text AS note, note.tags,
            note.favourite, sweep.created_at, sweep.finished_at
        FROM sweep LEFT JOIN submission ON submission.sweep_id = sweep.id
            LEFT JOIN priority ON priority.sweep_id = sweep.id LEFT JOIN note ON note.target = sweep.id
        """,
    "trials": """
        SELECT trial.key, trial.sweep_id AS sweep, trial.number, trial.role, trial.state, trial.cause,
            trial.params, trial.seed, trial.value, trial.best_step, trial.step, trial.total_steps,
            trial.attempts, note.text AS note, note.tags, note.favourite, trial.created_at, trial.finished_at
        FROM trial LEFT JOIN note ON note.target = trial.key
        """,
    "reports": "SELECT trial_key AS trial, step, attempt_id AS attempt, metrics, at FROM report",
    "metrics": """
        SELECT report.trial_key AS trial, report.step, entry.key AS metric, entry.value, report.at
        FROM report, json_each(
            CASE WHEN json_valid(report.metrics) THEN report.metrics ELSE replace(replace(replace(
                report.metrics, '":NaN', '":null'), '":-Infinity', '":null'), '":Infinity', '":null') END
        ) AS entry
        """,
    "attempts": """
        SELECT id, trial_key AS trial, number, state, cause, node, started_at, ended_at FROM attempt
        """,
    "evaluations": "SELECT trial_key AS trial, step, split, metrics, at FROM evaluation",
    "decisions": "SELECT at, actor, action, target, detail FROM audit",
    "events": """
        SELECT created_at AS at, id AS target, 'sweep created' AS event, task AS detail FROM sweep
        UNION ALL SELECT finished_at, id, 'sweep ' || lower(state), reason FROM sweep
            WHERE finished_at IS NOT NULL
        UNION ALL SELECT created_at, key, 'trial created', params FROM trial
        UNION ALL SELECT finished_at, key, 'trial ' || lower(state), cause FROM trial
            WHERE finished_at IS NOT NULL
        UNION ALL SELECT started_at, trial_key, 'attempt started', node FROM attempt
        UNION ALL SELECT ended_at, trial_key, 'attempt ' || lower(state), cause FROM attempt
            WHERE ended_at IS NOT NULL
        UNION ALL SELECT at, target, action, actor FROM audit
        """,
}
"""Definition of each view. Times are seconds since the epoch; `params`, `metrics` and `detail` are JSON."""

_NAMES = """
    abs avg ceil ceiling char coalesce count cume_dist current_date current_time current_timestamp date
    datetime dense_rank exp first_value floor format glob group_concat hex ifnull iif instr julianday lag
    last_value lead length like ln log log10 log2 lower ltrim max min mod nth_value ntile nullif
    percent_rank pow power printf quote rank replace round row_number rtrim sign sqrt strftime substr
    substring sum time total trim trunc typeof unicode unixepoch upper -> ->> json json_array
    json_array_length json_each json_extract json_group_array json_group_object json_object json_quote
    json_tree json_type json_valid
"""

FUNCTIONS = frozenset(_NAMES.split())
"""Functions that a query may call."""

SECONDS = 10.0
"""Longest time of a query."""

MOST_ROWS = 10_000
"""Largest number of rows of an answer."""

MOST_CHARACTERS = 4_000
"""Longest query: it fits into the address of a request."""

MOST_ANSWER_BYTES = 8_000_000
"""Size of all values of an answer at which it ends."""

_VALUE_BYTES = 10_000_000
_LIMITS: Mapping[int, int] = {
    sqlite3.SQLITE_LIMIT_LENGTH: _VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 10 * MOST_CHARACTERS,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_STEPS = 10_000
"""Instructions of SQLite between two looks at the clock: about a millisecond."""

_TABLE_FUNCTIONS = frozenset({"json_each", "json_tree"})

ReadColumn = tuple[str, str]
"""Table and column as the authorizer names them; the column is empty where a query uses none."""

Cell = str | int | float | None
"""Value of a row."""

Found = tuple[Sequence[str], Sequence[Sequence[Cell]], bool]
"""Names of the columns, the rows, and whether there are more rows."""


@dataclass(frozen=True)
class Readable:
    """What a query may read.

    A query can give a subquery the name of a view, so the view through which a column is read is not checked:
    every column that a view reads is readable directly.

    Attributes:
        columns: Columns of the views, and the columns of tables that the views read.
        hidden: Other tables and modules of the database, in lower case; their rows are not even counted.
    """

    columns: frozenset[ReadColumn]
    hidden: frozenset[str]

    def verdict(self, action: int, first: str | None, second: str | None) -> int:
        """Return the answer of the authorizer to an action and its first two arguments."""
        if action == sqlite3.SQLITE_READ and second == "":  # of a table, a view or a subquery of that name
            name = str(first).lower()
            is_permitted = name not in self.hidden and not name.startswith(("sqlite_", "pragma_"))
        elif action == sqlite3.SQLITE_READ:
            is_permitted = (first, second) in self.columns or first in _TABLE_FUNCTIONS
        elif action == sqlite3.SQLITE_FUNCTION:
            is_permitted = str(second).lower() in FUNCTIONS
        else:
            is_permitted = action in {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE}
        return sqlite3.SQLITE_OK if is_permitted else sqlite3.SQLITE_DENY


def selected(
    database: Path | sqlite3.Connection,
    query: str,
    rows: int,
    fill: Callable[[sqlite3.Connection], None] = lambda connection: None,
) -> Found:
    """Return the rows of a SELECT over `VIEWS`.

    Args:
        database: File of a SQLite ledger, or a new database in memory with the tables of a ledger.
        query: One statement in the dialect of SQLite.
        rows: Largest number of rows, up to `MOST_ROWS`.
        fill: Function that fills a database in memory, after the views exist and before the query is limited.

    Raises:
        BadInput: The query is wrong, reads something else than the views, or takes longer than `SECONDS`.
        Damaged: SQLite cannot read the file of the ledger.
    """
    if not 1 <= rows <= MOST_ROWS:
        raise BadInput("rows", f"must be from 1 to {MOST_ROWS:,}", str(rows), "Select fewer rows at a time.")
    if len(query) > MOST_CHARACTERS:
        must = f"must have at most {MOST_CHARACTERS:,} characters"
        raise BadInput("query", must, f"{len(query):,}", "Write a shorter query.")
    with _translated(), closing(_opened(database, fill)) as connection:
        _restrict(connection, readable_columns(connection))
        _end_after(connection, SECONDS)
        return _fetched(connection, query, rows)


def _opened(
    database: Path | sqlite3.Connection, fill: Callable[[sqlite3.Connection], None] = lambda connection: None
) -> sqlite3.Connection:
    """Return a connection with the views, and with the rows that a query needs."""
    connection = database if isinstance(database, sqlite3.Connection) else _reading(database)
    connection.isolation_level = None
    connection.text_factory = lambda value: value.decode(errors="replace")
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')")  # their first use reads the schema
    for name, definition in VIEWS.items():
        connection.execute(f"CREATE TEMP VIEW {name} AS {definition}")
    fill(connection)
    connection.execute("PRAGMA query_only=ON")
    connection.execute("PRAGMA trusted_schema=OFF")
    for kind, most in _LIMITS.items():
        connection.setlimit(kind, most)
    return connection


def _reading(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True, timeout=SECONDS)


def readable_columns(connection: sqlite3.Connection) -> Readable:
    """Return what a query may read, on a connection with the views."""
    found: set[ReadColumn] = set()
    for name in VIEWS:
        found |= {(name, row[1]) for row in connection.execute(f"PRAGMA table_info({name})")}
        found |= read_by(connection, f"EXPLAIN SELECT * FROM {name}")
    own = {*_TABLE_FUNCTIONS, *(table for table, _ in found)}
    kinds = "SELECT lower(name) FROM sqlite_schema UNION SELECT lower(name) FROM pragma_module_list"
    others = frozenset(row[0] for row in connection.execute(kinds)) - own
    return Readable(frozenset(found), others)


def read_by(
    connection: sqlite3.Connection, statement: str, readable: Readable | None = None
) -> set[ReadColumn]:
    """Return the columns that a statement reads; a column that is not readable is refused."""
    found: set[ReadColumn] = set()

    def authorize(action: int, first: str | None, second: str | None, *where: str | None) -> int:
        if action == sqlite3.SQLITE_READ:
            found.add((str(first), str(second)))
        return sqlite3.SQLITE_OK if readable is None else readable.verdict(action, first, second)

    connection.set_authorizer(authorize)
    connection.execute(statement).close()
    connection.set_authorizer(None)
    return found


def _restrict(connection: sqlite3.Connection, readable: Readable) -> None:
    """Permit a connection to read some columns only."""

    def authorize(action: int, first: str | None, second: str | None, *where: str | None) -> int:
        return readable.verdict(action, first, second)

    connection.set_authorizer(authorize)


def _end_after(connection: sqlite3.Connection, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)


def _fetched(connection: sqlite3.Connection, query: str, most: int) -> Found:
    cursor = connection.execute(query)
    if cursor.description is None:
        raise BadInput(
            "query", "must be a SELECT", "no statement", "Name a view, as in SELECT * FROM sweeps."
        )
    names = tuple(str(column[0]) for column in cursor.description)
    rows: list[Sequence[Cell]] = []
    size = 0
    for found in cursor:
        if len(rows) == most or size > MOST_ANSWER_BYTES:
            return names, tuple(rows), True
        row = tuple(map(_plain_value, found))
        size += sum(len(value) if isinstance(value, str) else 8 for value in row)
        rows.append(row)
    return names, tuple(rows), False


def _plain_value(value: object) -> Cell:
    """Return a value as JSON can hold it: bytes in hexadecimal digits, and None in place of an infinity."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    assert value is None or isinstance(value, str | int | float), "SQLite has no other values"
    return value


@contextmanager
def _translated() -> Iterator[None]:
    """Raise errors of SQLite as refusals."""
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        raise _sql_refusal(error) from None


def _sql_refusal(error: Exception) -> BadInput | Damaged:
    code, reason = str(getattr(error, "sqlite_errorname", "")), str(error)
    if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return Damaged("ledger", "must be an intact SQLite database", reason, RECOVER)
    if code == "SQLITE_INTERRUPT":
        remedy = "Select fewer rows, or add conditions."
        return BadInput("query", f"must end within {SECONDS:g} s", "", remedy)
    if code == "SQLITE_AUTH":
        must = (
            f"must be a SELECT that reads only {', '.join(VIEWS)}, with the functions of docs/how-to/sql.md"
        )
        return BadInput("query", must, reason, "Leave out other statements, tables and functions.")
    return BadInput("query", "must be one SELECT in the dialect of SQLite", reason, "See docs/how-to/sql.md.")
