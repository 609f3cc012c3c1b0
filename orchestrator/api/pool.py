"""The clusters on which sweeps run: their machines, and which sweep uses how much of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator.api.workspace import Workspace
from orchestrator.ledger import claims
from orchestrator.sharing.rows import UNIT, PriorityClass
from orchestrator.sharing.view import View


@dataclass(frozen=True)
class Machine:
    """A machine of a pool.

    Attributes:
        name: unique in the pool: Ray's id of the node.
        cpu: cores that trials may use.
        devices: GPUs that trials may use.
        shares: trials by sweep that the shares place on it; the trials may run elsewhere as well.
    """

    name: str
    cpu: float
    devices: int
    shares: Mapping[str, int]


@dataclass(frozen=True)
class PoolUse:
    """What a sweep holds of a pool.

    Attributes:
        sweep: its id.
        owner: in whose name it runs.
        priority_class: `urgent`, `normal` or `idle`.
        trials: that run or are about to.
        wanted: trials that it could run at once.
        share: trials that it may run at once.
        cpu: cores that its trials hold.
        devices: GPUs that its trials hold.
    """

    sweep: str
    owner: str
    priority_class: PriorityClass
    trials: int
    wanted: int
    share: int
    cpu: float
    devices: int


@dataclass(frozen=True)
class Pool:
    """A Ray cluster on which sweeps run.

    Attributes:
        id: of the cluster.
        cpu: cores that trials may use.
        devices: GPUs that trials may use.
        free_cpu: of these cores, those that no trial holds.
        free_devices: of these GPUs, those that no trial holds.
        nodes: the machines.
        uses: what each sweep holds, by its id.
        running: number of running trials by host and sweep; a trial counts from its first report.
    """

    id: str
    cpu: float
    devices: int
    free_cpu: float
    free_devices: int
    nodes: Sequence[Machine]
    uses: Sequence[PoolUse]
    running: Mapping[str, Mapping[str, int]]

    def document(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def pools(*, root: str | Path | None = None) -> Sequence[Pool]:
    """Return the clusters on which sweeps run now.

    Args:
        root: folder of everything that sweeps write; if None, `SWEEP_ROOT` or else `mlruns`.

    Raises:
        BadInput: there is no ledger.
    """
    with Workspace.at(root).ledger() as ledger:
        views = claims.pools(ledger)
        running = {
            sweep: ledger.running_by_node(sweep) for view in views.values() for sweep in sorted(view.claims)
        }
    return [pool_of(pool_id, view, running) for pool_id, view in views.items()]


def pool_of(pool_id: str, view: View, running: Mapping[str, Mapping[str | None, int]]) -> Pool:
    """Return a pool as its drivers see it.

    Args:
        pool_id: id of the cluster.
        view: of the cluster.
        running: number of running trials by host, by sweep; also of sweeps elsewhere.
    """
    free_cpu, free_devices = view.free
    machines = [
        Machine(
            node.name,
            node.cpu / UNIT,
            node.devices,
            _placed(view, node.name),
        )
        for node in view.nodes
    ]
    return Pool(
        pool_id,
        view.capacity.cpu / UNIT,
        view.capacity.devices,
        free_cpu / UNIT,
        free_devices,
        machines,
        [_use(view, sweep) for sweep in sorted(view.claims)],
        _by_host({sweep: running.get(sweep, {}) for sweep in sorted(view.claims)}),
    )


def _placed(view: View, node: str) -> dict[str, int]:
    """Return the trials that the shares place on a node, by sweep."""
    bundles = [(sweep, bundle) for sweep, share in sorted(view.shares.items()) for bundle in share.bundles]
    placed: Counter[str] = Counter()
    for sweep, bundle in bundles:
        if bundle.node == node:
            placed[sweep] += bundle.trials
    return dict(placed)


def _by_host(running: Mapping[str, Mapping[str | None, int]]) -> dict[str, dict[str, int]]:
    hosts: dict[str, dict[str, int]] = {}
    for sweep, counts in running.items():
        for host, trials in counts.items():
            if host is not None:
                hosts.setdefault(host, {})[sweep] = trials
    return hosts


def _use(view: View, sweep: str) -> PoolUse:
    claim, use = view.claims[sweep], view.uses[sweep]
    return PoolUse(
        sweep,
        claim.owner,
        claim.priority_class,
        use.trials,
        claim.want,
        view.shares[sweep].trials,
        use.trials * claim.cpu / UNIT,
        use.devices,
    )
