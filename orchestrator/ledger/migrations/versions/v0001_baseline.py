"""Baseline: the tables of version 0.1.0.

The next revision must first list these columns here, since the declarations will have changed.
"""

from __future__ import annotations

import uuid

from alembic import op
from sqlalchemy import insert

from orchestrator.ledger.tables import IDENTITY, METADATA

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table, and give the ledger its ID."""
    METADATA.create_all(op.get_bind(), checkfirst=False)
    op.execute(insert(IDENTITY).values(id=uuid.uuid4().hex[:12]))
