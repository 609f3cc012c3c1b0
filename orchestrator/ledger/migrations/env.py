"""Alembic's entry point: runs the revisions on the given connection, inside its transaction."""

from __future__ import annotations

from alembic import context

from orchestrator.ledger.schema import VERSION_TABLE
from orchestrator.ledger.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
context.run_migrations()
