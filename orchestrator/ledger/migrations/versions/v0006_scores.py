"""The score of every example of an evaluation, which comparisons pair.

No row is rewritten: a row digest does not depend on a new column that is NULL.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column to the evaluations."""
    op.add_column("evaluation", sa.Column("scores", sa.Text))
