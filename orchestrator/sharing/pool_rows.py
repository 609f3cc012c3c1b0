"""The rows that sharing reads and writes, and the durations and limits that all drivers agree on.

Amounts are integers, so that every driver computes the same shares: CPU in 1/10,000 of a core (Ray's own
grain), GPUs in 1/10,000 of a device, weights and quotas in 1/10,000. Times are seconds of the clock of the
database's server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

UNIT = 10_000
"""One core, one GPU, the weight 1, or the whole pool."""

PriorityClass = Literal["urgent", "normal", "idle"]
CLASSES: tuple[PriorityClass, ...] = ("urgent", "normal", "idle")
"""From the first to be served to the last."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Durations (seconds) and limits (parts of the pool, 1/10,000) that every driver of a pool must agree on.

    Attributes:
        dead_after: a claim is dead when its driver has not renewed it for this long.
        shed_after: a shortage must last this long before other sweeps give up trials for it.
        lapse_after: a reservation lapses when granted attempts have waited this long for a worker: the free
            resources are in fragments, and other sweeps may use them.
        hold_after: a node may be held for an attempt that has waited this long for a worker; shorter than
            `lapse_after`.
        hold_for: longest time that a node is held for one attempt: what runs beside the sweeps is not known,
            and may stay on the node for ever.
        held_nodes: part of the nodes that are held at once, in 1/10,000; one node always may be.
        cut_after: a trial that is to be shed and does not report in this time saves and ends at once.
        pending: most attempts of a sweep that wait for a worker, if the sweep is not alone in the pool.
        min_run: shortest time that a trial runs before it may be shed; classes `urgent` and `normal`.
        min_run_restarts: the same in restarts of the trial; the longer of both counts.
        normal_floor: part of the pool that class `normal` gets before class `urgent` gets all it wants.
        urgent_cap: part of the pool that one owner gets ahead of others through class `urgent`.
        half_life: time after which past use counts half.
        use_step: device-seconds by which the past use of two owners must differ to order them.
        charge_every: the past use of owners is constant between updates this far apart.
    """

    dead_after: float = 45.0
    shed_after: float = 30.0
    lapse_after: float = 60.0
    hold_after: float = 20.0
    hold_for: float = 1_800.0
    held_nodes: int = UNIT // 4
    cut_after: float = 120.0
    pending: int = 2
    min_run: float = 120.0
    min_run_restarts: float = 10.0
    normal_floor: int = UNIT // 10
    urgent_cap: int = UNIT // 4
    half_life: float = 86_400.0
    use_step: int = 600
    charge_every: float = 300.0


RULES = Rules()
"""The defaults."""


@dataclass(frozen=True, slots=True)
class PoolNode:
    """One machine of the pool.

    Attributes:
        name: unique in the pool.
        cpu: cores that trials may use, in 1/10,000.
        devices: GPUs that trials may use, in 1/10,000.
    """

    name: str
    cpu: int
    devices: int = 0


MOST_SWEEPS = 100
"""Sweeps of an owner that may wait or run in the service at once, unless a quota was set."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A person or group that owns sweeps. An owner without a row has these defaults.

    Attributes:
        name: unique.
        weight: relative to other owners, in 1/10,000; at least 1.
        most_share: largest part of the pool that the owner's trials may hold at once, in 1/10,000. One bundle
            is always allowed, unless it is 0.
        most_gpu_hours: GPU-hours a week; None for no limit. Weeks begin on Monday, 00:00 UTC.
        used: past use in device-seconds, decayed up to `charged_at`.
        charged_at: when `used` was last updated; None if it never was.
        week: number of the week that `week_gpu_seconds` belongs to, counted from the epoch.
        week_gpu_seconds: GPU-seconds used in that week.
        most_sweeps: sweeps that may wait or run in the service at once; None for no limit.
    """

    name: str
    weight: int = UNIT
    most_share: int = UNIT
    most_gpu_hours: float | None = None
    used: int = 0
    charged_at: float | None = None
    week: int = 0
    week_gpu_seconds: int = 0
    most_sweeps: int | None = MOST_SWEEPS

    def __post_init__(self) -> None:
        if self.weight < 1:
            raise ValueError(f"owner {self.name}: weight must be at least 1 (got {self.weight})")


@dataclass(frozen=True, slots=True)
class PoolClaim:
    """What a live sweep asks for; its driver writes it.

    Attributes:
        sweep: id of the sweep.
        owner: name of the owner.
        created: when the sweep was created; older sweeps win ties.
        cpu: of one trial on each of its nodes, in 1/10,000 of a core; at least 1.
        slots: trials that share one device in an engine (`gpu: 1/K` has K slots); 1 if each trial has GPUs,
            or a part of one, of its own; 0 if trials use no GPU.
        want: trials that the sweep could run at once now, those that run included.
        priority_class: `urgent` goes ahead of the others and must be granted by an admin, `idle` takes what
            the others leave.
        weight: relative to the owner's other sweeps, in 1/10,000; at least 1.
        gpu: GPUs of one trial on each of its nodes, or of one engine, in 1/10,000; 1,250 is `gpu: 1/8`.
        nodes: of one trial, which has its cores and GPUs on each of them.
    """

    sweep: str
    owner: str
    created: float
    cpu: int
    slots: int
    want: int
    priority_class: PriorityClass = "normal"
    weight: int = UNIT
    gpu: int = UNIT
    nodes: int = 1

    def __post_init__(self) -> None:
        least = min(self.cpu, self.weight, self.gpu, self.nodes)
        if least < 1 or self.slots < 0 or self.want < 0:
            raise ValueError(
                f"claim of {self.sweep}: cpu, weight, gpu and nodes must be at least 1, slots and want at "
                f"least 0, got {self.cpu}, {self.weight}, {self.gpu}, {self.nodes}, {self.slots}, {self.want}"
            )

    @classmethod
    def of(
        cls,
        sweep: str,
        owner: str,
        created: float,
        cpu: float,
        gpu: float,
        *,
        nodes: int = 1,
        shares_engine: bool = True,
    ) -> PoolClaim:
        """Return the claim of a sweep that wants nothing yet.

        Args:
            sweep: id of the sweep.
            owner: name of the owner.
            created: when the sweep was created.
            cpu: cores of one trial on each of its nodes.
            gpu: GPUs of one trial on each of its nodes, or its share of one.
            nodes: nodes of one trial.
            shares_engine: whether trials with a share of a GPU are in the slots of an engine, which has a
                whole one.
        """
        in_engine = shares_engine and 0 < gpu < 1
        slots = round(1 / gpu) if in_engine else int(gpu > 0)
        # Rounded down, so that K trials of 1/K fit a device.
        amount = max(1, int(gpu * UNIT + 1e-6)) if slots == 1 else UNIT
        return cls(sweep, owner, created, max(1, round(cpu * UNIT)), slots, want=0, gpu=amount, nodes=nodes)

    @property
    def device(self) -> int:
        """GPUs (1/10,000) of one bundle on one node."""
        return self.gpu if self.slots else 0

    @property
    def on_node(self) -> tuple[int, int]:
        """GPUs and cores (1/10,000) that one trial needs on one node.

        A shared engine and the processors of its trials may be on several nodes.
        """
        return (self.gpu if self.slots == 1 else 0), self.cpu

    @property
    def all_cpu(self) -> int:
        """Cores (1/10,000) of one trial on all its nodes."""
        return self.cpu * self.nodes

    @property
    def all_devices(self) -> int:
        """GPUs (1/10,000) of one bundle on all its nodes."""
        return self.device * self.nodes

    @property
    def bundle(self) -> int:
        """Most trials of one bundle: all slots of a device, or one trial."""
        return self.slots or 1


class Place(NamedTuple):
    """What a sweep runs on one node.

    Attributes:
        node: its name.
        trials: attempts with processors on it.
        devices: GPUs on it that they use, in 1/10,000.
        ready: of these attempts, those that have run long enough to be shed.
    """

    node: str
    trials: int
    devices: int
    ready: int


@dataclass(frozen=True, slots=True)
class Use:
    """What a sweep holds now, where, and since when it holds too little; its driver writes it every second.

    Attributes:
        sweep: id of the sweep.
        renewed_at: when the driver last renewed the claim.
        trials: attempts that were granted and have not ended, those that are pending included.
        pending: of these, attempts that wait for a worker.
        devices: GPUs that the attempts hold or are about to, in 1/10,000.
        leaving: of `trials`, attempts that are being shed.
        short_since: since when the sweep has held less than its share; None if it does not.
        pending_since: since when its oldest pending attempt has waited; None if none is pending.
        held_node: the node that is held for a pending attempt, or None; the nodes of an attempt that needs
            several are separated by commas.
        held_since: since when.
        places: the attempts that a worker has taken, by node; empty in a pool of one node.
    """

    sweep: str
    renewed_at: float
    trials: int = 0
    pending: int = 0
    devices: int = 0
    leaving: int = 0
    short_since: float | None = None
    pending_since: float | None = None
    held_node: str | None = None
    held_since: float | None = None
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All rows of a pool, read in one transaction; the order of the rows has no meaning."""

    nodes: tuple[PoolNode, ...]
    owners: tuple[Owner, ...] = ()
    claims: tuple[PoolClaim, ...] = ()
    uses: tuple[Use, ...] = ()


class Bundle(NamedTuple):
    """Trials of a share that fit on one node: all on one device, or one trial, or its part on this node.

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
        devices: that these trials run on, in 1/10,000.
        bundles: the share by node, in the order in which it was filled. The bundles of all shares fit the
            pool together; the sweep's trials may run elsewhere as well.
    """

    trials: int
    devices: int
    bundles: tuple[Bundle, ...] = ()
