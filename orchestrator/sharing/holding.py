"""Nodes that are held for a trial whose resources are free, but in pieces on several nodes.

What fits is decided by sums, so that a trial may be granted that fits no node. It waits, and would wait
for ever where the trials of other sweeps take each piece again. After `hold_after` a node is held for it: no
other sweep starts anything there, and as many smaller trials leave it as the trial needs; they start again
elsewhere. Only smaller trials leave, so that two sweeps never clear nodes of each other's trials in turn.

A hold is a function of the rows of a pool. The driver of the sweep writes it down, so that the node remains
the same until the trial has started.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from orchestrator.sharing.capacity import Capacity
from orchestrator.sharing.rows import CLASSES, UNIT, Place, PoolClaim, PoolNode, Rules, Share, Use


class Hold(NamedTuple):
    """A node on which one sweep alone may start trials.

    Attributes:
        sweep: that has a trial waiting for it.
        node: its name.
        since: when it was first held for the sweep.
    """

    sweep: str
    node: str
    since: float


@dataclass(frozen=True)
class Holding:
    """The holds of a pool at a moment.

    Attributes:
        by_node: the holds.
        moves: how many trials each sweep gives up on each node, by sweep and node.
        lapsed: the sweeps for which a node was held in vain.
    """

    by_node: Mapping[str, Hold] = field(default_factory=dict)
    moves: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    lapsed: Collection[str] = ()

    def of(self, sweep: str) -> Hold | None:
        """Return the hold of a sweep, or None."""
        return next((hold for hold in self.by_node.values() if hold.sweep == sweep), None)

    def recorded(self, use: Use) -> Hold | None:
        """Return the hold that the row of a sweep records: the present one, or one that has lapsed."""
        if use.sweep in self.lapsed and use.held_node is not None and use.held_since is not None:
            return Hold(use.sweep, use.held_node, use.held_since)
        return self.of(use.sweep)

    def closed_to(self, sweep: str) -> frozenset[str]:
        """Return the nodes on which a sweep starts nothing: those held for others."""
        return frozenset(node for node, hold in self.by_node.items() if hold.sweep != sweep)


NOTHING = Holding()
"""No node is held."""


def holding(
    nodes: Sequence[PoolNode],
    claims: Mapping[str, PoolClaim],
    uses: Mapping[str, Use],
    shares: Mapping[str, Share],
    now: float,
    rules: Rules,
) -> Holding:
    """Return the nodes to hold, and the trials that leave them.

    A sweep holds one node at most, while an attempt within its share has waited for `hold_after`. It gets the
    one whose clearing loses least: the smallest part of the pool is in use by the trials that leave; then the
    fewest of them must still complete their minimum run; then the first by name.

    Args:
        nodes: of the pool.
        claims: of live sweeps, by sweep.
        uses: what they hold, by sweep.
        shares: of the sweeps.
        now: time of the clock of the database's server.
        rules: of the pool.
    """
    waiting = [
        use
        for use in uses.values()
        if use.pending_since is not None and now - use.pending_since >= rules.hold_after
    ]
    if not waiting or len(nodes) == 1:
        return NOTHING
    lapsed = {use.sweep for use in waiting if _has_lapsed(use, now, rules)}
    starved = [use for use in waiting if use.sweep not in lapsed and use.trials <= shares[use.sweep].trials]
    starved.sort(key=lambda use: _turn(claims[use.sweep], use))
    choosing = _Choosing(nodes, claims, uses, shares, rules)
    for use in starved:
        choosing.keep(use)
    for use in starved:
        choosing.add(use.sweep, now)
    return Holding(choosing.holds, choosing.moves(), lapsed)


def open_places(
    nodes: Sequence[PoolNode],
    claims: Mapping[str, PoolClaim],
    uses: Mapping[str, Use],
    holds: Holding,
    sweep: str,
) -> int:
    """Return how many more trials of a sweep fit the nodes that are not held for others.

    Args:
        nodes: of the pool.
        claims: of live sweeps, by sweep.
        uses: what they hold, by sweep.
        holds: of the pool.
        sweep: id of the sweep.
    """
    free, closed = _free(nodes, claims, uses), holds.closed_to(sweep)
    devices, cpu = claims[sweep].on_node
    return sum(
        max(0, min(left[1] // cpu, left[0] // devices if devices else left[1] // cpu))
        for node, left in free.items()
        if node not in closed
    )


def _has_lapsed(use: Use, now: float, rules: Rules) -> bool:
    """Return True if a node was held for too long for an attempt that has waited since before."""
    since = use.held_since
    is_of_now = since is not None and use.pending_since is not None and use.pending_since <= since
    return is_of_now and since is not None and now - since >= rules.hold_for


def _turn(claim: PoolClaim, use: Use) -> tuple[int, float, float, str]:
    return CLASSES.index(claim.priority_class), use.pending_since or 0.0, claim.created, claim.sweep


def _free(
    nodes: Sequence[PoolNode], claims: Mapping[str, PoolClaim], uses: Mapping[str, Use]
) -> dict[str, list[int]]:
    """Return the devices and cores of every node that no attempt uses which a worker has taken."""
    free = {node.name: [node.devices, node.cpu] for node in sorted(nodes, key=lambda node: node.name)}
    for sweep, use in uses.items():
        for place in use.places:
            if place.node in free:
                free[place.node][0] -= place.devices
                free[place.node][1] -= place.trials * claims[sweep].cpu
    return free


class _Need(NamedTuple):
    """What one trial of a sweep needs on one node, and when it is its turn.

    Attributes:
        devices: GPUs.
        cpu: cores, in 1/10,000.
        rank: of its class; 0 is the first to be served.
    """

    devices: int
    cpu: int
    rank: int


class _Departure(NamedTuple):
    """Trials of a sweep that leave a node.

    Attributes:
        sweep: of the trials.
        trials: how many.
        unready: of these, those that must still complete their minimum run.
    """

    sweep: str
    trials: int
    unready: int


class _Choosing:
    """Chooses the holds of a pool, one after the other.

    Attributes:
        holds: chosen so far, by node.
    """

    def __init__(
        self,
        nodes: Sequence[PoolNode],
        claims: Mapping[str, PoolClaim],
        uses: Mapping[str, Use],
        shares: Mapping[str, Share],
        rules: Rules,
    ) -> None:
        self._claims, self._uses, self._shares = claims, uses, shares
        self._capacity = Capacity.of(nodes)
        self._free = _free(nodes, claims, uses)
        self._needs = {sweep: _Need(*claim.on_node, _rank(claim)) for sweep, claim in claims.items()}
        self._placed = self._in_order()
        self._most = max(1, len(self._free) * rules.held_nodes // UNIT)
        self._departures: dict[str, Sequence[_Departure]] = {}
        self.holds: dict[str, Hold] = {}

    def keep(self, use: Use) -> None:
        """Keep the hold that a row records, if the node can still be cleared."""
        node = use.held_node
        if node in self._free and use.held_since is not None:
            self._hold(Hold(use.sweep, node, use.held_since), self._clearing(use.sweep, node))

    def add(self, sweep: str, now: float) -> None:
        """Hold a node for a sweep that has none, if its trial fits no node."""
        is_full = len(self.holds) >= self._most
        if is_full or any(hold.sweep == sweep for hold in self.holds.values()) or self._has_room(sweep):
            return
        cleared = {
            node: departures
            for node in self._free
            if node not in self.holds and (departures := self._clearing(sweep, node)) is not None
        }
        if cleared:
            node = min(cleared, key=lambda name: (*self._loss(cleared[name]), name))
            self._hold(Hold(sweep, node, now), cleared[node])

    def moves(self) -> Mapping[str, Mapping[str, int]]:
        """Return how many trials each sweep gives up, by sweep and node."""
        moves: dict[str, dict[str, int]] = {}
        for node, departures in self._departures.items():
            for departure in departures:
                moves.setdefault(departure.sweep, {})[node] = departure.trials
        return moves

    def _hold(self, hold: Hold, departures: Sequence[_Departure] | None) -> None:
        if departures is not None and hold.node not in self.holds and len(self.holds) < self._most:
            self.holds[hold.node] = hold
            self._departures[hold.node] = departures

    def _has_room(self, sweep: str) -> bool:
        need = self._needs[sweep]
        return any(
            free[0] >= need.devices and free[1] >= need.cpu
            for node, free in self._free.items()
            if node not in self.holds
        )

    def _in_order(self) -> Mapping[str, Sequence[tuple[str, Place]]]:
        """Return what runs on each node, in the order in which it leaves.

        Sweeps above their shares come first, then those of lower classes, then those that are ready to leave,
        then those with the largest trials: fewer of them must leave.
        """
        placed: dict[str, list[tuple[tuple[bool, int, bool, int, float, str], Place]]] = {}
        for sweep, use in self._uses.items():
            claim, rank = self._claims[sweep], self._needs[sweep].rank
            is_within = use.trials <= self._shares[sweep].trials
            for place in use.places:
                is_young = place.ready < place.trials
                order = is_within, -rank, is_young, -claim.cpu, -claim.created, sweep
                placed.setdefault(place.node, []).append((order, place))
        return {node: [(order[-1], place) for order, place in sorted(rows)] for node, rows in placed.items()}

    def _clearing(self, sweep: str, node: str) -> Sequence[_Departure] | None:
        """Return the trials that leave a node so that one of a sweep fits; None if it would not fit.

        They are smaller, and of no higher class.
        """
        need, free = self._needs[sweep], self._free[node]
        devices, cpu = need.devices - free[0], need.cpu - free[1]
        departures = []
        for other, place in self._placed.get(node, ()):
            if devices <= 0 and cpu <= 0:
                break
            one = self._needs[other]
            if one.rank < need.rank or (one.devices, one.cpu) >= (need.devices, need.cpu):
                continue
            trials = min(place.trials, max(devices if one.devices else 0, -(-cpu // one.cpu)))
            if trials > 0:
                departures.append(_Departure(other, trials, max(0, trials - place.ready)))
                devices, cpu = devices - trials * one.devices, cpu - trials * one.cpu
        return departures if devices <= 0 and cpu <= 0 else None

    def _loss(self, departures: Sequence[_Departure]) -> tuple[int, int]:
        devices = cpu = 0
        for departure in departures:
            one = self._needs[departure.sweep]
            devices, cpu = devices + departure.trials * one.devices, cpu + departure.trials * one.cpu
        return self._capacity.dominant(cpu, devices), sum(departure.unready for departure in departures)


def _rank(claim: PoolClaim) -> int:
    return CLASSES.index(claim.priority_class)
