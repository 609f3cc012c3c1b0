"""Indexes for the statements that run under the write lock, and for the deletions of a sweep."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create five indexes; no row changes."""
    op.create_index("deletion_of_sweep", "deletion", ["sweep_id", "tries", "since"])
    op.create_index("request_key_age", "request_key", ["at"])
    in_work = sa.text("answer IS NULL")
    op.create_index(
        "request_key_in_work", "request_key", ["at"], sqlite_where=in_work, postgresql_where=in_work
    )
    op.create_index("submission_crashed", "submission", ["crashed_at"])
    op.create_index("submission_of_owner", "submission", ["owner", "state"])
