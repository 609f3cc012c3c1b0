"""The order in which drivers of submitted sweeps start, by the observed state of each sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heapreplace
from typing import Literal

from orchestrator.ledger.queue.submissions import ROOM, Submission
from orchestrator.ledger.sweeps.records import FINISHED_SWEEP, SweepRecord
from orchestrator.sharing.forecast import expected_shares, has_spent
from orchestrator.sharing.pool_rows import CLASSES, Owner, PoolClaim, PriorityClass
from orchestrator.sharing.view import View

STARTING_AT_ONCE = 2
"""Maximum number of drivers that are starting, because a start takes seconds of processor time."""

DRIVERS_AT_ONCE = 8
"""Default maximum number of drivers; a driver takes about half a gigabyte of memory."""

URGENT_DRIVERS = 2
"""Number of extra drivers for class `urgent`, which thus never waits for other classes."""

WITHOUT_SHARE_SECONDS = 600.0
"""Time without a share and a report after which a driver is preempted until it has a share."""


LONGEST_BACKOFF_SECONDS = 300.0
"""Cap of the backoff between two starts of a sweep, without jitter."""

JITTER = 0.2
"""Relative jitter of a backoff, so that sweeps that failed together do not start together."""


Process = Literal["none", "alive", "dead", "elsewhere"]
"""State of the newest driver's process: not begun, running, ended, or started where its end cannot be
observed: on another machine, before the last boot of this machine, or in another container."""


@dataclass(frozen=True)
class Situation:
    """A submission and the observed state of its sweep.

    Attributes:
        submission: Submission that has not ended.
        sweep: Row of the sweep, or None before a driver has written it.
        is_driven: Whether a living process holds the lease of the sweep.
        process: State of the newest driver's process.
        stopped_by: Name of the machine that requested the sweep's stop, `ROOM` for the service, or None.
        reported_at: Time of the newest report by the clock of its driver, in seconds since the epoch; 0
            without reports. Only the order of such times has a meaning.
        heard_at: Time when this service first saw that report or its absence, by the clock of `submission`.
        priority_class: Priority class of the sweep.
        share: Number of trials that the pool grants, or would grant, to the sweep at once; None if unknown.
        held: Number of trials that run or are about to run.
    """

    submission: Submission
    sweep: SweepRecord | None = None
    is_driven: bool = False
    process: Process = "none"
    stopped_by: str | None = None
    reported_at: float = 0.0
    heard_at: float = 0.0
    priority_class: PriorityClass = "normal"
    share: int | None = None
    held: int = 0

    @property
    def has_reported(self) -> bool:
        """Return True if the newest driver has committed a report."""
        before = self.submission.reported_before
        return before is not None and self.reported_at > before

    @property
    def is_finished(self) -> bool:
        """Return True if a driver has concluded the sweep, perhaps before an extension or a retry."""
        return self.sweep is not None and self.sweep.state in FINISHED_SWEEP

    @property
    def is_concluded(self) -> bool:
        """Return True if the newest driver, or a later process, has concluded the sweep."""
        before = self.submission.finished_before
        return self.is_finished and self.sweep is not None and self.sweep.finished_at != before

    @property
    def is_starting(self) -> bool:
        """Return True if the newest driver was started and has not taken the lease yet."""
        may_run = self.process in {"none", "alive"}
        return (
            self.submission.state == "STARTED"
            and not self.is_driven
            and may_run
            and self.submission.code is None
        )

    @property
    def makes_room(self) -> bool:
        """Return True if the service has preempted the driver."""
        return self.stopped_by == ROOM

    @property
    def is_stopped(self) -> bool:
        """Return True if a person has stopped the sweep."""
        return self.stopped_by is not None and not self.makes_room


def next_starts(situations: Sequence[Situation], now: float, drivers_at_once: int) -> list[Submission]:
    """Return the submissions whose drivers start now, in this order.

    There are at most `drivers_at_once` drivers; class `urgent` has `URGENT_DRIVERS` more.
    """
    active = _active(situations)
    most = STARTING_AT_ONCE - sum(entry.is_starting for entry in active)
    starts: list[Submission] = []
    for entry in in_turn((entry for entry in situations if may_start(entry, now)), active):
        places = drivers_at_once + (URGENT_DRIVERS if entry.priority_class == "urgent" else 0)
        if len(starts) < most and len(active) + len(starts) < places:
            starts.append(entry.submission)
    return starts


def may_start(situation: Situation, now: float) -> bool:
    """Return True if the driver of a submission may start: it is due, and has a share of the pool."""
    submission = situation.submission
    is_free = not situation.is_driven and not situation.is_stopped
    is_due = not seconds_left(submission, now)
    return submission.state == "QUEUED" and is_free and is_due and situation.share != 0


def seconds_left(submission: Submission, now: float) -> float:
    """Return the seconds from `now` until the next start of a submission's driver; 0 if it is due.

    A wait longer than the longest backoff counts as over, because the clock was set back between two boots.
    """
    left = submission.next_try - now
    return left if 0.0 < left <= (1.0 + JITTER) * LONGEST_BACKOFF_SECONDS else 0.0


def in_turn(ready: Iterable[Situation], running: Iterable[Situation]) -> list[Situation]:
    """Return submissions without a driver in the order in which their drivers start.

    Class `urgent` comes before `normal`, and `normal` before `idle`. Within a class, the oldest submission of
    the owner with the fewest running drivers is next. The order of the arguments has no effect.
    """
    drivers = Counter(entry.submission.owner for entry in running)
    of_class: dict[PriorityClass, list[Situation]] = {name: [] for name in CLASSES}
    for entry in ready:
        of_class[entry.priority_class].append(entry)
    return [entry for name in CLASSES for entry in _fairly(of_class[name], drivers)]


def leaving(situations: Sequence[Situation], now: float, drivers_at_once: int) -> list[str]:
    """Return the sweeps whose drivers are preempted.

    A driver is preempted if its sweep has had no share and no report for `WITHOUT_SHARE_SECONDS`. The newest
    drivers of class `idle` are also preempted while submissions of other classes wait.
    """
    active = _active(situations)
    steady = [entry for entry in active if entry.is_driven and entry.submission.state == "STARTED"]
    staying = [entry for entry in steady if entry.stopped_by is None]
    useless = [entry for entry in staying if _is_useless(entry, now)]
    waiting = [entry for entry in situations if may_start(entry, now) and entry.priority_class != "idle"]
    left = len(active) - (len(steady) - len(staying)) - len(useless)
    too_many = left + len(waiting) - drivers_at_once
    idle = [entry for entry in staying if entry.priority_class == "idle" and entry not in useless]
    idle.sort(key=lambda entry: (-(entry.submission.started_at or 0.0), entry.submission.sweep_id))
    return [entry.submission.sweep_id for entry in (*useless, *idle[: max(0, too_many)])]


def _active(situations: Iterable[Situation]) -> list[Situation]:
    return [entry for entry in situations if entry.is_driven or entry.is_starting]


def _is_useless(situation: Situation, now: float) -> bool:
    since = max(situation.submission.started_at or 0.0, situation.heard_at)
    return situation.share == 0 and not situation.held and now - since >= WITHOUT_SHARE_SECONDS


def _fairly(entries: Sequence[Situation], drivers: Counter[str]) -> list[Situation]:
    """Return submissions of one class in turn, and add them to the number of drivers per owner."""
    queues: dict[str, list[Situation]] = {}
    newest_first = sorted(entries, key=lambda entry: _age(entry), reverse=True)
    for entry in newest_first:
        queues.setdefault(entry.submission.owner, []).append(entry)
    heap = [(drivers[owner], *_age(queue[-1]), owner) for owner, queue in queues.items()]
    heapify(heap)
    ordered = []
    while heap:
        owner = heap[0][-1]
        ordered.append(queues[owner].pop())
        drivers[owner] += 1
        if queues[owner]:
            heapreplace(heap, (drivers[owner], *_age(queues[owner][-1]), owner))
        else:
            heappop(heap)
    return ordered


def _age(situation: Situation) -> tuple[float, str]:
    return situation.submission.at, situation.submission.sweep_id


def with_shares(
    situations: Sequence[Situation], views: Sequence[View], owners: Mapping[str, Owner], now: float
) -> list[Situation]:
    """Return situations completed by the share and the use of each sweep."""
    pools = pools_of(situations, views)
    claimed = {sweep for view in views for sweep in view.claims}
    waiting = [
        claim_of(entry.submission, entry.priority_class)
        for entry in situations
        if (pools or entry.submission.owner in owners)
        and entry.submission.sweep_id not in claimed
        and _is_due(entry, now)
    ]
    shares: dict[str, int | None] = {}
    held: dict[str, int] = {}
    for view in pools:
        shares |= expected_shares(view, waiting)
        held |= {sweep: use.trials for sweep, use in view.uses.items()}
    shares |= {claim.sweep: 0 for claim in waiting if has_spent(owners.get(claim.owner), claim, now)}
    return [
        replace(entry, share=shares.get(sweep), held=held.get(sweep, 0))
        for entry in situations
        for sweep in [entry.submission.sweep_id]
    ]


def pools_of(situations: Sequence[Situation], views: Sequence[View]) -> list[View]:
    """Return the pools of a service, whose drivers all join one Ray.

    A pool is identified by a claim of one of the drivers; before the first claim, no shares are known.
    """
    sweeps = {entry.submission.sweep_id for entry in situations}
    return [view for view in views if not sweeps.isdisjoint(view.claims)]


def _is_due(situation: Situation, now: float) -> bool:
    """Return True if a sweep without a claim will have one soon, or may have one."""
    submission = situation.submission
    is_due = submission.state == "QUEUED" and not seconds_left(submission, now)
    return submission.state == "STARTED" or is_due


def claim_of(submission: Submission, priority_class: PriorityClass) -> PoolClaim:
    """Return the future claim of a submitted sweep, with one slot if the number of slots is `auto`."""
    resources, trials = submission.document["resources"], int(submission.document["budget"]["trials"])
    slots = resources.get("slots", 1)
    gpu = resources["gpu"] / (slots if isinstance(slots, int) else 1)
    trainable = submission.document.get("trainable", {})
    claim = PoolClaim.of(
        submission.sweep_id,
        submission.owner,
        submission.at,
        resources["cpu"],
        gpu,
        nodes=resources.get("nodes", 1),
        shares_engine=not {"function", "command"} & trainable.keys(),
    )
    want = min(trials, resources.get("concurrent", trials))
    return replace(claim, want=want, priority_class=priority_class)
