"""Forecast of the times at which queued sweeps run their first trials, by simulating the queue."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.sharing.fill import fill, hours_spent
from orchestrator.sharing.pool_rows import Owner, PoolClaim
from orchestrator.sharing.usage import week_of
from orchestrator.sharing.view import View

MOST_ENDS = 64
"""Maximum number of simulated ends of sweeps; later starts are unknown."""


def expected_starts(
    view: View, left: Mapping[str, float], waiting: Sequence[PoolClaim] = (), places: int | None = None
) -> dict[str, float]:
    """Return the seconds until each waiting sweep is expected to run its first trial.

    A running sweep ends after its remaining time, and the sweep that then has a share starts. The duration of
    a sweep that starts is unknown, so its resources stay in use, as do those of a running sweep without an
    estimate.

    Args:
        view: View of the pool.
        left: Estimated seconds until the end of each running sweep that has an estimate.
        waiting: Claims of sweeps without a driver, in the order in which their drivers start.
        places: Maximum number of drivers; None without a limit.

    Returns:
        The seconds by sweep, without sweeps that have no estimate.
    """
    queue = _Queue(view, dict(view.claims), list(waiting), places)
    queue.start(0.0)
    ends = sorted((seconds, sweep) for sweep, seconds in left.items() if sweep in view.claims)
    for seconds, sweep in ends[:MOST_ENDS]:
        if not queue.is_waiting:
            break
        queue.live.pop(sweep, None)
        queue.start(max(0.0, seconds))
    return queue.starts


@dataclass
class _Queue:
    """The simulated pool and its queue at one moment.

    Attributes:
        view: View of the pool at this moment.
        live: Claims of the sweeps with a driver.
        waiting: Claims of the sweeps without a driver, the next one first.
        places: Maximum number of drivers, or None.
        starts: Seconds until each known start, by sweep.
    """

    view: View
    live: dict[str, PoolClaim]
    waiting: list[PoolClaim]
    places: int | None
    starts: dict[str, float] = field(default_factory=dict)

    @property
    def is_waiting(self) -> bool:
        return bool(self.waiting) or any(self._waits(claim) for claim in self.live.values())

    def start(self, now: float) -> None:
        """Start each driver that has a place and a share, and then each sweep that has a share."""
        without_claims = [claim for claim in self.waiting if claim.sweep not in self.live]
        shares = expected_shares(self.view.among(self.live), without_claims)
        for claim in without_claims:
            if shares[claim.sweep] and self._has_place(claim):
                self.waiting.remove(claim)
                self.live[claim.sweep] = claim
        for claim in self.live.values():
            if self._waits(claim) and shares.get(claim.sweep):
                self.starts[claim.sweep] = now + (self._until_room(claim) if now == 0.0 else 0.0)

    def _waits(self, claim: PoolClaim) -> bool:
        use = self.view.uses.get(claim.sweep)
        return claim.want > 0 and claim.sweep not in self.starts and (use is None or not use.trials)

    def _has_place(self, claim: PoolClaim) -> bool:
        """Return True if a driver has a place, if necessary that of the newest driver of class `idle`."""
        if self.places is None or len(self.live) < self.places:
            return True
        idle = [other for other in self.live.values() if other.priority_class == "idle"]
        if claim.priority_class == "idle" or not idle:
            return False
        del self.live[max(idle, key=lambda other: (other.created, other.sweep)).sweep]
        return True

    def _until_room(self, claim: PoolClaim) -> float:
        """Return an upper bound of the seconds until other sweeps have freed enough for one trial."""
        rules, free = self.view.rules, self.view.free
        if free[0] >= claim.all_cpu and free[1] >= claim.all_devices:
            return 0.0
        use = self.view.uses.get(claim.sweep)
        short = 0.0 if use is None or use.short_since is None else self.view.now - use.short_since
        return max(0.0, rules.shed_after + rules.min_run - short)


def expected_shares(view: View, waiting: Collection[PoolClaim]) -> dict[str, int | None]:
    """Return the number of concurrent trials of each sweep if the waiting sweeps claimed their shares, too.

    Args:
        view: View of the pool.
        waiting: Claims of sweeps that have no claim in the pool.

    Returns:
        The number by sweep; None for a sweep whose trials do not fit the empty pool. An autoscaler may still
        add a node for it, but only while its driver requests one.
    """
    owners = [_this_week(owner, view.now) for owner in view.owners.values()]
    claims = [*view.claims.values(), *waiting]
    shares = fill(view.nodes, owners, claims, view.rules)
    fits = {_kind(claim): _fits_alone(view, claim) for claim in claims}
    return {claim.sweep: shares[claim.sweep].trials if fits[_kind(claim)] else None for claim in claims}


def has_spent(owner: Owner | None, claim: PoolClaim, now: float) -> bool:
    """Return True if an owner has used up the GPU-hours of the week of `now`, and the claim needs GPUs."""
    return owner is not None and hours_spent(_this_week(owner, now), claim)


def _this_week(owner: Owner, now: float) -> Owner:
    """Return the row of an owner, without GPU-hours of an earlier week."""
    return owner if owner.week == week_of(now) else replace(owner, week_gpu_seconds=0)


def _kind(claim: PoolClaim) -> tuple[int, int, int]:
    return claim.cpu, claim.device, claim.nodes


def _fits_alone(view: View, claim: PoolClaim) -> bool:
    fitting = sum(node.cpu >= claim.cpu and node.devices >= claim.device for node in view.nodes)
    return fitting >= claim.nodes
