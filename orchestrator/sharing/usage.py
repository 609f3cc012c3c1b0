"""Past use of owners, which decides between equal shares, and the GPU-hours of the week, which quotas limit.

In a pool with fewer places than owners, past use makes the owners take turns. Past use is sampled. GPU-hours
are summed by the drivers of the sweeps, so that short sweeps count.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.sharing.pool_rows import Owner, Rules
from orchestrator.sharing.view import View

_WEEK = 7 * 86_400
_FIRST_MONDAY = 4 * 86_400
"""Monday, 5 January 1970, 00:00 UTC."""


def charged(view: View, since: float | None) -> tuple[Owner, ...]:
    """Return the rows of all owners with sweeps in the pool, with their use since the last update.

    Use is sampled: the present holdings of an owner count for the time since the last update, for at most two
    intervals, because no use was observed while no driver ran.

    Args:
        view: View of the pool.
        since: Time of the last charge of the pool, or None.

    Returns:
        The rows; none if the last update is less than `charge_every` ago.
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
    return replace(owner, used=round(owner.used * decay) + more, charged_at=view.now)


def with_gpu_seconds(owner: Owner, seconds: int, now: float) -> Owner:
    """Return the row of an owner with further GPU-seconds added to the current week."""
    week = week_of(now)
    before = owner.week_gpu_seconds if owner.week == week else 0
    return replace(owner, week=week, week_gpu_seconds=before + seconds)


class GpuSeconds:
    """Sum of the GPU-seconds of a sweep that its owner has not been charged for.

    It is in the memory of the driver: if the driver dies, at most `charge_every` seconds are not charged.

    Args:
        rules: Rules of the pool.
    """

    def __init__(self, rules: Rules) -> None:
        self._longest = 2 * rules.charge_every
        self._every = rules.charge_every
        self._owed, self._gpus = 0.0, 0.0
        self._since = self._charged_at = float("-inf")

    def owed(self, now: float) -> int:
        """Return the uncharged GPU-seconds at a time.

        If the driver has observed nothing for long, for example on a suspended machine, two intervals count.
        """
        return round(self._total(now))

    def _total(self, now: float) -> float:
        held = min(max(now - self._since, 0.0), self._longest) if self._gpus else 0.0
        return self._owed + self._gpus * held

    def is_due(self, now: float) -> bool:
        """Return True if the owner is to be charged now."""
        return now - self._charged_at >= self._every and self.owed(now) > 0

    def observe(self, now: float, gpus: float, *, charged: bool) -> None:
        """Record the GPUs that the sweep holds from now on; `charged` if its owner has paid until now."""
        self._owed = 0.0 if charged else self._total(now)
        self._gpus, self._since = gpus, now
        if charged or self._charged_at == float("-inf"):
            self._charged_at = now
