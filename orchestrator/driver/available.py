"""What a sweep can run on: this machine, or the cluster that `RAY_ADDRESS` names."""

from __future__ import annotations

import os

from orchestrator.driver import preflight as place
from orchestrator.machines import hardware
from orchestrator.machines.hardware import Hardware
from orchestrator.schedule import environment
from orchestrator.storage.paths import Paths

HERE_SECONDS, CLUSTER_SECONDS = 10.0, 3600.0


def offered(where: Paths) -> Hardware:
    """Return what trials can run on.

    Raises:
        BadInput: the cluster is open to all, or does not take our token.
        NoCluster: it does not answer.
    """
    address = cluster_address()
    if address is None:
        return hardware.detect()
    environment.prepare(0.0, where.token)
    # Ray takes a second to import, and reads the environment above when it is.
    from orchestrator.schedule import gcs

    found = gcs.hardware(address)
    if found.hosts > 1:
        place.check_shared(where)
    return found


def cluster_address() -> str | None:
    """Return the address of the cluster to run on, or None for this machine."""
    return os.environ.get("RAY_ADDRESS") or None


def wait_for_nodes(given: float | None) -> float:
    """Return the seconds to wait while there is no node that a trial fits on: a cluster's may still come."""
    if given is not None:
        return given
    return HERE_SECONDS if cluster_address() is None else CLUSTER_SECONDS
