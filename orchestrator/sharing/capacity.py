"""Amounts of CPU and GPUs as parts of the pool, in exact integers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.sharing.rows import UNIT, Node


@dataclass(frozen=True, slots=True)
class Capacity:
    """The total of a pool.

    Attributes:
        cpu: in 1/10,000 of a core.
        devices: GPUs.
    """

    cpu: int
    devices: int

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> Capacity:
        """Return the sum over nodes."""
        rows = tuple(nodes)
        return cls(sum(node.cpu for node in rows), sum(node.devices for node in rows))

    @property
    def whole(self) -> int:
        """The dominant share of the whole pool."""
        return max(self.cpu, 1) * max(self.devices, 1)

    def dominant(self, cpu: int, devices: int) -> int:
        """Return the larger of an amount's parts of the pool, as an integer between 0 and `whole`.

        Source: Ghodsi et al., Dominant Resource Fairness, NSDI 2011, section 4.
        """
        return max(cpu * max(self.devices, 1), devices * max(self.cpu, 1))

    def parts(self, dominant: int) -> int:
        """Return a dominant share in 1/10,000 of the pool, rounded up."""
        return -(-dominant * UNIT // self.whole)

    def device_seconds(self, dominant: int, seconds: float) -> int:
        """Return the use of a dominant share for a time, in GPU-seconds, or core-seconds without GPUs."""
        devices = self.devices or self.cpu / UNIT
        return round(dominant / self.whole * devices * seconds)
