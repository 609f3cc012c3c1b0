"""What a sweep will take, from trials of the same program that this ledger remembers; nothing is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.config.sweep_config import SweepConfig, current
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import SweepRecord

_SECONDS = ("seconds/train", "seconds/evaluate")
_SAME = ("task", "data", "model", "evaluate")


@dataclass(frozen=True)
class Estimate:
    """What one trial takes, measured.

    Attributes:
        source: id of the sweep that it was measured in, on whatever machine that ran.
        seconds: of training and evaluation a trial that runs to its end, compilation left out.
        bytes: of its largest checkpoint: weights and optimiser; activations are not in it.
    """

    source: str
    seconds: float
    bytes: int


def estimate(sweep: SweepConfig, ledger: Ledger) -> Estimate | None:
    """Return what a trial takes by the newest sweep of the same program, or None where there is none."""
    for record in reversed(ledger.sweeps()):
        if _is_same(current(record.document), sweep.document()) and (
            found := _measured(record, sweep, ledger)
        ):
            return found
    return None


def _is_same(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    same_batch = before["training"]["batch_size"] == now["training"]["batch_size"]
    return same_batch and all(before.get(name) == now.get(name) for name in _SAME)


def _measured(record: SweepRecord, sweep: SweepConfig, ledger: Ledger) -> Estimate | None:
    costs = [sum(row.metrics.get(name, 0.0) for name in _SECONDS) for row in ledger.reports(record.id)]
    if not costs:
        return None
    # A report stands for an interval; the middle one is not upset by the first, which waits for the device.
    a_step = sorted(costs)[len(costs) // 2] / record.document["training"]["interval"]
    sizes = [row.bytes for row in ledger.checkpoints(record.id)]
    return Estimate(record.id, a_step * sweep.training.steps, max(sizes, default=0))
