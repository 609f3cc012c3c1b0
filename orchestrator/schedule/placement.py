"""Placement of attempts on nodes that are not reserved for other sweeps.

Ray starts an attempt on any node with room for it. A label selector restricts that; every node has its id as
a label. A selector cannot be changed, so an attempt that waits under an outdated selector is withdrawn and
launched again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from orchestrator.assignment import Assignment
from orchestrator.schedule import ray_private

NODE_LABEL = "ray.io/node-id"
"""Label of every node of a Ray cluster."""


def selector(avoided: Collection[str]) -> dict[str, str]:
    """Return the label selector of all nodes except the avoided ones; an empty one if none is avoided."""
    return {NODE_LABEL: f"!in({','.join(sorted(avoided))})"} if avoided else {}


def of_bundles(avoided: Collection[str], nodes: int = 1) -> dict[str, Any]:
    """Return the arguments of a placement group with one bundle per node, avoided nodes excluded."""
    apart = {"strategy": "STRICT_SPREAD"} if nodes > 1 else {}
    return {**apart, **({"bundle_label_selector": [selector(avoided)] * nodes} if avoided else {})}


class Placement:
    """Nodes of one driver's attempts.

    Attributes:
        closed: Ids of the nodes that are reserved for other sweeps.
        nodes: Nodes of each attempt that a worker has taken, by attempt id.
    """

    def __init__(self) -> None:
        self.closed: frozenset[str] = frozenset()
        self._avoided: dict[str, frozenset[str]] = {}
        self.nodes: Mapping[str, Collection[str]] = {}

    def avoiding(self, assignment: Assignment) -> Assignment:
        """Return the assignment, set to avoid the nodes that are reserved for other sweeps."""
        self._avoided[assignment.attempt_id] = self.closed
        return replace(assignment, avoided=tuple(sorted(self.closed)))

    def look(self, controller: Any, started: Iterable[str], running: Collection[str]) -> None:
        """Find the nodes of attempts.

        Args:
            controller: Tune's controller.
            started: Ids of the attempts that a worker has taken.
            running: Ids of all attempts that were launched and have not ended; others are forgotten.
        """
        known = {name: node for name, node in self.nodes.items() if name in running}
        self._avoided = {name: nodes for name, nodes in self._avoided.items() if name in running}
        unknown = {name for name in started if name not in known}
        self.nodes = known | (ray_private.nodes_of(controller, unknown) if unknown else {})

    def take_back(self, controller: Any, before: Callable[[str], object]) -> None:
        """Withdraw the attempts that wait for resources under outdated reservations.

        `before` is called with the id of each attempt before it ends.
        """
        outdated = [name for name, avoided in self._avoided.items() if avoided != self.closed]
        waiting = ray_private.waiting_for_resources(controller, outdated) if outdated else ()
        for name in waiting:
            before(name)
        if waiting:
            ray_private.take_back(controller, waiting)
