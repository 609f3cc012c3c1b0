"""View of a pool at a moment, the same for every driver: shares, free resources, shortages.

A sweep is short while it holds less than its share and wants more. Meanwhile a place is reserved for it:
other sweeps start no trials above their own shares. After `shed_after` they give up trials, unless enough is
free. If a granted attempt has waited for a worker for `hold_after`, the free resources are fragmented, and a
node is held for it (`holding`). If no node can be held, the reservation lapses after `lapse_after`, and other
sweeps may use the fragments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from orchestrator.sharing.capacity import Capacity
from orchestrator.sharing.fill import fill, hours_spent
from orchestrator.sharing.node_holds import Move, NodeHolds, open_places
from orchestrator.sharing.node_holds import node_holds as held
from orchestrator.sharing.pool_rows import (
    CLASSES,
    RULES,
    UNIT,
    Owner,
    PoolClaim,
    PoolNode,
    Rules,
    Share,
    Snapshot,
    Use,
)

NODE_LETTERS = 12
"""Number of characters of a node's id in messages; Ray's ids have 56."""


@dataclass(frozen=True)
class View:
    """A pool at a moment. Only live claims appear in it.

    Attributes:
        now: Time by the clock of the database's server.
        rules: Rules of the pool.
        nodes: Nodes of the pool.
        capacity: Capacity of all nodes.
        owners: Rows of owners by name; use `owner_of` for an owner that may have no row.
        claims: Live claims by sweep.
        uses: Uses by sweep.
        shares: Shares by sweep.
    """

    now: float
    rules: Rules
    nodes: tuple[PoolNode, ...]
    capacity: Capacity
    owners: Mapping[str, Owner]
    claims: Mapping[str, PoolClaim]
    uses: Mapping[str, Use]
    shares: Mapping[str, Share]

    @classmethod
    def of(cls, snapshot: Snapshot, now: float, rules: Rules = RULES) -> View:
        """Derive the shares from rows. Expired claims are left out, and their resources are free."""
        uses = {use.sweep: use for use in snapshot.uses if now - use.renewed_at <= rules.dead_after}
        capacity = Capacity.of(snapshot.nodes)
        claims = {claim.sweep: claim for claim in snapshot.claims if claim.sweep in uses}
        # What a sweep wants beyond the whole pool changes no share. Without it, and in one order, the rows
        # change rarely, and so are rarely filled again.
        live = tuple([_limited(claims[sweep], capacity.cpu) for sweep in sorted(claims)])
        return cls(
            now=now,
            rules=rules,
            nodes=snapshot.nodes,
            capacity=capacity,
            owners={owner.name: owner for owner in snapshot.owners},
            claims=claims,
            uses=uses,
            shares=_filled(snapshot.nodes, tuple(sorted(snapshot.owners, key=_name)), live, rules),
        )

    def among(self, claims: Mapping[str, PoolClaim]) -> View:
        """Return this pool with other claims, without uses and shares."""
        return replace(self, claims=claims, uses={}, shares={})

    def owner_of(self, claim: PoolClaim) -> Owner:
        """Return the row of a claim's owner, or the defaults."""
        return self.owners.get(claim.owner) or Owner(claim.owner)

    @cached_property
    def holding(self) -> NodeHolds:
        """The nodes that are held for attempts, and the trials to preempt there."""
        return held(self.nodes, self.claims, self.uses, self.shares, self.now, self.rules)

    @cached_property
    def free(self) -> tuple[int, int]:
        """Cores and GPUs (1/10,000) that no attempt holds; attempts of lapsed reservations hold none."""
        cpu, devices = self.capacity.cpu, self.capacity.devices
        for sweep, claim in self.claims.items():
            use = self.uses[sweep]
            waiting = use.pending if self.has_lapsed(sweep) else 0
            cpu -= (use.trials - waiting) * claim.all_cpu
            devices -= use.devices - (waiting * claim.all_devices if claim.slots == 1 else 0)
        return max(0, cpu), max(0, devices)

    def fits(self, sweep: str) -> bool:
        """Return True if the free resources, summed over all nodes, suffice for one more trial of a sweep."""
        claim, use = self.claims[sweep], self.uses[sweep]
        cpu, devices = self.free
        return cpu >= claim.all_cpu and (devices >= claim.all_devices or has_slot(claim, use))

    def shortage(self, sweep: str) -> int:
        """Return the number of trials that a sweep lacks to its share; 0 if it lacks none."""
        return max(0, self.shares[sweep].trials - self.uses[sweep].trials)

    def has_lapsed(self, sweep: str) -> bool:
        """Return True if the reservation of a sweep has lapsed, because its attempts have waited too long."""
        since = self.uses[sweep].pending_since
        has_waited = since is not None and self.now - since >= self.rules.lapse_after
        return has_waited and not self.holding.of(sweep)

    def reserves(self, sweep: str) -> bool:
        """Return True if places are reserved for a sweep: it is short, and the reservation has not lapsed."""
        return self.shortage(sweep) > 0 and not self.has_lapsed(sweep)

    def may_start(self, sweep: str) -> bool:
        """Return True if a sweep may start one more attempt now.

        Within its share, a sweep may start any attempt that fits on nodes that are not held for another
        sweep. Beyond its share, it may start one only while no place is reserved for another sweep and its
        owner's quotas allow it. For a sweep that is alone in its pool, Ray decides what fits.
        """
        claim, use = self.claims[sweep], self.uses[sweep]
        others = self.claims.keys() - {sweep}
        if use.trials >= claim.want:
            return False
        if others and (use.pending >= self.rules.pending or not self.fits(sweep)):
            return False
        if self.holding.by_node and not self._has_open_place(sweep):
            return False
        if use.trials < self.shares[sweep].trials:
            return True
        return self.within_quotas(claim, claim.all_cpu) and not any(self.reserves(other) for other in others)

    def _has_open_place(self, sweep: str) -> bool:
        """Return True if a trial of a sweep fits a node that is not held for another one.

        Waiting attempts without a held node count as if they used such places.
        """
        waiting = sum(
            use.pending
            for other, use in self.uses.items()
            if use.pending and (other == sweep or not (self.holding.of(other) or self.has_lapsed(other)))
        )
        return open_places(self.claims[sweep], self.holding) > waiting

    def within_quotas(self, claim: PoolClaim, more_cpu: int = 0) -> bool:
        """Return True if the resources of an owner's sweeps are within the owner's quotas.

        Args:
            claim: Claim of a sweep of the owner.
            more_cpu: Further cores (1/10,000) to hold, with the GPUs of a bundle of the claim.
        """
        if (owner := self.owners.get(claim.owner)) is None:
            return True  # only a row sets quotas
        if hours_spent(owner, claim) or not owner.most_share:
            return False
        if owner.most_share >= UNIT:
            return True
        cpu, devices = self.held_by(claim.owner)
        if not cpu:
            return True
        part = self.capacity.dominant(cpu + more_cpu, devices + (claim.all_devices if more_cpu else 0))
        return part * UNIT <= self.capacity.whole * owner.most_share

    def held_by(self, owner: str) -> tuple[int, int]:
        """Return the cores and GPUs (1/10,000) that an owner's sweeps hold."""
        return self._held.get(owner, (0, 0))

    @cached_property
    def _held(self) -> Mapping[str, tuple[int, int]]:
        """Cores and devices by owner, computed in one pass because a decision needs those of every sweep."""
        held: dict[str, tuple[int, int]] = {}
        for sweep, claim in self.claims.items():
            use, (cpu, devices) = self.uses[sweep], held.get(claim.owner, (0, 0))
            held[claim.owner] = cpu + use.trials * claim.all_cpu, devices + use.devices
        return held

    @property
    def oldest(self) -> str | None:
        """The oldest sweep, the same for every driver; None in an empty pool."""
        oldest = min(self.claims.values(), key=lambda claim: (claim.created, claim.sweep), default=None)
        return oldest.sweep if oldest else None

    def queue(self) -> list[str]:
        """Return the sweeps that hold nothing, the next one first.

        They are ordered by class, past use of their owners by weight, age, and id.
        """

        def order(claim: PoolClaim) -> tuple[int, int, float, str]:
            owner = self.owner_of(claim)
            use = owner.used * UNIT // owner.weight // self.rules.use_step
            return CLASSES.index(claim.priority_class), use, claim.created, claim.sweep

        waiting = [
            claim for claim in self.claims.values() if claim.want and not self.uses[claim.sweep].trials
        ]
        return [claim.sweep for claim in sorted(waiting, key=order)]

    def why_waiting(self, sweep: str) -> str | None:
        """Return the reason why a sweep with demand holds nothing, or None."""
        claim, share = self.claims[sweep], self.shares[sweep].trials
        if not claim.want or self.uses[sweep].trials:
            return None
        owner = self.owner_of(claim)
        if hours_spent(owner, claim):
            return f"owner {owner.name} has used the quota of {owner.most_gpu_hours:g} GPU-hours of this week"
        if not owner.most_share:
            return f"owner {owner.name} has a quota of 0 % of the pool"
        if not share:
            return "the pool has no share for it yet"
        if others := len(self.claims) - 1:
            sweeps = "another sweep" if others == 1 else f"{others} other sweeps"
            return f"its share of {share} trial{'s' * (share > 1)} is still held by {sweeps}"
        return None

    def about_holds(self, sweep: str) -> str | None:
        """Return a message about the held nodes that affect a sweep, or None."""
        if own := self.holding.of(sweep):
            nodes = f"node {own[0].node[:NODE_LETTERS]}"
            if len(own) > 1:
                nodes = f"nodes {' and '.join(hold.node[:NODE_LETTERS] for hold in own)}"
            fits = (
                f"that needs {self.claims[sweep].nodes} nodes"
                if self.claims[sweep].nodes > 1
                else "that fits no node"
            )
            return f"holds {nodes} for a trial {fits}"
        for node, move in sorted(self.holding.moves.get(sweep, {}).items()):
            parts = [f"the trials of {_counted(move.devices, 'GPU')}"] if move.devices else []
            parts += [_counted(move.trials, "trial")] if move.trials else []
            leave = "leaves" if move == Move(1) else "leave"
            return f"{' and '.join(parts)} {leave} {self._held_for_another(node)}"
        if self.shortage(sweep) and self.holding.by_node and not self._has_open_place(sweep):
            return f"has room only on {self._held_for_another(min(self.holding.by_node))}"
        return None

    def _held_for_another(self, node: str) -> str:
        holder = self.holding.by_node[node].sweep
        return f"node {node[:NODE_LETTERS]}, which is held for a trial of sweep {holder}"


def renewed(view: View, use: Use) -> Use:
    """Return the row that a driver writes for its sweep, with the starts of a shortage and a hold.

    Args:
        view: View of the pool, including `use`.
        use: Use of the driver's own sweep.
    """
    since = view.now if use.short_since is None else use.short_since
    held_node, held_since = view.holding.recorded(use)
    return replace(
        use,
        renewed_at=view.now,
        short_since=since if view.shortage(use.sweep) else None,
        held_node=held_node,
        held_since=held_since,
    )


def has_slot(claim: PoolClaim, use: Use) -> bool:
    """Return True if one of the devices that a sweep holds has a slot for one more trial."""
    return use.devices * claim.slots > use.trials * claim.all_devices


def _limited(claim: PoolClaim, cpu: int) -> PoolClaim:
    most = cpu // claim.all_cpu
    return claim if claim.want <= most else replace(claim, want=most)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number > 1)}"


def _name(owner: Owner) -> str:
    return owner.name


_filled = lru_cache(maxsize=8)(fill)
"""`fill`, computed once for the same rows. The rows are the key, so a cached result is never out of date."""
