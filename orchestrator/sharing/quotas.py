"""Quotas of an owner that rows alone decide: sweeps in the queue, and GPU-hours a week."""

from __future__ import annotations

from orchestrator.errors import BadInput
from orchestrator.sharing.rows import Claim, Owner


def hours_spent(owner: Owner, claim: Claim) -> bool:
    """Return True if a claim must wait because its owner has used up the week's GPU-hours."""
    hours = owner.most_gpu_hours
    return claim.slots > 0 and hours is not None and owner.week_gpu_seconds >= hours * 3600


def check_queue(owner: Owner, queued: int) -> None:
    """Check that an owner may submit one more sweep.

    Args:
        owner: row of the owner.
        queued: sweeps of the owner that wait in the queue now.

    Raises:
        BadInput: if the owner's queue is full.
    """
    if owner.most_queued is not None and queued >= owner.most_queued:
        raise BadInput(
            f"queue of {owner.name}",
            f"must hold at most {owner.most_queued} waiting sweeps",
            f"{queued}, and one more was submitted",
            "Wait until one has started, stop one, or ask an admin for a larger quota.",
        )
