"""What every sweep is to give up, and which of its own trials a driver chooses for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.sharing.ceiling import exceeded
from orchestrator.sharing.dealing import Candidate, Leave, dealt
from orchestrator.sharing.hold import leaves_on
from orchestrator.sharing.rows import Claim
from orchestrator.sharing.rules import RULES, Rules
from orchestrator.sharing.shortage import lapsed, short
from orchestrator.sharing.view import View


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """One trial of a driver's own sweep that runs now.

    Attributes:
        key: of the trial.
        node: name of its node.
        device: index of its device; None without a GPU.
        started: when it was launched.
        reported: when its last report was committed; its launch if none was. What it did since is lost with
            it.
        leaving: whether it was asked to leave.
    """

    key: str
    node: str
    device: int | None
    started: float
    reported: float
    leaving: bool = False


def leaves(view: View) -> dict[str, tuple[Leave, ...]]:
    """Return what every sweep is to give up now, those that are leaving already included.

    A sweep gives up trials for three reasons: others hold its node; its owner is over a quota; or it runs
    more than its share and others have been short for `shed_after`, of more than is free. What is not in the
    answer any more, is withdrawn: a trial that was asked to leave and has not left yet goes on.
    """
    found: dict[str, list[Leave]] = {sweep: [] for sweep in view.claims}
    for sweep, state in view.states.items():
        if state.held_node is not None and state.held_node in view.nodes:
            for other, leave in leaves_on(view, view.claims[sweep], state.held_node).items():
                found[other].append(leave)
    for sweep, leave in _beyond_quotas(view).items():
        found[sweep].append(leave)
    for sweep, leave in _beyond_shares(view).items():
        found[sweep].append(leave)
    return {sweep: tuple(each) for sweep, each in found.items() if each}


def minimum_run(claim: Claim, restart: float, rules: Rules = RULES) -> float:
    """Return how many seconds a trial runs at least before it may be shed.

    Args:
        claim: of its sweep; class `idle` has no minimum.
        restart: seconds that its sweep needs to start a trial again.
        rules: of the pool.
    """
    if claim.priority_class == "idle":
        return 0.0
    return max(rules.min_run, rules.min_run_restarts * restart)


def choose(
    trials: Iterable[RunningTrial], asked: Sequence[Leave], now: float, min_run: float
) -> frozenset[str]:
    """Return the keys of a driver's own trials that leave at their next report.

    Trials that are leaving already come first; then the one with the least work since its last report; then
    the youngest. Of a device all trials leave, or none. Where too few have run for `min_run`, fewer leave
    now.

    Args:
        trials: all that run.
        asked: from `leaves`.
        now: time of the database server's clock.
        min_run: from `minimum_run`.
    """
    running = {trial.key: trial for trial in trials}
    old_enough = {key for key, trial in running.items() if now - trial.started >= min_run}
    chosen: set[str] = set()
    # A demand for one node has the smaller choice, a device more than a trial.
    for leave in sorted(asked, key=lambda leave: (leave.node is None, leave.node or "")):
        left = [
            trial
            for trial in running.values()
            if trial.key not in chosen and leave.node in (None, trial.node)
        ]
        devices = _by_device(left)
        ready = [group for group in devices if all(trial.key in old_enough for trial in group)]
        ready.sort(
            key=lambda group: (not all(trial.leaving for trial in group), _lost(group, now), _youngest(group))
        )
        chosen.update(trial.key for group in ready[: leave.devices] for trial in group)
        single = [trial for trial in left if trial.key in old_enough and trial.key not in chosen]
        single.sort(key=lambda trial: (not trial.leaving, now - trial.reported, -trial.started, trial.key))
        chosen.update(trial.key for trial in single[: leave.trials])
    return frozenset(chosen)


def _beyond_quotas(view: View) -> dict[str, Leave]:
    """Return what owners who exceed a quota must give up at once."""
    found = {}
    for candidate in _candidates(view):
        if exceeded(view, candidate.claim):
            devices = max(0, candidate.devices)
            trials = max(0, candidate.trials - devices * candidate.a_device)
            found[candidate.claim.sweep] = Leave(devices, trials)
    return found


def _beyond_shares(view: View) -> dict[str, Leave]:
    """Return what sweeps above their shares give up for those that have been short for long enough."""
    cpu = devices = 0
    for sweep, lacking in short(view).items():
        since = view.states[sweep].short_since
        if since is not None and view.now - since >= view.rules.shed_after and not lapsed(view, sweep):
            cpu += lacking.trials * view.claims[sweep].cpu
            devices += lacking.devices
    if not cpu:
        return {}
    free = view.occupancy
    candidates = [candidate for candidate in _candidates(view) if not exceeded(view, candidate.claim)]
    cpu -= sum(max(0, each) for each in free.free_cpu.values())
    devices -= sum(max(0, each) for each in free.free_devices.values())
    return dealt(view, candidates, cpu, devices)


def _candidates(view: View) -> list[Candidate]:
    """Return what sweeps run beyond their shares."""
    candidates = []
    for sweep, held in view.occupancy.held.items():
        share = view.shares[sweep]
        if held.trials > share.trials or held.devices > share.devices:
            beyond = held.devices - share.devices, held.trials - share.trials
            candidates.append(Candidate(view.claims[sweep], held, *beyond))
    return candidates


def _by_device(trials: Iterable[RunningTrial]) -> list[list[RunningTrial]]:
    groups: dict[tuple[str, int], list[RunningTrial]] = {}
    for trial in trials:
        if trial.device is not None:
            groups.setdefault((trial.node, trial.device), []).append(trial)
    return list(groups.values())


def _lost(group: Iterable[RunningTrial], now: float) -> float:
    """Return the seconds of work that trials lose if they end now."""
    return sum(now - trial.reported for trial in group)


def _youngest(group: Iterable[RunningTrial]) -> tuple[float, str]:
    return min((-trial.started, trial.key) for trial in group)
