"""The tables that the code declares, and the migrations to them, are the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Inspector, inspect, text

from orchestrator.errors import BadInput, Damaged
from orchestrator.ledger import schema
from orchestrator.ledger.connect import WRITING, connect, parse
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.schema import HEAD, MIGRATIONS, VERSION_TABLE
from orchestrator.ledger.tables import METADATA
from tests.orchestrator.ledger.examples import create_sweep


def test_the_code_asks_for_the_newest_revision() -> None:
    """With an outdated number the newest tables would never be created."""
    assert ScriptDirectory(MIGRATIONS).get_current_head() == HEAD


def _migrated(url: str) -> Ledger:
    """Return a ledger at the address of an empty database, on which every migration has run."""
    engine = connect(parse(url))
    with engine.connect().execution_options(**{WRITING: True}) as connection, connection.begin():
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, HEAD)
    engine.dispose()
    return Ledger.open(url)


def test_a_new_ledger_is_created_without_migrations(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alembic takes a third of a second to import, and all revisions longer than creating the tables."""

    def refuse(*_: object) -> None:
        raise AssertionError("a new ledger was migrated")

    monkeypatch.setattr(schema, "_upgrade", refuse)
    Ledger.open(url).close()


def test_a_created_ledger_is_a_migrated_one(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Columns, keys, indexes and options of every table agree, and so does the version.

    Not the order of the columns, which every statement names, nor the names of keys, which no statement does.
    """
    created = _described(Ledger.open(url))
    if url.startswith("sqlite"):
        empty = f"sqlite:///{tmp_path / 'migrated.db'}"
    else:
        empty = request.getfixturevalue("postgres_server").empty_database()
    assert created == _described(_migrated(empty))
    assert len(created["tables"]) == len(METADATA.tables) + 1
    assert created["versions"] == [HEAD]


def _described(ledger: Ledger) -> dict[str, Any]:
    """Return what there is in the database of an empty ledger, and close it."""
    with ledger.reader() as connection:
        described = {
            "tables": _tables(inspect(connection)),
            "kinds": _kinds(connection) if ledger.is_file else {},
            "versions": connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars().all(),
            "id": len(ledger.id),
        }
    ledger.close()
    return described


def _tables(inspector: Inspector) -> dict[str, dict[str, Any]]:
    """Return what the database knows of each table."""
    return {
        name: {
            "columns": sorted((_plain(one) for one in inspector.get_columns(name)), key=str),
            "key": inspector.get_pk_constraint(name)["constrained_columns"],
            "foreign": sorted((_nameless(one) for one in inspector.get_foreign_keys(name)), key=str),
            "unique": sorted((_nameless(one) for one in inspector.get_unique_constraints(name)), key=str),
            "checks": inspector.get_check_constraints(name),
            "indexes": sorted(map(_plain, inspector.get_indexes(name)), key=str),
        }
        for name in inspector.get_table_names()
    }


def _plain(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a description whose types and conditions can be compared."""
    return {
        key: _plain(value) if isinstance(value, Mapping) else str(value) for key, value in document.items()
    }


def _nameless(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "name"}


def _kinds(connection: Any) -> dict[str, tuple[Any, ...]]:
    """Return what only SQLite knows: whether a table has row numbers that grow for ever, and its triggers."""
    rows = connection.exec_driver_sql(
        "SELECT name, type, upper(sql) LIKE '%WITHOUT ROWID%', upper(sql) LIKE '%AUTOINCREMENT%'"
        " FROM sqlite_master"
    )
    return {name: tuple(rest) for name, *rest in rows}


def test_migrations_create_the_tables(url: str) -> None:
    """Alembic finds no difference between the created tables and the declared ones."""
    ledger = _migrated(url)
    with ledger.reader() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, METADATA) == []
    ledger.close()


def test_a_later_version_is_refused(ledger: Ledger, url: str) -> None:
    """A database of a later version is left unchanged."""
    with ledger.writer() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
        connection.commit()
    with pytest.raises(BadInput, match="Install the version"):
        Ledger.open(url)


def test_a_lost_database_is_not_replaced_by_an_empty_one(sqlite_url: str) -> None:
    """A missing or empty file with a backup beside it is damage, not a first start."""
    ledger = Ledger.open(sqlite_url)
    create_sweep(ledger)
    ledger.close()
    file = Path(sqlite_url.removeprefix("sqlite:///"))
    file.write_bytes(b"")
    with pytest.raises(Damaged, match="recover"):
        Ledger.open(sqlite_url)
    file.unlink()
    with pytest.raises(Damaged, match="recover"):
        Ledger.open(sqlite_url)


def test_a_ledger_keeps_its_unique_id(tmp_path: Path) -> None:
    """The id keeps the files of two ledgers apart in one store, so a rebuilt ledger must have its own."""
    first, second, again = (Ledger.open(f"sqlite:///{tmp_path / name}.db") for name in "aba")
    assert first.id != second.id
    assert first.id == again.id
