"""Tables of the ledger, in SQLAlchemy Core.

A new ledger is created from them; the revisions in `migrations/versions` upgrade an existing one.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    event,
    func,
)

METADATA = MetaData()

# SQLite assigns row numbers only in a column of exactly this type.
SEQUENCE = BigInteger().with_variant(Integer, "sqlite")

SWEEP = Table(
    "sweep",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("profile", Text),
    Column("task", Text, nullable=False),
    Column("document", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("data_source", Text, nullable=False),
    Column("data_digest", Text, nullable=False),
    Column("facts", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Column("finished_at", Float(53)),
    Column("row_digest", BigInteger, nullable=False),
)

TRIAL = Table(
    "trial",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("sweep_id", Text, ForeignKey("sweep.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("role", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("cause", Text),
    Column("params", Text, nullable=False),
    Column("system_attrs", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("value", Float(53)),
    Column("best_step", BigInteger),
    Column("step", BigInteger, nullable=False),
    Column("total_steps", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Column("finished_at", Float(53)),
    Column("reported_at", Float(53)),
    Column("row_digest", BigInteger, nullable=False),
    Index("trial_of_sweep", "sweep_id", "role", "number", unique=True),
    Index("trial_reported", "sweep_id", "reported_at", "step"),
)

ATTEMPT = Table(
    "attempt",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("trial_key", Text, ForeignKey("trial.key"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("cause", Text),
    Column("node", Text),
    Column("started_at", Float(53), nullable=False),
    Column("ended_at", Float(53)),
    Column("taken_at", Float(53)),
    Column("outage_seconds", Float(53)),
    Column("row_digest", BigInteger, nullable=False),
    Index("attempt_of_trial", "trial_key", "number", unique=True),
)

REPORT = Table(
    "report",
    METADATA,
    Column("trial_key", Text, ForeignKey("trial.key"), primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("attempt_id", Text, nullable=False),
    Column("metrics", Text, nullable=False),
    Column("at", Float(53), nullable=False),
    Column("row_digest", BigInteger, nullable=False),
    Index("report_by_time", "trial_key", "at"),
    sqlite_with_rowid=False,
)

CHECKPOINT = Table(
    "checkpoint",
    METADATA,
    Column("trial_key", Text, ForeignKey("trial.key"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("path", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("metrics", Text, nullable=False),
    Column("row_digest", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

EVALUATION = Table(
    "evaluation",
    METADATA,
    Column("trial_key", Text, ForeignKey("trial.key"), primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("split", Text, primary_key=True),
    Column("at", Float(53), primary_key=True),
    Column("metrics", Text, nullable=False),
    Column("scores", Text),
    Column("row_digest", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

OUTBOX = Table(
    "outbox",
    METADATA,
    Column("seq", SEQUENCE, primary_key=True, autoincrement=True),
    Column("sweep_id", Text, ForeignKey("sweep.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("run", Text, nullable=False),
    Column("payload", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("delivered", Boolean(create_constraint=False), nullable=False),
    Column("row_digest", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)
Index("outbox_pending", OUTBOX.c.sweep_id, OUTBOX.c.delivered, OUTBOX.c.seq)

MLFLOW_RUN = Table(
    "mlflow_run",
    METADATA,
    Column("sweep_id", Text, ForeignKey("sweep.id"), primary_key=True),
    Column("run", Text, primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("position", Float(53), nullable=False),
    Column("row_digest", BigInteger, nullable=False),
)
"""MLflow's ID of the one run that gets what happens to `run`, the number of the token that recorded it, and
what MLflow has of it: the fields of `sweeps.records.MlflowRunRecord`."""

_POSITION = func.coalesce(MLFLOW_RUN.c.position, 0.0)
UNDELIVERED_REPORT = TRIAL.outerjoin(
    MLFLOW_RUN, (MLFLOW_RUN.c.sweep_id == TRIAL.c.sweep_id) & (MLFLOW_RUN.c.run == TRIAL.c.key)
).join(
    REPORT,
    # The time of the trial's newest report spares a look at the reports of every trial without news.
    (TRIAL.c.reported_at > _POSITION) & (REPORT.c.trial_key == TRIAL.c.key) & (REPORT.c.at > _POSITION),
)
"""Trials with each of their reports that MLflow lacks."""

# The tables below hold no results: their rows have no digests and are not in the logs of the backup.

LEASE = Table(
    "lease",
    METADATA,
    Column("sweep_id", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("expires_at", Float(53), nullable=False),
)
"""Newest token of each sweep: its number, its holder, and its expiry by the clock of the server."""

STOP_REQUEST = Table(
    "stop_request",
    METADATA,
    Column("sweep_id", Text, primary_key=True),
    Column("asker", Text, nullable=False),
    Column("at", Float(53), nullable=False),
)
"""Pending stop requests: the machine that asked, and the time."""

WANTED_SETTING = Table(
    "wanted_setting",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("sweep_id", Text, nullable=False),
    Column("params", Text, nullable=False),
    Column("asker", Text, nullable=False),
    Column("at", Float(53), nullable=False),
    Index("wanted_setting_of_sweep", "sweep_id", "at"),
)
"""Settings to try next: the fields of `orchestrator.ledger.queue.wanted_settings.WantedSetting`."""

TRIAL_REQUEST = Table(
    "trial_request",
    METADATA,
    Column("trial_key", Text, primary_key=True),
    Column("sweep_id", Text, nullable=False),
    Column("decision", Text, nullable=False),
    Column("asker", Text, nullable=False),
    Column("at", Float(53), nullable=False),
    Index("trial_request_of_sweep", "sweep_id", "at"),
)
"""Requests to stop a trial or to exempt it: the fields of `queue.trial_requests.TrialRequest`."""

NOTE = Table(
    "note",
    METADATA,
    Column("target", Text, primary_key=True),
    Column("sweep_id", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("tags", Text, nullable=False),
    Column("favourite", Boolean(create_constraint=False), nullable=False),
    Column("author", Text, nullable=False),
    Column("at", Float(53), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("delivered", Integer, nullable=False),
    Index("note_of_sweep", "sweep_id"),
)
"""Notes of sweeps and trials, by sweep ID or trial key: the fields of `people.user_records.Note`, and the
revision that MLflow has."""

SHELF = Table(
    "shelf",
    METADATA,
    Column("sweep_id", Text, primary_key=True),
    Column("shelf", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("at", Float(53), nullable=False),
)
"""Archived and deleted sweeps: the fields of `people.user_records.Shelved`."""

DELETION = Table(
    "deletion",
    METADATA,
    Column("target", Text, primary_key=True),
    Column("sweep_id", Text, nullable=False),
    Column("since", Float(53), nullable=False),
    Column("tries", Integer, nullable=False),
    Index("deletion_of_sweep", "sweep_id", "tries", "since"),
)
"""Folders and URLs of checkpoints to delete, with the time of the request and the number of failed tries."""

POOL = Table(
    "pool",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("nodes", Text, nullable=False),
    Column("charged_at", Float(53)),
)
"""Ray clusters on which sweeps of this ledger run: their nodes, and when past use was last charged."""

CLAIM = Table(
    "claim",
    METADATA,
    Column("sweep_id", Text, primary_key=True),
    Column("pool_id", Text, ForeignKey("pool.id"), nullable=False),
    Column("owner", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Column("cpu", BigInteger, nullable=False),
    Column("slots", Integer, nullable=False),
    Column("want", Integer, nullable=False),
    Column("renewed_at", Float(53), nullable=False),
    Column("trials", Integer, nullable=False),
    Column("pending", Integer, nullable=False),
    Column("gpu", BigInteger, nullable=False),
    Column("nodes", Integer, nullable=False),
    Column("devices", BigInteger, nullable=False),
    Column("leaving", Integer, nullable=False),
    Column("short_since", Float(53)),
    Column("pending_since", Float(53)),
    Column("held_node", Text),
    Column("held_since", Float(53)),
    Column("places", Text),
    Index("claim_of_pool", "pool_id"),
)
"""Demand and use of each live sweep: the fields of `orchestrator.sharing.pool_rows.PoolClaim` and `Use`."""

OWNER = Table(
    "owner",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("weight", BigInteger, nullable=False),
    Column("most_share", BigInteger, nullable=False),
    Column("most_gpu_hours", Float(53)),
    Column("used", BigInteger, nullable=False),
    Column("charged_at", Float(53)),
    Column("week", Integer, nullable=False),
    Column("week_gpu_seconds", BigInteger, nullable=False),
    Column("most_sweeps", Integer),
)
"""Weights, quotas and past use: the fields of `orchestrator.sharing.pool_rows.Owner`."""

PRIORITY = Table(
    "priority",
    METADATA,
    Column("sweep_id", Text, primary_key=True),
    Column("priority_class", Text, nullable=False),
    Column("weight", BigInteger, nullable=False),
)
"""Class and weight of the sweeps for which `move` has set them."""

SUBMISSION = Table(
    "submission",
    METADATA,
    Column("sweep_id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("document", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("options", Text, nullable=False),
    Column("key", Text, unique=True),
    Column("version", Text, nullable=False),
    Column("at", Float(53), nullable=False),
    Column("state", Text, nullable=False),
    Column("next_try", Float(53), nullable=False),
    Column("starts", Integer, nullable=False),
    Column("started_at", Float(53)),
    Column("driver", Text),
    Column("code", Integer),
    Column("tries", Integer, nullable=False),
    Column("crashes", Integer, nullable=False),
    Column("crashed_at", Float(53)),
    Column("cause", Text),
    Column("revision", Integer, nullable=False),
    Column("clock", Text),
    Column("reported_before", Float(53)),
    Column("finished_before", Float(53)),
    Index("submission_crashed", "crashed_at"),
    Index("submission_of_owner", "owner", "state"),
)
"""Submitted sweeps: the fields of `orchestrator.ledger.queue.submissions.Submission`."""

START_PAUSE = Table(
    "start_pause", METADATA, Column("since", Float(53), primary_key=True), Column("clock", Text)
)
"""Pause of all starts after several crashes at once, with the `ClockSetting` of its time; empty otherwise."""

SERVICE_USER = Table(
    "service_user",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("token_digest", Text, nullable=False, unique=True),
    Column("created_at", Float(53), nullable=False),
    Column("expires_at", Float(53)),
    Column("revoked_at", Float(53)),
    Column("subject", Text, unique=True),
)
"""Users of the HTTP API: the fields of `people.user_records.User`, and the digest of the token."""

SERVICE_SESSION = Table(
    "service_session",
    METADATA,
    Column("digest", Text, primary_key=True),
    Column("token_digest", Text, nullable=False),
    Column("expires_at", Float(53), nullable=False),
)
"""Sessions of browsers: the digests of the session ID and of the token; not backed up."""

AUDIT = Table(
    "audit",
    METADATA,
    Column("seq", SEQUENCE, primary_key=True, autoincrement=True),
    Column("at", Float(53), nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("detail", Text, nullable=False),
    sqlite_autoincrement=True,
)
"""Audit log: the fields of `people.user_records.AuditEntry`."""

REQUEST_KEY = Table(
    "request_key",
    METADATA,
    Column("user", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("at", Float(53), nullable=False),
    Column("answer", Text),
    Index("request_key_age", "at"),
)
"""Idempotency keys of the last day: digests of the request bodies, and the answers."""

_IN_WORK = REQUEST_KEY.c.answer.is_(None)
_KEYS_IN_WORK = Index("request_key_in_work", REQUEST_KEY.c.at, sqlite_where=_IN_WORK)


@event.listens_for(METADATA, "before_create")
def _limit_index(target: MetaData, connection: Connection, **options: Any) -> None:
    """Make the index partial on PostgreSQL too; an argument would import that dialect in every process."""
    if connection.dialect.name == "postgresql":
        _KEYS_IN_WORK.dialect_kwargs["postgresql_where"] = _IN_WORK


IDENTITY = Table("ledger", METADATA, Column("id", Text, primary_key=True))
"""Random ID of this ledger, in one row: it separates the files of ledgers that share a store."""

TALLY = Table(
    "tally",
    METADATA,
    Column("sweep_id", Text, ForeignKey("sweep.id"), primary_key=True),
    Column("commits", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("total", BigInteger, nullable=False),
)
"""Number of commits and rows of a sweep, and the sum of its row digests: reveals missing and stale rows."""
