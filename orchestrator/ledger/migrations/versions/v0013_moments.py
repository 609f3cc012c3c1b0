"""By which setting of the clock the times of the service are, and what a driver has found reported."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns: NULL is a setting that is not known, and a driver that was started before."""
    op.add_column("submission", sa.Column("clock", sa.Text))
    op.add_column("submission", sa.Column("reported_before", sa.Float(53)))
    op.add_column("start_pause", sa.Column("clock", sa.Text))
