"""Checkpoints on disk that no row refers to: a driver died between a commit and the deletion it allowed."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from orchestrator.errors import BadInput
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
            yield from _unknown(trial, known)


def _unknown(trial: Path, known: Collection[Path]) -> list[Path]:
    return [step for step in sorted(trial.glob("*")) if step.resolve() not in known]


def of_sweep(ledger: Ledger, sweep_id: str, folder: Path) -> list[Path]:
    """Return what is left over of a sweep of the ledger, while no worker runs it."""
    trials = {trial.key for trial in ledger.trials(sweep_id)}
    known = {Path(row.path).resolve() for row in ledger.checkpoints(sweep_id)}
    return list(leftovers(folder, trials, known))


def clear(ledger: Ledger, sweep_id: str, folder: Path) -> list[Path]:
    """Delete what is left over of a sweep that no worker runs; return what was deleted.

    To be called by the driver, under its lease, before it launches anything.

    Raises:
        BadInput: the ledger does not know the sweep, and there are checkpoints: another ledger may.
    """
    if ledger.sweep(sweep_id) is None:
        _refuse_strangers(ledger, sweep_id, folder)
        return []
    found = of_sweep(ledger, sweep_id, folder)
    for path in found:
        delete(path)
    return found


def clear_trial(ledger: Ledger, trial_key: str, folder: Path) -> None:
    """Delete what a worker that died in the middle of a save has left in its trial's folder."""
    known = {Path(row.path).resolve() for row in ledger.checkpoints(trial_key)}
    for path in _unknown(folder, known):
        delete(path)


def delete(path: Path) -> None:
    """Delete a file, a link or a whole folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _refuse_strangers(ledger: Ledger, sweep_id: str, folder: Path) -> None:
    if any(path.is_dir() for path in folder.glob("*")):
        raise BadInput(
            str(folder),
            f"must be empty before {sweep_id} begins in {ledger.where}",
            "checkpoints of a sweep that this ledger does not know",
            "Name the ledger that does (SWEEP_LEDGER), another --root, or move the folder away.",
        )
