"""Fair shares: weighted max-min fairness over the dominant resource.

Shares are divided between owners first, and then between the sweeps of each owner.

An empty pool is filled one bundle at a time. The next bundle goes to the owner with the least dominant share
by weight, and to that owner's sweep with the least. A bundle is one trial on all its nodes, or one device
with as many trials as there are slots on it and cores for them. A sweep whose bundle fits nowhere, or that
has reached a limit, drops out. Classes are filled in five passes:

1. one bundle of class `urgent`, so that `urgent` has an effect on a pool of one device;
2. class `normal`, up to its floor;
3. class `urgent`, up to the cap of each owner;
4. class `normal`, and class `urgent` beyond the caps, on equal terms;
5. class `idle`.

Source: progressive filling, Ghodsi et al., Dominant Resource Fairness, NSDI 2011, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from math import gcd

from orchestrator.sharing.capacity import Capacity, FreeNodes
from orchestrator.sharing.pool_rows import (
    RULES,
    UNIT,
    Bundle,
    Owner,
    PoolClaim,
    PoolNode,
    PriorityClass,
    Rules,
    Share,
)


def fill(
    nodes: Iterable[PoolNode], owners: Iterable[Owner], claims: Iterable[PoolClaim], rules: Rules = RULES
) -> dict[str, Share]:
    """Return the share of every claim by sweep; the order of the rows has no effect.

    Args:
        nodes: Nodes of the pool.
        owners: Rows of owners; an owner without a row has the defaults of `Owner`.
        claims: Claims of live sweeps.
        rules: Rules of the pool, of which the floor, the cap and the step of past use are read.
    """
    filling = _Filling(nodes, owners, claims, rules)
    filling.run()
    return filling.shares()


class _Part:
    """A part of the pool: cores and devices, each as the integer that `Capacity.dominant` compares."""

    __slots__ = ("cpu", "devices")

    def __init__(self) -> None:
        self.cpu = self.devices = 0

    def add(self, cpu: int, devices: int) -> None:
        self.cpu += cpu
        self.devices += devices

    def dominant(self) -> int:
        return max(self.cpu, self.devices)


class _Sweep(_Part):
    """A claim while the pool is filled.

    Attributes:
        rank: Rank among the owner's sweeps by age; decides ties.
        left: Number of further trials that the sweep can use.
        trial_cpu: Cores of one trial, in 1/10,000.
        one_cpu: Share of the pool of the cores of one trial, on all its nodes.
        one_device: Share of the pool of the GPUs of a bundle; 0 without a GPU.
        bundles: Index of the node and number of trials of each bundle, in the order of assignment.
    """

    __slots__ = (
        "bundle",
        "bundles",
        "claim",
        "device",
        "left",
        "one_cpu",
        "one_device",
        "rank",
        "trial_cpu",
        "weight",
    )

    def __init__(self, claim: PoolClaim, rank: int, left: int, of_cpu: int, of_device: int) -> None:
        super().__init__()
        self.claim, self.rank, self.left, self.weight = claim, rank, left, claim.weight
        self.bundle, self.device, self.trial_cpu = claim.bundle, claim.device, claim.cpu
        self.one_cpu, self.one_device = claim.all_cpu * of_cpu, claim.all_devices * of_device
        self.bundles: list[tuple[int, int]] = []


class _Owner(_Part):
    """An owner while the pool is filled.

    Attributes:
        rank: Rank among the owners by past use and age; decides ties.
        urgent: Resources that the owner got ahead of others.
        queue: Heap of the sweeps that still take part in a pass.
    """

    __slots__ = ("most", "queue", "rank", "sweeps", "urgent", "weight")

    def __init__(self, row: Owner, rank: int, sweeps: Sequence[_Sweep]) -> None:
        super().__init__()
        self.rank, self.weight, self.most, self.sweeps = rank, row.weight, row.most_share, sweeps
        self.urgent = _Part()
        self.queue: list[int] = []


class _Filling:
    """State of the progressive filling of a pool.

    An entry of a heap is one integer, `ratio * count + rank`: the least dominant share by weight comes first,
    the rank decides ties, and `entry % count` is the rank again.
    """

    def __init__(
        self, nodes: Iterable[PoolNode], owners: Iterable[Owner], claims: Iterable[PoolClaim], rules: Rules
    ) -> None:
        self._nodes = sorted(nodes, key=lambda node: node.name)
        self._free = FreeNodes((node.devices, node.cpu) for node in self._nodes)
        self._capacity = Capacity.of(self._nodes)
        self._rules = rules
        by_owner: dict[str, list[PoolClaim]] = {}
        for claim in claims:
            by_owner.setdefault(claim.owner, []).append(claim)
        rows = {row.name: row for row in owners}
        ranked = _ranked([rows.get(name, Owner(name)) for name in by_owner], by_owner, rules.use_step)
        self._owners = [
            _Owner(row, rank, self._sweeps(row, by_owner[row.name])) for rank, row in enumerate(ranked)
        ]
        self._all = [sweep for owner in self._owners for sweep in owner.sweeps]
        self._scale = _scaled_weights([*self._owners, *self._all])

    def run(self) -> None:
        """Fill the pool, pass by pass."""
        if any(sweep.claim.priority_class == "urgent" for sweep in self._all):
            floor = -(-self._capacity.whole * self._rules.normal_floor // UNIT)
            self._fill_pass(("urgent",), ahead=True, bundles=1)
            self._fill_pass(("normal",), floor=floor)
            self._fill_pass(("urgent",), ahead=True)
        self._fill_pass(("normal", "urgent"))
        self._fill_pass(("idle",))

    def shares(self) -> dict[str, Share]:
        """Return the share of each sweep."""
        names = [node.name for node in self._nodes]
        different = {placed for sweep in self._all for placed in sweep.bundles}
        bundle = {(node, trials): Bundle(names[node], trials) for node, trials in different}
        shares = {}
        for sweep in self._all:
            trials = sum([trials for _, trials in sweep.bundles]) // sweep.claim.nodes
            bundles = tuple([bundle[placed] for placed in sweep.bundles])
            shares[sweep.claim.sweep] = Share(trials, sweep.device * len(bundles), bundles)
        return shares

    def _sweeps(self, row: Owner, claims: list[PoolClaim]) -> list[_Sweep]:
        ordered = sorted(claims, key=lambda claim: (claim.created, claim.sweep))
        of_cpu, of_device = self._capacity.dominant(1, 0), self._capacity.dominant(0, 1)
        return [
            _Sweep(claim, rank, 0 if hours_spent(row, claim) else claim.want, of_cpu, of_device)
            for rank, claim in enumerate(ordered)
        ]

    def _fill_pass(
        self,
        classes: tuple[PriorityClass, ...],
        *,
        ahead: bool = False,
        floor: int | None = None,
        bundles: int | None = None,
    ) -> None:
        """Give bundles to sweeps of some classes until none fits.

        Args:
            classes: Classes that take part.
            ahead: Whether the owner's cap on class `urgent` applies.
            floor: Dominant share of this pass at which it ends.
            bundles: Number of bundles after which the pass ends.
        """
        queued, count, place, entry = self._queued(classes), len(self._owners), self._free.place, self._entry
        given = _Part()
        while queued and bundles != 0 and (floor is None or given.dominant() < floor):
            owner = self._owners[queued[0] % count]
            queue, sweeps = owner.queue, owner.sweeps
            sweep = sweeps[queue[0] % len(sweeps)]
            trials = sweep.bundle if sweep.bundle < sweep.left else sweep.left
            if ahead or owner.most < UNIT:
                trials = self._allowed(owner, sweep, trials, ahead)
            placed: tuple[int, int] | None = None
            if trials and sweep.claim.nodes == 1:
                placed = place(sweep.trial_cpu, trials, sweep.device)
            elif trials:
                apart = self._free.place_apart(sweep.trial_cpu, sweep.device, sweep.claim.nodes)
                if apart is not None:
                    sweep.bundles += [(node, 1) for node in apart[:-1]]
                    placed = apart[-1], 1
            if placed is None:
                heappop(queue)
                if not queue:
                    heappop(queued)
                continue
            # Not in a method of its own: this runs for each bundle of the pool.
            cpu, devices = placed[1] * sweep.one_cpu, sweep.one_device
            sweep.bundles.append(placed)
            sweep.left -= placed[1]
            sweep.cpu += cpu
            sweep.devices += devices
            owner.cpu += cpu
            owner.devices += devices
            if ahead:
                owner.urgent.add(cpu, devices)
            if floor is not None:
                given.add(cpu, devices)
            if bundles is not None:
                bundles -= 1
            if sweep.left:
                heapreplace(queue, entry(sweep, len(sweeps)))
            else:
                heappop(queue)
            if queue:
                heapreplace(queued, entry(owner, count))
            else:
                heappop(queued)

    def _queued(self, classes: tuple[PriorityClass, ...]) -> list[int]:
        """Queue the sweeps that take part in a pass; return the heap of their owners."""
        for owner in self._owners:
            owner.queue = [
                self._entry(sweep, len(owner.sweeps))
                for sweep in owner.sweeps
                if sweep.left and sweep.claim.priority_class in classes
            ]
            heapify(owner.queue)
        owners = [self._entry(owner, len(self._owners)) for owner in self._owners if owner.queue]
        heapify(owners)
        return owners

    def _entry(self, part: _Owner | _Sweep, count: int) -> int:
        cpu, devices = part.cpu, part.devices
        return (cpu if cpu > devices else devices) * self._scale // part.weight * count + part.rank

    def _allowed(self, owner: _Owner, sweep: _Sweep, trials: int, ahead: bool) -> int:
        """Return the number of trials of a bundle within the owner's quota, and within its cap if `ahead`."""
        allowed = self._within(owner, sweep, trials, owner.most)
        return (
            min(allowed, self._within(owner.urgent, sweep, trials, self._rules.urgent_cap))
            if ahead
            else allowed
        )

    def _within(self, part: _Part, sweep: _Sweep, trials: int, most: int) -> int:
        limit = self._capacity.whole * most // UNIT
        if not part.cpu:
            return trials if most else 0
        if part.devices + sweep.one_device > limit:
            return 0
        return max(0, min(trials, (limit - part.cpu) // sweep.one_cpu))


def hours_spent(owner: Owner, claim: PoolClaim) -> bool:
    """Return True if a claim must wait because its owner has used up the week's GPU-hours."""
    hours = owner.most_gpu_hours
    return claim.slots > 0 and hours is not None and owner.week_gpu_seconds >= hours * 3600


def _ranked(rows: list[Owner], claims: dict[str, list[PoolClaim]], step: int) -> list[Owner]:
    """Return owners in the order that decides ties: least past use by weight, oldest sweep, name."""

    def key(row: Owner) -> tuple[int, float, str]:
        oldest = min(claim.created for claim in claims[row.name])
        return row.used * UNIT // row.weight // step, oldest, row.name

    return sorted(rows, key=key)


def _scaled_weights(parts: Sequence[_Owner | _Sweep]) -> int:
    """Divide all weights by their common divisor; return a scale for exact comparisons.

    Two fractions with these weights as denominators differ by at least 1 over the square of the largest
    weight, so the integer quotients of both, multiplied by this square, are equal only if the fractions are.
    """
    divisor = gcd(*(part.weight for part in parts))
    for part in parts:
        part.weight //= divisor
    return max((part.weight for part in parts), default=1) ** 2
