"""Sessions of browsers, which no longer keep the token itself."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create a table; no existing table changes."""
    op.create_table(
        "service_session",
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("token_digest", sa.Text, nullable=False),
        sa.Column("expires_at", sa.Float(53), nullable=False),
    )
