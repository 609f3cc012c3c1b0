"""Sweeps that run less than their share: since when, and how long room is reserved for them.

A shortage passes through these stages:

at once             others take no room above their own shares, so the next room that is freed is reserved
`shed_after`        others give up trials, unless the room that is free or about to be is enough
`lapse_after`       beside free room that nobody uses: the reservation lapses, others may use the room
`hold_after`        the same: the sweep may hold one node; trials that do not belong to a share there leave

The last two are counted while the free room, summed over nodes, would do but the sweep has not taken it,
which means that the room is in fragments or that the driver is slow. A reservation that has lapsed stays so
until the sweep takes a trial. Otherwise two sweeps could take and shed the same room for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.sharing.rows import Claim, DriverState
from orchestrator.sharing.view import View


@dataclass(frozen=True, slots=True)
class Shortage:
    """What a sweep lacks of its share and could use.

    Attributes:
        trials: at least 1.
        devices: of these trials; 0 if they fit on devices that the sweep holds already.
    """

    trials: int
    devices: int


def shortage(view: View, sweep: str) -> Shortage | None:
    """Return what a live sweep lacks, or None if it runs its share.

    A sweep with as many devices as its share lacks nothing if its own trials fill them: smaller nodes hold
    fewer trials a device than the nodes of its share.
    """
    share, held = view.shares[sweep], view.occupancy.of(sweep)
    trials = share.trials - held.trials
    if trials <= 0:
        return None
    claim = view.claims[sweep]
    devices = max(0, share.devices - held.devices)
    if not claim.device or devices:
        return Shortage(trials, devices)
    usable = sum(_usable_slots(view, claim, node) for node in view.occupancy.nodes_of(sweep))
    return Shortage(min(trials, usable), 0) if usable else None


def short(view: View) -> dict[str, Shortage]:
    """Return every shortage, by sweep."""
    found = {sweep: shortage(view, sweep) for sweep in view.claims}
    return {sweep: lacking for sweep, lacking in found.items() if lacking is not None}


def lapsed(view: View, sweep: str) -> bool:
    """Return True if the reservation of a short sweep has lapsed."""
    since = view.states[sweep].room_since
    return since is not None and view.now - since >= view.rules.lapse_after


def reserves(view: View, sweep: str) -> bool:
    """Return True if room is reserved for a sweep: it is short, and its reservation has not lapsed."""
    return shortage(view, sweep) is not None and not lapsed(view, sweep)


def clocked(view: View, sweep: str, *, took: bool) -> DriverState:
    """Return the state of a sweep's driver with the clocks of its shortage moved on.

    Args:
        view: after the takes of this turn.
        sweep: the driver's own.
        took: whether the sweep took a trial in this turn.
    """
    state = view.states[sweep]
    if shortage(view, sweep) is None:
        return replace(state, short_since=None, room_since=None)
    since = view.now if state.short_since is None else state.short_since
    return replace(state, short_since=since, room_since=_room_since(view, state, took))


def _room_since(view: View, state: DriverState, took: bool) -> float | None:
    if took and state.held_node is None:
        return None
    if lapsed(view, state.sweep):
        return state.room_since
    if not view.occupancy.room_for(view.claims[state.sweep]):
        return None
    return view.now if state.room_since is None else state.room_since


def _usable_slots(view: View, claim: Claim, node: str) -> int:
    """Return the empty slots of a sweep's devices on a node that its own trials leave cores for."""
    left = view.nodes[node].cpu // claim.cpu - view.occupancy.at(node, claim.sweep).trials
    return max(0, min(view.occupancy.open_slots(claim, node), left))
