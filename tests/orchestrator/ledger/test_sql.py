"""SQL over the views of the ledger: the same rows on both databases, never a write, never a secret."""

from __future__ import annotations

import json
import re
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import BadInput
from orchestrator.ledger import sql, sql_source
from orchestrator.ledger.connect import database_file
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sql import MOST_CHARACTERS, MOST_ROWS, VIEWS
from orchestrator.ledger.sql_source import selected
from orchestrator.ledger.tables import METADATA
from tests import sweeps

DOCUMENTED = Path(__file__).parents[3] / "docs" / "how-to" / "sql.md"
BOMB = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


@pytest.fixture
def filled(ledger: Ledger, tmp_path: Path) -> Ledger:
    """A ledger with a sweep of eight trials, and a user."""
    sweeps.fill(ledger, tmp_path)
    return ledger


def rows(ledger: Ledger, query: str, most: int = 1000) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in selected(ledger, query, most)[1]]


def test_the_views_have_the_rows_of_the_ledger(filled: Ledger) -> None:
    trials = filled.trials(sweeps.SWEEP_ID)
    assert rows(filled, "SELECT key, value FROM trials ORDER BY number") == [
        (trial.key, trial.value) for trial in sorted(trials, key=lambda one: one.number)
    ]
    best = "SELECT params ->> 'learning_rate' FROM trials WHERE number = 7"
    assert rows(filled, best) == [(sweeps.trial(7).params["learning_rate"],)]
    [(reports,)] = rows(filled, "SELECT count(*) FROM reports")
    assert reports == sum(len(sweeps.reports(trial)) for trial in trials)
    [(metrics,)] = rows(filled, "SELECT count(*) FROM metrics WHERE metric = 'val/loss'")
    assert metrics == reports
    assert rows(filled, "SELECT id, task FROM sweeps") == [(sweeps.SWEEP_ID, "retrieval")]
    assert len(rows(filled, "SELECT * FROM attempts")) == len(trials)
    assert rows(filled, "SELECT count(*) FROM events WHERE event = 'trial created'") == [(len(trials),)]
    assert len(rows(filled, "SELECT split FROM evaluations")) == 1
    for view in VIEWS:
        assert selected(filled, f"SELECT * FROM {view}", 1)[0]


def test_the_documented_columns_are_those_of_the_views(filled: Ledger) -> None:
    rows_of_page = re.findall(r"^\| `(\w+)` \| (`.*`) \|$", DOCUMENTED.read_text("utf-8"), re.MULTILINE)
    documented = {view: tuple(re.findall(r"`(\w+)`", columns)) for view, columns in rows_of_page}
    assert documented == {view: selected(filled, f"SELECT * FROM {view}", 1)[0] for view in VIEWS}


def test_a_metric_that_is_not_finite_has_no_value(filled: Ledger) -> None:
    with filled.writer() as connection:
        connection.exec_driver_sql("""UPDATE report SET metrics = '{"a":NaN,"b":-Infinity,"c":1.5}'""")
        connection.commit()
    assert rows(filled, "SELECT DISTINCT metric, value FROM metrics ORDER BY metric") == [
        ("a", None),
        ("b", None),
        ("c", 1.5),
    ]


def test_an_answer_is_plain_and_bounded(filled: Ledger) -> None:
    names, found, truncated = selected(filled, f"{BOMB} SELECT i AS number, 9e999, x'00ff' FROM n", 3)
    assert names == ("number", "9e999", "x'00ff'")
    assert [tuple(row) for row in found] == [(i, None, "00ff") for i in (1, 2, 3)]
    assert truncated
    json.dumps(found, allow_nan=False)
    _, all_of_them, more = selected(filled, "SELECT key FROM trials", 8)
    assert (len(all_of_them), more) == (8, False)
    assert rows(filled, "SELECT CAST(x'ff' AS TEXT)") == [("\N{REPLACEMENT CHARACTER}",)]
    assert rows(filled, "SELECT length(printf('%2000000000d', 1)) > 10000000") != [(1,)]
    wide = f"{BOMB} SELECT printf('%9000000d', i) FROM n"
    assert len(selected(filled, wide, MOST_ROWS)[1]) < 3


