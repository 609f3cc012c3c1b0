"""What stands under a root and no row of its ledger needs: what `gc` deletes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.ledger.ledger import Ledger
from orchestrator.storage.paths import Paths
from orchestrator.upkeep.orphans import of_sweep


@dataclass(frozen=True)
class Litter:
    """A file or folder that can go.

    Attributes:
        path: where it is.
        why: nobody needs it, in a few words.
        bytes: what its files add up to.
    """

    path: Path
    why: str
    bytes: int


def of_a_sweep(ledger: Ledger, sweep_id: str, paths: Paths) -> list[Litter]:
    """Return what a sweep that nobody drives can do without; what a row refers to is never among it."""
    found = [
        (path, "a checkpoint that no trial refers to")
        for path in of_sweep(ledger, sweep_id, paths.checkpoints(sweep_id))
    ]
    if (own := paths.ray / sweep_id).is_dir():
        found.append((own, "Ray Tune's own state, which is never read"))
    return [Litter(path, why, size(path)) for path, why in found]


def of_caches(paths: Paths) -> list[Litter]:
    """Return the compiled programs under the root, which the next sweep would have to compile again."""
    folder = paths.compilations
    ours = folder.is_dir() and folder.is_relative_to(paths.root)
    return [Litter(folder, "compiled programs", size(folder))] if ours else []


def strangers(ledger: Ledger, paths: Paths) -> list[Path]:
    """Return the folders of checkpoints of sweeps that this ledger does not know: another one may."""
    known = {record.id for record in ledger.sweeps()}
    return [path for path in sorted(paths.checkpoints("").glob("*")) if path.name not in known]


def size(path: Path) -> int:
    """Return the bytes of a file, or of all files under a folder; links are not followed."""
    return sum(each.lstat().st_size for each in _files(path))


def _files(path: Path) -> Iterator[Path]:
    if path.is_symlink() or not path.is_dir():
        yield path
        return
    for each in path.iterdir():
        yield from _files(each)
