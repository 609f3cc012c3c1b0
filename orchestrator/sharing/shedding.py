"""Which sweeps give up how many trials, and which of its own trials a driver chooses for that."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from orchestrator.sharing.node_holds import Move
from orchestrator.sharing.pool_rows import CLASSES, RULES, UNIT, PoolClaim, Rules, Use
from orchestrator.sharing.view import View


@dataclass(frozen=True, slots=True)
class Demand:
    """What a sweep is to give up; its driver chooses the trials.

    Attributes:
        devices: shared devices, or trials with GPUs of their own; of a device all trials, and of a trial all
            nodes.
        trials: trials besides.
    """

    devices: int
    trials: int


@dataclass(frozen=True, slots=True)
class SheddableTrial:
    """One trial of a driver's own sweep that runs now.

    Attributes:
        key: of its attempt.
        engine: name of the shared engine that trains it; None for a trial with its own resources.
        started: when a worker took it, by any clock.
        reported: when its last report was committed; its start if none was. What it did since is lost with
            it.
        leaving: whether it was chosen before.
    """

    key: str
    engine: str | None
    started: float
    reported: float
    leaving: bool = False


def demands(view: View) -> dict[str, Demand]:
    """Return what every sweep is to give up now, those trials that are leaving already included.

    A sweep gives up trials if its owner is over a quota, or if it holds more than its share and others have
    been short for `shed_after`, of more than is free. A demand that is not in the answer any more is
    withdrawn: a trial that was chosen and has not ended yet goes on.
    """
    within: list[_Candidate] = []
    beyond: list[_Candidate] = []
    for candidate in _candidates(view):
        (within if view.within_quotas(candidate.claim) else beyond).append(candidate)
    return {**_beyond_shares(view, within), **_beyond_quotas(beyond)}


def minimum_run(claim: PoolClaim, restart: float, rules: Rules = RULES) -> float:
    """Return how many seconds a trial runs at least before it may be shed.

    Args:
        claim: of its sweep; class `idle` has no minimum.
        restart: seconds that its sweep needs to start a trial again.
        rules: of the pool.
    """
    if claim.priority_class == "idle":
        return 0.0
    return max(rules.min_run, rules.min_run_restarts * restart)


def chosen(trials: Collection[SheddableTrial], demand: Demand, now: float, min_run: float) -> frozenset[str]:
    """Return the keys of a driver's own trials that end at their next report.

    Trials that are leaving already come first; then the one with the least work since its last report; then
    the youngest. Of a device all trials leave, or none. Where too few have run for `min_run`, fewer leave.

    Args:
        trials: all that run.
        demand: what the sweep is to give up.
        now: time of the clock of the trials.
        min_run: from `minimum_run`.
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
    """Return the keys of a driver's own trials that leave the nodes that are held for other sweeps.

    Args:
        trials: all that run.
        nodes: the nodes of the processors of each trial, by key.
        engines: the node of the device of each shared engine, by name.
        moves: what leaves each node.
        now: time of the clock of the trials.
        min_run: from `minimum_run`.
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
    """A sweep that can give something up.

    Attributes:
        claim: of the sweep.
        use: what it holds.
        devices: that it may be asked for, as in `Demand`.
        trials: that it may be asked for, those on these devices included.
        per_device: its trials on one of these devices, on average.
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
        """Trials that it was asked for so far."""
        return self.given_devices * self.per_device + self.given_trials

    def order(self, view: View) -> tuple[bool, int, int, float, str]:
        """Return the key by which candidates are asked: those whose trials are leaving already come first.

        Then class `idle` before `normal` before `urgent`; the sweep that is furthest above its share by
        weight; the newest sweep.
        """
        claim, given = self.claim, self.given
        trials = self.trials - given
        devices = (self.devices - self.given_devices) * claim.all_devices
        above = max(0, view.capacity.dominant(trials * claim.all_cpu, devices)) * UNIT // claim.weight
        is_leaving = given < self.use.leaving
        return not is_leaving, -CLASSES.index(claim.priority_class), -above, -claim.created, claim.sweep


def _beyond_quotas(candidates: Iterable[_Candidate]) -> dict[str, Demand]:
    """Return what sweeps whose owners exceed a quota must give up at once: all beyond their shares."""
    return {
        candidate.claim.sweep: Demand(
            max(0, candidate.devices),
            max(0, candidate.trials - max(0, candidate.devices) * candidate.per_device),
        )
        for candidate in candidates
    }


def _beyond_shares(view: View, candidates: Iterable[_Candidate]) -> dict[str, Demand]:
    """Return what sweeps above their shares give up for those that have been short for `shed_after`.

    Args:
        view: of the pool.
        candidates: the sweeps above their shares whose owners exceed no quota.
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
    """Ask the candidates for one device or trial at a time, until so much becomes free or none is left.

    Args:
        view: of the pool.
        candidates: that were asked for nothing yet.
        cpu: in 1/10,000 of a core.
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
