"""The shares that sweeps without a driver would have if they had one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from orchestrator.sharing.fill import fill, hours_spent
from orchestrator.sharing.pool_rows import Owner, PoolClaim
from orchestrator.sharing.usage import week_of
from orchestrator.sharing.view import View


def prospects(view: View, waiting: Collection[PoolClaim]) -> dict[str, int | None]:
    """Return how many trials every sweep could run at once, if those that wait claimed their shares, too.

    Args:
        view: of the pool.
        waiting: claims of sweeps that have none in the pool.

    Returns:
        By sweep; None for one whose trials do not fit the pool even if it is empty. A cluster may still get a
        machine for it, but only while its driver asks for one.
    """
    owners = [_this_week(owner, view.now) for owner in view.owners.values()]
    claims = [*view.claims.values(), *waiting]
    shares = fill(view.nodes, owners, claims, view.rules)
    fits = {kind: _fits_alone(view, claim) for claim in claims for kind in [(claim.cpu, claim.device)]}
    return {
        claim.sweep: shares[claim.sweep].trials if fits[claim.cpu, claim.device] else None for claim in claims
    }


def has_spent(owner: Owner | None, claim: PoolClaim, now: float) -> bool:
    """Return True if an owner has used up the GPU-hours of the week of `now`, and the claim needs some."""
    return owner is not None and hours_spent(_this_week(owner, now), claim)


def _this_week(owner: Owner, now: float) -> Owner:
    """Return the row of an owner; a week in which no driver has charged it yet begins with no use."""
    return owner if owner.week == week_of(now) else replace(owner, week_gpu_seconds=0)


def _fits_alone(view: View, claim: PoolClaim) -> bool:
    return any(node.cpu >= claim.cpu and node.devices >= claim.device for node in view.nodes)
