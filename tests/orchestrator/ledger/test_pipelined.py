"""Statements that are sent to PostgreSQL together: their answers, errors and transactions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from sqlalchemy import func, insert, select, text
from sqlalchemy.exc import IntegrityError, OperationalError

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.prepared import Stale, commit, execute, pipelined, send
from orchestrator.ledger.tables import SHELF
from orchestrator.ledger.transaction import statements

ROWS = [{"sweep_id": name, "shelf": "archived", "actor": "ada", "at": 0.5} for name in ("a", "b", "c")]
COUNT = select(func.count()).select_from(SHELF)


def count(ledger: Ledger) -> int:
    return int(ledger.query(lambda connection: connection.execute(COUNT).scalar_one()))


@pytest.fixture
def caplog_is_empty(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that nothing is logged: psycopg logs errors at the end of a pipeline that it hides."""
    with caplog.at_level(logging.INFO):
        yield
    assert not caplog.records


def test_answers_come_in_order_and_the_transaction_ends_after_the_block(ledger: Ledger) -> None:
    with ledger.writer() as connection:
        with pipelined(connection):
            execute(connection, statements(SHELF).insert, *ROWS)
            deleted = send(connection, statements(SHELF).delete, {"key_sweep_id": "b"})
            missing = send(connection, statements(SHELF).delete, {"key_sweep_id": "d"})
            assert execute(connection, COUNT, {}) == [(2,)]
            changed = send(connection, statements(SHELF).update, {"actor": "bo", "key_sweep_id": "c"})
        assert [answer.rowcount for answer in (deleted, missing, changed)] == [1, 0, 1]
        connection.commit()
    assert count(ledger) == 2


def test_a_block_that_is_not_committed_changes_nothing_and_leaves_the_connection_as_it_was(
    ledger: Ledger,
) -> None:
    for _ in range(2):
        with ledger.writer() as connection, pipelined(connection):
            execute(connection, statements(SHELF).insert, *ROWS)
        assert count(ledger) == 0
    with ledger.writer() as connection:
        connection.execute(insert(SHELF), ROWS)
        connection.rollback()  # undoes nothing if each statement is a transaction of its own
    assert count(ledger) == 0


@pytest.mark.usefixtures("caplog_is_empty")
@pytest.mark.parametrize("name", ["update", "delete"])
@pytest.mark.parametrize(("row", "left"), [("b", "abc"), ("missing", "")])
def test_a_commit_with_the_statements_is_made_if_all_that_must_match_do(
    postgres_url: str, name: str, row: str, left: str
) -> None:
    ledger = Ledger.open(postgres_url)
    statement = getattr(statements(SHELF), name)
    values = {"actor": "bo", "key_sweep_id": row} if name == "update" else {"key_sweep_id": row}
    with ledger.writer() as connection, pytest.raises(Stale) if not left else nullcontext():
        with pipelined(connection):
            execute(connection, statements(SHELF).insert, *ROWS)
            send(connection, statement, values, matches=True)
            commit(connection)
        connection.rollback()  # undoes nothing: the transaction has ended
    assert count(ledger) == len(left.replace("b", "") if name == "delete" else left)
    ledger.close()


@pytest.mark.usefixtures("caplog_is_empty")
@pytest.mark.parametrize("reads", [False, True], ids=["", "read"])
def test_a_refused_statement_is_an_error_of_sqlalchemy(ledger: Ledger, reads: bool) -> None:
    def write_twice() -> None:
        with ledger.writer() as connection:
            with pipelined(connection):
                execute(connection, statements(SHELF).insert, ROWS[0])
                send(connection, statements(SHELF).insert, ROWS[0])
                found = send(connection, COUNT, {})
                if reads:
                    found.rows  # noqa: B018 - waits for the answers
            connection.commit()

    for _ in range(2):
        with pytest.raises(IntegrityError):
            write_twice()
        assert count(ledger) == 0


@pytest.mark.usefixtures("caplog_is_empty")
def test_a_connection_that_the_server_has_closed_is_lost(postgres_url: str) -> None:
    ledger = Ledger.open(postgres_url)

    def write() -> None:
        with ledger.writer() as connection:
            with pipelined(connection):
                execute(connection, statements(SHELF).insert, ROWS[0])
                own = connection.connection.driver_connection.info.backend_pid
                with ledger.reader() as other:
                    other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": own})
                execute(connection, COUNT, {})
            connection.commit()

    with pytest.raises(OperationalError) as lost:
        write()
    assert lost.value.connection_invalidated
    assert count(ledger) == 0
    ledger.close()
