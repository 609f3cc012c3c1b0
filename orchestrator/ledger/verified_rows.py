"""All rows of a sweep, compared with their digests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from sqlalchemy import BindParameter, Connection, Select, Table, bindparam, select

from orchestrator.ledger.prepared import fetched
from orchestrator.ledger.rows import checked_batches
from orchestrator.ledger.tables import (
    ATTEMPT,
    CHECKPOINT,
    EVALUATION,
    MLFLOW_RUN,
    OUTBOX,
    REPORT,
    SWEEP,
    TRIAL,
)


def verified(connection: Connection, sweep_id: str) -> Iterator[tuple[Table, Iterator[list[Sequence[Any]]]]]:
    """Yield every table with its rows of a sweep, in lists; a row comes after the rows that it refers to.

    Raises:
        Damaged: while the rows are taken, if one does not match its digest.
    """
    for table, query in _QUERIES:
        result = connection.execute(query, {"sweep_id": sweep_id})
        # The cursor of SQLite yields plain tuples, which cost less than rows.
        yield table, checked_batches(table, fetched(cast(Iterable[Sequence[Any]], result.cursor)))
        result.close()


def _queries() -> Iterator[tuple[Table, Select[Any]]]:
    sweep_id: BindParameter[str] = bindparam("sweep_id")
    yield SWEEP, select(*SWEEP.columns).where(SWEEP.c.id == sweep_id)
    yield TRIAL, select(*TRIAL.columns).where(TRIAL.c.sweep_id == sweep_id).order_by(TRIAL.c.number)
    for table in (ATTEMPT, REPORT, CHECKPOINT, EVALUATION):
        of_trial = table.c.trial_key == TRIAL.c.key
        yield table, select(*table.columns).join(TRIAL, of_trial).where(TRIAL.c.sweep_id == sweep_id)
    yield MLFLOW_RUN, select(*MLFLOW_RUN.columns).where(MLFLOW_RUN.c.sweep_id == sweep_id)
    yield OUTBOX, select(*OUTBOX.columns).where(OUTBOX.c.sweep_id == sweep_id).order_by(OUTBOX.c.seq)


_QUERIES = tuple(_queries())  # built once: building a query costs more than running it on a small ledger
