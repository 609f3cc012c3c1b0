"""Where the trials of each sweep run, and the node that is held for one that waits."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns to the claims: NULL is no place that is known, and no hold."""
    op.add_column("claim", sa.Column("held_node", sa.Text))
    op.add_column("claim", sa.Column("held_since", sa.Float(53)))
    op.add_column("claim", sa.Column("places", sa.Text))
