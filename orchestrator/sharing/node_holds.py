"""Node reservations against fragmentation: a trial may fit the free resources in total, but no single node.

Admission compares sums over all nodes, so a trial may be admitted that fits no node. It waits, and would wait
for ever if the trials of other sweeps took each free piece again. After `hold_after` a node is held for it:
no other sweep starts trials there, and enough smaller trials are preempted there; they start again elsewhere.
A trial within the share of its sweep is preempted only for a larger one, so two sweeps never clear nodes of
each other's trials in turn. A trial in a slot of a shared device is smaller than one with a device of its
own, so all trials of a shared device may be preempted for it. For a trial that needs several nodes, all of
them are held, or none.

A hold is a function of the rows of a pool. The driver of the sweep records it, so that the node stays the
same until the trial has started.

Drivers compute holds each second. The computation is therefore shared by all sweeps whose trials need the
same resources, and skips nodes that cannot be the best: clearing a node loses at least the resources that are
missing there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from orchestrator.sharing.capacity import Capacity, apart
from orchestrator.sharing.pool_rows import CLASSES, UNIT, Place, PoolClaim, PoolNode, Rules, Share, Use


class Hold(NamedTuple):
    """A node on which one sweep alone may start trials.

    Attributes:
        sweep: Id of the sweep whose trial waits for the node.
        node: Name of the node.
        since: Time since which it is held for the sweep.
    """

    sweep: str
    node: str
    since: float


class Move(NamedTuple):
    """The trials that a sweep gives up on a node that is held for another sweep.

    Attributes:
        trials: Number of trials with processors on the node, including those on the devices.
        devices: Number of shared devices, with all their trials, on whichever nodes their processors are.
    """

    trials: int
    devices: int = 0


@dataclass(frozen=True)
class NodeHolds:
    """The holds of a pool at a moment.

    Attributes:
        by_node: Holds by the name of the node.
        moves: Trials that each sweep gives up, by sweep and node.
        lapsed: Sweeps whose holds have expired without a start.
        free: Free GPUs and cores (1/10,000) of each node; empty if no node is held.
    """

    by_node: Mapping[str, Hold] = field(default_factory=dict)
    moves: Mapping[str, Mapping[str, Move]] = field(default_factory=dict)
    lapsed: Collection[str] = ()
    free: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def of(self, sweep: str) -> Sequence[Hold]:
        """Return the holds of a sweep, one for each node that its trial needs, or none."""
        return [hold for hold in self.by_node.values() if hold.sweep == sweep]

    def recorded(self, use: Use) -> tuple[str | None, float | None]:
        """Return `held_node` and `held_since` of a sweep's row, which may be those of an expired hold."""
        if use.sweep in self.lapsed:
            return use.held_node, use.held_since
        if not (holds := self.of(use.sweep)):
            return None, None
        return ",".join(hold.node for hold in holds), holds[0].since

    def closed_to(self, sweep: str) -> frozenset[str]:
        """Return the nodes that are held for other sweeps."""
        return frozenset(node for node, hold in self.by_node.items() if hold.sweep != sweep)


NOTHING = NodeHolds()
"""Holds of a pool without held nodes."""


