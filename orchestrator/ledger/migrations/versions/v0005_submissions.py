"""Submissions: sweeps handed to the service, which starts their drivers and restarts them after a crash."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

REAL = sa.Float(53)


def upgrade() -> None:
    """Create two tables; no existing table changes."""
    op.create_table(
        "submission",
        sa.Column("sweep_id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("options", sa.Text, nullable=False),
        sa.Column("key", sa.Text, unique=True),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("at", REAL, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("next_try", REAL, nullable=False),
        sa.Column("starts", sa.Integer, nullable=False),
        sa.Column("started_at", REAL),
        sa.Column("driver", sa.Text),
        sa.Column("code", sa.Integer),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("crashes", sa.Integer, nullable=False),
        sa.Column("crashed_at", REAL),
        sa.Column("cause", sa.Text),
        sa.Column("revision", sa.Integer, nullable=False),
    )
    op.create_table("start_pause", sa.Column("since", REAL, primary_key=True))
