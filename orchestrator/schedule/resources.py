"""The resources of a cluster: before this process joins it, and while a sweep runs on it.

`python -m orchestrator.schedule.resources HOST:PORT` exits with 0 if the cluster answers without a token,
with `REFUSED` if it refuses a connection without one, and with any other code if it does not answer.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping

import ray
from ray.autoscaler.sdk import request_resources
from ray.exceptions import AuthenticationError, RpcError

from orchestrator.errors import BadInput, NoCluster
from orchestrator.machines.hardware import Hardware, Node, fitting, why_none
from orchestrator.process_secrets import without_secrets
from orchestrator.schedule import ray_private

REFUSED = 3
CONNECT_SECONDS = 5.0
LOOK_SECONDS = 1.0
"""Time for which `AvailableResources` caches the nodes."""

REQUEST_SECONDS = 30.0
"""Interval after which an unchanged request is repeated, because another driver may have overwritten it."""


class AvailableResources:
    """Resources of the joined cluster for attempts with `cpu` processors and `gpu` GPUs on each node.

    They are read at most once a second.
    """

    def __init__(self, cpu: float, gpu: float, per_attempt: int = 1) -> None:
        self._cpu, self._gpu, self._per_attempt = cpu, gpu, per_attempt
        self._read_at = float("-inf")
        self._nodes: dict[str, Node] = {}
        self._requested: Counter[tuple[float, float]] = Counter()
        self._requested_at = float("-inf")

    def capacity(self) -> int:
        """Return the number of attempts that fit on the nodes that are alive and not drained."""
        return fitting(self.nodes().values(), self._cpu, self._gpu, self._per_attempt)

    def devices(self) -> int:
        """Return the number of GPUs of the nodes that are alive and not drained."""
        return sum(int(node.gpus) for node in self.nodes().values())

    def shortage(self) -> str:
        """Return the reason why no attempt can start now."""
        return why_none(list(self.nodes().values()), self._cpu, self._gpu, self._per_attempt)

    def placed(self) -> bool:
        """Return True if an attempt of this driver has its resources and waits for no process with a GPU."""
        return ray_private.has_placement_group() and not (self._gpu and ray_private.waits_for_gpu())

    def request(self, attempts: Counter[tuple[float, float]]) -> None:
        """Request the resources of attempts from the cluster's autoscaler, if it has one.

        The cluster keeps only the last request of any driver, so one driver requests for all sweeps. It
        repeats the request, because a delayed driver may have overwritten it.

        Args:
            attempts: Number of attempts by processors and GPUs, an attempt on several nodes once for each.
        """
        now = time.monotonic()
        if attempts != self._requested or now - self._requested_at >= REQUEST_SECONDS:
            request_resources(bundles=[_bundle(*amounts) for amounts in sorted(attempts.elements())])
            self._requested, self._requested_at = attempts, now

    def nodes(self) -> Mapping[str, Node]:
        """Return the nodes that are alive and not drained, by id."""
        if time.monotonic() - self._read_at >= LOOK_SECONDS:
            free, draining = ray_private.free_resources(), ray_private.draining_nodes()
            staying = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in draining]
            self._nodes = {
                node["NodeID"]: _node(node["Resources"], free.get(node["NodeID"], {})) for node in staying
            }
            self._read_at = time.monotonic()
        return self._nodes


def _bundle(cpu: float, gpu: float) -> dict[str, float]:
    return {name: amount for name, amount in (("CPU", cpu), ("GPU", gpu)) if amount}


def _node(total: Mapping[str, float], free: Mapping[str, float]) -> Node:
    return Node(total.get("CPU", 0.0), total.get("GPU", 0.0), free.get("CPU", 0.0), free.get("GPU", 0.0))


def cluster_hardware(address: str) -> Hardware:
    """Return the largest nodes that a cluster has or its autoscaler may add, without joining it.

    Raises:
        BadInput: The address is one of Ray's client, or the cluster answers without a token or refuses the
            token of this process.
        NoCluster: It does not answer, or has neither a node nor an autoscaler to add one.
    """
    head = _reachable(address)
    _refuse_open(address, head)
    try:
        cluster = ray_private.cluster_state(head)
    except AuthenticationError:
        must = "does not accept the token of this process"
        remedy = "Copy its token to this machine; set RAY_AUTH_TOKEN_PATH to it."
        raise BadInput(f"RAY_ADDRESS={address}", must, "", remedy) from None
    except RpcError as error:
        raise no_answer(address, str(error)) from error
    nodes = [_node(total, {}) for _, total in cluster.nodes]
    addable = [_node(total, {}) for total in cluster.addable]
    if not nodes and not addable:
        must, remedy = "must have a node, or an autoscaler that adds one", "Start one with `ray start`."
        raise NoCluster(f"RAY_ADDRESS={address}", must, "", remedy)
    return Hardware.of([*nodes, *addable], hosts=len({host for host, _ in cluster.nodes}) + len(addable))


def _reachable(address: str) -> str:
    """Return `host:port` of a cluster's head that accepts connections."""
    if "://" in address:
        remedy = "Set it to the head's own address, host:6379, from a machine of its network."
        raise BadInput("RAY_ADDRESS", "must be reached directly, not through Ray's client", address, remedy)
    try:
        head = ray_private.host_and_port(address)
        host, _, port = head.rpartition(":")
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise no_answer(address, str(error)) from error
    return head


def no_answer(address: str, got: str) -> NoCluster:
    """Return the refusal of a cluster that does not answer."""
    remedy = "Start it, or unset RAY_ADDRESS."
    return NoCluster(f"RAY_ADDRESS={address}", "does not answer as a Ray cluster", got, remedy)


def _refuse_open(address: str, head: str) -> None:
    """Refuse a cluster that accepts connections without a token: anyone could run code on it."""
    known = without_secrets(os.environ)
    bare = {name: value for name, value in known.items() if not name.startswith("RAY_AUTH")}
    # In a process of its own, because Ray reads its authentication mode once.
    probe = [sys.executable, "-m", "orchestrator.schedule.resources", head]
    done = subprocess.run(
        probe, env={**bare, "RAY_AUTH_MODE": "disabled"}, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        must = "must refuse connections without a token"
        remedy = "Start every node with RAY_AUTH_MODE=token and the same RAY_AUTH_TOKEN_PATH."
        raise BadInput(f"RAY_ADDRESS={address}", must, "", remedy)
    if done.returncode != REFUSED:
        lines = done.stderr.strip().splitlines()
        raise no_answer(address, lines[-1] if lines else f"exit code {done.returncode} of the check")


if __name__ == "__main__":
    try:
        ray_private.cluster_state(sys.argv[1])
    except AuthenticationError:
        sys.exit(REFUSED)
