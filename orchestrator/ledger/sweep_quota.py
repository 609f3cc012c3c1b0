"""The quota of an owner on sweeps that wait or run in the service at once, checked where one is queued."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from orchestrator.errors import OverQuota
from orchestrator.ledger.tables import OWNER, SUBMISSION
from orchestrator.sharing.rows import MOST_SWEEPS


def check_quota(connection: Connection, owner: str, sweep_id: str) -> None:
    """Return if one more sweep of an owner may wait or run; one that is parked or has ended does neither.

    The row of the owner is locked until the transaction ends, so that of two submissions at once only one
    takes the last place.

    Args:
        connection: of the transaction that queues the sweep.
        owner: of the sweep.
        sweep_id: of the sweep, which is not counted.

    Raises:
        OverQuota: as many others as the quota allows wait or run.
    """
    quota = select(OWNER.c.most_sweeps).where(OWNER.c.name == owner).with_for_update()
    row = connection.execute(quota).one_or_none()
    most = MOST_SWEEPS if row is None else row.most_sweeps
    if most is None:
        return
    others = select(func.count()).where(
        SUBMISSION.c.owner == owner,
        SUBMISSION.c.sweep_id != sweep_id,
        SUBMISSION.c.state.in_(("QUEUED", "STARTED")),
    )
    active = connection.execute(others).scalar_one()
    if active >= most:
        sweeps = "sweep that waits or runs" if most == 1 else "sweeps that wait or run"
        must = f"may have at most {most} {sweeps}"
        remedy = "Wait until one ends, pause or stop one, or ask an admin for a larger quota."
        raise OverQuota(f"owner {owner}", must, f"{active}, and {sweep_id} besides", remedy)
