"""Users of the HTTP API, and the log of the changes that they ask for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

REAL = sa.Float(53)
SEQUENCE = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create two tables; no existing table changes."""
    op.create_table(
        "service_user",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("token_digest", sa.Text, nullable=False, unique=True),
        sa.Column("created_at", REAL, nullable=False),
        sa.Column("expires_at", REAL),
        sa.Column("revoked_at", REAL),
    )
    op.create_table(
        "audit",
        sa.Column("seq", SEQUENCE, primary_key=True, autoincrement=True),
        sa.Column("at", REAL, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
