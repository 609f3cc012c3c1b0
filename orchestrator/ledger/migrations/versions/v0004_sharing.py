"""Pools, claims, owners and priorities, by which the drivers of one cluster share it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

REAL = sa.Float(53)


def upgrade() -> None:
    """Create four tables; no existing table changes."""
    op.create_table(
        "pool",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("nodes", sa.Text, nullable=False),
        sa.Column("charged_at", REAL),
    )
    op.create_table(
        "claim",
        sa.Column("sweep_id", sa.Text, primary_key=True),
        sa.Column("pool_id", sa.Text, sa.ForeignKey("pool.id"), nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("created_at", REAL, nullable=False),
        sa.Column("cpu", sa.BigInteger, nullable=False),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("want", sa.Integer, nullable=False),
        sa.Column("renewed_at", REAL, nullable=False),
        sa.Column("trials", sa.Integer, nullable=False),
        sa.Column("pending", sa.Integer, nullable=False),
        sa.Column("devices", sa.Integer, nullable=False),
        sa.Column("leaving", sa.Integer, nullable=False),
        sa.Column("short_since", REAL),
        sa.Column("pending_since", REAL),
    )
    op.create_index("claim_of_pool", "claim", ["pool_id"])
    op.create_table(
        "owner",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("weight", sa.BigInteger, nullable=False),
        sa.Column("most_share", sa.BigInteger, nullable=False),
        sa.Column("most_gpu_hours", REAL),
        sa.Column("used", sa.BigInteger, nullable=False),
        sa.Column("charged_at", REAL),
        sa.Column("week", sa.Integer, nullable=False),
        sa.Column("week_gpu_seconds", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "priority",
        sa.Column("sweep_id", sa.Text, primary_key=True),
        sa.Column("priority_class", sa.Text, nullable=False),
        sa.Column("weight", sa.BigInteger, nullable=False),
    )
