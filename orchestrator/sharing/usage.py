"""Past use of owners: it decides between equal shares, and it counts against the GPU-hours of the week.

Where the pool has fewer places than owners, all shares are equal in turn, so past use is what makes owners
take turns.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.sharing.rows import Owner
from orchestrator.sharing.view import View

_WEEK = 7 * 86_400
_FIRST_MONDAY = 4 * 86_400
"""Monday, 5 January 1970, 00:00 UTC."""


def charged(view: View, since: float | None) -> tuple[Owner, ...]:
    """Return the rows of all owners with sweeps in the pool, with the use since the last update added.

    Use is sampled: what an owner holds now counts for the time since the last update, for two intervals at
    most, because none was observed while no driver ran.

    Args:
        view: of the pool.
        since: when the pool was last charged; None if it never was.

    Returns:
        No rows if the last update is less than `charge_every` ago: in between, past use is constant.
    """
    if not is_due(view, since):
        return ()
    seconds = 0.0 if since is None else min(view.now - since, 2 * view.rules.charge_every)
    names = sorted({claim.owner for claim in view.claims.values()})
    return tuple([_charged(view, view.owners.get(name, Owner(name)), seconds) for name in names])


def is_due(view: View, since: float | None) -> bool:
    """Return True if the owners in a pool are to be charged now; see `charged`."""
    return since is None or view.now - since >= view.rules.charge_every


def week_of(now: float) -> int:
    """Return the number of the week of a time; weeks begin on Monday, 00:00 UTC."""
    return int((now - _FIRST_MONDAY) // _WEEK)


def _charged(view: View, owner: Owner, seconds: float) -> Owner:
    cpu, devices = view.held_by(owner.name)
    since = view.now if owner.charged_at is None else owner.charged_at
    decay = 0.5 ** (max(0.0, view.now - since) / view.rules.half_life)
    more = view.capacity.device_seconds(view.capacity.dominant(cpu, devices), seconds)
    week = week_of(view.now)
    before = owner.week_gpu_seconds if owner.week == week else 0
    return replace(
        owner,
        used=round(owner.used * decay) + more,
        charged_at=view.now,
        week=week,
        week_gpu_seconds=before + round(devices * seconds),
    )
