"""The machines of a cluster, the file and the token that start them, leaving one; the Ray of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.api.workspace import Workspace
from orchestrator.config.yaml_reader import parse_document, read_text
from orchestrator.driver import preflight
from orchestrator.errors import BadInput
from orchestrator.machines import cluster_file, drain
from orchestrator.machines.cluster_file import ensure_token
from orchestrator.machines.hardware import Hardware, detect
from orchestrator.machines.joining import SharedRay, end_shared_ray, shared_ray

__all__ = [
    "Leaving",
    "SharedRay",
    "available",
    "check_file",
    "end_shared_ray",
    "leave",
    "make_token",
    "shared_ray",
    "this_machine",
]


@dataclass(frozen=True)
class Leaving:
    """A machine that is given up.

    Attributes:
        answer: the answer of Ray, which starts nothing on the machine any more.
        workers: number of workers that were asked to save their trials.
    """

    answer: str
    workers: int


def available(*, root: str | Path | None = None) -> Hardware:
    """Return what trials can run on: this machine, or the cluster that `RAY_ADDRESS` names.

    For a cluster, Ray's token is created under the root if it is missing, environment variables that Ray
    reads are set, and Ray is imported.

    Args:
        root: folder of everything that sweeps write; if None, `SWEEP_ROOT` or else `mlruns`.

    Raises:
        BadInput: the cluster is open to everybody, or refuses the token.
        NoCluster: the cluster does not answer, or has no nodes.
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
        BadInput: the file cannot be read, or is not YAML.
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
        root: folder of everything that sweeps write; if None, `SWEEP_ROOT` or else `mlruns`.

    Raises:
        BadInput: others can change the root.
    """
    paths = Workspace.at(root).paths
    preflight.check_paths(paths)
    return ensure_token(paths.token)


def leave(seconds: float) -> Leaving:
    """Give this machine up: nothing new starts on it, and its workers save their trials and end.

    Args:
        seconds: how long the machine will still run.
    """
    return Leaving(drain.drain(seconds), drain.terminate_workers())


def _mode_of(path: str) -> int | None:
    file = Path(path).expanduser()
    return file.stat().st_mode & 0o777 if file.exists() else None
