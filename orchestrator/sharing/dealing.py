"""Which sweeps give up how much, so that enough room becomes free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from orchestrator.sharing.occupancy import Held
from orchestrator.sharing.rows import CLASSES, UNIT, Claim
from orchestrator.sharing.view import View


@dataclass(frozen=True, slots=True)
class Leave:
    """What a sweep is to give up; its driver chooses the trials.

    Attributes:
        devices: whole devices, with all their trials.
        trials: trials besides.
        node: where they run; None for any node.
    """

    devices: int
    trials: int
    node: str | None = None


@dataclass(slots=True)
class Candidate:
    """A sweep that can give something up.

    Attributes:
        claim: of the sweep.
        held: what it holds where room is needed.
        devices: that it may be asked for.
        trials: that it may be asked for, those on these devices included.
    """

    claim: Claim
    held: Held
    devices: int
    trials: int
    given_devices: int = 0
    given_trials: int = 0

    @property
    def a_device(self) -> int:
        """Trials on one device, on average."""
        return max(1, self.held.trials // max(1, self.held.devices))

    def gives_device(self) -> bool:
        """Return True if it can give up one more device."""
        return self.given_devices < self.devices

    def gives_trial(self) -> bool:
        """Return True if it can give up one more trial besides its devices."""
        return self.given_devices * self.a_device + self.given_trials < self.trials

    def is_leaving(self) -> bool:
        """Return True if trials that are leaving anyway would be the next to be given up."""
        given = self.given_devices * self.a_device + self.given_trials
        return self.given_devices < self.held.leaving_devices or given < self.held.leaving


def dealt(
    view: View, candidates: Iterable[Candidate], cpu: int, devices: int, node: str | None = None
) -> dict[str, Leave]:
    """Return which sweeps give up what, until so much room becomes free or no candidate is left.

    Trials that are leaving already come first, so what was asked for once is asked for again. Then class
    `idle` before `normal` before `urgent`; then one unit at a time from the sweep that is furthest above its
    share by weight; then the newest sweep.

    Args:
        view: for the capacity that makes devices and cores comparable.
        candidates: whose `given_*` are 0.
        cpu: in 1/10,000 of a core.
        devices: GPUs.
        node: where room is needed; None for anywhere.
    """
    heap = [(_order(view, candidate), candidate) for candidate in candidates]
    heapify(heap)
    given: dict[str, Candidate] = {}
    while heap and (cpu > 0 or devices > 0):
        _, candidate = heappop(heap)
        if devices > 0 and candidate.gives_device():
            candidate.given_devices += 1
            devices -= 1
            cpu -= candidate.a_device * candidate.claim.cpu
        elif cpu > 0 and candidate.gives_trial():
            candidate.given_trials += 1
            cpu -= candidate.claim.cpu
        else:
            continue
        given[candidate.claim.sweep] = candidate
        heappush(heap, (_order(view, candidate), candidate))
    return {
        sweep: Leave(candidate.given_devices, candidate.given_trials, node)
        for sweep, candidate in given.items()
    }


def _order(view: View, candidate: Candidate) -> tuple[bool, int, int, float, str]:
    claim = candidate.claim
    devices = candidate.devices - candidate.given_devices
    trials = candidate.trials - candidate.given_trials - candidate.given_devices * candidate.a_device
    above = view.capacity.dominant(max(0, trials) * claim.cpu, max(0, devices)) * UNIT // claim.weight
    return (
        not candidate.is_leaving(),
        -CLASSES.index(claim.priority_class),
        -above,
        -claim.created,
        claim.sweep,
    )
