"""Which checkpoints of a trial are kept, as changes of their rows inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from sqlalchemy import select

from orchestrator.ledger.records import CheckpointRecord
from orchestrator.ledger.rows import CHECKPOINTS
from orchestrator.ledger.tables import CHECKPOINT
from orchestrator.ledger.transaction import Transaction

# One generation is kept behind the newest, for the newest may turn out to be damaged.
GENERATIONS = 2


def keep_checkpoints(tx: Transaction, trial_key: str, new: Sequence[CheckpointRecord]) -> tuple[Path, ...]:
    """Add checkpoints, drop the generations behind the last two of each kind, and return unused folders."""
    if not new:
        return ()
    kept = {(row.kind, row.step): row for row in checkpoints_of(tx, trial_key)}
    for record in new:
        if (old := kept.get((record.kind, record.step))) is not None:
            tx.delete(CHECKPOINTS, old)
        tx.insert(CHECKPOINTS, record)
        kept[record.kind, record.step] = record
    return _dropped(tx, kept.values(), _superseded(kept.values()))


def checkpoints_of(tx: Transaction, trial_key: str) -> list[CheckpointRecord]:
    """Return the checkpoints of a trial, the newest first."""
    rows = tx.connection.execute(
        select(*CHECKPOINT.columns)
        .where(CHECKPOINT.c.trial_key == trial_key)
        .order_by(CHECKPOINT.c.step.desc(), CHECKPOINT.c.kind)
    )
    return [tx.read(CHECKPOINTS, row) for row in rows]


def _superseded(records: Iterable[CheckpointRecord]) -> list[CheckpointRecord]:
    newest_first = sorted(records, key=lambda record: -record.step)
    of_kind = {kind: [r for r in newest_first if r.kind == kind] for kind in ("best", "last")}
    return [record for kept in of_kind.values() for record in kept[GENERATIONS:]]


def _dropped(
    tx: Transaction, kept: Iterable[CheckpointRecord], dropped: Sequence[CheckpointRecord]
) -> tuple[Path, ...]:
    """Forget checkpoints and return the folders that none of the others lies in."""
    for record in dropped:
        tx.delete(CHECKPOINTS, record)
    needed = {record.path for record in kept if record not in dropped}
    return tuple(Path(path) for path in sorted({record.path for record in dropped} - needed))