def secret_tables() -> set[str]:
    return {"service_user", "service_session", "request_key", "lease", "outbox", "owner", "claim", "ledger"}


@pytest.mark.parametrize("table", sorted(secret_tables() | {"sqlite_master", "sqlite_temp_master", "dbstat"}))
def test_no_other_table_is_read(filled: Ledger, table: str) -> None:
    """Neither by its name, nor counted, nor by a subquery that has the name of a view."""
    for query in (
        f"SELECT * FROM {table}",
        f"SELECT count(*) FROM {table}",
        f"SELECT count(*) FROM {table.upper()}",
        f"SELECT count(*) FROM [{table.title()}] AS sweeps",
        f"WITH sweeps AS (SELECT * FROM {table}) SELECT * FROM sweeps",
        f"WITH trials AS MATERIALIZED (SELECT * FROM {table}) SELECT count(*) FROM trials",
        f"SELECT (SELECT count(*) FROM {table}) FROM sweeps",
        f"SELECT 1 FROM sweeps WHERE EXISTS (SELECT 1 FROM main.{table})",
    ):
        with pytest.raises(BadInput, match="must be"):
            rows(filled, query)


def test_no_column_is_read_that_no_view_reads(filled: Ledger) -> None:
    """They hold paths, machines and idempotency keys."""
    for table, column in (
        *(("sweep", "document"), ("sweep", "facts"), ("trial", "system_attrs"), ("trial", "row_digest")),
        *(("submission", "options"), ("submission", "key"), ("submission", "driver"), ("submission", "text")),
    ):
        with pytest.raises(BadInput, match=f"access to {table}.{column} is prohibited"):
            rows(filled, f"SELECT {column} FROM {table}")
        with pytest.raises(BadInput, match=f"access to {table}.{column} is prohibited"):
            rows(filled, f"WITH sweeps AS (SELECT {column} FROM {table}) SELECT * FROM sweeps")


