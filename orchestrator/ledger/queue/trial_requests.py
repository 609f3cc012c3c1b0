"""Requests of users about single trials: stop one, or exempt it from early stopping.

A request is a row until the driver of the sweep takes it. In the transaction that deletes the row, the trial
records the decision with the user and the time, so a driver that dies before or after it carries it out once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, insert, null, select, union_all

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.row_backup import renewing
from orchestrator.ledger.sweeps.records import UserDecision, sweep_id_of
from orchestrator.ledger.tables import STOP_REQUEST, TRIAL_REQUEST

_TRIALS = select(*TRIAL_REQUEST.columns).where(TRIAL_REQUEST.c.sweep_id == bindparam("sweep_id"))
_STOP = select(null(), STOP_REQUEST.c.sweep_id, null(), STOP_REQUEST.c.asker, STOP_REQUEST.c.at)
# One statement, which drivers send twice a second.
_OF_SWEEP = union_all(_TRIALS, _STOP.where(STOP_REQUEST.c.sweep_id == bindparam("sweep_id")))


@dataclass(frozen=True)
class TrialRequest:
    """A request about a trial that its driver has not taken yet.

    Attributes:
        trial_key: Key of the trial.
        sweep_id: ID of its sweep.
        decision: Decision of the user about the trial.
        asker: Name of the user.
        at: Time of the request, seconds since the epoch.
    """

    trial_key: str
    sweep_id: str
    decision: UserDecision
    asker: str
    at: float


class PendingRequests(NamedTuple):
    """Requests that the driver of a sweep must obey.

    Attributes:
        stop: Name of the machine that requested a stop of the sweep, as `asked_to_stop` returns it, or None.
        trials: Requests about single trials, the oldest first.
    """

    stop: str | None
    trials: Sequence[TrialRequest]


def ask_about_trial(ledger: Ledger, trial_key: str, decision: UserDecision, asked: Asked) -> TrialRequest:
    """Request that a driver stops or exempts a trial, in place of an earlier request about it.

    Args:
        ledger: Ledger of the trial.
        trial_key: Key of an unfinished trial.
        decision: Decision about the trial.
        asked: Entry for the audit log.
    """
    request = TrialRequest(trial_key, sweep_id_of(trial_key), decision, asked.actor, ledger.now())

    def ask(connection: Connection) -> None:
        connection.execute(delete(TRIAL_REQUEST).where(TRIAL_REQUEST.c.trial_key == trial_key))
        connection.execute(insert(TRIAL_REQUEST).values(**vars(request)))
        asked.note(connection, request.at)

    with renewing(ledger, TRIAL_REQUEST, trial_key):
        ledger.transact(ask)
    return request


def pending_requests(ledger: Ledger, sweep_id: str) -> PendingRequests:
    """Return the requests that the driver of a sweep must obey."""
    rows = ledger.retried(lambda: ledger.read(_OF_SWEEP, {"sweep_id": sweep_id}))
    trials = [TrialRequest(*row) for row in rows if row[0] is not None]
    stop = next((str(row[3]) for row in rows if row[0] is None), None)
    return PendingRequests(stop, sorted(trials, key=lambda request: (request.at, request.trial_key)))
