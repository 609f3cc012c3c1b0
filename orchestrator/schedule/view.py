"""What a driver sees of its cluster: the nodes that are alive, and what the autoscaler may add."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import ray
from ray._private.state import state
from ray.autoscaler.sdk import request_resources

from orchestrator.machines.hardware import Node, fitting, why_none

LOOK_SECONDS = 1.0


class View:
    """The cluster as it is, looked at once a second at most.

    Args:
        cpu: processors of one attempt.
        gpu: share of a GPU of one attempt.
    """

    def __init__(self, cpu: float, gpu: float) -> None:
        self._cpu, self._gpu = cpu, gpu
        self._looked_at = float("-inf")
        self._nodes: list[Node] = []
        self._asked_for = 0
        self._grows = state.get_cluster_config() is not None

    def capacity(self) -> int:
        """Return how many attempts fit on the nodes that are alive and stay."""
        return fitting(self._look(), self._cpu, self._gpu)

    def lack(self) -> str:
        """Return why no attempt starts now."""
        return why_none(self._look(), self._cpu, self._gpu)

    def ask_for(self, attempts: int) -> None:
        """Tell the autoscaler, where there is one, how many attempts would run at once if they could."""
        if self._grows and attempts != self._asked_for:
            bundle = {name: share for name, share in (("CPU", self._cpu), ("GPU", self._gpu)) if share}
            request_resources(bundles=[bundle] * attempts)
            self._asked_for = attempts

    def _look(self) -> list[Node]:
        if time.monotonic() - self._looked_at >= LOOK_SECONDS:
            free = state.available_resources_per_node()
            leaving = state.get_draining_nodes()
            staying = (each for each in ray.nodes() if each["Alive"] and each["NodeID"] not in leaving)
            self._nodes = [_node(each["Resources"], free.get(each["NodeID"], {})) for each in staying]
            self._looked_at = time.monotonic()
        return self._nodes


def _node(there: dict[str, float], free: dict[str, float]) -> Node:
    return Node(there.get("CPU", 0.0), there.get("GPU", 0.0), free.get("CPU", 0.0), free.get("GPU", 0.0))


def kinds(config: Any) -> Iterator[Node]:
    """Yield the kinds of nodes that an autoscaler may add.

    Args:
        config: Ray's `ClusterConfig` message, or None where nothing scales.
    """
    groups: Iterable[Any] = config.node_group_configs if config is not None else ()
    for group in groups:
        if group.max_count != 0:
            yield Node(group.resources.get("CPU", 0), group.resources.get("GPU", 0))
