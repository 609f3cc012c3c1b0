"""Checkpoints on disk that no row refers to: a driver died between a commit and the deletion it allowed."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from orchestrator.ledger.ledger import Ledger


def leftovers(folder: Path, trials: Collection[str], known: Collection[Path]) -> Iterator[Path]:
    """Yield what is left over under the folder of a sweep's checkpoints.

    Args:
        folder: one folder a trial, and in it one a step; need not be there.
        trials: keys of the sweep's trials; the folder of any other one is left over whole.
        known: the checkpoints that rows refer to, resolved.
    """
    for trial in sorted(path for path in folder.glob("*") if path.is_dir()):
        if trial.name not in trials:
            yield trial
        else:
            yield from (step for step in sorted(trial.iterdir()) if step.resolve() not in known)


def clear(ledger: Ledger, sweep_id: str, folder: Path) -> list[Path]:
    """Delete what is left over of a sweep that no worker runs; return what was deleted.

    To be called by the driver, under its lease, before it launches anything.
    """
    trials = {trial.key for trial in ledger.trials(sweep_id)}
    known = {Path(row.path).resolve() for row in ledger.checkpoints(sweep_id)}
    found = list(leftovers(folder, trials, known))
    for path in found:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return found
