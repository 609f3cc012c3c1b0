"""Preemption between sweeps: how many trials each sweep gives up, and which ones its driver chooses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from orchestrator.sharing.node_holds import Move
from orchestrator.sharing.pool_rows import CLASSES, RULES, UNIT, PoolClaim, Rules, Use
from orchestrator.sharing.view import View


@dataclass(frozen=True, slots=True)
class Demand:
    """The number of trials and devices that a sweep must give up; its driver chooses them.

    Attributes:
        devices: Number of shared devices with all their trials, or of trials with their own GPUs on all their
            nodes.
        trials: Number of further trials.
    """

    devices: int
    trials: int


@dataclass(frozen=True, slots=True)
class SheddableTrial:
    """A running trial of the driver's own sweep.

    Attributes:
        key: Id of its attempt.
        engine: Name of the shared engine that trains it; None for a trial with its own resources.
        started: Time when a worker took it, by any clock.
        reported: Time of the commit of its last report, or else its start. Later work is lost with it.
        leaving: Whether it was chosen before.
    """

    key: str
    engine: str | None
    started: float
    reported: float
    leaving: bool = False


def demands(view: View) -> dict[str, Demand]:
    """Return the demand on each sweep, including trials that are already leaving.

    A sweep gives up trials if its owner exceeds a quota, or if it holds more than its share while others have
    been short for `shed_after` of more than is free. A demand that is missing from the next answer is
    withdrawn: a chosen trial that has not ended yet continues.
    """
    within: list[_Candidate] = []
    beyond: list[_Candidate] = []
    for candidate in _candidates(view):
        (within if view.within_quotas(candidate.claim) else beyond).append(candidate)
    return {**_beyond_shares(view, within), **_beyond_quotas(beyond)}


def minimum_run(claim: PoolClaim, restart: float, rules: Rules = RULES) -> float:
    """Return the minimum run of a trial in seconds, before which it is not shed.

    Args:
        claim: Claim of its sweep; class `idle` has no minimum.
        restart: Seconds that its sweep needs to restart a trial.
        rules: Rules of the pool.
    """
    if claim.priority_class == "idle":
        return 0.0
    return max(rules.min_run, rules.min_run_restarts * restart)


def chosen(trials: Collection[SheddableTrial], demand: Demand, now: float, min_run: float) -> frozenset[str]:
    """Return the keys of the driver's own trials that end at their next report.

    Trials that are already leaving come first, then those with the least work since the last report, then the
    youngest. All trials of a device leave together. Fewer trials leave if too few have run for `min_run`.

    Args:
        trials: All running trials.
        demand: Demand on the sweep.
        now: Time by the clock of the trials.
        min_run: Result of `minimum_run`.
    """
    old = {trial.key for trial in trials if now - trial.started >= min_run}
    groups: dict[str, list[SheddableTrial]] = {}
    for trial in trials:
        groups.setdefault(trial.engine or trial.key, []).append(trial)
    ready = [group for group in groups.values() if all(trial.key in old for trial in group)]
    ready.sort(key=lambda group: _preference(group, now))
    # A sweep without GPUs has no devices to give up; its demands are trials.
    leaving = {trial.key for group in ready[: demand.devices] for trial in group}
    single = sorted(
        (trial for trial in trials if trial.key in old - leaving), key=lambda trial: _preference([trial], now)
    )
    return frozenset(leaving | {trial.key for trial in single[: demand.trials]})


def moved(
    trials: Collection[SheddableTrial],
    nodes: Mapping[str, Collection[str]],
    engines: Mapping[str, str],
    moves: Mapping[str, Move],
    now: float,
    min_run: float,
) -> frozenset[str]:
    """Return the keys of the driver's own trials that leave nodes that are held for other sweeps.

    Args:
        trials: All running trials.
        nodes: Nodes of the processors of each trial, by key.
        engines: Node of the device of each shared engine, by name.
        moves: Trials and devices to give up on each node.
        now: Time by the clock of the trials.
        min_run: Result of `minimum_run`.
    """
    leaving: set[str] = set()
    for node, move in moves.items():
        here = {name for name, at in engines.items() if at == node}
        on_device = [trial for trial in trials if trial.engine in here]
        idle = len(here) - len({trial.engine for trial in on_device})  # these end by themselves
        leaving |= chosen(on_device, Demand(max(0, move.devices - idle), 0), now, min_run)
        on_node = [trial for trial in trials if node in nodes.get(trial.key, ())]
        left = sum(trial.key in leaving for trial in on_node)
        staying = [trial for trial in on_node if trial.key not in leaving]
        leaving |= chosen(staying, Demand(0, max(0, move.trials - left)), now, min_run)
    return frozenset(leaving)


def _preference(group: list[SheddableTrial], now: float) -> tuple[bool, float, float, str]:
    lost = sum(now - trial.reported for trial in group)
    youngest = max(trial.started for trial in group)
    return not all(trial.leaving for trial in group), lost, -youngest, min(trial.key for trial in group)


@dataclass(slots=True)
class _Candidate:
    """A sweep that can give up trials.

    Attributes:
        claim: Claim of the sweep.
        use: Use of the sweep.
        devices: Maximum number of devices that it can give up, as in `Demand`.
        trials: Maximum number of trials that it can give up, including those on these devices.
        per_device: Mean number of its trials on one of these devices.
    """

    claim: PoolClaim
    use: Use
    devices: int
    trials: int
    per_device: int
    given_devices: int = 0
    given_trials: int = 0

    @property
    def given(self) -> int:
        """Number of trials that it must give up so far."""
        return self.given_devices * self.per_device + self.given_trials

    def order(self, view: View) -> tuple[bool, int, int, float, str]:
        """Return the sort key of candidates.

        Those whose trials are already leaving come first, then class `idle` before `normal` before `urgent`,
        then the sweep that is furthest above its share by weight, then the newest sweep.
        """
        claim, given = self.claim, self.given
        trials = self.trials - given
        devices = (self.devices - self.given_devices) * claim.all_devices
        above = max(0, view.capacity.dominant(trials * claim.all_cpu, devices)) * UNIT // claim.weight
        is_leaving = given < self.use.leaving
        return not is_leaving, -CLASSES.index(claim.priority_class), -above, -claim.created, claim.sweep


def _beyond_quotas(candidates: Iterable[_Candidate]) -> dict[str, Demand]:
    """Return the demands on sweeps whose owners exceed a quota: everything beyond their shares, at once."""
    return {
        candidate.claim.sweep: Demand(
            max(0, candidate.devices),
            max(0, candidate.trials - max(0, candidate.devices) * candidate.per_device),
        )
        for candidate in candidates
    }


def _beyond_shares(view: View, candidates: Iterable[_Candidate]) -> dict[str, Demand]:
    """Return the demands on sweeps above their shares for those that have been short for `shed_after`.

    Args:
        view: View of the pool.
        candidates: Sweeps above their shares whose owners exceed no quota.
    """
    cpu = devices = 0
    for sweep, use in view.uses.items():
        since = use.short_since
        if since is not None and view.now - since >= view.rules.shed_after and view.reserves(sweep):
            cpu += view.shortage(sweep) * view.claims[sweep].all_cpu
            devices += max(0, view.shares[sweep].devices - use.devices)
    free_cpu, free_devices = view.free
    if cpu <= free_cpu and devices <= free_devices:
        return {}
    return _dealt(view, candidates, cpu - free_cpu, devices - free_devices)


def _dealt(view: View, candidates: Iterable[_Candidate], cpu: int, devices: int) -> dict[str, Demand]:
    """Demand one device or trial at a time from the candidates, until enough becomes free or none is left.

    Args:
        view: View of the pool.
        candidates: Candidates without a demand so far.
        cpu: Cores, in 1/10,000.
        devices: GPUs, in 1/10,000.
    """
    heap = [(candidate.order(view), candidate) for candidate in candidates]
    heapify(heap)
    asked: dict[str, _Candidate] = {}
    while heap and (cpu > 0 or devices > 0):
        _, candidate = heappop(heap)
        if devices > 0 and candidate.given_devices < candidate.devices:
            candidate.given_devices += 1
            devices -= candidate.claim.all_devices
            cpu -= candidate.per_device * candidate.claim.all_cpu
        elif cpu > 0 and candidate.given < candidate.trials:
            candidate.given_trials += 1
            cpu -= candidate.claim.all_cpu
        else:
            continue
        asked[candidate.claim.sweep] = candidate
        heappush(heap, (candidate.order(view), candidate))
    return {
        sweep: Demand(candidate.given_devices, candidate.given_trials) for sweep, candidate in asked.items()
    }


def _candidates(view: View) -> list[_Candidate]:
    """Return the sweeps that hold more than their shares."""
    candidates = []
    for sweep, use in view.uses.items():
        share = view.shares[sweep]
        if use.trials > share.trials or use.devices > share.devices:
            claim = view.claims[sweep]
            one = max(1, claim.all_devices)
            trials, devices = use.trials - share.trials, (use.devices - share.devices) // one
            per_device = max(1, use.trials // max(1, use.devices // one))
            candidates.append(_Candidate(claim, use, devices, trials, per_device))
    return candidates
