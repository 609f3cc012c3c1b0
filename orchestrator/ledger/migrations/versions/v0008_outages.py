"""The time of an attempt in which the database did not answer its driver.

No row is rewritten: a row digest does not depend on a new column that is NULL.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column to the attempts."""
    op.add_column("attempt", sa.Column("outage_seconds", sa.Float(53)))
