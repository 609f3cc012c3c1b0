"""Quotas of an owner applied to what runs: they hold even while nobody else wants the room."""

from __future__ import annotations

from orchestrator.sharing.quotas import hours_spent
from orchestrator.sharing.rows import UNIT, Claim
from orchestrator.sharing.view import View


def allows(view: View, claim: Claim) -> bool:
    """Return True if the owner's quotas allow one more trial of a claim."""
    owner = view.owner_of(claim)
    if hours_spent(owner, claim):
        return False
    cpu, devices = _held(view, claim.owner)
    if owner.most_share >= UNIT or not cpu:
        return owner.most_share > 0
    more = view.capacity.dominant(cpu + claim.cpu, devices + claim.device)
    return more * UNIT <= view.capacity.whole * owner.most_share


def exceeded(view: View, claim: Claim) -> bool:
    """Return True if an owner's sweeps hold more than its quotas allow; their shares never do."""
    owner = view.owner_of(claim)
    if hours_spent(owner, claim):
        return True
    if owner.most_share >= UNIT:
        return False
    return view.capacity.dominant(*_held(view, claim.owner)) * UNIT > view.capacity.whole * owner.most_share


def _held(view: View, owner: str) -> tuple[int, int]:
    """Return cores (1/10,000) and devices that an owner's sweeps hold."""
    cpu = devices = 0
    for sweep, claim in view.claims.items():
        if claim.owner == owner:
            held = view.occupancy.of(sweep)
            cpu += held.trials * claim.cpu
            devices += held.devices
    return cpu, devices
