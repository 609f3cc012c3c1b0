"""Clusters: their machines and use, the files and the token that start them, the Ray of this machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.api.workspace import Workspace
from orchestrator.config.yaml_reader import parse_document
from orchestrator.driver import preflight
from orchestrator.errors import BadInput
from orchestrator.ledger.pool import claims
from orchestrator.machines import cluster_file, drain
from orchestrator.machines.cluster_file import ensure_token
from orchestrator.machines.hardware import Hardware, detect
from orchestrator.machines.joining import SharedRay, end_shared_ray, shared_ray
from orchestrator.sharing.pool_rows import UNIT, PriorityClass
from orchestrator.sharing.view import View
from orchestrator.text_file import read_text

__all__ = ["SharedRay", "end_shared_ray", "shared_ray"]


@dataclass(frozen=True)
class DrainedMachine:
    """A machine that is given up.

    Attributes:
        answer: The answer of Ray, which starts nothing on the machine any more.
        workers: Number of workers that were asked to save their trials.
    """

    answer: str
    workers: int


@dataclass(frozen=True)
class Machine:
    """A machine of a pool.

    Attributes:
        name: Unique in the pool: Ray's id of the node.
        cpu: Cores that trials may use.
        devices: GPUs that trials may use.
        shares: Trials by sweep that the shares place on it; the trials may run elsewhere as well.
    """

    name: str
    cpu: float
    devices: int
    shares: Mapping[str, int]


@dataclass(frozen=True)
class PoolUse:
    """What a sweep holds of a pool.

    Attributes:
        sweep: Its id.
        owner: Owner of the sweep.
        priority_class: `urgent`, `normal` or `idle`.
        trials: Number of trials that run or are about to.
        wanted: Number of trials that it could run at once.
        share: Number of trials that it may run at once.
        cpu: Cores that its trials hold.
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
        id: ID of the cluster.
        cpu: Cores that trials may use.
        devices: GPUs that trials may use.
        free_cpu: Cores that no trial holds.
        free_devices: GPUs that no trial holds.
        nodes: The machines.
        uses: What each sweep holds, by its id.
        running: Number of running trials by host and sweep; a trial counts from its first report.
    """

    id: str
    cpu: float
    devices: int
    free_cpu: float
    free_devices: int
    nodes: Sequence[Machine]
    uses: Sequence[PoolUse]
    running: Mapping[str, Mapping[str, int]]


def available(*, root: str | Path | None = None) -> Hardware:
    """Return what trials can run on: this machine, or the cluster that `RAY_ADDRESS` names.

    For a cluster, Ray's token is created under the root if it is missing, environment variables that Ray
    reads are set, and Ray is imported.

    Args:
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: The cluster is open to everybody, or refuses the token.
        NoCluster: The cluster does not answer, or has no nodes.
    """
    return preflight.available_hardware(Workspace.at(root).paths)


def this_machine() -> Hardware:
    """Return what this machine has."""
    return detect()


def check_file(file: Path) -> Sequence[BadInput]:
    """Return everything that is wrong with a file that starts a cluster.

    It must be of a known kind. It must not hold a secret, name one that others can read, or open the cluster
    to the world.

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
    """Create the token of the user's clusters unless it exists; return its file, readable by its owner only.

    Args:
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: Others can change the root.
    """
    paths = Workspace.at(root).paths
    preflight.check_paths(paths)
    return ensure_token(paths.token)


def leave(seconds: float) -> DrainedMachine:
    """Give this machine up: nothing new starts on it, and its workers save their trials and end.

    Args:
        seconds: How long the machine will still run.
    """
    return DrainedMachine(drain.drain(seconds), drain.terminate_workers())


def pools(*, root: str | Path | None = None) -> Sequence[Pool]:
    """Return the clusters on which sweeps run now.

    Args:
        root: Folder of everything that sweeps write; `SWEEP_ROOT` or else `mlruns` if None.

    Raises:
        BadInput: There is no ledger.
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
        pool_id: Id of the cluster.
        view: View of the cluster.
        running: Number of running trials by host, by sweep; also of sweeps elsewhere.
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


def _mode_of(path: str) -> int | None:
    file = Path(path).expanduser()
    return file.stat().st_mode & 0o777 if file.exists() else None
