"""The holds of `holding`, computed the obvious way: every node is cleared for every sweep, from all rows."""

from __future__ import annotations

from orchestrator.sharing.node_holds import NOTHING, Hold, Move, NodeHolds
from orchestrator.sharing.pool_rows import CLASSES, UNIT, Place, PoolClaim, Use
from orchestrator.sharing.view import View

Moves = dict[str, Move]


def holding(view: View) -> NodeHolds:
    """Return the holds of a pool."""
    rules = view.rules
    waiting = [
        use
        for use in view.uses.values()
        if use.pending_since is not None and view.now - use.pending_since >= rules.hold_after
    ]
    if not waiting or len(view.nodes) == 1:
        return NOTHING
    lapsed = {use.sweep for use in waiting if _has_lapsed(view, use)}
    starved = [use for use in waiting if use.sweep not in lapsed and not _beyond(view, use)]
    starved.sort(key=lambda use: _turn(view, use))
    holds: dict[str, Hold] = {}
    moves: dict[str, dict[str, Move]] = {}
    most = max(1, len(view.nodes) * rules.held_nodes // UNIT)

    def hold(sweep: str, nodes: dict[str, Moves | None], since: float) -> None:
        limit = most if holds else max(most, len(nodes))
        if len(holds) + len(nodes) > limit or None in nodes.values() or nodes.keys() & holds.keys():
            return
        for node, cleared in nodes.items():
            holds[node] = Hold(sweep, node, since)
            for other, move in (cleared or {}).items():
                moves.setdefault(other, {})[node] = move

    names = sorted(node.name for node in view.nodes)
    for use in starved:
        kept, count = (use.held_node or "").split(","), view.claims[use.sweep].nodes
        if len(kept) == count and set(kept) <= set(names) and use.held_since is not None:
            hold(use.sweep, {node: _cleared(view, use.sweep, node) for node in kept}, use.held_since)
    for use in starved:
        if holds and (len(holds) >= most or any(one.sweep == use.sweep for one in holds.values())):
            continue
        options = [
            (_loss(view, node, cleared), node, cleared)
            for node in names
            if node not in holds and (cleared := _cleared(view, use.sweep, node)) is not None
        ]
        options.sort(key=lambda option: option[:2])
        count = view.claims[use.sweep].nodes
        if len(options) >= count and len([1 for *_, cleared in options if not cleared]) < count:
            hold(use.sweep, {node: cleared for _, node, cleared in options[:count]}, view.now)
    return NodeHolds(holds, moves, lapsed, {name: free(view, name) for name in names} if holds else {})


def free(view: View, node: str) -> tuple[int, int]:
    """Return the devices and cores of a node that no attempt uses."""
    [row] = [one for one in view.nodes if one.name == node]
    placed = _placed(view, node)
    return (
        row.devices - sum(place.devices for _, place in placed),
        row.cpu - sum(place.trials * claim.cpu for claim, place in placed),
    )


def _has_lapsed(view: View, use: Use) -> bool:
    if use.held_since is None or use.pending_since is None or use.pending_since > use.held_since:
        return False
    return view.now - use.held_since >= view.rules.hold_for


def _beyond(view: View, use: Use) -> int:
    return max(0, use.trials - view.shares[use.sweep].trials)


def _turn(view: View, use: Use) -> tuple[int, float, float, str]:
    claim = view.claims[use.sweep]
    return CLASSES.index(claim.priority_class), use.pending_since or 0.0, claim.created, claim.sweep


def _placed(view: View, node: str) -> list[tuple[PoolClaim, Place]]:
    return [
        (view.claims[sweep], place)
        for sweep, use in view.uses.items()
        for place in use.places
        if place.node == node
    ]


def _cleared(view: View, sweep: str, node: str) -> Moves | None:
    """Return what leaves a node so that a trial of a sweep fits; None if it would not fit."""
    claim = view.claims[sweep]
    needed_devices, needed_cpu = claim.on_node
    has_devices, has_cpu = free(view, node)
    devices = needed_devices - has_devices if needed_devices else 0
    cpu, moves = needed_cpu - has_cpu, {}

    def order(entry: tuple[PoolClaim, Place]) -> tuple[bool, int, bool, int, float, str]:
        other, place = entry
        is_within = not _beyond(view, view.uses[other.sweep])
        rank, is_young = CLASSES.index(other.priority_class), place.ready < place.trials
        return is_within, -rank, is_young, -other.cpu, -other.created, other.sweep

    for other, place in sorted(_placed(view, node), key=order):
        use = view.uses[other.sweep]
        may_leave = place.trials
        shared_may_leave = place.devices // other.gpu if other.slots > 1 else 0
        is_higher = CLASSES.index(other.priority_class) < CLASSES.index(claim.priority_class)
        if is_higher or other.on_node >= claim.on_node:
            may_leave = min(may_leave, _beyond(view, use))
            beyond_devices = max(0, use.devices - view.shares[other.sweep].devices) // other.gpu
            shared_may_leave = min(shared_may_leave, beyond_devices)
        of_devices = -(-max(0, devices) // other.on_node[0]) if other.on_node[0] else 0
        trials = min(may_leave, max(of_devices, -(-max(0, cpu) // other.cpu)))
        shared = min(shared_may_leave, -(-max(0, devices) // other.gpu))
        if trials or shared:
            moves[other.sweep] = Move(trials, shared)
            devices -= trials * other.on_node[0] + shared * other.gpu
            cpu -= trials * other.cpu
    return moves if devices <= 0 and cpu <= 0 else None


def _loss(view: View, node: str, moves: Moves) -> tuple[int, int]:
    devices = cpu = unready = 0
    for sweep, move in moves.items():
        claim, use = view.claims[sweep], view.uses[sweep]
        [place] = [place for place in use.places if place.node == node]
        one = max(1, claim.all_devices)
        per_device = max(1, use.trials // max(1, use.devices // one))
        lost = max(move.trials, move.devices * per_device)
        devices += move.trials * claim.on_node[0] + move.devices * claim.gpu
        cpu += lost * claim.cpu
        unready += max(0, lost - place.ready)
    return view.capacity.dominant(cpu, devices), unready
