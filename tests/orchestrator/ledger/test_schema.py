"""The migrations make the tables that the code uses."""

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
from tests.orchestrator.ledger.examples import sweep_record


def test_the_newest_revision_is_the_one_asked_for() -> None:
    """A forgotten number would keep the newest tables from ever being made."""
    assert ScriptDirectory(MIGRATIONS).get_current_head() == HEAD


def test_migrations_make_the_tables(ledger: Ledger) -> None:
    """Alembic finds no difference between what it made and what the code declares."""
    with ledger.writer() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, METADATA) == []


def test_a_later_version_is_refused(ledger: Ledger, url: str) -> None:
    """A database of a later version is left alone, and said so."""
    with ledger.writer() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
        connection.commit()
    with pytest.raises(BadInput, match="Install the version"):
        Ledger.open(url)


def test_a_database_that_is_gone_is_not_begun_anew(sqlite_url: str) -> None:
    """A lost or emptied file with a backup beside it is damage, not a first start."""
    ledger = Ledger.open(sqlite_url)
    ledger.create_sweep(sweep_record())
    ledger.close()
    file = Path(sqlite_url.removeprefix("sqlite:///"))
    file.write_bytes(b"")
    with pytest.raises(Damaged, match="recover"):
        Ledger.open(sqlite_url)
    file.unlink()
    with pytest.raises(Damaged, match="recover"):
        Ledger.open(sqlite_url)
