"""Rates at which sweeps finish their trials, read for many sweeps in one query."""

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
"""Number of the newest finished trials from which a rate is estimated."""


@dataclass(frozen=True)
class FinishRate:
    """Finished trials of a search.

    Attributes:
        finished: Number of finished trials.
        ends: End times of the newest ones in order, seconds since the epoch.
    """

    finished: int
    ends: tuple[float, ...]

    def seconds_left(self, wanted: int) -> float | None:
        """Estimate the seconds until the search has finished `wanted` trials.

        Returns:
            The estimate, or None without two trials that ended at different times.
        """
        ends = self.ends[-NEWEST:]
        if len(ends) < 2 or ends[-1] <= ends[0]:
            return None
        return max(0, wanted - self.finished) * (ends[-1] - ends[0]) / (len(ends) - 1)


def finish_rates(ledger: Ledger, sweeps: Collection[str]) -> dict[str, FinishRate]:
    """Return the rates of sweeps that have a finished search trial, by sweep."""
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
    found: dict[str, FinishRate] = {}
    for row in ledger.query(lambda connection: connection.execute(newest).all()):
        before = found.get(row.sweep_id, FinishRate(row.finished, ()))
        found[row.sweep_id] = FinishRate(row.finished, (*before.ends, row.finished_at))
    return found


def documents(ledger: Ledger, sweeps: Collection[str]) -> dict[str, Mapping[str, Any]]:
    """Return the specifications of the sweeps that the ledger knows, by sweep."""
    query = select(SWEEP.c.id, SWEEP.c.document).where(SWEEP.c.id.in_(sorted(sweeps)))
    rows = ledger.query(lambda connection: connection.execute(query).all())
    return {row.id: json.loads(row.document) for row in rows}
