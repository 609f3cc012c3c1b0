"""Ways to share a pool, as a driver follows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.sharing.simulation import Policy
from orchestrator.sharing.dealing import Leave
from orchestrator.sharing.rows import Snapshot
from orchestrator.sharing.rules import Rules
from orchestrator.sharing.shed import RunningTrial, choose, minimum_run
from orchestrator.sharing.take import Grant, on_node, open_slot, taken
from orchestrator.sharing.turn import Turn, turn
from orchestrator.sharing.usage import charged, due
from orchestrator.sharing.view import View, expired, view


def fair(
    snapshot: Snapshot, sweep: str, trials: Sequence[RunningTrial], now: float, restart: float, rules: Rules
) -> Turn | None:
    """Do what a driver of the service does."""
    return turn(snapshot, sweep, trials, now, restart=restart, rules=rules)


def naive(
    snapshot: Snapshot, sweep: str, trials: Sequence[RunningTrial], now: float, restart: float, rules: Rules
) -> Turn | None:
    """Take what is free; give up what is above the share, at once."""
    return _naive(snapshot, sweep, trials, now, 0.0, rules)


def naive_with_minimum(
    snapshot: Snapshot, sweep: str, trials: Sequence[RunningTrial], now: float, restart: float, rules: Rules
) -> Turn | None:
    """Take what is free; give up what is above the share, but no trial before its minimum run time."""
    claims = {claim.sweep: claim for claim in snapshot.claims}
    return _naive(snapshot, sweep, trials, now, minimum_run(claims[sweep], restart, rules), rules)


def _naive(
    snapshot: Snapshot, sweep: str, trials: Sequence[RunningTrial], now: float, min_run: float, rules: Rules
) -> Turn | None:
    seen = view(snapshot, now, rules)
    if sweep not in seen.claims:
        return None
    grants: list[Grant] = []
    while len(grants) < 2 and (grant := _free(seen, sweep)) is not None:
        grants.append(grant)
        snapshot = replace(snapshot, holdings=taken(snapshot, grant))
        seen = view(snapshot, now, rules)
    held, share = seen.occupancy.of(sweep), seen.shares[sweep]
    devices = max(0, held.devices - share.devices)
    each = held.trials // max(1, held.devices)
    above = Leave(devices, max(0, held.trials - share.trials - devices * each))
    leaving = choose(trials, (above,), now, min_run)
    owners = charged(seen) if due(snapshot.owners, now, rules.charge_every) else ()
    state = replace(seen.states[sweep], beat=now)
    return Turn(expired(snapshot, now, rules), tuple(grants), state, leaving, owners)


def _free(seen: View, sweep: str) -> Grant | None:
    claim = seen.claims[sweep]
    left = claim.limit - seen.occupancy.of(sweep).trials
    if left <= 0:
        return None
    return open_slot(seen, claim, seen.nodes) or on_node(seen, claim, seen.nodes, left)


POLICIES: Mapping[str, Policy] = {"naive": naive, "naive, minimum run": naive_with_minimum, "fair": fair}
"""By name, in the order of the table."""