HOSTILE = {
    "attach": "ATTACH DATABASE '/tmp/other.db' AS other",
    "attach a URI": "ATTACH 'file:/etc/passwd?mode=ro' AS p",
    "detach": "DETACH temp",
    "pragma": "PRAGMA query_only = OFF",
    "pragma that reads": "PRAGMA table_info(service_user)",
    "pragma as a table": "SELECT * FROM pragma_table_info('service_user')",
    "pragma as a table of names": "SELECT * FROM pragma_database_list",
    "extension": "SELECT load_extension('/tmp/evil.so')",
    "two statements": "SELECT 1; DELETE FROM trial",
    "a comment before a second statement": "SELECT 1 -- x\n; /* y */ DELETE FROM trial",
    "update": "UPDATE trial SET value = 0",
    "delete": "DELETE FROM report",
    "insert": "INSERT INTO audit VALUES (1, 1, 'a', 'b', 'c', 'd')",
    "a change behind WITH": "WITH x AS (SELECT 1) DELETE FROM trial",
    "returning": "DELETE FROM trial RETURNING *",
    "replace": "REPLACE INTO sweep SELECT * FROM sweep",
    "drop": "DROP TABLE trial",
    "drop a view": "DROP VIEW sweeps",
    "create": "CREATE TABLE t (x)",
    "create temporary": "CREATE TEMP TABLE t AS SELECT 1",
    "create a trigger": "CREATE TEMP TRIGGER t INSTEAD OF DELETE ON sweeps BEGIN SELECT 1; END",
    "create a virtual table": "CREATE VIRTUAL TABLE temp.t USING fts5(x)",
    "vacuum into a file": "VACUUM INTO '/tmp/copied.db'",
    "begin": "BEGIN IMMEDIATE",
    "commit": "COMMIT",
    "reindex": "REINDEX",
    "analyze": "ANALYZE",
    "tokenizer": "SELECT fts3_tokenizer('simple')",
    "rtreecheck": "SELECT rtreecheck('main', 'service_user')",
    "statements": "SELECT * FROM sqlite_stmt",
    "random bytes": "SELECT randomblob(1000000000)",
    "zeros": "SELECT zeroblob(2000000000)",
    "a text that grows": "SELECT replace(printf('%9000000d', 1), ' ', '          ')",
    "nothing": "",
    "a comment": "-- nothing",
    "an open comment": "/* nothing",
    "a null character": "SELECT 1\0; DELETE FROM trial",
    "half a character": "SELECT '\ud800'",
    "deep": "SELECT " + "(" * 1500 + "1" + ")" * 1500,
    "many columns": "SELECT " + ",".join(["1"] * 1000),
    "long": "SELECT " + "1" * MOST_CHARACTERS,
    "a parameter": "SELECT ?",
    "words": "drop everything",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_query_is_refused(filled: Ledger, name: str) -> None:
    before = rows(filled, "SELECT * FROM trials")
    with pytest.raises(BadInput):
        rows(filled, HOSTILE[name])
    assert rows(filled, "SELECT * FROM trials") == before


@pytest.mark.slow_after(5)
@pytest.mark.parametrize(
    "query",
    [
        f"{BOMB} SELECT count(*) FROM n",
        f"{BOMB} SELECT sum(a.i) FROM n AS a JOIN n AS b",
        "SELECT count(*) FROM reports a, reports b, reports c, reports d, reports e",
        f"{BOMB} SELECT i FROM n ORDER BY -i",
    ],
)
def test_a_query_without_end_is_interrupted(
    filled: Ledger, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setattr(sql, "SECONDS", 0.3)
    began = time.monotonic()
    with pytest.raises(BadInput, match=r"must end within 0\.3 s"):
        rows(filled, query)
    assert time.monotonic() - began < 5.0


def test_views_with_names_of_tables_stay_views(filled: Ledger) -> None:
    """Any text of the ledger is a value; what a query itself defines hides a view for that query alone."""
    assert rows(filled, "WITH trials AS (SELECT 7 AS number) SELECT * FROM trials") == [(7,)]
    assert len(rows(filled, "SELECT * FROM trials")) == 8
    assert rows(filled, "SELECT entry.value FROM json_each('[1, 2]') AS entry") == [(1,), (2,)]
    assert rows(filled, "VALUES (1)") == [(1,)]
    assert rows(filled, "SELECT count(*) FROM TRIALS") == [(8,)]
    assert rows(filled, "WITH n AS (VALUES (1), (2)) SELECT count(*) FROM n") == [(2,)]
    assert rows(filled, "SELECT count(*) FROM json_tree('[1, 2]')") == [(3,)]


@pytest.mark.parametrize("most", [0, -1, MOST_ROWS + 1])
def test_the_number_of_rows_is_limited(filled: Ledger, most: int) -> None:
    with pytest.raises(BadInput, match="rows must be from 1 to 10,000"):
        selected(filled, "SELECT 1", most)


def test_a_file_that_is_read_may_be_written_by_others(sqlite_url: str, tmp_path: Path) -> None:
    """A reader neither waits for the writer nor sees half of its transaction."""
    with_writer = Ledger.open(sqlite_url)
    sweeps.fill(with_writer, tmp_path)
    with with_writer.writer() as connection, connection.begin():
        connection.exec_driver_sql("DELETE FROM report")
        assert rows(with_writer, "SELECT count(*) FROM reports")[0][0] > 0
    with_writer.close()


def test_too_many_rows_are_not_copied(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_source, "MOST_COPIED", 10)
    ledger = Ledger.open(postgres_url)
    sweeps.fill(ledger, tmp_path)
    with pytest.raises(BadInput, match="must read tables of at most 10 rows on PostgreSQL"):
        rows(ledger, "SELECT * FROM reports")
    assert len(rows(ledger, "SELECT * FROM trials")) == 8
    ledger.close()


def test_no_view_reads_a_table_with_secrets(filled: Ledger) -> None:
    source = database_file(filled.address) if filled.is_file else sql_source.empty_copy()
    with closing(sql._opened(source)) as connection:
        readable = sql.readable_columns(connection)
    tables = {table for table, _ in readable.columns} - VIEWS.keys()
    assert not tables & secret_tables()
    assert tables <= METADATA.tables.keys() | {"json_each"}
