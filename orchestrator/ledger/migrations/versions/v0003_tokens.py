"""Tokens of leases, ids of the ledger and of MLflow's runs, pending deletions, and plain names.

No row is rewritten: a row digest depends neither on the new name of a table nor on a new column that is NULL.
"""

from __future__ import annotations

import uuid

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

REAL = sa.Float(53)


def upgrade() -> None:
    """Rename two tables and a column, and create what the lease token protects."""
    op.rename_table("reading", "evaluation")
    op.rename_table("wish", "stop_request")
    op.execute("ALTER TABLE lease RENAME COLUMN token TO number")
    # A request of an earlier version has no time; it is as old as can be.
    op.add_column("stop_request", sa.Column("at", REAL, nullable=False, server_default="0"))
    op.add_column("attempt", sa.Column("taken_at", REAL))
    op.create_table(
        "mlflow_run",
        sa.Column("sweep_id", sa.Text, sa.ForeignKey("sweep.id"), primary_key=True),
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("row_digest", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "deletion",
        sa.Column("target", sa.Text, primary_key=True),
        sa.Column("sweep_id", sa.Text, nullable=False),
        sa.Column("since", REAL, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
    )
    ledger = op.create_table("ledger", sa.Column("id", sa.Text, primary_key=True))
    op.bulk_insert(ledger, [{"id": uuid.uuid4().hex[:12]}])
