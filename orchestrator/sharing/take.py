"""Where a sweep may start its next trial now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from orchestrator.sharing.ceiling import allows
from orchestrator.sharing.hold import held_by_others, owed
from orchestrator.sharing.room import Room
from orchestrator.sharing.rows import Claim, Holding, Snapshot
from orchestrator.sharing.shortage import reserves, shortage
from orchestrator.sharing.view import View


@dataclass(frozen=True, slots=True)
class Grant:
    """The right to start one trial.

    Attributes:
        sweep: of the trial.
        node: name of the node.
        device: index of a device on it that no other sweep uses; None without a GPU.
    """

    sweep: str
    node: str
    device: int | None


def take(view: View, sweep: str) -> Grant | None:
    """Return where a sweep may start one more trial, or None if it must not or cannot.

    Within its share a sweep takes any room in which the trial fits. Beyond it, only while no room is reserved
    for another sweep. Nodes that are held for another sweep are left out in both cases.
    """
    claim = view.claims[sweep]
    held = view.occupancy.of(sweep)
    if held.trials >= claim.limit:
        return None
    lacking = shortage(view, sweep)
    if lacking is None and not _may_exceed(view, claim):
        return None
    nodes = view.nodes.keys() - held_by_others(view, sweep)
    if lacking is not None and claim.device and not lacking.devices:
        return open_slot(view, claim, nodes)
    trials = claim.limit - held.trials if lacking is None else lacking.trials
    first = owed(view, claim).keys() & nodes
    return (
        open_slot(view, claim, nodes)
        or on_node(view, claim, first, trials)
        or on_node(view, claim, nodes, trials)
    )


def open_slot(view: View, claim: Claim, nodes: Iterable[str]) -> Grant | None:
    """Return an empty slot on the fullest device of a sweep that has one and free cores beside it.

    Args:
        view: of the pool.
        claim: of the sweep.
        nodes: that may be used.
    """
    found = [
        (-row.trials, node, index)
        for node in view.occupancy.nodes_of(claim.sweep)
        if node in nodes and view.occupancy.free_cpu[node] >= claim.cpu
        for index, row in view.occupancy.by_device[node].items()
        if row.sweep == claim.sweep and row.trials < claim.slots
    ]
    return Grant(claim.sweep, *min(found)[1:]) if found else None


def on_node(view: View, claim: Claim, nodes: Iterable[str], trials: int) -> Grant | None:
    """Return room for the first trial of a new bundle on the node where the bundle fits best.

    Args:
        view: of the pool.
        claim: of the sweep.
        nodes: that may be used.
        trials: that the sweep can still start; the bundle has at most so many.
    """
    names, free = sorted(nodes), view.occupancy
    room = Room((free.free_devices[name], free.free_cpu[name]) for name in names)
    spot = room.take(claim.cpu, min(claim.bundle, trials), claim.device)
    if spot is None:
        return None
    node = names[spot[0]]
    used = free.by_device[node]
    unused = (index for index in range(view.nodes[node].devices) if index not in used)
    return Grant(claim.sweep, node, next(unused) if claim.device else None)


def taken(snapshot: Snapshot, grant: Grant) -> tuple[Holding, ...]:
    """Return the holdings of a snapshot after the trial of a grant was added to them."""
    key = (grant.sweep, grant.node, grant.device)
    rows = {(row.sweep, row.node, row.device): row for row in snapshot.holdings}
    old = rows.get(key, Holding(*key, trials=0))
    rows[key] = Holding(*key, trials=old.trials + 1, leaving=old.leaving)
    return tuple(rows.values())


def readmitted(view: View, claim: Claim, holdings: Iterable[Holding]) -> tuple[Holding, ...]:
    """Return which holdings a driver may keep whose claim had expired while its trials trained on.

    Other sweeps may have taken their room since. Trials that are not in the answer must end.

    Args:
        view: without the claim.
        claim: that is written again.
        holdings: of all trials that still run.
    """
    cpu, kept = dict(view.occupancy.free_cpu), []
    for row in sorted(holdings, key=lambda row: (row.node, row.device or 0)):
        if row.node not in view.nodes or row.device in view.occupancy.by_device[row.node]:
            continue
        trials = min(row.trials, max(0, cpu[row.node]) // claim.cpu)
        if trials:
            cpu[row.node] -= trials * claim.cpu
            kept.append(replace(row, trials=trials, leaving=min(trials, row.leaving)))
    return tuple(kept)


def _may_exceed(view: View, claim: Claim) -> bool:
    """Return True if a sweep may take room above its share."""
    if any(reserves(view, other) for other in view.claims if other != claim.sweep):
        return False
    return allows(view, claim)
