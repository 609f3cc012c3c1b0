"""When a sweep had finished before its newest driver was started."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column: NULL is a sweep that had not finished, and a driver that was started before."""
    op.add_column("submission", sa.Column("finished_before", sa.Float(53)))
