"""How fast sweeps finish their trials, and what they are to run: of many sweeps in one query each."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import FINISHED_TRIAL
from orchestrator.ledger.tables import SWEEP, TRIAL

NEWEST = 20
"""From how many of the newest finished trials a pace is estimated."""


@dataclass(frozen=True)
class FinishRate:
    """The finished trials of a search.

    Attributes:
        finished: how many there are.
        ends: when the newest of them ended, in order, seconds since the epoch.
    """

    finished: int
    ends: tuple[float, ...]

    def seconds_left(self, wanted: int) -> float | None:
        """Return the seconds until all trials of the search have ended, at the pace of the newest.

        Args:
            wanted: trials of the search at the end.

        Returns:
            None without two trials that ended at different times.
        """
        ends = self.ends[-NEWEST:]
        if len(ends) < 2 or ends[-1] <= ends[0]:
            return None
        return max(0, wanted - self.finished) * (ends[-1] - ends[0]) / (len(ends) - 1)


def finish_rates(ledger: Ledger, sweeps: Collection[str]) -> dict[str, FinishRate]:
    """Return the paces of sweeps, by sweep; one without a finished trial of its search is left out."""
    sweep, ended = TRIAL.c.sweep_id, TRIAL.c.finished_at
    ranked = (
        select(
            sweep,
            ended,
            func.count().over(partition_by=sweep).label("finished"),
            func.row_number().over(partition_by=sweep, order_by=ended.desc()).label("rank"),
        )
        .where(
            sweep.in_(sorted(sweeps)),
            TRIAL.c.role == "search",
            TRIAL.c.state.in_(sorted(FINISHED_TRIAL)),
            ended.is_not(None),
        )
        .subquery()
    )
    newest = select(ranked).where(ranked.c.rank <= NEWEST).order_by(ranked.c.sweep_id, ranked.c.rank.desc())

    def read() -> dict[str, FinishRate]:
        found: dict[str, FinishRate] = {}
        with ledger.reader() as connection:
            for row in connection.execute(newest):
                before = found.get(row.sweep_id, FinishRate(row.finished, ()))
                found[row.sweep_id] = FinishRate(row.finished, (*before.ends, row.finished_at))
        return found

    return ledger.retried(read)


def documents(ledger: Ledger, sweeps: Collection[str]) -> dict[str, Mapping[str, Any]]:
    """Return the specifications of sweeps, by sweep; one that the ledger does not know is left out."""
    query = select(SWEEP.c.id, SWEEP.c.document).where(SWEEP.c.id.in_(sorted(sweeps)))

    def read() -> dict[str, Mapping[str, Any]]:
        with ledger.reader() as connection:
            return {row.id: json.loads(row.document) for row in connection.execute(query)}

    return ledger.retried(read)
