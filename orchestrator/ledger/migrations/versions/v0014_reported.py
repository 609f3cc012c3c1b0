"""The time of the newest report of a trial, and an index that finds the newest of a sweep.

No row is rewritten: a row digest does not depend on a new column that is NULL.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column to the trials, and an index."""
    op.add_column("trial", sa.Column("reported_at", sa.Float(53)))
    op.create_index("trial_reported", "trial", ["sweep_id", "reported_at", "step"])