def node_holds(
    nodes: Sequence[PoolNode],
    claims: Mapping[str, PoolClaim],
    uses: Mapping[str, Use],
    shares: Mapping[str, Share],
    now: float,
    rules: Rules,
) -> NodeHolds:
    """Return the nodes to hold, and the trials to preempt there.

    A sweep holds the nodes of at most one trial, while an attempt within its share has waited for
    `hold_after`. It gets the nodes whose clearing loses least: first the smallest share of the pool in use by
    the preempted trials, then the fewest of them that have not completed their minimum run, then the first by
    name.

    Args:
        nodes: Nodes of the pool.
        claims: Claims of live sweeps, by sweep.
        uses: Use of these sweeps, by sweep.
        shares: Shares of the sweeps.
        now: Time by the clock of the database's server.
        rules: Rules of the pool.
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
    if not starved:
        return NodeHolds(lapsed=lapsed)
    starved.sort(key=lambda use: _turn(claims[use.sweep], use))
    choosing = _Choosing(nodes, claims, uses, shares, rules)
    for use in starved:
        choosing.keep(use)
    for use in starved:
        choosing.add(use.sweep, now)
    return NodeHolds(choosing.holds, choosing.moves, lapsed, choosing.free if choosing.holds else {})


def open_places(claim: PoolClaim, holds: NodeHolds) -> int:
    """Return the number of further trials of a sweep that fit the nodes that are not held for others.

    Args:
        claim: Claim of the sweep.
        holds: Holds of its pool; at least one node is held.
    """
    closed, (devices, cpu) = holds.closed_to(claim.sweep), claim.on_node
    places = [
        max(0, min(left[1] // cpu, left[0] // devices if devices else left[1] // cpu))
        for node, left in holds.free.items()
        if node not in closed
    ]
    return apart(places, claim.nodes)


def _has_lapsed(use: Use, now: float, rules: Rules) -> bool:
    """Return True if a hold has expired, and its attempt still waits."""
    since = use.held_since
    is_of_now = since is not None and use.pending_since is not None and use.pending_since <= since
    return is_of_now and since is not None and now - since >= rules.hold_for


def _turn(claim: PoolClaim, use: Use) -> tuple[int, float, float, str]:
    return CLASSES.index(claim.priority_class), use.pending_since or 0.0, claim.created, claim.sweep


class _Need(NamedTuple):
    """Resources of one trial of a sweep on one node, and its turn.

    Attributes:
        devices: GPUs, in 1/10,000.
        cpu: Cores, in 1/10,000.
        rank: Rank of its class; 0 is served first.
    """

    devices: int
    cpu: int
    rank: int


class _Departing:
    """A sweep whose trials may be preempted.

    Attributes:
        name: Id of the sweep.
        need: Resources of one trial.
        size: GPUs and cores (1/10,000) of one trial on one node.
        device: GPUs of one engine, in 1/10,000; 0 unless several trials share an engine.
        per_device: Mean number of its trials on one device.
        beyond: Number of trials beyond its share.
        beyond_devices: Number of shared devices beyond its share.
        group: First part of the sort key of preemption: trials of sweeps above their shares first, then those
            of lower classes.
        order: Last part of this key: the largest trials first, because fewer of them must leave.
    """

    __slots__ = (
        "beyond",
        "beyond_devices",
        "device",
        "group",
        "name",
        "need",
        "order",
        "per_device",
        "size",
    )

    def __init__(self, claim: PoolClaim, use: Use, share: Share) -> None:
        self.name, self.size = claim.sweep, claim.on_node
        self.device = claim.gpu if claim.slots > 1 else 0
        self.need = _Need(*self.size, CLASSES.index(claim.priority_class))
        one = max(1, claim.all_devices)
        self.per_device = max(1, use.trials // max(1, use.devices // one))
        self.beyond = max(0, use.trials - share.trials)
        self.beyond_devices = max(0, use.devices - share.devices) // one
        self.group = len(CLASSES) * (not self.beyond) - self.need.rank
        self.order = -claim.cpu, -claim.created, claim.sweep


class _Clearing(NamedTuple):
    """The trials to preempt on a node so that a trial fits.

    Attributes:
        loss: Share of the pool that these trials use, as an integer of `Capacity.dominant`.
        unready: Number of these trials that have not completed their minimum run.
        departures: Sweeps of these trials, with the numbers of trials and of shared devices.
    """

    loss: int
    unready: int
    departures: Sequence[tuple[_Departing, int, int]]


class _Choosing:
    """Chooses the holds of a pool, one after the other.

    Attributes:
        free: Devices and cores of each node that no started attempt uses.
        holds: Holds chosen so far, by node.
        moves: Trials that these holds preempt, by sweep and node.
    """

    def __init__(
        self,
        nodes: Sequence[PoolNode],
        claims: Mapping[str, PoolClaim],
        uses: Mapping[str, Use],
        shares: Mapping[str, Share],
        rules: Rules,
    ) -> None:
        self._claims = claims
        capacity = Capacity.of(nodes)
        self._of_cpu, self._of_device = capacity.dominant(1, 0), capacity.dominant(0, 1)
        sweeps = [
            (_Departing(claims[sweep], use, shares[sweep]), use) for sweep, use in uses.items() if use.places
        ]
        sweeps.sort(key=lambda entry: entry[0].order)
        self._placed: dict[str, list[tuple[int, _Departing, Place]]] = {node.name: [] for node in nodes}
        self.free = self._left(nodes, sweeps)
        self._most = max(1, len(self.free) * rules.held_nodes // UNIT)
        self._sorted: set[str] = set()
        self._cleared: dict[tuple[_Need, str], _Clearing | None] = {}
        self._queues: dict[_Need, list[tuple[int, int, str]]] = {}
        self.holds: dict[str, Hold] = {}
        self.moves: dict[str, dict[str, Move]] = {}

    def keep(self, use: Use) -> None:
        """Keep a recorded hold if its node can still be cleared."""
        names = use.held_node.split(",") if use.held_node is not None else []
        claim = self._claims[use.sweep]
        if use.held_since is None or len(names) != claim.nodes or not self.free.keys() >= set(names):
            return
        self._hold(use.sweep, use.held_since, [(name, self._clearing(_need(claim), name)) for name in names])

    def add(self, sweep: str, now: float) -> None:
        """Hold the nodes of a trial for a sweep that has none, if its trial fits nowhere."""
        claim = self._claims[sweep]
        if len(self.holds) >= self._most or any(hold.sweep == sweep for hold in self.holds.values()):
            return
        if claim.nodes > 1:
            self._hold(sweep, now, self._best_apart(_need(claim), claim.nodes))
        elif (best := self._best(_need(claim))) is not None:
            self._hold(sweep, now, [best])

    def _hold(self, sweep: str, since: float, nodes: Sequence[tuple[str, _Clearing | None]]) -> None:
        """Hold all of the nodes, or none if one cannot be cleared or is already held.

        A trial of several nodes may hold more than `Rules.held_nodes` if no other node is held.
        """
        most = max(self._most, len(nodes) if not self.holds else 0)
        if len(self.holds) + len(nodes) > most:
            return
        if any(clearing is None or node in self.holds for node, clearing in nodes):
            return
        for node, clearing in nodes:
            assert clearing is not None, "checked above"
            self.holds[node] = Hold(sweep, node, since)
            for departing, trials, shared in clearing.departures:
                self.moves.setdefault(departing.name, {})[node] = Move(trials, shared)

    def _best_apart(self, need: _Need, count: int) -> Sequence[tuple[str, _Clearing | None]]:
        """Return the nodes whose clearing loses least, nodes with room first; none if enough have room."""
        cleared = [(node, self._clearing(need, node)) for node in self.free if node not in self.holds]
        possible = [(node, clearing) for node, clearing in cleared if clearing is not None]
        possible.sort(key=lambda entry: (entry[1].loss, entry[1].unready, entry[0]))
        best = possible[:count]
        is_enough = len(best) == count and any(clearing.departures for _, clearing in best)
        return best if is_enough else []

    def _left(
        self, nodes: Sequence[PoolNode], sweeps: Sequence[tuple[_Departing, Use]]
    ) -> dict[str, tuple[int, int]]:
        """Record the trials on each node, and return the free GPUs and cores of each node."""
        free = {node.name: [node.devices, node.cpu] for node in nodes}
        placed = self._placed
        for sweep, use in sweeps:
            cpu, of_ready = sweep.need.cpu, 2 * sweep.group
            for place in use.places:
                node, trials, devices, ready = place
                if (left := free.get(node)) is not None:
                    left[0] -= devices
                    left[1] -= trials * cpu
                    group = of_ready if ready >= trials else of_ready + 1
                    placed[node].append((group, sweep, place))
        return {name: (devices, cpu) for name, (devices, cpu) in free.items()}

    def _best(self, need: _Need) -> tuple[str, _Clearing] | None:
        """Return the node whose clearing loses least; None without one, or if a node has room already."""
        queue, limit = self._queue(need), None
        while queue:
            bound, unready, node = queue[0]
            if node in self.holds:
                heappop(queue)
            elif (need, node) in self._cleared:
                if (clearing := self._cleared[need, node]) is not None:
                    return node, clearing
                heappop(queue)
            elif not bound:
                return None
            else:
                clearing, least = self._cleared_for(need, node, limit)
                if clearing is not None:
                    unready, limit = clearing.unready, min(least, limit or least)
                heapreplace(queue, (least, unready, node))
        return None

    def _queue(self, need: _Need) -> list[tuple[int, int, str]]:
        """Return a heap of the nodes by lower bounds of the loss and of the unready trials.

        The first bound of the loss is the missing resources; 0 if the node has room.
        """
        if (queue := self._queues.get(need)) is None:
            of_cpu, of_device, queue = self._of_cpu, self._of_device, []
            for node in self.free:
                cpu, devices = self._missing(need, node)
                queue.append((max(cpu * of_cpu, devices * of_device, 0), 0, node))
            heapify(queue)
            self._queues[need] = queue
        return queue

    def _missing(self, need: _Need, node: str) -> tuple[int, int]:
        """Return the missing cores and devices of a node; 0 or less if it has enough."""
        devices, cpu = self.free[node]
        return need.cpu - cpu, need.devices - devices if need.devices else 0

    def _in_order(self, node: str) -> Sequence[tuple[int, _Departing, Place]]:
        """Return the trials on a node in the order of preemption.

        Within one group of sweeps, trials that have completed their minimum run come first.
        """
        placed = self._placed[node]
        if node not in self._sorted:
            placed.sort(key=_group)  # a stable sort: within a group, the order of the sweeps remains
            self._sorted.add(node)
        return placed

    def _clearing(self, need: _Need, node: str) -> _Clearing | None:
        """Return the trials to preempt on a node so that a trial fits; None if it cannot fit."""
        if (need, node) not in self._cleared:
            self._cleared_for(need, node, None)
        return self._cleared[need, node]

    def _cleared_for(self, need: _Need, node: str, most: int | None) -> tuple[_Clearing | None, int]:
        """Return the trials to preempt on a node so that a trial fits, or None, and the least loss.

        Preempted trials are smaller and of no higher class, or beyond the share of their sweep.

        Args:
            need: Resources of the trial.
            node: Name of the node.
            most: Largest loss of interest, above which only a lower bound is returned; None without a limit.
        """
        size, rank = need[:2], need.rank
        cpu, devices = self._missing(need, node)
        departures: list[tuple[_Departing, int, int]] = []
        loss = lost_devices = lost_cpu = unready = 0
        # Without calls: this runs for everything on all nodes that may be the best.
        of_cpu, of_device = self._of_cpu, self._of_device
        for _, sweep, (_, trials, shared, ready) in self._in_order(node):
            if devices <= 0 and cpu <= 0:
                break
            shared = shared // sweep.device if sweep.device else 0
            one_devices, one_cpu, one_rank = sweep.need
            if one_rank < rank or sweep.size >= size:
                trials, shared = min(trials, sweep.beyond), min(shared, sweep.beyond_devices)
            needed = -(-cpu // one_cpu) if cpu > 0 else 0
            if one_devices and devices > needed * one_devices:
                needed = -(-devices // one_devices)
            if trials > needed:
                trials = needed
            lost, freed = trials, trials * one_devices
            if devices > 0 and shared:
                shared = min(shared, -(-devices // sweep.device))
                lost, freed = max(trials, shared * sweep.per_device), freed + shared * sweep.device
            elif trials:
                shared = 0
            else:
                continue
            departures.append((sweep, trials, shared))
            cpu, devices = cpu - trials * one_cpu, devices - freed
            lost_cpu, lost_devices = lost_cpu + lost * one_cpu, lost_devices + freed
            if lost > ready:
                unready += lost - ready
            loss, of_devices = lost_cpu * of_cpu, lost_devices * of_device
            if of_devices > loss:
                loss = of_devices
            if most is not None and loss > most:
                return None, loss
        is_clear = devices <= 0 and cpu <= 0
        clearing = self._cleared[need, node] = _Clearing(loss, unready, departures) if is_clear else None
        return clearing, loss


def _need(claim: PoolClaim) -> _Need:
    return _Need(*claim.on_node, CLASSES.index(claim.priority_class))


def _group(entry: tuple[int, _Departing, Place]) -> int:
    return entry[0]
