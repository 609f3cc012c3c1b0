"""The migrations create the tables that the code uses."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from orchestrator.errors import BadInput, Damaged
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.schema import HEAD, MIGRATIONS, VERSION_TABLE
from orchestrator.ledger.tables import METADATA
from tests.orchestrator.ledger.examples import create_sweep


def test_the_code_asks_for_the_newest_revision() -> None:
    """With an outdated number the newest tables would never be created."""
    assert ScriptDirectory(MIGRATIONS).get_current_head() == HEAD


def test_migrations_create_the_tables(ledger: Ledger) -> None:
    """Alembic finds no difference between the created tables and the declared ones."""
    with ledger.writer() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, METADATA) == []


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
