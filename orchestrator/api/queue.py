"""How sweeps share a cluster: the queue, the class of a sweep, and the weight and quotas of an owner."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator.api.status import state_without_driver
from orchestrator.api.workspace import Workspace, one_of
from orchestrator.errors import BadInput
from orchestrator.ledger import claims, submissions
from orchestrator.ledger.lease import holder
from orchestrator.ledger.submissions import Submission
from orchestrator.sharing.rows import CLASSES, UNIT, Owner, PriorityClass
from orchestrator.sharing.view import View


@dataclass(frozen=True)
class QueuedSweep:
    """A sweep whose driver runs, as the pool sees it, or one that waits for the service to start a driver.

    Attributes:
        sweep: its id.
        owner: in whose name it runs.
        priority_class: `urgent`, `normal` or `idle`.
        pool: id of the Ray cluster, or None if no driver runs.
        position: in the queue of the sweeps that run nothing, from 1; None if it runs something or is parked.
        share: trials that it may run at once.
        running: trials that run or are about to.
        wanted: trials that it could run at once.
        why: why it runs nothing, or None.
    """

    sweep: str
    owner: str
    priority_class: PriorityClass
    pool: str | None
    position: int | None
    share: int
    running: int
    wanted: int
    why: str | None

    def document(self) -> Mapping[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def queue(*, root: str | Path | None = None) -> Sequence[QueuedSweep]:
    """Return every sweep whose driver runs or is to be started by the service.

    Those that run trials come first, then the others in the order of the queue of their cluster, and then
    those without a driver.

    Args:
        root: folder of everything that sweeps write; if None, `SWEEP_ROOT` or else `mlruns`.

    Raises:
        BadInput: there is no ledger.
    """
    with Workspace.at(root).ledger() as ledger:
        views = claims.pools(ledger)
        without_driver = [
            entry
            for entry in submissions.submissions(ledger, ended=False)
            if holder(ledger, entry.sweep_id) is None
        ]
        classes = claims.priority_classes(ledger)
    claimed = [entry for pool, view in views.items() for entry in _entries(pool, view)]
    return [*claimed, *_without_driver(without_driver, classes)]


def _without_driver(
    waiting: Sequence[Submission], classes: Mapping[str, PriorityClass]
) -> Iterator[QueuedSweep]:
    """Yield what waits for the service: the queued sweeps, numbered, and then those that are parked."""
    ordered = sorted(waiting, key=lambda entry: (entry.state == "PARKED", entry.at))
    for number, entry in enumerate(ordered, start=1):
        state, reason = state_without_driver(entry, time.time()) or ("ENDED", None)
        yield QueuedSweep(
            entry.sweep_id,
            entry.owner,
            classes.get(entry.sweep_id, "normal"),
            None,
            None if state == "PARKED" else number,
            0,
            0,
            int(entry.document["budget"]["trials"]),
            f"{state}: {reason}" if reason else state,
        )


def _entries(pool: str, view: View) -> Sequence[QueuedSweep]:
    waiting = view.queue()
    running = sorted(view.claims.keys() - set(waiting), key=lambda sweep: (view.claims[sweep].created, sweep))
    return [
        QueuedSweep(
            sweep,
            view.claims[sweep].owner,
            view.claims[sweep].priority_class,
            pool,
            waiting.index(sweep) + 1 if sweep in waiting else None,
            view.shares[sweep].trials,
            view.uses[sweep].trials,
            view.claims[sweep].want,
            view.why_waiting(sweep),
        )
        for sweep in (*running, *waiting)
    ]


def move(
    name: str, priority_class: str, *, weight: float = 1.0, root: str | Path | None = None
) -> tuple[str, PriorityClass]:
    """Set the class of a sweep, and its weight among its owner's sweeps; return its id and class.

    It holds at once, and until the next call. Every user who can write the ledger can grant class `urgent`.

    Args:
        name: id of the sweep, or its beginning.
        priority_class: `urgent`, `normal` or `idle`.
        weight: twice the weight is twice the share.
        root: folder of everything that sweeps write; if None, `SWEEP_ROOT` or else `mlruns`.

    Raises:
        BadInput: no sweep matches, or the class or the weight is not valid.
    """
    if priority_class not in CLASSES:
        raise BadInput("class", f"must be one of {', '.join(CLASSES)}", priority_class, "Choose one of them.")
    parts = _parts("weight", weight, above=0.0)
    with Workspace.at(root).ledger() as ledger:
        submitted = [entry.sweep_id for entry in submissions.submissions(ledger)]
        sweep_id = one_of({*submitted, *(record.id for record in ledger.sweeps())}, name)
        claims.set_priority(ledger, sweep_id, priority_class, parts)
    return sweep_id, priority_class


def quota(
    name: str,
    *,
    weight: float | None = None,
    share: float | None = None,
    gpu_hours: float | None = None,
    root: str | Path | None = None,
) -> Owner:
    """Change what is given of an owner's weight and quotas, and return all of them.

    Args:
        name: of the owner.
        weight: relative to other owners; 1 by default.
        share: largest part of a cluster that the owner's sweeps may hold at once, from 0 to 1.
        gpu_hours: most GPU-hours a week; infinite for no limit.
        root: folder of everything that sweeps write; if None, `SWEEP_ROOT` or else `mlruns`.

    Raises:
        BadInput: a number is out of its range, or the ledger does not exist.
    """
    changes: dict[str, float | None] = {}
    if weight is not None:
        changes["weight"] = _parts("weight", weight, above=0.0)
    if share is not None:
        changes["most_share"] = _parts("share", share, at_most=1.0)
    if gpu_hours is not None:
        if not gpu_hours >= 0:
            raise BadInput("gpu_hours", "must be at least 0", f"{gpu_hours:g}", "Write a positive number.")
        changes["most_gpu_hours"] = gpu_hours if gpu_hours < float("inf") else None
    with Workspace.at(root).ledger() as ledger:
        return claims.set_owner(ledger, name, **changes)


def _parts(what: str, number: float, *, above: float | None = None, at_most: float = 10_000.0) -> int:
    """Return a number in 1/10,000."""
    if not (0.0 <= number <= at_most and (above is None or round(number * UNIT) > above)):
        must = f"must be a number from 0{' (excluded)' if above is not None else ''} to {at_most:g}"
        raise BadInput(what, must, f"{number:g}", "Write a number in that range, such as 0.5.")
    return round(number * UNIT)
