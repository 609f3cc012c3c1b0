"""The shares of submitted sweeps, with a driver or before one is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.ledger.submissions import Submission
from orchestrator.service.situation import Situation
from orchestrator.service.starting import seconds_left
from orchestrator.sharing.prospects import has_spent, prospects
from orchestrator.sharing.rows import Owner, PoolClaim, PriorityClass
from orchestrator.sharing.view import View


def with_shares(
    situations: Sequence[Situation], views: Sequence[View], owners: Mapping[str, Owner], now: float
) -> list[Situation]:
    """Return situations with what each sweep may hold and holds.

    Args:
        situations: of every submission that has not ended.
        views: of all pools.
        owners: rows by name.
        now: seconds since the epoch.
    """
    pools = pools_of(situations, views)
    claimed = {sweep for view in views for sweep in view.claims}
    waiting = [
        claim_of(entry.submission, entry.priority_class)
        for entry in situations
        if (pools or entry.submission.owner in owners)
        and entry.submission.sweep_id not in claimed
        and _is_due(entry, now)
    ]
    shares: dict[str, int | None] = {}
    held: dict[str, int] = {}
    for view in pools:
        shares |= prospects(view, waiting)
        held |= {sweep: use.trials for sweep, use in view.uses.items()}
    shares |= {claim.sweep: 0 for claim in waiting if has_spent(owners.get(claim.owner), claim, now)}
    return [
        replace(entry, share=shares.get(sweep), held=held.get(sweep, 0))
        for entry in situations
        for sweep in [entry.submission.sweep_id]
    ]


def pools_of(situations: Sequence[Situation], views: Sequence[View]) -> list[View]:
    """Return the pools of a service, whose drivers all join one Ray.

    A pool is known by the claim of one of them; before that, nothing is known about shares.

    Args:
        situations: of every submission that has not ended.
        views: of all pools.
    """
    sweeps = {entry.submission.sweep_id for entry in situations}
    return [view for view in views if not sweeps.isdisjoint(view.claims)]


def _is_due(situation: Situation, now: float) -> bool:
    """Return True if a sweep without a claim will have one soon, or could."""
    submission = situation.submission
    is_due = submission.state == "QUEUED" and not seconds_left(submission, now)
    return submission.state == "STARTED" or is_due


def claim_of(submission: Submission, priority_class: PriorityClass) -> PoolClaim:
    """Return what a submitted sweep will ask for; its driver measures the slots if their number is `auto`."""
    resources, trials = submission.document["resources"], int(submission.document["budget"]["trials"])
    slots = resources.get("slots", 1)
    gpu = resources["gpu"] / (slots if isinstance(slots, int) else 1)
    claim = PoolClaim.of(submission.sweep_id, submission.owner, submission.at, resources["cpu"], gpu)
    want = min(trials, resources.get("concurrent", trials))
    return replace(claim, want=want, priority_class=priority_class)
