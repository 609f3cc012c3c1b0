"""The durations and limits of sharing: one default each."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.sharing.rows import UNIT


@dataclass(frozen=True, slots=True)
class Rules:
    """Durations (seconds) and limits (parts of the pool, 1/10,000) that every driver of a pool must agree on.

    Attributes:
        dead_after: a claim is dead when its driver has not renewed it for this long.
        shed_after: a shortage must last this long before others give up trials for it.
        lapse_after: a shortage lapses after this long beside free room; others may then use the room.
        hold_after: a shortage may hold a node after this long beside free room; longer than `lapse_after`.
        min_run: least time that a trial runs before it may be shed; classes `urgent` and `normal`.
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
    hold_after: float = 120.0
    min_run: float = 120.0
    min_run_restarts: float = 10.0
    normal_floor: int = UNIT // 10
    urgent_cap: int = UNIT // 4
    half_life: float = 86_400.0
    use_step: int = 600
    charge_every: float = 300.0


RULES = Rules()
"""The defaults."""
