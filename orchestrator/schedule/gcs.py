"""What a cluster tells somebody who has not joined it: its nodes, and nothing at all without a token.

`python -m orchestrator.schedule.gcs ADDRESS` leaves with 0 if the cluster answers whoever asks.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress

from ray._private.services import canonicalize_bootstrap_address
from ray._raylet import (  # type: ignore[attr-defined]
    GCS_AUTOSCALER_CLUSTER_CONFIG_KEY,
    GCS_AUTOSCALER_STATE_NAMESPACE,
    GcsClient,
)
from ray.core.generated.autoscaler_pb2 import ClusterConfig  # type: ignore[attr-defined]
from ray.exceptions import AuthenticationError, RpcError

from orchestrator.errors import BadInput, NoCluster
from orchestrator.machines.hardware import Hardware, Node
from orchestrator.schedule.view import kinds

CONNECT_SECONDS = 5.0
ALIVE = 0


def hardware(address: str) -> Hardware:
    """Return the largest nodes that a cluster has, or may get.

    Raises:
        BadInput: the cluster answers without a token, or does not take ours.
        NoCluster: nobody answers, or there is no node and none may come.
    """
    place = _place(address)
    _refuse_open(place)
    try:
        client = GcsClient(address=place)
        alive = [each for each in client.get_all_node_info().values() if each.state == ALIVE]
        scales = client.internal_kv_get(
            GCS_AUTOSCALER_CLUSTER_CONFIG_KEY.encode(), GCS_AUTOSCALER_STATE_NAMESPACE.encode()
        )
    except AuthenticationError:
        must, remedy = "must take our token", "Bring its token here, and name it in RAY_AUTH_TOKEN_PATH."
        raise BadInput(f"RAY_ADDRESS={address}", must, "a refusal", remedy) from None
    except RpcError as error:
        raise _nobody(address, str(error)) from error
    offers = (each.resources_total for each in alive)
    nodes = [Node(each.get("CPU", 0.0), each.get("GPU", 0.0)) for each in offers]
    more = list(kinds(ClusterConfig.FromString(scales) if scales else None))
    if not nodes and not more:
        must, remedy = "must have a node, or an autoscaler that gets one", "Start one with `ray start`."
        raise NoCluster(f"RAY_ADDRESS={address}", must, "none", remedy)
    return Hardware.of([*nodes, *more], hosts=len({each.node_manager_address for each in alive}) + len(more))


def _place(address: str) -> str:
    """Return `host:port` of a cluster that somebody listens at."""
    if "://" in address:
        remedy = "Name the head's own address, host:6379, on a machine of its network."
        raise BadInput("RAY_ADDRESS", "must be reached directly, not by Ray's client", address, remedy)
    try:
        place = canonicalize_bootstrap_address(address) or address
        host, _, port = place.rpartition(":")
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise _nobody(address, str(error)) from error
    return place


def _nobody(address: str, got: str) -> NoCluster:
    remedy = "Start it, or unset RAY_ADDRESS."
    return NoCluster(f"RAY_ADDRESS={address}", "must be a Ray cluster that answers", got, remedy)


def _refuse_open(place: str) -> None:
    """Refuse a cluster that answers without a token: whoever reaches it runs what they like on it."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    # A process of its own: Ray reads how it authenticates once.
    ask = [sys.executable, "-m", "orchestrator.schedule.gcs", place]
    asked = subprocess.run(ask, env={**bare, "RAY_AUTH_MODE": "disabled"}, capture_output=True, check=False)
    if asked.returncode == 0:
        remedy = "Start every node with RAY_AUTH_MODE=token and the same RAY_AUTH_TOKEN_PATH."
        raise BadInput(f"RAY_ADDRESS={place}", "must refuse whoever has no token", "an answer", remedy)


if __name__ == "__main__":
    with suppress(AuthenticationError, RpcError):
        GcsClient(address=sys.argv[1]).get_all_node_info()
        sys.exit(0)
    sys.exit(1)
