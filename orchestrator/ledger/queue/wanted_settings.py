"""Settings that users ask a sweep to try next.

A request is a row until the driver of the sweep adds the trial, in whose transaction the row is deleted.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.row_backup import renewing
from orchestrator.ledger.tables import WANTED_SETTING

_OF_SWEEP = (
    select(*WANTED_SETTING.columns)
    .where(WANTED_SETTING.c.sweep_id == bindparam("sweep_id"))
    .order_by(WANTED_SETTING.c.at, WANTED_SETTING.c.id)
)


@dataclass(frozen=True)
class WantedSetting:
    """A setting that waits to be tried.

    Attributes:
        id: Random ID.
        sweep_id: ID of the sweep.
        params: Values of some or all hyperparameters; the sampler completes them.
        asker: Name of the user.
        at: Time of the request, seconds since the epoch.
    """

    id: str
    sweep_id: str
    params: Mapping[str, Any]
    asker: str
    at: float


def ask_to_try(ledger: Ledger, sweep_id: str, params: Mapping[str, Any], asked: Asked) -> WantedSetting:
    """Request that a sweep tries a setting next, after those that wait already.

    Args:
        ledger: Ledger of the sweep.
        sweep_id: ID of the sweep.
        params: Values of some or all hyperparameters, as a trial would have them.
        asked: Entry for the audit log.
    """
    wanted = WantedSetting(uuid.uuid4().hex, sweep_id, dict(params), asked.actor, ledger.now())

    def ask(connection: Connection) -> None:
        row = {**vars(wanted), "params": json.dumps(wanted.params)}
        connection.execute(insert(WANTED_SETTING).values(**row))
        asked.note(connection, wanted.at)

    with renewing(ledger, WANTED_SETTING, wanted.id):
        ledger.transact(ask)
    return wanted


def wanted_settings(ledger: Ledger, sweep_id: str) -> Sequence[WantedSetting]:
    """Return the settings that wait to be tried by a sweep, the oldest first."""
    rows = ledger.retried(lambda: ledger.read(_OF_SWEEP, {"sweep_id": sweep_id}))
    return [
        WantedSetting(id_, sweep, json.loads(params), asker, at) for id_, sweep, params, asker, at in rows
    ]
