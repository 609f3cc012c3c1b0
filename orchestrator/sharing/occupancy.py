"""What running trials take: by sweep, by node and by device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.sharing.rows import Claim, Holding, Node


@dataclass(slots=True)
class Held:
    """Trials and devices of a sweep, on one node or in all.

    Attributes:
        trials: that run, those that are leaving included.
        leaving: of these, the trials that are leaving.
        devices: that these trials run on.
        leaving_devices: of these, the devices all of whose trials are leaving.
    """

    trials: int = 0
    leaving: int = 0
    devices: int = 0
    leaving_devices: int = 0

    def add(self, holding: Holding) -> None:
        """Add the trials of one holding."""
        self.trials += holding.trials
        self.leaving += holding.leaving
        if holding.device is not None:
            self.devices += 1
            self.leaving_devices += holding.leaving >= holding.trials


NOTHING = Held()
"""Of a sweep that runs no trial."""


class Occupancy:
    """The holdings of live claims, added up; holdings of other sweeps and of lost nodes are not counted.

    Attributes:
        held: sweep -> what it holds in all.
        by_node: node -> sweep -> what it holds there.
        by_sweep: the same as sweep -> node.
        by_device: node -> index of a device -> its holding.
        free_cpu: node -> free cores in 1/10,000; below 0 if a node has become smaller.
        free_devices: node -> free devices; below 0 if a node has become smaller.
    """

    def __init__(
        self, nodes: Iterable[Node], claims: Mapping[str, Claim], holdings: Iterable[Holding]
    ) -> None:
        rows = tuple(nodes)
        self.held: dict[str, Held] = {}
        self.by_node: dict[str, dict[str, Held]] = {node.name: {} for node in rows}
        self.by_sweep: dict[str, dict[str, Held]] = {}
        self.by_device: dict[str, dict[int, Holding]] = {node.name: {} for node in rows}
        self.free_cpu = {node.name: node.cpu for node in rows}
        self.free_devices = {node.name: node.devices for node in rows}
        for holding in holdings:
            if holding.sweep in claims and holding.node in self.by_node:
                self._add(holding, claims[holding.sweep].cpu)

    def of(self, sweep: str) -> Held:
        """Return what a sweep holds in all."""
        return self.held.get(sweep, NOTHING)

    def at(self, node: str, sweep: str) -> Held:
        """Return what a sweep holds on a node."""
        return self.by_node[node].get(sweep, NOTHING)

    def nodes_of(self, sweep: str) -> Iterable[str]:
        """Return the nodes on which a sweep holds anything."""
        return self.by_sweep.get(sweep, ())

    def room_for(self, claim: Claim) -> bool:
        """Return True if the free room of all nodes together is enough for one trial."""
        if sum(max(0, cpu) for cpu in self.free_cpu.values()) < claim.cpu:
            return False
        if not claim.device or any(devices > 0 for devices in self.free_devices.values()):
            return True
        return any(self.open_slots(claim, node) > 0 for node in self.nodes_of(claim.sweep))

    def open_slots(self, claim: Claim, node: str) -> int:
        """Return the empty slots on a sweep's own devices of a node."""
        held = self.at(node, claim.sweep)
        return held.devices * claim.slots - held.trials

    def _add(self, holding: Holding, cpu: int) -> None:
        self.held.setdefault(holding.sweep, Held()).add(holding)
        at = self.by_node[holding.node].setdefault(holding.sweep, Held())
        self.by_sweep.setdefault(holding.sweep, {})[holding.node] = at
        at.add(holding)
        self.free_cpu[holding.node] -= holding.trials * cpu
        if holding.device is not None:
            self.by_device[holding.node][holding.device] = holding
            self.free_devices[holding.node] -= 1
