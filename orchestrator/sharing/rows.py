"""The rows that sharing reads and writes, one frozen dataclass a table, and one transaction's view of them.

Amounts are integers, so that every driver computes the same shares: CPU in 1/10,000 of a core (Ray's own
grain), GPUs in whole devices, weights and quotas in 1/10,000. Times are seconds of the database server's
clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

UNIT = 10_000
"""One core, the weight 1, or the whole pool."""

PriorityClass = Literal["urgent", "normal", "idle"]
CLASSES: tuple[PriorityClass, ...] = ("urgent", "normal", "idle")
"""From the first to be served to the last."""


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of the pool. Key: name.

    Attributes:
        name: unique in the pool.
        cpu: cores that trials may use, in 1/10,000.
        devices: GPUs that trials may use; their indices are 0 to `devices - 1`.
    """

    name: str
    cpu: int
    devices: int = 0


@dataclass(frozen=True, slots=True)
class Pool:
    """The machines that drivers share.

    Attributes:
        nodes: in any order.
        version: incremented by every transaction that changes a row of the sharing tables. A decision made
            from an older version must not be committed.
    """

    nodes: tuple[Node, ...]
    version: int = 0


@dataclass(frozen=True, slots=True)
class Owner:
    """A person or group that owns sweeps. Key: name. An owner without a row has these defaults.

    Attributes:
        name: unique.
        weight: relative to other owners, in 1/10,000; at least 1.
        most_share: largest part of the pool that the owner's trials may hold at once, in 1/10,000. One bundle
            is always allowed, unless it is 0.
        most_queued: sweeps of the owner that may wait in the queue; None for no limit.
        most_gpu_hours: GPU-hours a week; None for no limit. Weeks begin on Monday, 00:00 UTC.
        used: past use in device-seconds, decayed up to `charged_at`.
        charged_at: when `used` was last updated; None if it never was.
        week: number of the week that `week_gpu_seconds` belongs to, counted from the epoch.
        week_gpu_seconds: GPU-seconds used in that week.
    """

    name: str
    weight: int = UNIT
    most_share: int = UNIT
    most_queued: int | None = None
    most_gpu_hours: int | None = None
    used: int = 0
    charged_at: float | None = None
    week: int = 0
    week_gpu_seconds: int = 0

    def __post_init__(self) -> None:
        if self.weight < 1:
            raise ValueError(f"owner {self.name}: weight must be at least 1, got {self.weight}")


@dataclass(frozen=True, slots=True)
class Claim:
    """What a live sweep asks for; its driver writes it. Key: sweep.

    Attributes:
        sweep: id of the sweep.
        owner: name of the owner.
        created: when the sweep was submitted; older sweeps win ties.
        cpu: of one trial, in 1/10,000 of a core; at least 1.
        slots: trials that share one device (`gpu: 1/K` has K slots); 0 if trials use no GPU.
        want: trials that the sweep could run at once now, those that run included.
        concurrent: most trials of the sweep at once; None for no limit.
        priority_class: `urgent` goes ahead of the others and must be granted by an admin, `idle` takes what
            the others leave.
        weight: relative to the owner's other sweeps, in 1/10,000; at least 1.
    """

    sweep: str
    owner: str
    created: float
    cpu: int
    slots: int
    want: int
    concurrent: int | None = None
    priority_class: PriorityClass = "normal"
    weight: int = UNIT

    def __post_init__(self) -> None:
        if self.cpu < 1 or self.weight < 1 or self.slots < 0 or self.want < 0:
            raise ValueError(
                f"claim of {self.sweep}: cpu and weight must be at least 1, slots and want at least 0, "
                f"got {self.cpu}, {self.weight}, {self.slots} and {self.want}"
            )

    @property
    def limit(self) -> int:
        """Most trials that the sweep can use at once."""
        return self.want if self.concurrent is None else min(self.want, self.concurrent)

    @property
    def device(self) -> int:
        """Devices of one bundle: 1 if trials use a GPU, else 0."""
        return 1 if self.slots else 0

    @property
    def bundle(self) -> int:
        """Most trials of one bundle: all slots of a device, or one trial without a GPU."""
        return self.slots or 1


@dataclass(frozen=True, slots=True)
class DriverState:
    """What the driver of a claim wrote last; no other driver writes it. Key: sweep.

    Attributes:
        sweep: id of the sweep.
        token: the driver's lease token.
        beat: when the driver last renewed the claim.
        short_since: since when the sweep has run less than its share; None if it does not.
        room_since: since when the free room of the pool, summed over nodes, has sufficed for the sweep's next
            trial while the sweep was short; None if it did not.
        held_node: node that is reserved for the sweep's next bundle; None for no node.
    """

    sweep: str
    token: str
    beat: float
    short_since: float | None = None
    room_since: float | None = None
    held_node: str | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """The room that running trials of a sweep take on one device, or on one node without a device.

    Key: sweep, node, device. Also unique by node and device where there is a device: one sweep owns a device
        at a time.

    Attributes:
        sweep: id of the sweep.
        node: name of the node.
        device: index of the device on its node; None for trials without a GPU.
        trials: that run or start there, those that are leaving included.
        leaving: of these, the trials that are asked to leave at their next report.
    """

    sweep: str
    node: str
    device: int | None
    trials: int
    leaving: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All rows of the sharing tables, read in one transaction; the order of the rows has no meaning."""

    pool: Pool
    owners: tuple[Owner, ...] = ()
    claims: tuple[Claim, ...] = ()
    states: tuple[DriverState, ...] = ()
    holdings: tuple[Holding, ...] = ()


class Bundle(NamedTuple):
    """Trials of a share that fit on one node: all on one device, or one trial without a GPU.

    Attributes:
        node: name of the node.
        trials: at once.
    """

    node: str
    trials: int


@dataclass(frozen=True, slots=True)
class Share:
    """What a sweep may hold; computed, never stored.

    Attributes:
        trials: at once.
        devices: that these trials run on.
        bundles: the share by node, in the order in which it was filled. The bundles of all shares fit the
            pool together; the sweep's trials may run elsewhere as well.
    """

    trials: int
    devices: int
    bundles: tuple[Bundle, ...] = ()
