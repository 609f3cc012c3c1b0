"""Requests to stop a sweep, from any machine that shares the ledger."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table of stop requests."""
    op.create_table(
        "wish",
        sa.Column("sweep_id", sa.Text, primary_key=True),
        sa.Column("asker", sa.Text, nullable=False),
    )
