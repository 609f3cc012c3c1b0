"""A node that is held for a sweep whose room is in fragments.

All shares fit the pool together, every bundle on the node where `fill` put it. A sweep that is short
therefore has a node where its share has more than it runs there, and its bundle fits there once the trials
beyond the shares of that node have left. A hold moves one bundle to its node and moves none away from its
node, so with fixed claims holds end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.sharing.dealing import Candidate, Leave, dealt
from orchestrator.sharing.rows import Claim, DriverState
from orchestrator.sharing.shortage import Shortage, shortage
from orchestrator.sharing.view import View


def owed(view: View, claim: Claim) -> Mapping[str, Shortage]:
    """Return, by node, what a sweep's share has beyond what the sweep runs on that node."""
    found = {}
    for node, (devices, trials) in _by_node(view, claim).items():
        held = view.occupancy.at(node, claim.sweep)
        more = max(0, devices - held.devices)
        if trials > held.trials and (not claim.device or more or view.occupancy.open_slots(claim, node) > 0):
            found[node] = Shortage(trials - held.trials, more)
    return found


def held_by_others(view: View, sweep: str) -> set[str]:
    """Return the nodes that are held for other sweeps."""
    return {state.held_node for other, state in view.states.items() if other != sweep and state.held_node}


def holding(view: View, state: DriverState) -> DriverState:
    """Return a driver's state with the node that its sweep holds from now on.

    A hold begins `hold_after` the reservation began to go unused. It stays on its node while the share of the
    sweep has more there, and ends with the shortage. Among several nodes, the one where fewest trials must
    leave is held.

    Args:
        view: after the takes of this turn.
        state: with the clocks of this turn.
    """
    since = state.room_since
    if since is None or view.now - since < view.rules.hold_after:
        return replace(state, held_node=None)
    claim = view.claims[state.sweep]
    nodes = owed(view, claim).keys() - held_by_others(view, state.sweep)
    if state.held_node in nodes:
        return state
    costs = [(_cost(leaves_on(view, claim, node)), node) for node in nodes]
    return replace(state, held_node=min(costs)[1] if costs else None)


def leaves_on(view: View, claim: Claim, node: str) -> dict[str, Leave]:
    """Return which other sweeps give up what on a node, so that the next bundle of a sweep fits there."""
    lacking, here = shortage(view, claim.sweep), owed(view, claim).get(node)
    if lacking is None or here is None:
        return {}
    slots = view.occupancy.open_slots(claim, node) if claim.device else 0
    trials = min(lacking.trials, here.trials, slots if slots > 0 else claim.bundle)
    device = claim.device if slots <= 0 else 0
    return dealt(
        view,
        _beyond_shares(view, claim, node),
        trials * claim.cpu - view.occupancy.free_cpu[node],
        device - view.occupancy.free_devices[node] if device else 0,
        node,
    )


def _beyond_shares(view: View, claim: Claim, node: str) -> list[Candidate]:
    """Return what other sweeps run on a node beyond their shares there."""
    candidates = []
    for sweep, held in view.occupancy.by_node[node].items():
        other = view.claims[sweep]
        devices, trials = _by_node(view, other).get(node, (0, 0))
        if other is not claim and (held.trials > trials or held.devices > devices):
            candidates.append(Candidate(other, held, held.devices - devices, held.trials - trials))
    return candidates


def _by_node(view: View, claim: Claim) -> dict[str, tuple[int, int]]:
    """Return devices and trials of a share by node."""
    total: dict[str, tuple[int, int]] = {}
    for node, trials in view.shares[claim.sweep].bundles:
        devices, before = total.get(node, (0, 0))
        total[node] = (devices + claim.device, before + trials)
    return total


def _cost(leaves: Mapping[str, Leave]) -> int:
    return sum(leave.trials + leave.devices for leave in leaves.values())
