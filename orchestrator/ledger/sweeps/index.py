"""Index of the sweeps in a ledger: their IDs, times and versions.

The document, the facts and the file of a sweep take tens of kilobytes, which a search for an ID does not
read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.tables import (
    LEASE,
    OUTBOX,
    REPORT,
    SUBMISSION,
    SWEEP,
    TALLY,
    TRIAL,
    UNDELIVERED_REPORT,
)

_BEGUN = select(SWEEP.c.id, SWEEP.c.created_at).order_by(SWEEP.c.created_at, SWEEP.c.id)
_SUBMITTED = select(SUBMISSION.c.sweep_id, SUBMISSION.c.at, SUBMISSION.c.owner).order_by(
    SUBMISSION.c.at, SUBMISSION.c.sweep_id
)
_VERSIONS = (
    select(SWEEP.c.id, SWEEP.c.row_digest, TALLY.c.commits, TALLY.c.total, LEASE.c.number, LEASE.c.expires_at)
    .outerjoin(TALLY, TALLY.c.sweep_id == SWEEP.c.id)
    .outerjoin(LEASE, LEASE.c.sweep_id == SWEEP.c.id)
    .order_by(SWEEP.c.created_at, SWEEP.c.id)
)
_REVISIONS = select(SUBMISSION.c.sweep_id, SUBMISSION.c.revision).order_by(
    SUBMISSION.c.at, SUBMISSION.c.sweep_id
)


@dataclass(frozen=True)
class KnownSweep:
    """A sweep that has begun, or was submitted.

    Attributes:
        since: Time of its beginning, or else of its submission, seconds since the epoch.
        has_begun: Whether a driver has written it to the ledger.
        owner: Owner who has submitted it, or None.
    """

    since: float
    has_begun: bool
    owner: str | None


def begun(ledger: Ledger) -> list[str]:
    """Return the IDs of all sweeps that have begun, the oldest first."""
    return [sweep_id for sweep_id, known in known_sweeps(ledger).items() if known.has_begun]


def known_sweeps(ledger: Ledger) -> dict[str, KnownSweep]:
    """Return every sweep by its ID: those that have begun and then the others, the oldest first."""

    def read(connection: Connection) -> tuple[dict[str, float], dict[str, Any]]:
        begun = {row.id: row.created_at for row in connection.execute(_BEGUN)}
        return begun, {row.sweep_id: row for row in connection.execute(_SUBMITTED)}

    begun, submitted = ledger.query(read)
    known = {
        sweep_id: KnownSweep(at, True, submitted[sweep_id].owner if sweep_id in submitted else None)
        for sweep_id, at in begun.items()
    }
    waiting = {
        sweep_id: KnownSweep(row.at, False, row.owner)
        for sweep_id, row in submitted.items()
        if sweep_id not in begun
    }
    return {**known, **waiting}


class SweepVersion(NamedTuple):
    """Version of a sweep, which differs after every change while no process drives it.

    A process that changes a sweep takes its lease first, and so raises the number of the lease.

    Attributes:
        digest: Digest of the sweep's row; None if no driver has begun it.
        commits: Number of commits, in a SQLite ledger.
        total: Sum of the row digests, in a SQLite ledger.
        lease: Number of the newest token.
        expires_at: Expiry of the newest token, which its process may still renew.
        revision: Number of changes to the submission, or None without one.
    """

    digest: int | None
    commits: int | None
    total: int | None
    lease: int | None
    expires_at: float | None
    revision: int | None


def exact_version(ledger: Ledger, sweep_id: str) -> SweepVersion | None:
    """Return a version of a sweep that changes with every commit, also of its driver; None if there is none.

    Only SQLite ledgers count the commits of a sweep, once it has begun.
    """
    query = _VERSIONS.where(SWEEP.c.id == sweep_id)
    row = ledger.query(lambda connection: connection.execute(query).one_or_none())
    return None if row is None or row.commits is None else SweepVersion(*row[1:], None)


def versions(ledger: Ledger) -> dict[str, SweepVersion]:
    """Return the version of every sweep by its ID, in the order of `known_sweeps`."""

    def read(connection: Connection) -> dict[str, SweepVersion]:
        begun = list(connection.execute(_VERSIONS))
        revisions: dict[str, int] = {row.sweep_id: row.revision for row in connection.execute(_REVISIONS)}
        found = {row[0]: SweepVersion(*row[1:], revisions.pop(row[0], None)) for row in begun}
        waiting = {
            sweep_id: SweepVersion(None, None, None, None, None, revision)
            for sweep_id, revision in revisions.items()
        }
        return {**found, **waiting}

    return ledger.query(read)


def oldest_pending(ledger: Ledger, sweeps: Collection[str]) -> float | None:
    """Return the time of the oldest record of some sweeps that is not in MLflow, or None if all are.

    The first pending event of a sweep is read by the index, and so is the first pending report of a trial.
    """

    def read(connection: Connection) -> list[float | None]:
        events = [
            connection.execute(
                select(OUTBOX.c.at_ms)
                .where(OUTBOX.c.sweep_id == sweep_id, ~OUTBOX.c.delivered)
                .order_by(OUTBOX.c.seq)
                .limit(1)
            ).scalar()
            for sweep_id in sweeps
        ]
        of_sweeps = TRIAL.c.sweep_id.in_(sweeps)
        reports = select(func.min(REPORT.c.at)).select_from(UNDELIVERED_REPORT).where(of_sweeps)
        of_events = [at_ms / 1000 for at_ms in events if at_ms is not None]
        return [*of_events, connection.execute(reports).scalar()]

    return min((at for at in ledger.query(read) if at is not None), default=None)


def earlier_of_file(ledger: Ledger, sweep_id: str, document: Mapping[str, Any]) -> str | None:
    """Return the previous sweep of the same file and profile, or None.

    Args:
        ledger: Ledger of the sweeps.
        sweep_id: ID of the later sweep.
        document: Specification of the later sweep.
    """
    name, profile = document["name"], document.get("profile")
    known = known_sweeps(ledger)
    of_file = select(SWEEP.c.id).where(SWEEP.c.name == name, SWEEP.c.profile.is_not_distinct_from(profile))
    unbegun = [other for other, entry in known.items() if not entry.has_begun]
    submitted = select(SUBMISSION.c.sweep_id, SUBMISSION.c.document).where(SUBMISSION.c.sweep_id.in_(unbegun))

    def read(connection: Connection) -> set[str]:
        same = set(connection.execute(of_file).scalars())
        for row in connection.execute(submitted):
            other = json.loads(row.document)
            if (other["name"], other.get("profile")) == (name, profile):
                same.add(row.sweep_id)
        return same

    same = ledger.query(read)
    in_order = sorted(known, key=lambda each: known[each].since)
    earlier = [other for other in in_order[: in_order.index(sweep_id)] if other in same]
    return earlier[-1] if earlier else None


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return one phrase for each different field, such as `training.steps 600 -> 800`."""
    old, new = dict(_leaves(before)), dict(_leaves(now))
    keys = [*old, *(key for key in new if key not in old)]
    return [
        f"{key} {old.get(key, 'nothing')} -> {new.get(key, 'nothing')}"
        for key in keys
        if old.get(key) != new.get(key)
    ]


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
