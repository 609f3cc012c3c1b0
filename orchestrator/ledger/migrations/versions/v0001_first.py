"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

REAL = sa.Float(53)
SEQUENCE = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create every table of the ledger."""
    _sweeps_and_trials()
    _results_of_trials()
    _state_of_drivers()


def _sweeps_and_trials() -> None:
    op.create_table(
        "sweep",
        sa.Column("id", sa.Text, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=name in ("profile", "reason")) for name in SWEEP_TEXTS),
        sa.Column("created_at", REAL, nullable=False),
        sa.Column("finished_at", REAL),
        sa.Column("row_digest", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "trial",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("sweep_id", sa.Text, sa.ForeignKey("sweep.id"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("cause", sa.Text),
        sa.Column("params", sa.Text, nullable=False),
        sa.Column("system_attrs", sa.Text, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("value", REAL),
        sa.Column("best_step", sa.BigInteger),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("total_steps", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("created_at", REAL, nullable=False),
        sa.Column("finished_at", REAL),
        sa.Column("row_digest", sa.BigInteger, nullable=False),
    )
    op.create_index("trial_of_sweep", "trial", ["sweep_id", "role", "number"], unique=True)
    op.create_table(
        "attempt",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("trial_key", sa.Text, sa.ForeignKey("trial.key"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("cause", sa.Text),
        sa.Column("node", sa.Text),
        sa.Column("started_at", REAL, nullable=False),
        sa.Column("ended_at", REAL),
        sa.Column("row_digest", sa.BigInteger, nullable=False),
    )
    op.create_index("attempt_of_trial", "attempt", ["trial_key", "number"], unique=True)


def _results_of_trials() -> None:
    op.create_table(
        "report",
        sa.Column("trial_key", sa.Text, sa.ForeignKey("trial.key"), primary_key=True),
        sa.Column("step", sa.BigInteger, primary_key=True),
        sa.Column("attempt_id", sa.Text, nullable=False),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("at", REAL, nullable=False),
        sa.Column("row_digest", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "checkpoint",
        sa.Column("trial_key", sa.Text, sa.ForeignKey("trial.key"), primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("step", sa.BigInteger, primary_key=True),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("row_digest", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "reading",
        sa.Column("trial_key", sa.Text, sa.ForeignKey("trial.key"), primary_key=True),
        sa.Column("step", sa.BigInteger, primary_key=True),
        sa.Column("split", sa.Text, primary_key=True),
        sa.Column("at", REAL, primary_key=True),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("row_digest", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )


def _state_of_drivers() -> None:
    op.create_table(
        "outbox",
        sa.Column("seq", SEQUENCE, primary_key=True, autoincrement=True),
        sa.Column("sweep_id", sa.Text, sa.ForeignKey("sweep.id"), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("delivered", sa.Boolean(create_constraint=False), nullable=False),
        sa.Column("row_digest", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("outbox_pending", "outbox", ["sweep_id", "delivered", "seq"])
    op.create_table(
        "lease",
        sa.Column("sweep_id", sa.Text, primary_key=True),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("expires_at", REAL, nullable=False),
    )
    op.create_table(
        "tally",
        sa.Column("sweep_id", sa.Text, sa.ForeignKey("sweep.id"), primary_key=True),
        sa.Column("commits", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("total", sa.BigInteger, nullable=False),
    )


SWEEP_TEXTS = (
    "name",
    "profile",
    "task",
    "document",
    "digest",
    "state",
    "reason",
    "data_source",
    "data_digest",
    "facts",
)
