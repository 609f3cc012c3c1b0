"""The quota of an owner on sweeps that wait or run at once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column to the owners: NULL is no limit."""
    op.add_column("owner", sa.Column("most_sweeps", sa.Integer))
