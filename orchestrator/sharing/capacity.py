"""Amounts of CPU and GPUs as exact integers, and best-fit placement of bundles on nodes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.sharing.pool_rows import UNIT, PoolNode


@dataclass(frozen=True, slots=True)
class Capacity:
    """The total of a pool.

    Attributes:
        cpu: Cores, in 1/10,000.
        devices: GPUs, in 1/10,000.
    """

    cpu: int
    devices: int

    @classmethod
    def of(cls, nodes: Iterable[PoolNode]) -> Capacity:
        """Return the total capacity of nodes."""
        rows = tuple(nodes)
        return cls(sum(node.cpu for node in rows), sum(node.devices for node in rows))

    @property
    def whole(self) -> int:
        """The dominant share of the whole pool."""
        return max(self.cpu, 1) * max(self.devices, 1)

    def dominant(self, cpu: int, devices: int) -> int:
        """Return the dominant share of an amount: the larger of its parts of the pool, from 0 to `whole`.

        Source: Ghodsi et al., Dominant Resource Fairness, NSDI 2011, section 4.
        """
        return max(cpu * max(self.devices, 1), devices * max(self.cpu, 1))

    def parts(self, dominant: int) -> int:
        """Return a dominant share in 1/10,000 of the pool, rounded up."""
        return -(-dominant * UNIT // self.whole)

    def device_seconds(self, dominant: int, seconds: float) -> int:
        """Return the use of a dominant share for a time, in GPU-seconds, or core-seconds without GPUs."""
        return round(dominant / self.whole * (self.devices or self.cpu) / UNIT * seconds)


def apart(places: Sequence[int], nodes: int) -> int:
    """Return the number of trials that fit if each takes one place on several different nodes.

    Args:
        places: Number of places on each node.
        nodes: Number of nodes of one trial.
    """
    trials = sum(places) // nodes
    while sum(min(count, trials) for count in places) < trials * nodes:
        trials -= 1
    return trials


class FreeNodes:
    """Free devices and cores of each node while a pool is filled.

    Every node is one integer, ordered by free devices, free cores and index. This is the order of preference:
    best fit leaves large holes for large bundles. A search is one binary search in each group of nodes with
    equally many free devices.

    Args:
        free: Free devices and free cores (1/10,000) of each node, by index.
    """

    def __init__(self, free: Iterable[tuple[int, int]]) -> None:
        rows = list(free)
        self._index = len(rows).bit_length()
        self._device = max((cpu for _, cpu in rows), default=0).bit_length() + self._index
        self._mask = (1 << self._index) - 1
        self._order = sorted(
            (devices << self._device) + (cpu << self._index) + index
            for index, (devices, cpu) in enumerate(rows)
            if devices >= 0 and cpu >= 0
        )
        # Cores and devices of the trials that fit no node; they never will, because nothing becomes free.
        self._full: set[tuple[int, int]] = set()

    def place(self, cpu: int, trials: int, device: int) -> tuple[int, int] | None:
        """Place a bundle on its best node.

        The best node has room for most of its trials; among equals, it has the fewest free devices, then the
        fewest free cores, then the lowest index.

        Args:
            cpu: Cores of one trial, in 1/10,000.
            trials: Maximum number of trials of the bundle.
            device: GPUs of the bundle, in 1/10,000.

        Returns:
            The index of the node and the number of trials, which is less than `trials` if no node has the
            cores for all of them. None, and nothing changes, if no trial fits on any node.
        """
        if (cpu, device) in self._full:
            return None
        order, index = self._order, self._index
        at = self._first(device, cpu * trials << index)
        if at is None:
            trials = min(trials, self._most_cpu(device) // cpu)
            at = self._first(device, cpu * trials << index) if trials else None
        if at is None:
            self._full.add((cpu, device))
            return None
        entry = order[at]
        left = entry - (device << self._device) - (cpu * trials << index)
        if at and order[at - 1] > left:
            del order[at]
            insort(order, left, 0, at)
        else:
            order[at] = left
        return entry & self._mask, trials

    def place_apart(self, cpu: int, device: int, nodes: int) -> list[int] | None:
        """Place a trial that needs the same resources on several nodes, by best fit.

        Args:
            cpu: Cores on one node, in 1/10,000.
            device: GPUs on one node, in 1/10,000.
            nodes: Number of nodes that the trial needs.

        Returns:
            The indices of the nodes. None, and nothing changes, if too few nodes have room.
        """
        index, shift = self._index, self._device
        fitting = [
            entry
            for entry in self._order
            if entry >> shift >= device and (entry & (1 << shift) - 1) >> index >= cpu
        ][:nodes]
        if len(fitting) < nodes:
            return None
        for entry in fitting:
            del self._order[bisect_left(self._order, entry)]
            insort(self._order, entry - (device << shift) - (cpu << index))
        return [entry & self._mask for entry in fitting]

    def _first(self, devices: int, least: int) -> int | None:
        """Return the position of the first entry with at least `devices` and `least`.

        Args:
            devices: Minimum of the free devices.
            least: Minimum of the free cores, as in an entry.
        """
        order, shift = self._order, self._device
        if least >> shift:
            return None
        while (at := bisect_left(order, (devices << shift) + least)) < len(order):
            devices = order[at] >> shift
            if order[at] - (devices << shift) >= least:
                return at
        return None

    def _most_cpu(self, devices: int) -> int:
        """Return the largest number of free cores of a node with at least `devices` free devices."""
        order, shift, most = self._order, self._device, 0
        at = bisect_left(order, devices << shift)
        while at < len(order):
            group = order[at] >> shift
            at = bisect_left(order, (group + 1) << shift)
            most = max(most, (order[at - 1] - (group << shift)) >> self._index)
        return most
