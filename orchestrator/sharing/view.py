"""A snapshot at a moment, with everything that decisions derive from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from orchestrator.sharing.capacity import Capacity
from orchestrator.sharing.fill import fill
from orchestrator.sharing.occupancy import Occupancy
from orchestrator.sharing.rows import Claim, DriverState, Node, Owner, Share, Snapshot
from orchestrator.sharing.rules import RULES, Rules


@dataclass(frozen=True, slots=True)
class View:
    """What a driver sees of the pool. Only live claims appear in it.

    Attributes:
        now: time of the database server's clock.
        rules: of the pool.
        nodes: by name.
        capacity: of all nodes.
        owners: rows by name; use `owner_of` for an owner that may have none.
        claims: live claims by sweep.
        states: of their drivers, by sweep.
        shares: by sweep.
        occupancy: what the live claims hold.
    """

    now: float
    rules: Rules
    nodes: Mapping[str, Node]
    capacity: Capacity
    owners: Mapping[str, Owner]
    claims: Mapping[str, Claim]
    states: Mapping[str, DriverState]
    shares: Mapping[str, Share]
    occupancy: Occupancy

    def owner_of(self, claim: Claim) -> Owner:
        """Return the row of a claim's owner, or the defaults."""
        return self.owners.get(claim.owner) or Owner(claim.owner)


def view(snapshot: Snapshot, now: float, rules: Rules = RULES) -> View:
    """Derive shares and occupancy from rows.

    Claims that have expired do not count, nor do their holdings: their room is free. A transaction that takes
    a trial on the strength of this must delete the rows of `expired` too, so that their driver cannot renew
    them.
    """
    dead = set(expired(snapshot, now, rules))
    states = {state.sweep: state for state in snapshot.states if state.sweep not in dead}
    live = tuple([claim for claim in snapshot.claims if claim.sweep in states])
    claims = {claim.sweep: claim for claim in live}
    nodes = snapshot.pool.nodes
    return View(
        now=now,
        rules=rules,
        nodes={node.name: node for node in nodes},
        capacity=Capacity.of(nodes),
        owners={owner.name: owner for owner in snapshot.owners},
        claims=claims,
        states=states,
        shares=_filled(nodes, snapshot.owners, live, rules),
        occupancy=Occupancy(nodes, claims, snapshot.holdings),
    )


def expired(snapshot: Snapshot, now: float, rules: Rules = RULES) -> tuple[str, ...]:
    """Return the sweeps whose drivers have not renewed their claims in time; their rows are to be deleted."""
    return tuple([state.sweep for state in snapshot.states if now - state.beat > rules.dead_after])


_filled = lru_cache(maxsize=8)(fill)
"""`fill`, computed once for the same rows. The rows are the key, so a cached result is never out of date."""
