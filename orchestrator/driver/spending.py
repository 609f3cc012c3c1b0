"""Warnings before a sweep spends anything: it does not fit, repeats another one, or misses its objective."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from orchestrator.config.strategy import most_trials
from orchestrator.config.sweep_config import SweepConfig, identity
from orchestrator.driver.preflight import Estimate
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.pool import claims
from orchestrator.ledger.sweeps.records import SweepRecord
from orchestrator.sharing.pool_rows import Owner
from orchestrator.sharing.usage import week_of

_CODE = ("function", "command", "program")
"""Keys of a document's `trainable` that name its code."""


def warnings(
    sweep: SweepConfig, ledger: Ledger, cost: Estimate | None, at_once: int, owner: str
) -> tuple[str, ...]:
    """Return warnings for the owner of a sweep, one sentence each.

    Args:
        sweep: Sweep that is to run.
        ledger: Ledger with earlier sweeps, and with the quotas.
        cost: Measured cost of a trial, or None if unknown.
        at_once: Number of concurrent trials.
        owner: Owner of the sweep.
    """
    records = ledger.sweeps()
    found = list(_repeated(sweep, records))
    if cost is not None:
        row = claims.owners(ledger).get(owner) or Owner(owner)
        found += over_budget(sweep, cost, at_once, row, ledger.system.time())
    earlier = next((one for one in reversed(records) if _same_code(one.document, sweep.document())), None)
    if earlier is not None:
        names = {name for report in ledger.reports(earlier.id) for name in report.metrics}
        found += _unreported(sweep, earlier.id, names)
    return tuple(found)


def over_budget(sweep: SweepConfig, cost: Estimate, at_once: int, owner: Owner, now: float) -> Iterator[str]:
    """Yield a sentence for each limit that all trials exceed at the measured speed, if none is stopped early.

    Args:
        sweep: Sweep that is to run.
        cost: Measured cost of a trial.
        at_once: Number of concurrent trials.
        owner: Owner of the sweep, with the GPU-hours of the week.
        now: Time in seconds since the epoch.
    """
    trials, budget = most_trials(sweep.document()), sweep.budget
    hours = cost.seconds * trials / 3600
    gpu_hours = hours * sweep.resources.gpu * sweep.resources.node_count
    need = f"{trials} trials of {cost.seconds:.0f} s (measured in {cost.source})"
    elapsed = hours / max(at_once, 1)
    if budget.hours is not None and elapsed > budget.hours:
        yield (
            f"budget.hours is {budget.hours:g}, but {need}, {at_once} at once, take {elapsed:.2g} h. "
            "Raise budget.hours, or lower budget.trials or training.steps."
        )
    if budget.gpu_hours is not None and gpu_hours > budget.gpu_hours:
        yield (
            f"budget.gpu_hours is {budget.gpu_hours:g}, but {need} take {gpu_hours:.2g} GPU-hours. "
            "Raise budget.gpu_hours, or lower budget.trials or training.steps."
        )
    if owner.most_gpu_hours is not None and gpu_hours > (left := _left(owner, owner.most_gpu_hours, now)):
        yield (
            f"{owner.name} has {left:.2g} of {owner.most_gpu_hours:g} GPU-hours left this week, but {need} "
            f"take {gpu_hours:.2g}. Lower budget.trials, or ask an admin for a larger quota."
        )


def _left(owner: Owner, most: float, now: float) -> float:
    """Return the GPU-hours that an owner may still use this week."""
    used = owner.week_gpu_seconds if owner.week == week_of(now) else 0
    return max(0.0, most - used / 3600)


def _repeated(sweep: SweepConfig, records: Collection[SweepRecord]) -> Iterator[str]:
    """Yield a sentence about the newest sweep that differs by no more than its name, budget and resources."""
    search = _search(sweep.document())
    same = [record for record in records if _search(record.document) == search]
    if same:
        yield (
            f"it repeats {same[-1].id}, which is {same[-1].state}. "
            "`show` prints the results, and `resume` continues it; `--new` runs the same search again."
        )


def _search(document: Mapping[str, Any]) -> str:
    """Return the digest of a document without the name and the profile of its file."""
    return identity({key: part for key, part in document.items() if key not in {"name", "profile"}})


def _same_code(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    first, second = before.get("trainable") or {}, now.get("trainable") or {}
    codes = [tuple(trainable.get(key) for key in _CODE) for trainable in (first, second)]
    return any(codes[1]) and codes[0] == codes[1]


def _unreported(sweep: SweepConfig, source: str, names: Collection[str]) -> Iterator[str]:
    """Yield a warning if an earlier sweep of the same code reported metrics without the objective."""
    if names and sweep.metric not in names:
        close = difflib.get_close_matches(sweep.metric, names, n=1)
        remedy = f"Did you mean {close[0]}?" if close else f"It has reported {', '.join(sorted(names)[:8])}."
        yield f"the objective {sweep.metric} was not reported in {source}, which ran the same code. {remedy}"
