"""Order of the queue: sweeps with a driver and submissions that wait for one."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from orchestrator.api.status import state_without_driver
from orchestrator.client.answers import QueuedSweep
from orchestrator.config.strategy import most_trials
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.pool import claims
from orchestrator.ledger.pool.rates import documents, finish_rates
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.sweeps.lease import driven
from orchestrator.service.service import lease_name
from orchestrator.service.start_order import (
    DRIVERS_AT_ONCE,
    STARTING_AT_ONCE,
    Situation,
    claim_of,
    in_turn,
    may_start,
    pools_of,
    seconds_left,
    with_shares,
)
from orchestrator.sharing.forecast import expected_starts, has_spent
from orchestrator.sharing.pool_rows import CLASSES, Owner
from orchestrator.sharing.view import View
from orchestrator.system import ClockSetting, System

UNSERVED = "QUEUED: no service runs that could start its driver"

PATIENCE = 60.0
"""Seconds after which a submission that could start, but does not, shows that the service is full."""


def places(ledger: Ledger) -> Sequence[QueuedSweep]:
    """Return every sweep with a driver and every submission that has not ended, in the order of the queue."""
    views, owners, clock = claims.pools(ledger), claims.owners(ledger), ClockSetting.here(ledger.system)
    now = clock.now(ledger.system)
    observed = _observed(ledger, list(views.values()), owners, clock)
    undriven = [entry for entry in observed if not entry.is_driven]
    active = [entry for entry in observed if entry.is_driven or entry.is_starting]
    queued = _in_order(undriven, active)
    is_served = bool(driven(ledger, [lease_name(ledger)]))

    def submitted(entry: Situation) -> QueuedSweep:
        is_unserved = entry.submission.state == "QUEUED" and not is_served
        return _submitted(entry, UNSERVED if is_unserved else _why(entry, owners, ledger.system))

    running = [_claimed(pool, view, sweep) for pool, view in views.items() for sweep in _running(view)]
    known = {sweep for view in views.values() for sweep in view.claims}
    unclaimed = [entry for entry in observed if entry.is_driven and entry.submission.sweep_id not in known]
    running += [_submitted(entry, "its driver starts, or ends") for entry in unclaimed]
    waiting = [_claimed(pool, view, sweep) for pool, view in views.items() for sweep in view.queue()]
    waiting += [submitted(entry) for entry in queued]
    waiting.sort(key=lambda entry: CLASSES.index(entry.priority_class))  # stable: drivers come first
    starts = _starts(ledger, list(views.values()), observed, queued, now) if waiting else {}
    numbered = [
        replace(
            entry,
            position=number,
            expected_start=starts.get(entry.sweep) if entry.why != UNSERVED else None,
        )
        for number, entry in enumerate(waiting, start=1)
    ]
    parked = [submitted(entry) for entry in undriven if entry.submission.state == "PARKED"]
    return [*running, *numbered, *parked]


def _observed(
    ledger: Ledger, views: Sequence[View], owners: Mapping[str, Owner], clock: ClockSetting
) -> Sequence[Situation]:
    """Return every submission that has not ended, with its class and its share.

    Args:
        ledger: Ledger of the submissions.
        views: Views of the clusters.
        owners: Owners by name.
        clock: Clock of the returned times.
    """
    classes = claims.priority_classes(ledger)
    entries = [entry.by(clock) for entry in submissions.submissions(ledger, ended=False)]
    with_driver = driven(ledger, [entry.sweep_id for entry in entries])
    situations = [
        Situation(
            entry,
            is_driven=entry.sweep_id in with_driver,
            priority_class=classes.get(entry.sweep_id, "normal"),
        )
        for entry in entries
    ]
    return with_shares(situations, views, owners, clock.now(ledger.system))


def _running(view: View) -> Sequence[str]:
    """Return the sweeps of a cluster with running trials, the oldest first."""
    return sorted(
        view.claims.keys() - set(view.queue()), key=lambda sweep: (view.claims[sweep].created, sweep)
    )


def _in_order(undriven: Iterable[Situation], active: Iterable[Situation]) -> Sequence[Situation]:
    """Return the submissions that wait for a driver, the next one first."""
    waiting = [entry for entry in undriven if entry.submission.state != "PARKED"]
    starting = [entry for entry in waiting if entry.submission.state == "STARTED"]
    return [*starting, *in_turn((entry for entry in waiting if entry not in starting), active)]


def _claimed(pool: str, view: View, sweep: str) -> QueuedSweep:
    claim, use = view.claims[sweep], view.uses[sweep]
    share, why = view.shares[sweep].trials, view.about_holds(sweep) or view.why_waiting(sweep)
    return QueuedSweep(
        sweep, claim.owner, claim.priority_class, pool, None, share, use.trials, claim.want, why, None
    )


def _submitted(entry: Situation, why: str) -> QueuedSweep:
    submission, share = entry.submission, entry.share or 0
    wanted = int(submission.document["budget"]["trials"])
    named = submission.sweep_id, submission.owner, entry.priority_class
    return QueuedSweep(*named, None, None, share, 0, wanted, why, None)


def _why(entry: Situation, owners: Mapping[str, Owner], system: System) -> str:
    """Return the state of a submission without a driver, and the reason why it waits."""
    submission = entry.submission
    state, reason = state_without_driver(submission, system) or ("ENDED", None)
    if submission.state == "QUEUED" and entry.share == 0:
        claim, owner = claim_of(submission, entry.priority_class), owners.get(submission.owner)
        has_quota = has_spent(owner, claim, system.time()) or (owner is not None and not owner.most_share)
        reason = "its owner's quota is used up" if has_quota else "the pool has no share for it yet"
    return f"{state}: {reason}" if reason else state


def _starts(
    ledger: Ledger,
    views: Sequence[View],
    observed: Sequence[Situation],
    queued: Sequence[Situation],
    now: float,
) -> Mapping[str, float]:
    """Return the expected start of each waiting sweep, if known."""
    own = pools_of(observed, views)
    waiting = [claim_of(entry.submission, entry.priority_class) for entry in queued]
    starts = {} if own else dict.fromkeys([claim.sweep for claim in waiting[:STARTING_AT_ONCE]], 0.0)
    for view in views:
        left = _left(ledger, _running(view), now)
        starts |= expected_starts(view, left, waiting if view in own else (), _drivers(observed, now))
    waits = {entry.submission.sweep_id: seconds_left(entry.submission, now) for entry in queued}
    # Rounded, so that followers of the queue do not receive a new estimate every second.
    return {sweep: _rounded(now + max(after, waits.get(sweep, 0.0))) for sweep, after in starts.items()}


def _rounded(at: float) -> float:
    return 10.0 * math.ceil(at / 10.0)


def _drivers(observed: Sequence[Situation], now: float) -> int:
    """Return an estimate of the largest number of drivers, which the ledger does not contain.

    It is the default, unless more drivers run, or fewer run while a submission has long been ready to start.
    """
    active = [entry for entry in observed if entry.is_driven or entry.is_starting]
    latest = [
        max(entry.submission.at, entry.submission.next_try) for entry in observed if may_start(entry, now)
    ]
    is_full = min(latest, default=now) < now - PATIENCE and not any(entry.is_starting for entry in active)
    return len(active) if is_full else max(len(active), DRIVERS_AT_ONCE)


def _left(ledger: Ledger, running: Collection[str], now: float) -> dict[str, float]:
    """Return the estimated seconds until the end of running sweeps, by ID; omit those without an estimate."""
    left, known = {}, finish_rates(ledger, running)
    for sweep, document in documents(ledger, known).items():
        pace = known[sweep]
        if (seconds := pace.seconds_left(most_trials(document))) is not None:
            left[sweep] = max(0.0, pace.ends[-1] + seconds - now)
    return left
