"""Rows of a shared pool, and the durations and limits on which all drivers agree.

Amounts are integers, so that every driver computes the same shares: CPU in 1/10,000 of a core (the precision
of Ray), GPUs in 1/10,000 of a device, weights and quotas in 1/10,000. Times are in seconds by the clock of
the database's server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

UNIT = 10_000
"""Unit of amounts: one core, one GPU, the weight 1, or the whole pool."""

PriorityClass = Literal["urgent", "normal", "idle"]
CLASSES: tuple[PriorityClass, ...] = ("urgent", "normal", "idle")
"""Classes in the order in which they are served."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Durations (seconds) and limits (parts of the pool, 1/10,000) that every driver of a pool must agree on.

    Attributes:
        dead_after: Time without a renewal after which a claim is dead.
        shed_after: Duration of a shortage after which other sweeps give up trials for it.
        lapse_after: Time for which granted attempts wait for a worker before their reservation lapses: the
            free resources are fragmented, and other sweeps may use them.
        hold_after: Time for which an attempt waits for a worker before a node may be held for it; shorter
            than `lapse_after`.
        hold_for: Maximum duration of a hold for one attempt, because unknown other programs may use the node
            for ever.
        held_nodes: Maximum fraction of the nodes that are held at once, in 1/10,000; one node is always
            allowed.
        cut_after: Time without a report after which a trial that is shed must save and end at once.
        pending: Maximum number of attempts of a sweep that wait for a worker, unless it is alone in the pool.
        min_run: Minimum run of a trial of class `urgent` or `normal` before it may be shed.
        min_run_restarts: Minimum run in multiples of the trial's restart time; the longer one applies.
        normal_floor: Share of the pool that class `normal` gets before class `urgent` gets all it wants.
        urgent_cap: Maximum share of the pool that one owner gets ahead of others through class `urgent`.
        half_life: Half-life of past use.
        use_step: Minimum difference in device-seconds by which past use orders two owners.
        charge_every: Interval of the updates of past use, which is constant in between.
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
"""Default rules."""


@dataclass(frozen=True, slots=True)
class PoolNode:
    """One machine of the pool.

    Attributes:
        name: Name, unique in the pool.
        cpu: Cores that trials may use, in 1/10,000.
        devices: GPUs that trials may use, in 1/10,000.
    """

    name: str
    cpu: int
    devices: int = 0


MOST_SWEEPS = 100
"""Default maximum number of queued and running sweeps of an owner."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A person or group that owns sweeps. An owner without a row has these defaults.

    Attributes:
        name: Unique name.
        weight: Weight relative to other owners, in 1/10,000; at least 1.
        most_share: Maximum share of the pool of the owner's trials at once, in 1/10,000. One bundle is always
            allowed, unless it is 0.
        most_gpu_hours: GPU-hours a week; None for no limit. Weeks begin on Monday, 00:00 UTC.
        used: Past use in device-seconds, decayed up to `charged_at`.
        charged_at: Time of the last update of `used`, or None.
        week: Number of the week of `week_gpu_seconds`, counted from the epoch.
        week_gpu_seconds: GPU-seconds used in that week.
        most_sweeps: Maximum number of queued and running sweeps in the service; None without a limit.
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
        sweep: Id of the sweep.
        owner: Name of the owner.
        created: Creation time of the sweep; older sweeps win ties.
        cpu: Cores of one trial on each of its nodes, in 1/10,000; at least 1.
        slots: Number of trials that share a device in an engine (`gpu: 1/K` has K slots); 1 if each trial has
            its own GPUs or its own part of one; 0 if trials use no GPU.
        want: Number of trials that the sweep could run at once now, including those that run.
        priority_class: `urgent` goes ahead of the others and must be granted by an admin, `idle` takes what
            the others leave.
        weight: Weight relative to the owner's other sweeps, in 1/10,000; at least 1.
        gpu: GPUs of one trial on each of its nodes, or of one engine, in 1/10,000; 1,250 is `gpu: 1/8`.
        nodes: Number of nodes of one trial, which has its cores and GPUs on each of them.
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
        """Return the claim of a sweep without demand so far.

        Args:
            sweep: Id of the sweep.
            owner: Name of the owner.
            created: Creation time of the sweep.
            cpu: Cores of one trial on each of its nodes.
            gpu: GPUs of one trial on each of its nodes, or its share of one.
            nodes: Number of nodes of one trial.
            shares_engine: Whether trials with a share of a GPU run in the slots of an engine, which has a
                whole GPU.
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
        """Maximum number of trials of one bundle: all slots of a device, or one trial."""
        return self.slots or 1


class Place(NamedTuple):
    """The attempts of a sweep on one node.

    Attributes:
        node: Name of the node.
        trials: Number of attempts with processors on it.
        devices: GPUs of these attempts on it, in 1/10,000.
        ready: Number of these attempts that have completed their minimum run.
    """

    node: str
    trials: int
    devices: int
    ready: int


@dataclass(frozen=True, slots=True)
class Use:
    """Present resources of a sweep, with the start of a shortage; its driver writes the row every second.

    Attributes:
        sweep: Id of the sweep.
        renewed_at: Time of the last renewal of the claim.
        trials: Number of granted attempts that have not ended, including pending ones.
        pending: Number of these attempts that wait for a worker.
        devices: GPUs that the attempts hold or are about to hold, in 1/10,000.
        leaving: Number of these attempts that are being shed.
        short_since: Time since which the sweep has held less than its share, or None.
        pending_since: Time since which its oldest pending attempt has waited, or None.
        held_node: Node that is held for a pending attempt, or None; several nodes are separated by commas.
        held_since: Time since which the node is held, or None.
        places: Started attempts by node; empty in a pool of one node.
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
    """All rows of a pool, read in one transaction; their order has no meaning."""

    nodes: tuple[PoolNode, ...]
    owners: tuple[Owner, ...] = ()
    claims: tuple[PoolClaim, ...] = ()
    uses: tuple[Use, ...] = ()


class Bundle(NamedTuple):
    """Part of a share on one node: the trials of one device, one trial, or the part of a trial on this node.

    Attributes:
        node: Name of the node.
        trials: Number of concurrent trials.
    """

    node: str
    trials: int


@dataclass(frozen=True, slots=True)
class Share:
    """Share of the pool that a sweep may hold; computed, never stored.

    Attributes:
        trials: Number of concurrent trials.
        devices: GPUs of these trials, in 1/10,000.
        bundles: Bundles of the share in the order of assignment. The bundles of all shares fit the pool
            together; the sweep's trials may also run on other nodes.
    """

    trials: int
    devices: int
    bundles: tuple[Bundle, ...] = ()
