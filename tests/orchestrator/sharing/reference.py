"""The shares of `fill`, computed the obvious way: with fractions, and from all rows for every bundle."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from orchestrator.sharing.pool_rows import RULES, UNIT, Bundle, Owner, PoolClaim, PoolNode, Rules, Share


@dataclass
class _State:
    nodes: list[PoolNode]
    free: dict[str, list[int]]
    owners: dict[str, Owner]
    claims: list[PoolClaim]
    given: dict[str, list[Bundle]]
    ahead: dict[str, list[tuple[PoolClaim, int]]] = field(default_factory=dict)


def fill(
    nodes: Iterable[PoolNode], owners: Iterable[Owner], claims: Iterable[PoolClaim], rules: Rules = RULES
) -> dict[str, Share]:
    """Return the share of every claim."""
    machines, wanting = list(nodes), list(claims)
    rows = {claim.owner: Owner(claim.owner) for claim in wanting} | {owner.name: owner for owner in owners}
    free = {node.name: [node.devices, node.cpu] for node in machines}
    state = _State(machines, free, rows, wanting, {claim.sweep: [] for claim in wanting})
    if any(claim.priority_class == "urgent" for claim in wanting):
        _fill_class(state, rules, {"urgent"}, ahead=True, most=1)
        _fill_class(state, rules, {"normal"}, floor=Fraction(rules.normal_floor, UNIT))
        _fill_class(state, rules, {"urgent"}, ahead=True)
    _fill_class(state, rules, {"normal", "urgent"})
    _fill_class(state, rules, {"idle"})
    return {
        claim.sweep: Share(_trials(state, claim), claim.device * len(given), tuple(given))
        for claim in wanting
        for given in [state.given[claim.sweep]]
    }


def _fill_class(
    state: _State,
    rules: Rules,
    classes: set[str],
    ahead: bool = False,
    floor: Fraction | None = None,
    most: int | None = None,
) -> None:
    inside = [claim for claim in state.claims if claim.priority_class in classes]
    while most != 0:
        normal = [claim for claim in state.claims if claim.priority_class == "normal"]
        if floor is not None and _share(state, normal) >= floor:
            return
        inside = [claim for claim in inside if _left(state, claim) > 0]
        if not inside:
            return
        owner = min({claim.owner for claim in inside}, key=lambda name: _owner_key(state, rules, name))
        claim = min(
            (other for other in inside if other.owner == owner), key=lambda other: _claim_key(state, other)
        )
        trials = min(claim.slots or 1, _left(state, claim))
        while trials and not _allowed(state, rules, claim, trials, ahead):
            trials -= 1
        bundles: list[Bundle] = []
        while trials and len(bundles) < claim.nodes:
            bundle = _best(state, claim, trials, {one.node for one in bundles})
            if bundle is None:
                break
            bundles.append(bundle)
        if len(bundles) < claim.nodes:
            inside.remove(claim)
            continue
        for bundle in bundles:
            free = state.free[bundle.node]
            free[0] -= claim.device
            free[1] -= bundle.trials * claim.cpu
            state.given[claim.sweep].append(bundle)
            if ahead:
                state.ahead.setdefault(owner, []).append((claim, bundle.trials))
        most = None if most is None else most - 1


def _best(state: _State, claim: PoolClaim, trials: int, taken: set[str]) -> Bundle | None:
    options = []
    for index, node in enumerate(sorted(state.nodes, key=lambda node: node.name)):
        devices, cpu = state.free[node.name]
        fitting = min(trials, cpu // claim.cpu)
        if fitting and devices >= claim.device and node.name not in taken:
            options.append((-fitting, devices, cpu, index, node.name))
    return Bundle(min(options)[4], -min(options)[0]) if options else None


def _allowed(state: _State, rules: Rules, claim: PoolClaim, trials: int, ahead: bool) -> bool:
    owner = state.owners[claim.owner]
    held = [
        (own, bundle.trials)
        for own in state.claims
        if own.owner == claim.owner
        for bundle in state.given[own.sweep]
    ]
    if not _within(state, held, (claim, trials), Fraction(owner.most_share, UNIT)):
        return False
    before = state.ahead.get(claim.owner, [])
    return not ahead or _within(state, before, (claim, trials), Fraction(rules.urgent_cap, UNIT))


def _within(
    state: _State, held: list[tuple[PoolClaim, int]], more: tuple[PoolClaim, int], part: Fraction
) -> bool:
    return part > 0 if not held else _dominant(state, [*held, *[more] * more[0].nodes]) <= part


def _dominant(state: _State, bundles: list[tuple[PoolClaim, int]]) -> Fraction:
    cpu = Fraction(
        sum(claim.cpu * trials for claim, trials in bundles), sum(node.cpu for node in state.nodes)
    )
    pool = sum(node.devices for node in state.nodes)
    return max(cpu, Fraction(sum(claim.device for claim, _ in bundles), pool)) if pool else cpu


def _share(state: _State, claims: Iterable[PoolClaim]) -> Fraction:
    bundles = [(claim, bundle.trials) for claim in claims for bundle in state.given[claim.sweep]]
    return _dominant(state, bundles)


def _owner_key(state: _State, rules: Rules, name: str) -> tuple[Fraction, int, float, str]:
    own = [claim for claim in state.claims if claim.owner == name]
    row = state.owners[name]
    use = Fraction(row.used * UNIT, row.weight) // rules.use_step
    return _share(state, own) / row.weight, use, min(claim.created for claim in own), name


def _claim_key(state: _State, claim: PoolClaim) -> tuple[Fraction, float, str]:
    return _share(state, [claim]) / claim.weight, claim.created, claim.sweep


def _trials(state: _State, claim: PoolClaim) -> int:
    return sum(bundle.trials for bundle in state.given[claim.sweep]) // claim.nodes


def _left(state: _State, claim: PoolClaim) -> int:
    owner = state.owners[claim.owner]
    hours = owner.most_gpu_hours
    if claim.slots and hours is not None and owner.week_gpu_seconds >= hours * 3600:
        return 0
    most = claim.want
    return most - _trials(state, claim)
