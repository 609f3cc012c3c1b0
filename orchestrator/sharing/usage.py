"""Past use of owners: it decides between equal shares, and it counts against the GPU-hours of the week.

Where the pool has fewer places than owners, all shares are equal in turn, so past use is what makes owners
take turns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from orchestrator.sharing.rows import Owner
from orchestrator.sharing.view import View

_WEEK = 7 * 86_400
_FIRST_MONDAY = 4 * 86_400
"""Monday, 5 January 1970, 00:00 UTC."""


def due(owners: Iterable[Owner], now: float, every: float) -> bool:
    """Return True if past use must be updated; between updates, `every` seconds apart, it is constant.

    Args:
        owners: rows of the pool's owners.
        now: time of the database server's clock.
        every: from `Rules.charge_every`.
    """
    times = [owner.charged_at for owner in owners if owner.charged_at is not None]
    return not times or now - max(times) >= every


def charged(view: View) -> tuple[Owner, ...]:
    """Return the rows of all owners, those of new owners included, with the use since the last update added.

    Use is sampled: what an owner holds now counts for the time since the last update, for two intervals at
    most, as none was observed while no driver ran.
    """
    names = view.owners.keys() | {claim.owner for claim in view.claims.values()}
    held = {name: [0, 0] for name in names}
    for sweep, claim in view.claims.items():
        amount = view.occupancy.of(sweep)
        held[claim.owner][0] += amount.trials * claim.cpu
        held[claim.owner][1] += amount.devices
    return tuple(_charged(view, view.owners.get(name, Owner(name)), *held[name]) for name in sorted(names))


def week_of(now: float) -> int:
    """Return the number of the week of a time; weeks begin on Monday, 00:00 UTC."""
    return int((now - _FIRST_MONDAY) // _WEEK)


def _charged(view: View, owner: Owner, cpu: int, devices: int) -> Owner:
    since = view.now if owner.charged_at is None else owner.charged_at
    seconds = min(view.now - since, 2 * view.rules.charge_every)
    decay = 0.5 ** ((view.now - since) / view.rules.half_life)
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
