"""Clusters: machines, use, files and token; the Ray that sweeps share on this machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.api.workspace import Workspace
from orchestrator.client.answers import Machine, Pool, PoolUse
from orchestrator.config.yaml_reader import parse_document
from orchestrator.driver import preflight
from orchestrator.errors import BadInput
from orchestrator.ledger.pool import claims
from orchestrator.machines import cluster_file, drain
from orchestrator.machines.cluster_file import ensure_token
from orchestrator.machines.hardware import Hardware
from orchestrator.machines.joining import SharedRay, end_shared_ray, shared_ray
from orchestrator.sharing.pool_rows import UNIT
from orchestrator.sharing.view import View
from orchestrator.text_file import read_text

__all__ = ["SharedRay", "end_shared_ray", "shared_ray"]


@dataclass(frozen=True)
class DrainedMachine:
    """A machine that is drained.

    Attributes:
        answer: Answer of Ray to the request to start nothing more on the machine.
        workers: Number of workers that save their trials.
    """

    answer: str
    workers: int


def available(*, root: str | Path | None = None) -> Hardware:
    """Return the hardware for trials: this machine, or the cluster that `RAY_ADDRESS` names.

    For a cluster, this imports Ray, sets its environment variables, and creates its token under the root
    unless it exists.

    Args:
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The cluster requires no token, or refuses this one.
        NoCluster: The cluster does not answer, or has no nodes.
    """
    return preflight.available_hardware(Workspace.at(root).paths)


def check_file(file: Path) -> Sequence[BadInput]:
    """Return the mistakes of a file that starts a cluster.

    Such a file must be of a known kind, contain no secret, name no secret that others can read, and not open
    the cluster to the internet.

    Raises:
        BadInput: The file cannot be read, or is not YAML.
    """
    text = read_text(file)
    if kind := cluster_file.problem_of_kind(str(file), text):
        return [kind]
    problems = list(cluster_file.problems_of_text(str(file), text))
    if not problems and cluster_file.is_for_ray_up(text):
        entries = parse_document(text, str(file)).entries
        document = {key: node.plain() for key, node in entries.items()}
        problems += cluster_file.problems(str(file), document, _mode_of)
    return problems


def make_token(*, root: str | Path | None = None) -> Path:
    """Return the user's cluster token file, which only the user can read; create it if it is missing.

    Args:
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: Other accounts can change the root.
    """
    paths = Workspace.at(root).paths
    preflight.check_paths(paths)
    return ensure_token(paths.token)


def leave(seconds: float) -> DrainedMachine:
    """Drain this machine: Ray starts nothing more on it, and its workers save their trials and end.

    Args:
        seconds: Seconds until the machine is reclaimed.
    """
    return DrainedMachine(drain.drain(seconds), drain.terminate_workers())


def pools(*, root: str | Path | None = None) -> Sequence[Pool]:
    """Return the clusters on which sweeps run.

    Args:
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The ledger does not exist.
    """
    with Workspace.at(root).ledger() as ledger:
        views = claims.pools(ledger)
        running = {
            sweep: ledger.running_by_node(sweep) for view in views.values() for sweep in sorted(view.claims)
        }
    return [pool_of(pool_id, view, running) for pool_id, view in views.items()]


def pool_of(pool_id: str, view: View, running: Mapping[str, Mapping[str | None, int]]) -> Pool:
    """Return a cluster as its drivers see it.

    Args:
        pool_id: ID of the cluster.
        view: View of the cluster.
        running: Number of running trials by host and sweep, which may include sweeps of other clusters.
    """
    free_cpu, free_devices = view.free
    machines = [
        Machine(
            node.name,
            node.cpu / UNIT,
            node.devices // UNIT,
            _placed(view, node.name),
        )
        for node in view.nodes
    ]
    return Pool(
        pool_id,
        view.capacity.cpu / UNIT,
        view.capacity.devices // UNIT,
        free_cpu / UNIT,
        free_devices / UNIT,
        machines,
        [_use(view, sweep) for sweep in sorted(view.claims)],
        _by_host({sweep: running.get(sweep, {}) for sweep in sorted(view.claims)}),
    )


def _placed(view: View, node: str) -> dict[str, int]:
    """Return the number of trials that the shares place on a node, by sweep."""
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
        use.devices / UNIT,
    )


def _mode_of(path: str) -> int | None:
    file = Path(path).expanduser()
    return file.stat().st_mode & 0o777 if file.exists() else None
